"""The nodes that a pod's claims fit, and the reasons of those that do not."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from msgspec.structs import replace

from allocator.cluster.ranking import Limits
from allocator.model.selectors import clear_selector_caches
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.resource import (
    ResourceClaim,
)
from kube.cel.engine import SIMPLE_LENGTH
from kube.cel.scope import evaluating
from process.selectors import worker as workers
from process.selectors.answers import AnswerStore, digest
from process.selectors.deferring import DeferringEngine, Demand
from process.selectors.protocol import Compiled, Question, Verdicts
from sidecar.model.protocol import MAX_NODES, Verdict
from sidecar.model.rejections import Code, Rejection, unfinished
from sidecar.plan import decisions
from sidecar.plan.decisions import (
    ENOUGH_NODES,
    EVALUATING,
    SEARCHING,
    Fits,
    NoDevicesNeeded,
    find_nodes,
)
from sidecar.plan.placement import Placement, place, with_allocation
from sidecar.plan.snapshot import Snapshot
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    device,
    node,
    request,
    result,
    slice_of,
)
from testing.sidecar.snapshots import hard_claim, hard_slices, pod, snapshot, used_by

ONE_SEARCH = Limits(nodes=12, searches=1, steps=1)


def full(*uids: str) -> ResourceClaim:
    """All devices of both nodes, in one claim of these pods."""
    return used_by(
        allocated_claim(
            *(result(f"gpu-{n}", pool=f"node-{m}") for n in (0, 1) for m in (1, 2)), name="held"
        ),
        *uids,
    )


def names(outcome: object) -> list[str]:
    assert isinstance(outcome, Fits), outcome
    return [node_.name for node_ in outcome.nodes]


def rejected(outcome: object) -> tuple[Verdict, Code]:
    assert isinstance(outcome, Rejection), outcome
    return outcome.verdict, outcome.code


def test_a_pod_without_claims_is_none_of_ours() -> None:
    assert find_nodes(pod(), snapshot()) == NoDevicesNeeded()


def test_a_pod_fits_where_devices_are_free() -> None:
    in_use = allocated_claim(result("gpu-0"), result("gpu-1"), name="held")

    assert names(find_nodes(pod("gpu"), snapshot(in_use, claim(request(), name="gpu")))) == [
        "node-2"
    ]


def test_only_nodes_that_the_pod_may_use_are_named() -> None:
    cluster = snapshot(
        claim(request(), name="gpu"), nodes=(node("node-1", zone="a"), node("node-2", zone="b"))
    )

    assert names(find_nodes(pod("gpu", nodeSelector={"zone": "b"}), cluster)) == ["node-2"]


def test_a_selector_that_fails_on_devices_counts_only_where_the_pod_may_use_the_node() -> None:
    cards = (device("gpu-0", attributes={"model": "a100"}), device("gpu-0"))
    expression = f'device.attributes["{DRIVER}"].model == "a100"'
    cluster = snapshot(
        claim(request("req-0", expression), name="gpu"),
        nodes=(node("node-1", kind="gpu"), node("node-2", kind="other")),
        slices=[
            slice_of(card, pool=name, node=name)
            for card, name in zip(cards, ("node-1", "node-2"), strict=True)
        ],
    )

    for _ in range(2):  # What was searched is remembered.
        assert names(find_nodes(pod("gpu", nodeSelector={"kind": "gpu"}), cluster)) == ["node-1"]
        outcome = find_nodes(pod("gpu"), cluster)
        assert rejected(outcome) == (Verdict.UNRESOLVABLE, Code.ATTEMPT_FAILED)
        assert isinstance(outcome, Rejection)
        assert "node-2/gpu-0: CEL runtime error: no such key: model" in outcome.message


def test_the_best_hundred_are_named_unless_all_are_asked_for() -> None:
    nodes = [node(f"node-{number:03}") for number in range(MAX_NODES + 20)]
    cluster = snapshot(claim(request(), name="gpu"), nodes=nodes)

    best = find_nodes(pod("gpu"), cluster)
    everything = find_nodes(pod("gpu"), cluster, all_nodes=True)

    assert isinstance(best, Fits)
    assert (MAX_NODES, False) == (len(best.nodes), best.complete)
    assert isinstance(everything, Fits)
    assert (len(nodes), True) == (len(everything.nodes), everything.complete)


def test_the_better_nodes_are_named_first() -> None:
    in_use = allocated_claim(result("gpu-0", pool="node-2"), name="held")
    packed = pod("gpu")
    metadata = replace(
        packed.metadata, annotations={"drawbridge.internal/strategy": "CompactFirst"}
    )
    cluster = snapshot(in_use, claim(request(), name="gpu"))

    assert names(find_nodes(replace(packed, metadata=metadata), cluster)) == ["node-2", "node-1"]


def test_a_full_cluster_is_final_where_nobody_can_be_preempted() -> None:
    cluster = snapshot(
        full("uid-low"),
        claim(request(), name="gpu"),
        pods=[pod("held", name="low", priority=5, nodeName="node-1")],
    )

    assert rejected(find_nodes(pod("gpu", priority=5), cluster)) == (
        Verdict.UNRESOLVABLE,
        Code.NO_DEVICES,
    )
    assert rejected(find_nodes(pod("gpu", priority=6), cluster)) == (
        Verdict.UNSCHEDULABLE,
        Code.NO_DEVICES,
    )
    never = pod("gpu", priority=6, preemptionPolicy="Never")
    assert rejected(find_nodes(never, cluster))[0] is Verdict.UNRESOLVABLE


def test_a_message_has_no_number_and_no_name_of_a_node() -> None:
    outcome = find_nodes(pod("gpu"), snapshot(full(), claim(request(), name="gpu")))

    assert isinstance(outcome, Rejection)
    assert outcome.message == "no node has free devices for the pod's ResourceClaims"


def test_devices_of_a_driver_that_is_not_owned_are_never_given() -> None:
    cluster = snapshot(claim(request(), name="gpu"), drivers=["another.example.com"])

    assert rejected(find_nodes(pod("gpu"), cluster)) == (
        Verdict.UNRESOLVABLE,
        Code.DRIVER_NOT_OWNED,
    )
    assert rejected(place(pod("gpu"), "node-1", cluster))[1] is Code.DRIVER_NOT_OWNED


@pytest.mark.parametrize(
    ("priority", "owned_driver", "want"),
    [
        pytest.param(6, DRIVER, Verdict.UNSCHEDULABLE, id="a victim has owned devices"),
        pytest.param(5, DRIVER, Verdict.UNRESOLVABLE, id="nobody can be preempted"),
        pytest.param(6, "third.example.com", Verdict.UNRESOLVABLE, id="no node has owned devices"),
    ],
)
def test_owned_devices_in_use_are_looked_for_beside_those_that_nobody_owns(
    priority: int, owned_driver: str, want: Verdict
) -> None:
    """The class has devices of two drivers; those of node-1 are free, but of another allocator."""
    cluster = snapshot(
        used_by(
            allocated_claim(result("gpu-0", pool="node-2"), name="held"),
            "uid-low",
        ),
        claim(request(), name="gpu"),
        slices=(
            slice_of(device(), pool="node-1", node="node-1", driver="another.example.com"),
            slice_of(device(), pool="node-2", node="node-2"),
        ),
        pods=[pod("held", name="low", priority=5, nodeName="node-2")],
        drivers=[owned_driver],
    )

    outcome = find_nodes(pod("gpu", priority=priority), cluster)

    assert rejected(outcome) == (want, Code.DRIVER_NOT_OWNED)


def test_an_allocated_claim_limits_the_nodes() -> None:
    cluster = snapshot(claim(request(), name="gpu"))
    placement = place(pod("gpu"), "node-2", cluster)
    assert isinstance(placement, Placement)
    allocated = with_allocation(*placement.allocations[0])

    cluster = snapshot(allocated)

    assert names(find_nodes(pod("gpu"), cluster)) == ["node-2"]
    assert rejected(place(pod("gpu"), "node-1", cluster))[1] is Code.CLAIM_NOT_AVAILABLE
    assert place(pod("gpu"), "node-2", cluster) == Placement(allocations=())


@pytest.mark.parametrize(
    ("code", "claims", "spec"),
    [
        (Code.CLAIM_NOT_FOUND, (), {}),
        (Code.ATTEMPT_FAILED, (claim(request(device_class_name="none"), name="gpu"),), {}),
        (Code.ATTEMPT_FAILED, (claim(request("req-0", "device.what"), name="gpu"),), {}),
        (
            Code.POD_GROUP,
            (claim(request(), name="gpu"),),
            {"schedulingGroup": {"podGroupName": "ring"}},
        ),
        (
            Code.EXTENDED_RESOURCE,
            (claim(request(), name="gpu"),),
            {
                "containers": [
                    {"resources": {"requests": {"deviceclass.resource.kubernetes.io/gpu": "1"}}}
                ]
            },
        ),
        (Code.NO_DEVICES, (claim(request(count=3), name="gpu"),), {}),
    ],
    ids=lambda value: str(value) if isinstance(value, Code) else "",
)
def test_a_pod_that_cannot_get_devices_waits_with_a_code(
    code: Code, claims: Sequence[ResourceClaim], spec: Mapping[str, Any]
) -> None:
    assert rejected(find_nodes(pod("gpu", **spec), snapshot(*claims))) == (
        Verdict.UNRESOLVABLE,
        code,
    )


def test_a_claim_that_is_being_deleted_is_not_used() -> None:
    open_claim = claim(request(), name="gpu")
    going = replace(
        open_claim,
        metadata=replace(open_claim.metadata, deletion_timestamp="2026-11-21T00:00:00Z"),
    )

    assert rejected(find_nodes(pod("gpu"), snapshot(going)))[1] is Code.CLAIM_DELETED


def test_a_generated_claim_must_belong_to_the_pod() -> None:
    owner = convert(
        {
            "metadata": {"name": "a", "namespace": "default", "uid": "uid-a"},
            "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]},
            "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "a-gpu-x"}]},
        },
        Pod,
    )
    waiting = replace(owner, status=None)

    cluster = snapshot(claim(request(), name="a-gpu-x"))

    assert rejected(find_nodes(owner, cluster))[1] is Code.CLAIM_NOT_OWNED
    assert rejected(find_nodes(waiting, cluster))[1] is Code.CLAIM_NOT_CREATED


def test_a_search_that_costs_too_much_goes_on_with_the_next_attempt() -> None:
    in_use = allocated_claim(result("gpu-0", pool="node-2"), name="held")
    cluster = snapshot(in_use, claim(request(count=2), name="gpu"))
    only_node_3 = pod("gpu", nodeSelector={"zone": "none"})

    one_node = Limits(nodes=1, searches=1, steps=1)

    outcomes = [find_nodes(only_node_3, cluster, limits=one_node, max_parts=1) for _ in range(4)]

    assert outcomes[0] == unfinished(SEARCHING)
    assert rejected(outcomes[-1]) == (Verdict.UNRESOLVABLE, Code.NO_ELIGIBLE_NODE)


UUIDS: Final = [f"GPU-{number}" for number in range(64)]


def with_selector(expression: str, budget: int, monkeypatch: pytest.MonkeyPatch) -> Snapshot:
    """Return 16 nodes of four devices with a uuid each, and a claim with a selector."""
    clear_selector_caches()
    monkeypatch.setattr(decisions, "ANSWER_STEPS", budget)
    nodes = [node(f"node-{number:02}") for number in range(16)]
    slices = [
        slice_of(
            *(
                device(f"gpu-{uuid}", attributes={"uuid": uuid})
                for uuid in UUIDS[4 * number : 4 * number + 4]
            ),
            node=one.metadata.name,
            pool=one.metadata.name,
        )
        for number, one in enumerate(nodes)
    ]
    requested = claim(request("gpu", expression), name="gpu")
    return snapshot(requested, nodes=nodes, slices=slices)


PATTERNS: Final = f'device.attributes["{DRIVER}"].uuid.matches("(a|b|c){{40}}d")'
"""Costs a tenth of a millisecond on each device, in place."""


def test_evaluations_are_charged_where_nodes_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before any search. Evaluations are remembered, so that each attempt gets further."""
    cluster = with_selector(PATTERNS, 2_000, monkeypatch)

    attempts: list[Rejection] = []
    steps: list[int] = []
    while not attempts or attempts[-1].is_unfinished:
        before = cluster.cluster.costs.steps
        outcome = find_nodes(pod("gpu"), cluster)
        assert isinstance(outcome, Rejection)
        attempts.append(outcome)
        steps.append(cluster.cluster.costs.steps - before)

    assert 2 < len(attempts) < 32
    assert max(steps) < 1.5 * 2_000
    assert set(attempts[:-1]) == {unfinished(SEARCHING)}
    assert attempts[-1].code is Code.NO_DEVICES


