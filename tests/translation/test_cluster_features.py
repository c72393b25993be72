"""An amount that Kubernetes cannot hold is refused, and never becomes something larger."""

import pytest

from testing.builders import finding_codes, gpus, pod, translation_of, translation_outcome
from testing.builders import translation_snapshot as snapshot
from testing.documents import Document
from translation.pipeline.translate import Refused, Translated

WITHOUT_CAPACITY = snapshot(consumable_capacity=False)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(pod(gpus(1, mem=8000)), id="memory"),
        pytest.param(pod(gpus(1, cores=30)), id="cores"),
        pytest.param(pod(gpus(1), gpus(1, name="other", mem=1000)), id="one container of two"),
    ],
)
def test_a_share_is_refused_where_the_gate_is_off(document: Document) -> None:
    outcome = translation_outcome(document, WITHOUT_CAPACITY)

    assert isinstance(outcome, Refused)
    assert "error sharesNotSupported" in finding_codes(outcome.findings)
    assert isinstance(translation_outcome(document, snapshot()), Translated)


def test_a_whole_device_is_translated_where_the_gate_is_off() -> None:
    translated = translation_of(pod(gpus(2)), WITHOUT_CAPACITY)

    assert translated.claims == translation_of(pod(gpus(2)), snapshot()).claims


def test_a_finding_names_the_key_that_requests_a_share() -> None:
    outcome = translation_outcome(pod(gpus(1, mem=8000)), WITHOUT_CAPACITY)

    (finding,) = (entry for entry in outcome.findings if entry.code == "sharesNotSupported")
    assert str(finding.path).startswith("spec.containers[0].resources.limits[nvidia.com/gpu")
