"""Settling a denial ends with the budget of the answer."""

import pytest

from admission.pods import Answer, admit_created
from admission.settled_fixes import settle_pod
from kube.cel.scope import BudgetSpent, Meter, evaluating
from rules.context.context import Context
from testing.builders import NAMESPACE, container, gpus, pod, pod_view
from testing.hami_cluster import SNAPSHOT, context_fields
from translation.cluster.snapshot import TranslationOptions

DOCUMENT = pod(gpus(1, mem="200Gi", name="a"), gpus(1, mem="8Gi", name="b"), container("c"))
OPTIONS = TranslationOptions()


def settled() -> Answer:
    denied = admit_created(
        DOCUMENT, pod_view(DOCUMENT), namespace=NAMESPACE, snapshot=SNAPSHOT, options=OPTIONS
    )
    return settle_pod(
        denied,
        DOCUMENT,
        Context(**context_fields(), applied_together=True),
        namespace=NAMESPACE,
        snapshot=SNAPSHOT,
        options=OPTIONS,
    )


def test_each_amount_is_settled_by_itself() -> None:
    too_large, right = settled().findings

    assert too_large.fix.startswith("write 81920: 204800 would be the same amount")
    assert right.fix == "write 8192 for 8Gi"


def test_a_spent_budget_ends_it() -> None:
    with evaluating(meter=Meter(is_over=lambda: True)), pytest.raises(BudgetSpent):
        settled()