def test_a_pod_waits_for_its_selectors_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    expression = f'device.attributes["{DRIVER}"].uuid == "{UUIDS[-1]}"'.ljust(SIMPLE_LENGTH + 1)
    cluster = with_selector(expression, 50_000, monkeypatch)
    store = AnswerStore()

    def attempt() -> tuple[Fits | NoDevicesNeeded | Rejection, Demand]:
        engine = DeferringEngine(store)
        with evaluating(engine=engine):
            return find_nodes(pod("gpu"), cluster), engine.demand

    def answer(demand: Demand) -> None:
        for (text, environment), projections in demand.questions.items():
            answered = workers.answers(Question(text, environment, tuple(projections), 60.0))
            compiled, verdicts = answered
            assert isinstance(compiled, Compiled)
            assert isinstance(verdicts, Verdicts)
            pairs = tuple(zip(projections, verdicts.verdicts, strict=True))
            key = digest(text, environment)
            store.add(key, compiled.names, pairs, tenant="", question=None)

    outcome, to_compile = attempt()
    assert outcome == unfinished(EVALUATING)
    answer(to_compile)
    outcome, to_evaluate = attempt()
    assert outcome == unfinished(EVALUATING)
    answer(to_evaluate)
    outcome, nothing = attempt()

    # The worker is asked twice, whatever the number of nodes: for the names, and for all devices.
    assert [len(projections) for projections in to_evaluate.questions.values()] == [64]
    assert names(outcome) == ["node-15"]
    assert not nothing.questions


