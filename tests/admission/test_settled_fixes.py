"""Settling a denial ends with the budget of the answer."""

from typing import Any

import pytest

from admission.pods import Answer, Decision, admit_created
from admission.review import InvalidPodError, view_pod
from admission.settled_fixes import settle_pod
from kube.cel.scope import BudgetSpent, Meter, evaluating
from rules.context.context import Context
from testing.builders import NAMESPACE, container, gpus, pod, pod_view
from testing.hami_cluster import SNAPSHOT, context_fields
from translation.cluster.snapshot import TranslationOptions

DOCUMENT = pod(gpus(1, mem="200Gi", name="a"), gpus(1, mem="8Gi", name="b"), container("c"))
OPTIONS = TranslationOptions()


def denial() -> Answer:
    return admit_created(
        DOCUMENT, pod_view(DOCUMENT), namespace=NAMESPACE, snapshot=SNAPSHOT, options=OPTIONS
    )


def settled(denied: Answer, document: dict[str, Any] = DOCUMENT) -> Answer:
    return settle_pod(
        denied,
        document,
        Context(**context_fields(), applied_together=True),
        namespace=NAMESPACE,
        snapshot=SNAPSHOT,
        options=OPTIONS,
    )


def test_each_amount_is_settled_by_itself() -> None:
    too_large, right = settled(denial()).findings

    assert too_large.fix.startswith("write 81920: 204800 would be the same amount")
    assert right.fix == "write 8192 for 8Gi"


def test_a_pod_with_other_faults_keeps_its_denial() -> None:
    """With a right amount the rest of it is looked at, and is not of a pod: fuzz met an internal error."""
    document = pod(gpus(1, mem="40GB", name="a"))
    document["metadata"]["generateName"] = {}
    with pytest.raises(InvalidPodError) as raised:
        view_pod(document)
    denied = Answer(decision=Decision.REFUSED, findings=raised.value.findings)

    assert settled(denied, document) == denied


def test_a_spent_budget_ends_it() -> None:
    with evaluating(meter=Meter(is_over=lambda: True)), pytest.raises(BudgetSpent):
        settled(denial())


def test_a_pod_with_deeply_nested_fields_of_others_is_settled() -> None:
    """JSON can be parsed at more levels than Python can copy: fuzz met an internal error."""
    nested: list[Any] = []
    for _ in range(800):
        nested = [nested]
    document = DOCUMENT | {"example.com/nested": nested}

    assert settled(denial(), document) == settled(denial())
