"""The nodes that accept a pod, devices aside."""

import pytest

from allocator.pods.node_eligibility import counted_rejection, node_rejection, pod_changes
from kube.api.core import Node, Pod
from kube.api.meta import convert
from testing.allocation.node_eligibility import CASES, TAINT, ZONE_A, Case, affine
from testing.documents import Document


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_obstacle(case: Case) -> None:
    pod = convert({"metadata": {"name": "pod"}, "spec": dict(case.pod)}, Pod)
    metadata = {"name": "node-1", "labels": dict(case.labels)}

    node_rejection_ = node_rejection(
        pod, convert({"metadata": metadata, "spec": dict(case.node)}, Node)
    )

    assert case.want == (node_rejection_.detail if node_rejection_ else None)


NAMED = {"key": "metadata.name", "operator": "In", "values": ["node-2", "node-3"]}


@pytest.mark.parametrize(
    ("want", "pod", "node", "labels"),
    [
        (None, {}, {}, {}),
        ("node(s) were unschedulable", {}, {"unschedulable": True}, {}),
        (
            "node(s) had untolerated taint(s)",
            {"nodeSelector": {"zone": "a"}},
            {"taints": [TAINT]},
            {},
        ),
        (
            "node(s) didn't match Pod's node affinity/selector",
            {"nodeSelector": {"zone": "a"}},
            {},
            {},
        ),
        (
            "node(s) didn't match Pod's node affinity/selector",
            affine({"matchExpressions": [ZONE_A]}, {"matchFields": [NAMED]}),
            {},
            {},
        ),
        (
            "node(s) didn't satisfy plugin(s) [NodeAffinity]",
            affine({"matchFields": [NAMED]}),
            {"taints": [TAINT]},
            {},
        ),
    ],
)
def test_words_under_which_the_scheduler_counts_a_node(
    want: str | None, pod: Document, node: Document, labels: Document
) -> None:
    """Taints come before labels, and a restriction to names before both."""
    node_view = convert({"metadata": {"name": "node-1", "labels": labels}, "spec": node}, Node)

    assert want == counted_rejection(convert({"spec": pod}, Pod), node_view)


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "zone", "operator": "Near", "values": ["a"]},
        {"key": "zone", "operator": "Gt", "values": []},
        {"key": "zone", "operator": "In", "values": []},
    ],
)
def test_an_invalid_affinity_can_only_be_changed(expression: Document) -> None:
    pod = convert({"spec": affine({"matchExpressions": [expression]})}, Pod)
    node_view = convert({"metadata": {"name": "node-1", "labels": {"zone": "1"}}}, Node)

    changes = pod_changes(pod, node_view)

    assert [change.words for change in changes] == ["change the required node affinity"]
