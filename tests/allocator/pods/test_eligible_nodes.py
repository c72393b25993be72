"""Nodes that pods may use, remembered by the pods' demands."""

from itertools import product
from typing import Any

import pytest

from allocator.pods import eligible_nodes
from allocator.pods.eligible_nodes import EligibleNodes
from allocator.pods.node_eligibility import node_rejection
from kube.api.core import Node, Pod
from kube.api.meta import convert
from testing.allocation.node_eligibility import CASES

PODS = [convert({"metadata": {"name": "pod"}, "spec": dict(case.pod)}, Pod) for case in CASES]


def node(name: str, spec: Any = None, **labels: str) -> Node:
    return convert({"metadata": {"name": name, "labels": labels}, "spec": spec or {}}, Node)


def test_it_says_what_node_rejection_says_of_any_pod_and_any_node() -> None:
    nodes = [
        node(f"node-{number}", dict(case.node), **dict(case.labels))
        for number, case in enumerate(CASES)
    ]
    eligible = EligibleNodes()
    pairs = list(product(PODS, nodes)) * 2

    assert {True, False} == {eligible.of(pod)(node_) for pod, node_ in pairs}
    assert all(
        eligible.of(pod)(node_) is (node_rejection(pod, node_) is None) for pod, node_ in pairs
    )


def test_a_node_that_changed_is_looked_at_again() -> None:
    eligible = EligibleNodes()
    pod = convert({"spec": {"nodeSelector": {"kind": "gpu"}}}, Pod)
    answers = [
        eligible.of(pod)(node_)
        for node_ in (node("a", kind="gpu"), node("a", kind="cpu"), node("a", kind="gpu"))
    ]

    assert answers == [True, False, True]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eligible_nodes, "MAX_NODES", 8)
    eligible = EligibleNodes()
    nodes = [node(f"node-{number}", kind=str(number % 5)) for number in range(20)]
    kinds = [convert({"spec": {"nodeSelector": {"kind": str(kind)}}}, Pod) for kind in range(200)]

    for pod, node_ in product(kinds, nodes):
        assert eligible.of(pod)(node_) is (node_rejection(pod, node_) is None)
    remembered = eligible._answers.values()
    assert len(remembered) <= 8
    assert max(len(answers) for _, answers in remembered) <= 2 * eligible_nodes.MAX_DEMANDS
