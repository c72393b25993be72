"""Quotas, queues and gangs of other schedulers that a translated pod leaves."""

import pytest

from testing.builders import (
    NVIDIA,
    finding_texts,
    gpus,
    pod,
    translation_outcome,
    translation_snapshot,
)
from testing.documents import Document
from translation.cluster.snapshot import TranslationOptions
from translation.pipeline.translate import Translated, Untouched

ADOPTED = TranslationOptions(adopt_schedulers={"volcano": "default-scheduler"})
KEPT = TranslationOptions(adopt_schedulers={"volcano": "volcano"})


def subject(name: str, place: str, scheduler: str = "") -> Document:
    document = pod(gpus(1), schedulerName=scheduler)
    document["metadata"][place] = {name: "a"}
    return document


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("quota.scheduling.koordinator.sh/name", "labels"),
        ("gang.scheduling.koordinator.sh/name", "annotations"),
        ("pod-group.scheduling.sigs.k8s.io", "labels"),
        ("pod-group.scheduling.sigs.k8s.io/name", "labels"),
        ("scheduling.x-k8s.io/pod-group", "labels"),
        ("scheduling.volcano.sh/queue-name", "annotations"),
        ("scheduling.k8s.io/group-name", "annotations"),
        ("scheduling.volcano.sh/group-name", "annotations"),
        ("pod-group-name", "annotations"),
        ("kai.scheduler/queue", "labels"),
        ("runai/queue", "labels"),
    ],
)
def test_what_a_pod_leaves_is_reported(name: str, place: str) -> None:
    outcome = translation_outcome(subject(name, place))

    assert isinstance(outcome, Translated)
    assert finding_texts(outcome.findings) == [f"warning claimsNotSeen metadata.{place}[{name}]"]


@pytest.mark.parametrize(
    ("name", "place", "is_told"),
    [
        ("gang.scheduling.koordinator.sh/name", "annotations", False),
        ("scheduling.k8s.io/group-name", "annotations", False),
        ("quota.scheduling.koordinator.sh/name", "labels", True),
    ],
)
def test_the_bridge_starts_gangs_together(name: str, place: str, *, is_told: bool) -> None:
    """Its routing makes PodGroups of them, or warns with `gangNotAdopted`."""
    bridge = translation_snapshot(
        owned_drivers=frozenset({NVIDIA}), bridge_scheduler="gpu-scheduler"
    )

    findings = translation_outcome(subject(name, place), bridge).findings

    assert is_told == bool(findings)
    assert all('the scheduler "gpu-scheduler"' in finding.message for finding in findings)


def test_a_pod_that_names_the_bridge_leaves_its_queue() -> None:
    """The bridge has another name than usual here."""
    bridge = translation_snapshot(bridge_scheduler="gpu-scheduler")
    queue = subject("scheduling.volcano.sh/queue-name", "annotations", "gpu-scheduler")

    (finding,) = translation_outcome(queue, bridge).findings

    assert finding.code.value == "claimsNotSeen"


def test_a_pod_that_an_adopted_scheduler_hands_over_is_reported() -> None:
    queue = subject("scheduling.volcano.sh/queue-name", "annotations", "volcano")

    (finding,) = translation_outcome(queue, None, ADOPTED).findings

    assert finding.code.value == "claimsNotSeen"


@pytest.mark.parametrize(
    "options", [KEPT, TranslationOptions()], ids=["it allocates claims", "it is not adopted"]
)
def test_a_pod_that_its_scheduler_keeps_is_not(options: TranslationOptions) -> None:
    queue = subject("scheduling.volcano.sh/queue-name", "annotations", "volcano")

    outcome = translation_outcome(queue, None, options)

    assert isinstance(outcome, Translated if options is KEPT else Untouched)
    assert not any("claimsNotSeen" in text for text in finding_texts(outcome.findings))


@pytest.mark.parametrize(
    ("name", "place", "may_stay"),
    [
        ("quota.scheduling.koordinator.sh/name", "labels", False),
        ("gang.scheduling.koordinator.sh/name", "annotations", False),
        ("kai.scheduler/queue", "labels", True),
        ("scheduling.k8s.io/group-name", "annotations", True),
    ],
)
def test_no_fix_keeps_a_scheduler_that_allocates_no_claims(
    name: str, place: str, *, may_stay: bool
) -> None:
    """The fix for Koordinator's users was a question about claims, with a known answer: no."""
    (finding,) = translation_outcome(subject(name, place)).findings

    assert may_stay is ("or keep the scheduler: " in finding.fix)
