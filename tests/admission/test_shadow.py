"""Mode Shadow: no answer changes or rejects anything, and dry runs are told of other modes."""

import pytest

from admission.pods import Answer, Decision
from admission.shadow import shadow_answer
from testing.builders import HAMI, admit, container, finding_codes, finding_texts, gpus, pod
from testing.documents import Document

POD_CASES = [
    ("translated", pod(gpus(1, mem=1000)), Decision.TRANSLATED),
    ("refused", pod(gpus("500m")), Decision.REFUSED),
    ("untouched", pod(container()), Decision.UNTOUCHED),
]


def answer_to(document: Document) -> Answer:
    _, answer = admit(document)
    return answer


@pytest.mark.parametrize(("name", "document", "decision"), POD_CASES)
@pytest.mark.parametrize("dry_run", [False, True])
def test_nothing_is_changed_or_rejected(
    name: str, document: Document, decision: Decision, *, dry_run: bool
) -> None:
    answer = answer_to(document)
    shadowed = shadow_answer(answer, dry_run=dry_run)

    assert answer.decision is decision, name
    assert (shadowed.allowed, shadowed.operations, shadowed.claims) == (True, (), ())
    assert not any(finding.is_error for finding in shadowed.findings)


def test_who_creates_a_pod_is_told_nothing() -> None:
    assert shadow_answer(answer_to(pod(gpus("500m"))), dry_run=False).findings == ()


def test_a_dry_run_is_told_the_claims() -> None:
    (finding, *_) = shadow_answer(answer_to(pod(gpus(1, mem=1000))), dry_run=True).findings

    assert finding_texts([finding]) == ["warning shadowMode spec"]
    assert f"would get claims of DeviceClass {HAMI}" in finding.message


def test_a_dry_run_is_told_what_would_reject_the_pod() -> None:
    shadowed = shadow_answer(answer_to(pod(gpus("500m"))), dry_run=True)

    assert finding_codes(shadowed.findings) == ["warning shadowMode", "warning notAnInteger"]
    assert "would be rejected" in shadowed.findings[0].message


def test_what_would_be_left_alone_is_not_told_to_be_changed() -> None:
    foreign = answer_to(pod(gpus(1), schedulerName="volcano"))

    assert finding_codes(shadow_answer(foreign, dry_run=True).findings) == [
        "warning foreignScheduler"
    ]