def test_hard_claims_cost_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve parts that fit hardly on six devices, on nodes that are all different."""
    nodes = [node(f"node-{number}") for number in range(12)]
    cluster = snapshot(hard_claim(), nodes=nodes, slices=hard_slices(nodes))
    monkeypatch.setattr(decisions, "NODE_STEPS", 300)
    monkeypatch.setattr(decisions, "ANSWER_STEPS", 1_000)

    outcomes: list[Rejection] = []
    while not outcomes or outcomes[-1].is_unfinished:
        before = cluster.cluster.costs.steps
        outcome = find_nodes(pod("gpu"), cluster, limits=ONE_SEARCH)
        assert isinstance(outcome, Rejection)
        outcomes.append(outcome)
        assert 0 < cluster.cluster.costs.steps - before < 1_500

    assert len(outcomes) > 2
    assert set(outcomes[:-1]) == {unfinished(SEARCHING)}
    assert rejected(outcomes[-1]) == (Verdict.UNRESOLVABLE, Code.BUDGET_EXHAUSTED)


@pytest.mark.parametrize(
    ("strategy", "further_nodes"),
    [
        pytest.param("FirstFit", ENOUGH_NODES // 2, id="as many as ever, in turn"),
        pytest.param(
            "CompactFirst", ENOUGH_NODES // 2, id="as many as ever, if they may be better"
        ),
    ],
)
def test_an_answer_with_enough_nodes_looks_for_others(strategy: str, further_nodes: int) -> None:
    nodes = [node(f"node-{number:03}") for number in range(2 * MAX_NODES)]
    cluster = replace(
        snapshot(claim(request(), name="gpu"), nodes=nodes), default_strategy=strategy
    )
    half = Limits(nodes=ENOUGH_NODES // 2, searches=1, steps=100)

    counts = [
        len(names(find_nodes(pod("gpu"), cluster, limits=half, max_parts=1))) for _ in range(3)
    ]

    assert counts == [ENOUGH_NODES // 2, ENOUGH_NODES, ENOUGH_NODES + further_nodes]
