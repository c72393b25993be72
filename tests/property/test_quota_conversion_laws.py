"""A DeviceQuota in place of lines lets the same pods through, or says that it allows more or less."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from allocator.model.feature_gates import Features
from answers.manifests.translate import translate_objects
from answers.model.cluster_state import build_state
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from kube.api.core import NAMESPACE_NAME, Pod
from kube.api.device_quota import DeviceQuota
from kube.api.meta import convert
from kube.api.resource import DeviceClaim
from kube.manifests.source import SourceObject
from kube.quantity import ZERO, Quantity
from migration.conversion.quota_amounts import DeviceUse, NamespaceUse
from migration.quotas.device_quotas import to_device_quota
from migration.quotas.found import find_quotas
from migration.quotas.measured import measure_lines
from migration.quotas.measures import Measures
from migration.quotas.model import QuotaConversion
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.legacy_pods import legacy_charge
from quotas.device_quotas.limits import compile_limits
from quotas.resource_quotas.usage import pod_usage
from testing.builders import profiles
from testing.command import EXAMPLES
from testing.documents import resource_quota
from translation.cluster.snapshot import Mode, TranslationOptions, TranslationSnapshot

pytestmark = pytest.mark.property

NVIDIA: Final = "gpu.nvidia.com"
HAMI: Final = "hami-core-gpu.project-hami.io"
CLUSTER: Final = build_state(
    decode_objects(
        [
            SourceObject(document=document, source="test", line=1)
            for document in yaml.safe_load_all((EXAMPLES / "cluster" / "cluster.yaml").read_text())
        ],
        STATE_KINDS,
        "default",
    )[0]
)
POD: Final[Mapping[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "pod", "namespace": "team", "uid": "pod"},
}
MEASURES: Final = Measures(profiles(), TranslationOptions())
GPU: Final = "nvidia.com/gpu"
PODS: Final[Sequence[Mapping[str, str]]] = (
    {GPU: "1"},
    {GPU: "2"},
    {GPU: "1", "nvidia.com/gpumem": "10000"},
    {GPU: "2", "nvidia.com/gpumem": "10000", "nvidia.com/gpucores": "50"},
    {"nvidia.com/mig-1g.10gb": "1"},
    {"nvidia.com/mig-3g.40gb": "2"},
    {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory": "10Gi"},
    {"koordinator.sh/gpu": "200"},
    {"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "4000"},
)
AMOUNTS: Final[Mapping[str, Sequence[str]]] = {
    GPU: ("0", "2", "3", "4"),
    "nvidia.com/gpumem": ("10000", "20000"),
    "nvidia.com/gpucores": ("50", "100"),
    "nvidia.com/mig-1g.10gb": ("1", "2"),
    "nvidia.com/mig-3g.40gb": ("2",),
    "koordinator.sh/gpu-core": ("50", "100"),
    "koordinator.sh/gpu-memory": ("10Gi", "20Gi"),
    "koordinator.sh/gpu": ("200",),
    "volcano.sh/vgpu-number": ("2", "4"),
    "volcano.sh/vgpu-memory": ("4000", "8000"),
}
NO_USE: Final = NamespaceUse()


def _use(key: str, device_class: str, number: int) -> NamespaceUse:
    return NamespaceUse(((frozenset({key}), DeviceUse(now={device_class: number})),))


hard_amounts: Final = st.fixed_dictionaries(
    {}, optional={key: st.sampled_from(amounts) for key, amounts in AMOUNTS.items()}
)
uses: Final = st.one_of(
    st.none(),
    st.builds(
        lambda whole, shared: NamespaceUse(
            ((frozenset({GPU}), DeviceUse(now={NVIDIA: whole, HAMI: shared})),)
        ),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
)


def _converted(
    hard: Mapping[str, str], used: NamespaceUse | None = None, absent: frozenset[str] = frozenset()
) -> QuotaConversion:
    document = resource_quota({f"requests.{key}": amount for key, amount in hard.items()})
    source = SourceObject(document=document, source="test", line=1)
    (quota,) = find_quotas((source,), MEASURES, "team")
    return to_device_quota(quota, *measure_lines(quota, MEASURES, used, absent, counts_pods=True))


def _pod(limits: Mapping[str, str]) -> Pod:
    return convert(_document(limits), Pod)


def _document(limits: Mapping[str, str]) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"limits": dict(limits)}}
    return {**POD, "spec": {"containers": [container]}}


def _line_allows(line: str, amount: str, pods: Sequence[Pod]) -> bool:
    return sum((pod_usage(pod).get(line, ZERO) for pod in pods), ZERO) <= Quantity(amount)


def _limits_allow(conversion: QuotaConversion, pods: Sequence[Pod]) -> bool:
    return all(
        sum(legacy_charge(pod.spec, limit) for pod in pods) <= limit.max.nanos
        for document in conversion.documents
        for limit in compile_limits(convert(document, DeviceQuota))
    )


@given(
    hard=hard_amounts,
    used=uses,
    absent=st.sampled_from((frozenset[str](), frozenset({HAMI}))),
    keys=st.lists(st.sampled_from(PODS), min_size=1, max_size=5),
)
@example(
    hard={GPU: "4"},
    used=NamespaceUse(((frozenset({GPU}), DeviceUse(now={NVIDIA: 2})),)),
    absent=frozenset(),
    keys=[{GPU: "2"}, {GPU: "2"}],
)
@example(
    hard={"volcano.sh/vgpu-number": "2"},
    used=NamespaceUse(((frozenset({GPU}), DeviceUse(now={HAMI: 1})),)),
    absent=frozenset(),
    keys=[PODS[8], PODS[8]],
)
@example(
    hard={"nvidia.com/gpumem": "20000", "koordinator.sh/gpu-memory": "20Gi"},
    used=None,
    absent=frozenset(),
    keys=[PODS[6], PODS[6]],
)
def test_what_lets_other_pods_through_than_the_lines_is_said(
    hard: Mapping[str, str],
    used: NamespaceUse | None,
    absent: frozenset[str],
    keys: Sequence[Mapping[str, str]],
) -> None:
    assume(hard)
    conversion = _converted(hard, used, absent)
    pods = [_pod(limits) for limits in keys]

    before = all(
        _line_allows(f"requests.{key}", amount, pods)
        for key, amount in hard.items()
        if f"requests.{key}" in conversion.replaced
    )
    after = _limits_allow(conversion, pods)

    if before and not after:
        assert any(change.allows_less for change in conversion.changes)
    if after and not before:
        assert any(change.allows_more for change in conversion.changes)


@pytest.mark.parametrize("limits", PODS)
def test_claims_are_charged_as_keys_or_the_difference_is_said(limits: Mapping[str, str]) -> None:
    conversion = _converted({key: amounts[-1] for key, amounts in AMOUNTS.items()})
    (document,) = conversion.documents
    book = QuotaBook(Features())
    book.replace_quota("team-gpus", convert(document, DeviceQuota))
    book.replace_namespace("team", {NAMESPACE_NAME: "team"})
    for name, device_class in CLUSTER.classes.items():
        book.replace_class(name, device_class)
    book.replace_slices({entry.metadata.name: entry for entry in CLUSTER.slices})
    (result,) = translate_objects(
        [SourceObject(document=_document(limits), source="test", line=1)],
        snapshot=TranslationSnapshot(profiles=profiles()),
        options=TranslationOptions(mode=Mode.OPT_OUT),
        namespace="team",
    )
    claims = [convert(claim.spec["spec"]["devices"], DeviceClaim) for claim in result.claims]
    assert claims

    of_claims = {
        account.limit.name: amount
        for account, amount in book.least_charges("team", claims).items()
        if amount
    }
    of_keys = book.legacy_charges("team", _pod(limits).spec, ())
    same = {account.limit.name: amount for account, amount in of_keys.items()}
    assert same == {name: of_claims[name] for name in same}
    said = " ".join(
        conversion.converted[change.line]
        for change in conversion.changes
        if "pods with other keys" in change.text
    )
    assert [name for name in of_claims.keys() - same.keys() if name not in said] == []


@pytest.mark.parametrize(
    ("hard", "used", "directions"),
    [
        # One line, one limit.
        ({"nvidia.com/mig-1g.10gb": "4", "nvidia.com/mig-3g.40gb": "2"}, NO_USE, []),
        ({"koordinator.sh/gpu-core": "400", "koordinator.sh/gpu-memory": "80Gi"}, NO_USE, []),
        # One key, two classes.
        ({GPU: "8"}, _use(GPU, NVIDIA, 2), ["gpu less"]),
        # The use is not known, so each class has all, and pods with other keys have no room.
        ({GPU: "8"}, None, ["gpu more", "gpu less"]),
        # Two keys, one limit.
        (
            {"koordinator.sh/gpu-core": "100", "nvidia.com/gpucores": "50"},
            NO_USE,
            ["gpu-core more", "gpucores more", "gpucores less"],
        ),
        # Pods with other keys, whose claims have cores.
        (
            {"koordinator.sh/gpu-core": "400"},
            _use("nvidia.com/gpucores", HAMI, 2),
            ["gpu-core less"],
        ),
        # A container's amount, on each of its devices.
        ({"nvidia.com/gpumem": "80000"}, NO_USE, ["gpumem less"]),
    ],
)
def test_nothing_is_said_of_a_limit_that_is_a_line(
    hard: Mapping[str, str], used: NamespaceUse | None, directions: list[str]
) -> None:
    changes = _converted(hard, used).changes

    lines = [f"{entry.line.rpartition('/')[2]} {entry.direction.split()[0]}" for entry in changes]
    assert lines == directions
