"""The law of a closest fit in keys: written as it is printed, it lets the pod be admitted and fit.

Only where the amount is a fraction, TFLOPS or a sum over containers, or where an init container has a part
in it, may a fix be in the claim's units.
"""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.model.feature_gates import Features
from answers.manifests.check import check_objects
from answers.model.inputs import Inputs
from answers.model.translation_snapshot import build_snapshot
from findings.finding import Finding
from kube.manifests.reader import read_objects
from kube.manifests.source import SourceObject
from testing.builders import container, pod, profiles
from testing.command import CLUSTER, EXAMPLES
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.reading.arbiter import VOCABULARIES

pytestmark = pytest.mark.property

ACCELERATORS: Final = EXAMPLES / "accelerators" / "cluster.yaml"
NICS: Final = EXAMPLES / "nics" / "cluster.yaml"
OPTIONS: Final = TranslationOptions(adopt_schedulers={"kai-scheduler": "default-scheduler"})
FEW: Final = ("1", "2", "3")
MEBIBYTES: Final = ("1000", "50000", "81920", "90000", "200000")
SIZES: Final = ("10Gi", "80Gi", "90Gi", "200Gi")
PERCENTS: Final = ("50", "100")

Amounts = Mapping[str, Sequence[str]]
"""Key or annotation to amounts, some of which are too large."""


class Vocabulary(NamedTuple):
    """Pods of a vocabulary.

    Attributes:
        keys: The keys of a container; each of the maps is one way to request devices.
        state: The cluster.
        in_annotations: The keys are annotations of the pod.
    """

    keys: Sequence[Amounts]
    state: Any = CLUSTER
    in_annotations: bool = False


CASES: Final[Mapping[str, Vocabulary]] = {
    "hami": Vocabulary(
        (
            {"nvidia.com/gpu": FEW, "nvidia.com/gpumem": MEBIBYTES},
            {"nvidia.com/gpu": FEW, "nvidia.com/gpumem-percentage": PERCENTS},
            {"nvidia.com/gpu": FEW, "nvidia.com/gpumem": MEBIBYTES, "nvidia.com/gpucores": ("30",)},
        )
    ),
    "nvidia": Vocabulary(({"nvidia.com/mig-1g.5gb": ("1", "2", "30")},)),
    "koordinator": Vocabulary(
        (
            {"koordinator.sh/gpu": ("100", "200", "300")},
            {"koordinator.sh/gpu-core": PERCENTS, "koordinator.sh/gpu-memory": SIZES},
            {
                "koordinator.sh/gpu.shared": ("2", "3"),
                "koordinator.sh/gpu-core": ("150",),
                "koordinator.sh/gpu-memory-ratio": ("150",),
            },
        )
    ),
    "volcano": Vocabulary(({"volcano.sh/vgpu-number": FEW, "volcano.sh/vgpu-memory": MEBIBYTES},)),
    "aliyun": Vocabulary(({"aliyun.com/gpu-mem": ("8", "80", "90", "200")},)),
    "tencent": Vocabulary(
        ({"tencent.com/vcuda-core": ("50",), "tencent.com/vcuda-memory": ("40", "400", "800")},)
    ),
    "volcengine": Vocabulary(
        (
            {
                "vke.volcengine.com/mgpu-core": ("50",),
                "vke.volcengine.com/mgpu-memory": MEBIBYTES,
            },
        )
    ),
    "hygon": Vocabulary(
        ({"hygon.com/dcunum": FEW, "hygon.com/dcumem": MEBIBYTES, "hygon.com/dcucores": ("30",)},),
        ACCELERATORS,
    ),
    "ascend": Vocabulary(({"huawei.com/Ascend910B3": ("1", "4", "9", "30")},), ACCELERATORS),
    "resources": Vocabulary(
        ({"amd.com/gpu": ("1", "9", "30")}, {"google.com/tpu": ("3", "4", "30")}), ACCELERATORS
    ),
    "rdma": Vocabulary(({"vpc.amazonaws.com/efa": ("1", "4", "9", "30")},), NICS),
    "sriov": Vocabulary(({"mellanox.com/mlnx_rdma": ("1", "9", "30")},), NICS),
    "kai": Vocabulary(
        (
            {"gpu-memory": MEBIBYTES, "gpu-fraction-num-devices": FEW},
            {"gpu-fraction": ("0.5",), "gpu-fraction-num-devices": FEW},
        ),
        in_annotations=True,
    ),
    "tensorfusion": Vocabulary(
        (
            {"tensor-fusion.ai/vram-request": SIZES, "tensor-fusion.ai/gpu-count": FEW},
            {
                "tensor-fusion.ai/vram-limit": SIZES,
                "tensor-fusion.ai/compute-percent-limit": ("50",),
            },
        ),
        in_annotations=True,
    ),
}
_WITHOUT_VALUE: Final = ("gpu-fraction", "tflops")
"""Parts of names of keys whose amounts are not written in whole numbers."""
_VALUE: Final = re.compile(
    r"([A-Za-z0-9._/-]+): ([0-9]+[A-Za-z]*)(?: \([^)]*\))?(?: in container ([a-z]+))?"
)
_UNITS: Final = "in the claim's units"


