"""What nodes say of something that was not placed."""

from typing import Final

import pytest

from allocator import failure
from allocator.cluster import Cluster
from allocator.core.model import Budget, Features, Usage
from allocator.core.outcome import Reason, Refusal, Shortage
from allocator.core.problem import Rules
from allocator.failure import NodeAnswer, NodeReason, Refused, node_answers
from tests.allocator.builders import claim, classes, device, devices, node, request, slice_of

RULES: Final = Rules(features=Features())


def cluster() -> Cluster:
    """Two nodes with one device, one with two, one with none."""
    slices = [slice_of(device(), pool=name) for name in ("a", "b")]
    slices.append(slice_of(*devices("gpu-0", "gpu-1"), pool="c"))
    nodes = [node(name) for name in "abcd"]
    return Cluster(slices=slices, nodes=nodes, claims=(), classes=classes(), rules=RULES)


def said(count: int, budget: Budget | None = None) -> dict[str, list[str]]:
    asking = cluster()
    asked = asking.ask([claim(request(count=count))])
    verdicts = asking.verdicts(asked, budget=budget or Budget())

    def explain(node: object, *_: object) -> tuple[Shortage, ...]:
        refusal = Refusal(reason=Reason.TOO_FEW, detail="too few")
        return (Shortage(claim="default/claim-0", request="req-0", refusal=refusal, devices=1),)

    found = node_answers(verdicts, asked, Usage(), RULES, explain)
    return {
        one.name: [f"{each.code} {each.message} {each.count}" for each in one.reasons]
        for one in sorted(found, key=lambda one: one.name)
    }


TOO_FEW = ["tooFew claim default/claim-0, request req-0: too few 1"]


def test_nodes_that_fit_give_no_reasons() -> None:
    assert said(2) == {"a": TOO_FEW, "b": TOO_FEW, "c": [], "d": TOO_FEW}


def test_of_many_kinds_of_nodes_the_largest_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure, "MAX_EXPLAINED", 1)

    found = said(3)

    assert found["a"] == found["b"] == TOO_FEW
    assert found["c"][0].startswith("combination does not fit; why was not looked at")
    assert found["c"] == found["d"]


def test_a_search_without_an_end_says_so() -> None:
    assert said(2, Budget(steps=0))["c"][0].startswith("gaveUp ")


def test_nodes_that_say_the_same_stand_together_most_first() -> None:
    reason, other = NodeReason(code="node", message="x"), NodeReason(code="node", message="y")
    answers = [
        NodeAnswer(name=name, fits=False, reasons=(why,))
        for name, why in (("a", other), ("b", reason), ("c", reason))
    ]

    found = Refused(title="Pod default/p").failure(answers)

    assert [(one.nodes, one.reasons) for one in found.groups or ()] == [
        (("b", "c"), (reason,)),
        (("a",), (other,)),
    ]


def test_refusals_and_verdicts_are_told_together_by_name() -> None:
    asking = cluster()
    asked = asking.ask([claim(request(count=3))])
    verdicts = asking.verdicts(asked, nodes=("b", "c"))
    out = NodeAnswer(name="a", fits=False, reasons=(NodeReason(code="node", message="x"),))

    refused = Refused(title="t", refusals={"a": out}, judged=((verdicts, asked),))
    answers = refused.answers(RULES, lambda *_: ())

    assert [(one.name, one.reasons[0].code) for one in answers] == [
        ("a", "node"),
        ("b", "combination"),
        ("c", "combination"),
    ]
