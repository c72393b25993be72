"""Nodes take pods only while they have the CPU, the memory and everything else that is counted."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from allocator.cluster.cluster import Cluster
from allocator.nodes.node_resources import NodeResources, node_resources
from allocator.nodes.pod_requests import pod_request
from allocator.nodes.scoring import (
    DEFAULT_PROFILE,
    MOST_ALLOCATED_PROFILE,
    ScoringProfile,
)
from allocator.search.attempt import AllocatorOptions
from allocator.simulation.model import SimulationInput, SimulationOptions, SimulationResult
from allocator.simulation.simulate import simulate_in_order, simulate_together
from allocator.strategies.registry import find_strategy
from kube.api.core import Node, Pod
from kube.api.meta import convert
from testing.allocation.builders import claim, device_class, devices, node, request, slice_of
from testing.allocation.cases import held_claim

FPGA = "example.com/fpga"


def sized(name: str, cpu: str = "4", pods: str = "10", **more: Any) -> Node:
    spec = more.pop("spec", {})
    allocatable = {"cpu": cpu, "memory": "16Gi", "pods": pods, **more}
    document = {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": allocatable}}
    return convert(document, Node)


def asking(name: str, cpu: str = "", *claims: str, scheduler: str = "", **requests: str) -> Pod:
    amounts = {"cpu": cpu, **requests} if cpu else requests
    entries = [{"name": use, "resourceClaimName": use} for use in claims]
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": amounts}}]}
    spec |= {"resourceClaims": entries, "schedulerName": scheduler}
    return convert({"metadata": {"name": name, "namespace": "default"}, "spec": spec}, Pod)


def simulate(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    *,
    claims: Sequence[Any] = (),
    running: Mapping[str, Sequence[Pod]] = {},
    modelled: bool = True,
    on: str | None = None,
    extended: Mapping[str, str] = {},
    **options: Any,
) -> SimulationResult:
    classes = {"gpu": device_class()}
    cluster = Cluster(
        slices=[slice_of(*devices("gpu-0", "gpu-1"), pool=one.metadata.name) for one in nodes],
        nodes=nodes,
        claims=claims,
        classes=classes,
        options=AllocatorOptions(),
    )
    resources: dict[str, NodeResources] = {
        one.metadata.name: node_resources(one, map(pod_request, running.get(one.metadata.name, ())))
        for one in nodes
    }
    question = SimulationInput(
        pods=tuple(pods),
        known={("default", own.metadata.name): own for own in claims},
        classes=classes,
        extended_resources=extended,
        resources=resources if modelled else None,
    )
    if on is not None:
        return simulate_together(cluster, question, SimulationOptions(**options), on)
    return simulate_in_order(cluster, question, SimulationOptions(**options))


def places(answer: SimulationResult) -> list[str | None]:
    return [pod.node for pod in answer.pods]


def test_a_node_is_full_when_its_cpu_is_requested() -> None:
    nodes = [sized("a"), sized("b")]
    pods = [asking("1", "3"), asking("2", "3"), asking("3", "1"), asking("4", "2")]

    answer = simulate(nodes, pods)

    assert places(answer) == ["a", "b", "a", None]
    assert answer.failures[-1].event == "0/2 nodes are available: 2 Insufficient cpu."
    assert [
        (reason.code, reason.message) for result in answer.nodes[:1] for reason in result.reasons
    ] == [
        (
            "insufficientResource",
            "Insufficient cpu: the pod requests 2, and too little of 4 is left",
        )
    ]
    assert places(simulate(nodes, pods, modelled=False)) == ["a"] * 4


def test_pods_that_run_already_count_also_those_without_devices() -> None:
    running = {"a": [asking("old", "2"), asking("other", "500m")]}

    assert places(simulate([sized("a")], [asking("new", "2")], running=running)) == [None]
    assert places(simulate([sized("a")], [asking("new", "1500m")], running=running)) == ["a"]


def test_the_number_of_pods_is_limited() -> None:
    answer = simulate([sized("a", pods="1")], [asking("1"), asking("2", "8")])

    assert places(answer) == ["a", None]
    event = "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods."
    assert answer.failures[-1].event == event


def test_a_node_without_allocatable_has_no_limits() -> None:
    assert places(simulate([node("a")], [asking("1", "500"), asking("2", "500")])) == ["a", "a"]


def test_devices_are_looked_for_where_resources_are_left() -> None:
    claims = [claim(request(count=2), name="x"), claim(request(count=1), name="y")]
    pods = [asking("1", "3", "x"), asking("2", "3", "y")]

    answer = simulate([sized("a"), sized("b")], pods, claims=claims)

    assert places(answer) == ["a", "b"]
    assert [allocated.node for allocated in answer.claims] == ["a", "b"]


def test_reasons_are_counted_as_the_scheduler_counts_them() -> None:
    """One plugin rejects a node, in this order: taints, labels, resources, allocated claims, devices."""
    taints = [{"key": "k", "effect": "NoSchedule"}]
    nodes = [
        sized("tainted", cpu="1", spec={"taints": taints}),
        sized("small", cpu="1"),
        sized("without", cpu="8"),
        sized("cordoned", spec={"unschedulable": True}),
    ]
    claims = [claim(request(count=3), name="x")]

    answer = simulate(nodes, [asking("1", "2", "x", memory="20Gi")], claims=claims)
    assert answer.failures[-1].event == (
        "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), "
        "1 node(s) were unschedulable, 2 Insufficient memory."
    )
    answer = simulate(nodes, [asking("1", "2", "x")], claims=claims)
    assert answer.failures[-1].event == (
        "0/4 nodes are available: 1 Insufficient cpu, 1 cannot allocate all claims, "
        "1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."
    )


def test_of_a_claim_allocated_elsewhere_resources_are_counted_first() -> None:
    answer = simulate(
        [sized("node-1", cpu="1"), sized("node-2")],
        [asking("1", "2", "a")],
        claims=[held_claim("gpu-0", "node-3", name="a")],
    )

    assert answer.failures[-1].event == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 resourceclaim not available on the node."
    )


def test_a_resource_of_a_plugin_is_counted_and_one_of_a_class_is_not() -> None:
    pod = asking("1", "", **{FPGA: "2"})
    nodes = [sized("a", **{FPGA: "3"}), sized("b")]

    answer = simulate(nodes, [pod, pod])
    assert places(answer) == ["a", None]
    event = f"0/2 nodes are available: 2 Insufficient {FPGA}."
    assert answer.failures[-1].event == event
    assert [result.reasons[0].message for result in answer.nodes] == [
        f"Insufficient {FPGA}: the pod requests 2, and too little of 3 is left",
        f"no {FPGA} on the node, and no DeviceClass maps it",
    ]
    assert places(simulate(nodes, [pod, pod], extended={FPGA: "gpu"})) == ["a", "b"]


def test_the_limits_of_a_manifest_are_its_requests() -> None:
    limits = {"containers": [{"name": "c", "resources": {"limits": {"cpu": "5"}}}]}
    pod = convert({"metadata": {"name": "p", "namespace": "default"}, "spec": limits}, Pod)

    assert places(simulate([sized("a")], [pod])) == [None]


def test_together_all_pods_have_to_fit() -> None:
    answer = simulate([sized("a")], [asking("1", "3"), asking("2", "3")], on="a")

    assert places(answer) == [None, None]
    assert [reason.code for reason in answer.nodes[0].reasons] == ["insufficientResource"]
    assert places(simulate([sized("a")], [asking("1", "2"), asking("2", "2")], on="a")) == [
        "a",
        "a",
    ]


@pytest.mark.parametrize(
    ("want", "profile"),
    [("a", None), ("c", DEFAULT_PROFILE), ("b", MOST_ALLOCATED_PROFILE)],
    ids=["first by name", "LeastAllocated", "MostAllocated"],
)
def test_the_profile_of_the_pods_scheduler_decides(
    want: str, profile: ScoringProfile | None
) -> None:
    running = {"a": [asking("x", "1", memory="4Gi")], "b": [asking("y", "2", memory="8Gi")]}
    profiles = {} if profile is None else {"default-scheduler": profile}
    nodes = [sized("a"), sized("b"), sized("c")]
    pods = [asking("new", "1", memory="4Gi"), asking("other", "1", scheduler="another")]

    answer = simulate(nodes, pods, running=running, profiles=profiles)

    assert places(answer) == [want, "a"]


def test_with_the_bridges_plugin_the_strategy_counts_by_its_weight() -> None:
    claims = [claim(request(), name="x"), held_claim("gpu-0", "b", name="old")]
    running = {"b": [asking("y", "2", memory="8Gi")]}
    strategy = find_strategy("CompactFirst")
    nodes, pods = [sized("a"), sized("b")], [asking("new", "1", "x")]

    def place(weight: int | None) -> str | None:
        profile = ScoringProfile(strategy_weight=weight)
        return places(
            simulate(
                nodes,
                pods,
                claims=claims,
                running=running,
                profiles={"default-scheduler": profile},
                strategy=strategy,
            )
        )[0]

    assert (place(None), place(100)) == ("a", "b")
