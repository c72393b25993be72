"""The law of a fix in keys: written into the pod, it requests the same as the closest fit."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from findings.field_path import FieldPath, Key
from findings.fitting import FittingAmount
from kube.quantity import Quantity
from testing.builders import (
    container,
    devices_of,
    pod,
    pod_view,
    profiles,
    translation_of,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from testing.generators import koordinator_pods, legacy_pods, operators_options, published_slices
from translation.cluster.snapshot import TranslationOptions
from translation.compiling.claims import Claim
from translation.pipeline.translate import Translated
from translation.reading.arbiter import VOCABULARIES
from translation.reading.legacy_pod import container_paths
from translation.record.proved_values import find_key_fixes
from translation.record.recorded_translation import KeyFix, RecordedTranslation

pytestmark = pytest.mark.property

EXAMPLES: Final[Mapping[str, Document]] = {
    "hami": pod(container("main", {"nvidia.com/gpu": 4, "nvidia.com/gpumem": 4000})),
    "nvidia": pod(container("main", {"nvidia.com/mig-1g.5gb": 4})),
    "koordinator": pod(container("main", {"koordinator.sh/gpu": 400})),
    "volcano": pod(
        container("main", {"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory": 4000})
    ),
    "hygon": pod(container("main", {"hygon.com/dcunum": 4, "hygon.com/dcumem": 4000})),
    "ascend": pod(container("main", {"huawei.com/Ascend910B3": 4})),
    "resources": pod(container("main", {"amd.com/gpu": 4})),
    "rdma": pod(container("main", {"vpc.amazonaws.com/efa": 4})),
    "sriov": pod(container("main", {"nvidia.com/hostdev": 4})),
    "aliyun": pod(container("main", {"aliyun.com/gpu-mem": 8})),
    "tencent": pod(
        container("main", {"tencent.com/vcuda-core": 50, "tencent.com/vcuda-memory": 16})
    ),
    "volcengine": pod(
        container(
            "main", {"vke.volcengine.com/mgpu-core": 50, "vke.volcengine.com/mgpu-memory": 4000}
        )
    ),
    "kai": pod(
        container("main"),
        annotations={"gpu-memory": "4000"},
        schedulerName="kai-scheduler",
    ),
    "tensorfusion": pod(
        container("main"),
        annotations={
            "tensor-fusion.ai/vram-request": "4Gi",
            "tensor-fusion.ai/vram-limit": "4Gi",
            "tensor-fusion.ai/gpu-count": "2",
        },
        labels={"tensor-fusion.ai/enabled": "true"},
    ),
}
"""A pod of each vocabulary whose keys or annotations have an inverse."""

WITHOUT_AMOUNTS: Final = frozenset({"multus"})
"""Vocabularies without amounts, which have no fix in keys."""

OPTIONS: Final = TranslationOptions(adopt_schedulers={"kai-scheduler": "default-scheduler"})


def amounts_of(claim: Claim) -> Iterator[tuple[FieldPath, Quantity]]:
    """Yield the counts and amounts that a claim requests, by field."""
    for index, request in enumerate(devices_of(claim)["requests"]):
        field = FieldPath.of("requests", index)
        alternatives = [(field.child("exactly"), request.get("exactly"))]
        for place, alternative in enumerate(request.get("firstAvailable") or ()):
            alternatives.append((field.child("firstAvailable", place), alternative))
        for below, exact in alternatives:
            if exact is None:
                continue
            if "count" in exact:
                yield below.child("count"), Quantity(exact["count"])
            for name, amount in (exact.get("capacity", {}).get("requests") or {}).items():
                yield below.child("capacity", "requests").key(name), Quantity(amount)


def written(document: Document, fixes: tuple[KeyFix, ...]) -> Any:
    """Return a pod with the values of fixes written into it."""
    changed: Any = copy.deepcopy(dict(document))
    for fix in fixes:
        value: Any = changed
        *parents, last = [step.name if isinstance(step, Key) else step for step in fix.path.steps]
        for step in parents:
            value = value[step]
        value[last] = str(fix.amount)
        requests: Any = changed
        for step in parents[:-1]:
            requests = requests[step]
        if last in requests.get("requests", {}):
            requests["requests"][last] = str(fix.amount)
    return changed


def smaller(amount: Quantity, parts: int) -> Quantity:
    return Quantity.from_nanos(max(amount.nanos // parts, 1), amount.format)


Amounts = Mapping[tuple[tuple[str, int], FieldPath], Quantity]
"""Name of a claim and field to a count or an amount."""


def names_of(claims: Sequence[Claim]) -> list[tuple[str, int]]:
    """Return the label of each claim, and its number among those with the label."""
    labels = [claim.label for claim in claims]
    return [(label, labels[:index].count(label)) for index, label in enumerate(labels)]


def all_amounts(
    claims: Sequence[Claim],
) -> Iterator[tuple[tuple[tuple[str, int], FieldPath], Quantity]]:
    for name, claim in zip(names_of(claims), claims, strict=True):
        for field, amount in amounts_of(claim):
            yield (name, field), amount


def is_no_more(after: Amounts, fitting: Amounts, before: Amounts) -> bool:
    """Return True if the changed amount is at most the one that fits, and all others are as they were.

    Other alternatives of a request may have less, since one key requests all of them. A claim of an init
    container is gone where it uses the devices of another container.
    """
    return after.keys() <= before.keys() and all(
        amount == before[place]
        or amount <= fitting[place] < before[place]
        or (amount <= fitting[place] and "firstAvailable" in place[1].steps)
        for place, amount in after.items()
    )


def is_count(field: FieldPath) -> bool:
    return field.steps[-1] == "count"


def total_count(amounts: Amounts) -> int:
    return sum(int(amount) for (_, field), amount in amounts.items() if is_count(field))


def other_amounts(amounts: Amounts) -> set[tuple[FieldPath, Quantity]]:
    """Return the amounts of capacity, each with the field that requests it of any claim."""
    return {(field, amount) for (_, field), amount in amounts.items() if not is_count(field)}


def recorded(outcome: Translated, document: Document) -> RecordedTranslation:
    paths = container_paths(pod_view(document))
    return RecordedTranslation(record=outcome.record, paths=paths, profiles=profiles())


@given(
    legacy_pods() | koordinator_pods() | st.sampled_from(list(EXAMPLES.values())),
    published_slices(),
    operators_options(),
    st.integers(0, 50),
    st.integers(2, 9),
)
def test_a_fix_that_is_written_requests_no_more(
    document: Document, published: Any, chosen_options: Any, choice: int, parts: int
) -> None:
    snapshot = translation_snapshot(*published)
    outcome = translation_outcome(document, snapshot, chosen_options)
    if not isinstance(outcome, Translated):
        return
    fields = [(claim, *entry) for claim in outcome.claims for entry in amounts_of(claim)]
    if not fields:
        return
    claim, field, amount = fields[choice % len(fields)]
    target = FittingAmount(claim=FieldPath(), field=field, amount=smaller(amount, parts))
    fixes = find_key_fixes([(claim, target)], recorded(outcome, document))
    if not fixes:
        return

    after = translation_outcome(written(document, fixes), snapshot, chosen_options)

    assert isinstance(after, Translated), after.findings
    before, fitting = (dict(all_amounts(outcome.claims)) for _ in range(2))
    fitting[names_of(outcome.claims)[outcome.claims.index(claim)], field] = target.amount
    written_amounts = dict(all_amounts(after.claims))
    assert is_no_more(written_amounts, fitting, before) or (
        # Devices that are divided among claims are divided anew.
        is_count(field)
        and total_count(written_amounts) <= total_count(fitting)
        and other_amounts(written_amounts) <= other_amounts(before)
    )


def test_each_vocabulary_has_an_example() -> None:
    assert VOCABULARIES.keys() == EXAMPLES.keys() | WITHOUT_AMOUNTS


@pytest.mark.parametrize("vocabulary", EXAMPLES)
def test_some_amount_of_each_vocabulary_has_a_fix(vocabulary: str) -> None:
    document = EXAMPLES[vocabulary]
    outcome = translation_of(document, None, OPTIONS)
    translation = recorded(outcome, document)

    fixes = [
        find_key_fixes(
            [(claim, FittingAmount(claim=FieldPath(), field=field, amount=smaller(amount, 2)))],
            translation,
        )
        for claim in outcome.claims
        for field, amount in amounts_of(claim)
    ]

    assert any(fixes)
