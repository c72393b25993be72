"""The explanations of nodes for something that was not placed."""

from typing import Final

import pytest

from allocator.cluster.cluster import Cluster
from allocator.explain import failure
from allocator.explain.change import Change, ClosestFit
from allocator.explain.failure import FailedAttempt, Failure, NodeReason, NodeResult, explain_nodes
from allocator.explain.relaxation import Kind
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason, RejectionReason, Shortage
from allocator.model.plan import Budget
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions
from testing.allocation.builders import claim, classes, device, devices, node, request, slice_of

RULES: Final = AllocatorOptions(features=Features())


def cluster() -> Cluster:
    """Two nodes with one device, one with two, one with none."""
    slices = [slice_of(device(), pool=name) for name in ("a", "b")]
    slices.append(slice_of(*devices("gpu-0", "gpu-1"), pool="c"))
    nodes = [node(name) for name in "abcd"]
    return Cluster(slices=slices, nodes=nodes, claims=(), classes=classes(), options=RULES)


def failure_lines(count: int, budget: Budget | None = None) -> dict[str, list[str]]:
    asking_cluster = cluster()
    pending = asking_cluster.resolve([claim(request(count=count))])
    verdicts = asking_cluster.verdicts(pending, budget=budget or Budget())

    def explain(node: object, *_: object) -> tuple[Shortage, ...]:
        refusal = RejectionReason(reason=Reason.TOO_FEW_DEVICES, subject="too few")
        return (Shortage(claim="default/claim-0", request="req-0", rejection=refusal),)

    results = explain_nodes(verdicts, pending, Usage(), RULES, explain)
    return {
        result.name: [f"{reason.code} {reason.message} {reason.count}" for reason in result.reasons]
        for result in sorted(results, key=lambda node_result: node_result.name)
    }


TOO_FEW = ["tooFewDevices claim default/claim-0, request req-0: too few 0"]


def test_nodes_that_fit_give_no_reasons() -> None:
    assert failure_lines(2) == {"a": TOO_FEW, "b": TOO_FEW, "c": [], "d": TOO_FEW}


def test_of_many_classes_of_nodes_the_largest_are_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failure, "MAX_EXPLAINED", 1)

    answer_ = failure_lines(3)

    assert answer_["a"] == answer_["b"] == TOO_FEW
    assert answer_["c"][0].startswith("jointlyInfeasible does not fit; not explained (limit of")
    assert answer_["c"] == answer_["d"]


def test_a_search_without_an_end_says_so() -> None:
    assert failure_lines(2, Budget(steps=0))["c"][0].startswith("budgetExhausted ")


def test_nodes_that_say_the_same_stand_together_most_first() -> None:
    reason, other = NodeReason(code="node", message="x"), NodeReason(code="node", message="y")
    answers = [
        NodeResult(name=name, fits=False, reasons=(why,))
        for name, why in (("a", other), ("b", reason), ("c", reason))
    ]

    failure_ = FailedAttempt(title="Pod default/p").failure(answers, cluster())

    assert [(group.nodes, group.reasons) for group in failure_.groups or ()] == [
        (("b", "c"), (reason,)),
        (("a",), (other,)),
    ]


def test_a_dropped_constraint_is_told_beside_the_wait_for_devices() -> None:
    dropped = Change(
        claim="default/a", request="", kind=Kind.CONSTRAINT, detail="drop matchAttribute x", cost=45
    )
    now = ClosestFit(changes=(dropped,), claims=(), node="a")
    idle = ClosestFit(changes=(), claims=(), node="a")

    assert (now, idle) == Failure(
        title="t", closest_fit=now, closest_fit_when_idle=idle
    ).helpful_fits


def test_refusals_and_verdicts_are_reported_together_by_name() -> None:
    asking_cluster = cluster()
    pending = asking_cluster.resolve([claim(request(count=3))])
    verdicts = asking_cluster.verdicts(pending, nodes=("b", "c"))
    out = NodeResult(name="a", fits=False, reasons=(NodeReason(code="node", message="x"),))

    failed_attempt = FailedAttempt(title="t", excluded={"a": out}, evaluated=((verdicts, pending),))
    answers = failed_attempt.node_results(lambda *_: ())

    assert [(answer.name, answer.reasons[0].code) for answer in answers] == [
        ("a", "node"),
        ("b", "jointlyInfeasible"),
        ("c", "jointlyInfeasible"),
    ]
