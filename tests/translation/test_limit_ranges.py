"""LimitRanges that name device keys: rejected with the reason, or their defaults told from the user's amounts."""

from typing import NamedTuple

import pytest

from admission.pods import Decision
from kube.api.core import LimitRange
from kube.api.meta import convert
from testing.builders import (
    NAMESPACE,
    admit,
    finding_texts,
    gpus,
    limits,
    pod,
    translation_outcome,
    translation_snapshot,
    with_changes,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationSnapshot
from translation.model.limit_ranges import limit_range_summary

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
AT_GPU = f"spec.containers[0].resources.limits[{GPU}]"


def limited(kind: str = "Container", /, **fields: Document) -> TranslationSnapshot:
    item: Document = {"type": kind, **fields}
    summary = limit_range_summary(convert({"spec": {"limits": [item]}}, LimitRange))
    known = {} if summary is None else {"gpus": summary}
    return translation_snapshot(limit_ranges={NAMESPACE: known})


class Case(NamedTuple):
    name: str
    snapshot: TranslationSnapshot
    want: tuple[str, ...] = (f"error limitRangeConflict {AT_GPU}",)
    document: Document = pod(gpus(1))


CASES = (
    Case("a maximum", limited(max={GPU: "2"})),
    Case("a maximum for whole pods", limited("Pod", max={GPU: "2"})),
    Case("a minimum", limited(min={GPU: "1"})),
    Case("a ratio", limited(maxLimitRequestRatio={GPU: "1"})),
    Case("a maximum of volumes", limited("PersistentVolumeClaim", max={GPU: "1"}), ()),
    Case("another key", limited(max={MEMORY: "2000"}), ()),
    Case("an amount of CPU", limited(max={"cpu": "2"}, min={"cpu": "1"}), ()),
    Case("defaults alone", limited(default={GPU: "1"}), ()),
    Case(
        "two keys",
        limited(max={GPU: "2", MEMORY: "9k"}),
        (
            f"error limitRangeConflict {AT_GPU}",
            f"error limitRangeConflict spec.containers[0].resources.limits[{MEMORY}]",
        ),
        pod(gpus(1, mem=10)),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bound_on_a_removed_key_rejects_the_pod(case: Case) -> None:
    outcome = translation_outcome(case.document, case.snapshot)

    assert case.want == tuple(finding_texts(outcome.findings))


DEFAULTS = limited(default={GPU: "1"}, defaultRequest={GPU: "1"})


def with_default(document: Document, amount: int = 1) -> Document:
    """The translated pod as the second round of admission brings it."""
    again = with_changes(document)
    for container in again["spec"]["containers"]:
        container["resources"] |= {"limits": limits(amount), "requests": limits(amount)}
    return again


def test_a_default_that_was_set_again_is_stripped_again() -> None:
    once, _ = admit(pod(gpus(2)), DEFAULTS)

    again, answer = admit(with_default(once), DEFAULTS)

    assert answer.decision is Decision.TRANSLATED
    assert again == once


def test_an_amount_that_is_neither_recorded_nor_a_default_is_rejected() -> None:
    once, _ = admit(pod(gpus(2)), DEFAULTS)

    _, answer = admit(with_default(once, 3), DEFAULTS)

    assert finding_texts(answer.findings) == [f"error translationRecordChanged {AT_GPU}"]


def test_what_goes_back_to_kubernetes_gets_the_recorded_amount_and_not_the_default() -> None:
    once, _ = admit(pod(gpus(2)), DEFAULTS)
    mapped = translation_snapshot(
        limit_ranges=DEFAULTS.limit_ranges, extended_resources={GPU: "gpu.nvidia.com"}
    )

    back, answer = admit(with_default(once), mapped)

    assert answer.decision is Decision.UNTRANSLATED
    (container,) = back["spec"]["containers"]
    assert container["resources"] == {"limits": limits(2), "requests": limits(2)}