@cache
def state_of(path: Any) -> tuple[tuple[SourceObject, ...], TranslationSnapshot]:
    state = tuple(read_objects(path.read_bytes(), path.name))
    snapshot, _ = build_snapshot(profiles(), (), state)
    return state, snapshot


def errors(document: Document, path: Any) -> list[Finding]:
    """Return the errors of a pod in a cluster, as `drawbridge check` has them."""
    state, snapshot = state_of(path)
    source = SourceObject(document=document, source="pod.yaml", line=1)
    inputs = Inputs(
        manifests=(source,), state=state, knows_cluster=True, snapshot=snapshot, options=OPTIONS
    )
    (checked,) = check_objects(inputs, Features())
    return [finding for finding in checked.findings if finding.is_error]


def requesting(
    vocabulary: str, *amounts: Mapping[str, str], first: Mapping[str, str] | None = None
) -> Document:
    """Return a pod with amounts, in a container each or in annotations.

    Args:
        first: The amounts of an init container; None without one.
    """
    if not CASES[vocabulary].in_annotations:
        init = [container("first", first)] if first is not None else []
        containers = (container(name, values) for name, values in zip("ab", amounts, strict=False))
        return pod(*containers, init=init)
    labels = {"tensor-fusion.ai/enabled": "true"}
    document: Any = pod(container("a"), annotations=amounts[0], labels=labels)
    if vocabulary == "kai":
        document["spec"]["schedulerName"] = "kai-scheduler"
    return document  # type: ignore[no-any-return]


@st.composite
def pods(draw: st.DrawFn, vocabulary: str) -> Document:
    """Pods of a vocabulary, of up to two containers and an init container."""
    keys = draw(st.sampled_from(list(CASES[vocabulary].keys)))
    amounts = [
        {key: draw(st.sampled_from(list(values))) for key, values in keys.items()}
        for _ in range(draw(st.integers(2, 3)))
    ]
    first = amounts.pop() if draw(st.booleans()) else None
    return requesting(vocabulary, *amounts[:2], first=first)


def readings(fix: str) -> Iterator[Sequence[tuple[str, str, str]]]:
    """Yield key, amount and container for each alternative of a printed fix that names amounts."""
    for alternative in re.split(r",? or (?:at most )?", fix):
        values = _VALUE.findall(
            alternative.partition(" counts ")[2].partition(": ")[2] or alternative
        )
        if values and "together" not in alternative and not alternative.startswith("drop"):
            yield values


def with_values(document: Document, values: Sequence[tuple[str, str, str]]) -> Document:
    changed: Any = copy.deepcopy(document)
    annotations = changed["metadata"].get("annotations", {})
    spec = changed["spec"]
    for key, amount, name in values:
        if key in annotations:
            annotations[key] = amount
            continue
        for entry in (*spec["containers"], *spec.get("initContainers", ())):
            resources = entry.get("resources", {})
            if key in resources.get("limits", {}) and name in ("", entry["name"]):
                resources["limits"][key] = resources["requests"][key] = amount
    return changed  # type: ignore[no-any-return]


def may_be_in_claim_units(document: Document) -> bool:
    """Return True for a pod with an amount that is a fraction, TFLOPS or a sum over containers.

    An init container for more devices than an app container gets several requests, which no one value lowers.
    """
    spec = document["spec"]
    keys = [
        key for entry in spec["containers"] for key in entry.get("resources", {}).get("limits", {})
    ]
    names = (*keys, *document["metadata"].get("annotations", {}))
    is_part = any(word in name for name in names for word in _WITHOUT_VALUE)
    return is_part or len(set(keys)) < len(keys) or "initContainers" in spec


def test_each_vocabulary_with_amounts_has_a_case() -> None:
    assert VOCABULARIES.keys() == CASES.keys() | {"multus"}


@pytest.mark.parametrize("vocabulary", CASES)
def test_too_much_of_each_vocabulary_has_a_value(vocabulary: str) -> None:
    case = CASES[vocabulary]
    document = requesting(vocabulary, {key: values[-1] for key, values in case.keys[0].items()})

    fixes = [finding.fix for finding in errors(document, case.state)]

    assert [list(readings(fix)) for fix in fixes if any(readings(fix))], fixes


@pytest.mark.parametrize("vocabulary", CASES)
@settings(max_examples=25)
@given(st.data())
def test_a_printed_fix_fits(vocabulary: str, data: st.DataObject) -> None:
    document = data.draw(pods(vocabulary))
    path = CASES[vocabulary].state
    for finding in errors(document, path):
        if finding.fitting is None:
            continue
        if _UNITS in finding.fix:
            assert may_be_in_claim_units(document), finding.advice
            continue
        for values in readings(finding.fix):
            after = errors(with_values(document, values), path)
            assert not after, f"{finding.fix!r}: {[entry.advice for entry in after]}"
