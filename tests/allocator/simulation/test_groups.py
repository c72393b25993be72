"""Groups in a simulation: placed with their first pod, together or not at all."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from allocator.cluster.cluster import Cluster
from allocator.declarations.collect import collect_groups
from allocator.declarations.pod_group import PodGroup
from allocator.model.plan import Budget
from allocator.nodes.node_resources import NodeResources, node_resources
from allocator.search.attempt import AllocatorOptions
from allocator.simulation.model import SimulationInput, SimulationOptions, SimulationResult
from allocator.simulation.simulate import simulate_in_order
from allocator.strategies.compact_first import COMPACT_FIRST
from allocator.strategies.low_load_first import LOW_LOAD_FIRST
from allocator.strategies.strategy import Strategy
from kube.api.core import Node, Pod
from kube.api.meta import ObjectMeta, convert
from kube.api.node_selector import NodeSelector, NodeSelectorTerm
from kube.api.resource import (
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
    ResourceSlice,
)
from testing.allocation.builders import (
    allocated_claim,
    claim,
    classes,
    devices,
    node,
    request,
    requirement,
    result,
    slice_of,
)


def pod(name: str, count: int = 1, group: str | None = "ring", **spec: Any) -> Pod:
    """A pod with a claim of its own for devices, or without one if `count` is 0."""
    entry = {"name": "gpu", "resourceClaimTemplateName": f"gpus-{count}"}
    return convert(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                **({"schedulingGroup": {"podGroupName": group}} if group else {}),
                "resourceClaims": [entry] if count else [],
                **spec,
            },
        },
        Pod,
    )


def gang(minimum: int, name: str = "ring", **spec: Any) -> PodGroup:
    return convert(
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}, **spec},
        },
        PodGroup,
    )


def template(count: int) -> ResourceClaimTemplate:
    return ResourceClaimTemplate(
        metadata=ObjectMeta(name=f"gpus-{count}", namespace="default"),
        spec=ResourceClaimTemplateSpec(spec=claim(request(count=count)).spec),
    )


def cpu_of_node(cores: str) -> NodeResources:
    """The resources of a node with so many cores, and with nothing on it."""
    return node_resources(convert({"status": {"allocatable": {"cpu": cores, "pods": "9"}}}, Node))


class World:
    """Two nodes, the first with two GPUs and the second with one, or with as many as `gpus` says."""

    def __init__(
        self,
        *groups: PodGroup,
        gpus: Mapping[str, int] | None = None,
        claims: Sequence[ResourceClaim] = (),
        running: Sequence[Pod] = (),
        resources: Mapping[str, NodeResources] | None = None,
        more: Sequence[ResourceSlice] = (),
        **labels: Mapping[str, str],
    ) -> None:
        sizes = gpus or {"node-a": 2, "node-b": 1}
        self.cluster = Cluster(
            slices=[
                *(
                    slice_of(*devices(*[f"gpu-{place}" for place in range(size)]), pool=name)
                    for name, size in sizes.items()
                ),
                *more,
            ],
            nodes=[node(name, **labels.get(name.replace("-", "_"), {})) for name in sizes],
            claims=claims,
            classes=classes(),
            options=AllocatorOptions(),
        )
        self._groups, self._running, self._resources = groups, running, resources
        self._claims = claims

    def place(self, *pods: Pod, **options: Any) -> SimulationResult:
        question = SimulationInput(
            pods=pods,
            known={("default", entry.metadata.name): entry for entry in self._claims},
            templates={("default", f"gpus-{count}"): template(count) for count in range(1, 5)},
            classes=classes(),
            resources=self._resources,
            groups=collect_groups(pods, self._running, self._groups),
        )
        return simulate_in_order(self.cluster, question, SimulationOptions(**options))


def nodes_of(answer: SimulationResult) -> dict[str, str | None]:
    return {placed.name: placed.node for placed in answer.pods}


def test_a_group_is_placed_whole_whatever_the_order_of_its_pods() -> None:
    answer = World(gang(2)).place(pod("small", 1), pod("large", 2))

    assert nodes_of(answer) == {"small": "node-b", "large": "node-a"}
    assert answer.all_placed
    assert answer.uses == {
        ("default", "small"): ("small-gpu",),
        ("default", "large"): ("large-gpu",),
    }


def test_pods_without_a_group_are_placed_one_by_one_as_before() -> None:
    answer = World().place(pod("small", 1, group=None), pod("large", 2, group=None))

    assert nodes_of(answer) == {"small": "node-a", "large": None}
    assert answer.groups == ()


def test_nothing_of_a_group_that_does_not_fit_is_placed() -> None:
    world = World(gang(4))
    before = world.cluster.usage

    answer = world.place(*[pod(f"pod-{number}") for number in range(4)])

    assert set(nodes_of(answer).values()) == {None}
    assert world.cluster.usage == before
    assert all(entry.allocation is None for entry in answer.claims)
    assert len(answer.claims) == 4
    (group,) = answer.groups
    assert (group.code, group.reason) == (
        "groupDoesNotFit",
        "3 of 4 pods fit, and 4 are needed; default/pod-3 fits nowhere beside them",
    )
    assert {entry.name: [reason.code for reason in entry.reasons] for entry in answer.nodes} == {
        "node-a": ["allocated"],
        "node-b": ["allocated"],
    }


def test_what_a_group_left_is_free_for_the_next_pod() -> None:
    waiting = [pod(f"pod-{number}") for number in range(4)]

    answer = World(gang(4)).place(*waiting, pod("single", 2, group=None))

    assert nodes_of(answer)["single"] == "node-a"


def test_a_pod_between_the_members_keeps_its_place_in_the_answer() -> None:
    answer = World(gang(2)).place(pod("one"), pod("single", group=None), pod("two"))

    assert [placed.name for placed in answer.pods] == ["one", "single", "two"]
    assert nodes_of(answer) == {"one": "node-a", "single": "node-b", "two": "node-a"}


def test_a_group_that_fails_does_not_move_another() -> None:
    world = World(gang(2, "fits"), gang(2, "fails"))

    answer = world.place(
        pod("a", group="fits"),
        pod("b", 2, group="fails"),
        pod("c", group="fits"),
        pod("d", 2, group="fails"),
    )

    assert nodes_of(answer) == {"a": "node-a", "b": None, "c": "node-a", "d": None}


def test_members_beyond_the_minimum_fail_nobody() -> None:
    answer = World(gang(2)).place(*[pod(f"pod-{number}") for number in range(4)])

    assert list(nodes_of(answer).values()) == ["node-a", "node-a", "node-b", None]
    assert answer.groups[0].placed == 3
    assert answer.groups[0].reason == ""
    assert not answer.all_placed


def test_members_beyond_the_minimum_stay_in_the_domain_of_the_group() -> None:
    rack_1, rack_2 = ({"example.com/rack": f"r{number}"} for number in (1, 2))
    group = gang(2, schedulingConstraints={"topology": [{"key": "example.com/rack"}]})
    world = World(group, node_a=rack_1, node_b=rack_2)
    answer = world.place(pod("one"), pod("two"), pod("three"), explained_failures=1)

    assert nodes_of(answer) == {"one": "node-a", "two": "node-a", "three": None}
    (failure,) = answer.failures
    reasons = {
        name: [reason.code for reason in group.reasons]
        for group in failure.groups or ()
        for name in group.nodes
    }
    assert failure.title == "Pod default/three"
    assert set(reasons["node-a"]) == {"allocated"}
    assert reasons["node-b"] == ["nodeNotEligible"]


def test_members_that_run_count_for_the_minimum() -> None:
    running = pod("pod-9", nodeName="node-a")
    holder = allocated_claim(result("gpu-0", pool="node-a"), name="pod-9-gpu")

    answer = World(gang(3), running=[running], claims=[holder]).place(pod("one"), pod("two"))

    assert nodes_of(answer) == {"one": "node-a", "two": "node-b"}
    assert answer.groups[0].running == 1


def test_a_group_with_too_few_pods_waits() -> None:
    answer = World(gang(3)).place(pod("one"), pod("two"))

    assert set(nodes_of(answer).values()) == {None}
    assert answer.groups[0].code == "groupIncomplete"
    assert answer.groups[0].reason == (
        "PodGroup default/ring needs 3 pods, and 2 exist; create 3 (parallelism and completions of a Job, or "
        "replicas), or write minCount: 2 in the group"
    )
    assert {reason.code for entry in answer.nodes for reason in entry.reasons} == {
        "groupIncomplete"
    }


def test_a_volcano_job_with_too_few_pods_is_told_its_own_fields() -> None:
    annotations = {
        "scheduling.k8s.io/group-name": "mpi",
        "scheduling.volcano.sh/group-min-member": "3",
    }
    metadata = {"namespace": "default", "annotations": annotations}
    pods = [convert({"metadata": {"name": name, **metadata}}, Pod) for name in ("one", "two")]

    answer = World().place(*pods)

    assert answer.groups[0].reason == (
        "Volcano PodGroup default/mpi needs 3 pods, and 2 exist; create 3 (replicas of a Volcano Job), or write "
        "minMember: 2 in the group (minAvailable of a Volcano Job)"
    )


def test_the_pods_of_a_missing_pod_group_wait() -> None:
    answer = World().place(pod("one"))

    assert nodes_of(answer) == {"one": None}
    assert answer.groups[0].code == "groupNotFound"


def test_a_pod_with_a_malformed_declaration_is_not_placed() -> None:
    answer = World().place(pod("one", schedulingGroup={"podGroupName": 5}))

    assert nodes_of(answer) == {"one": None}
    assert answer.groups == ()
    assert {reason.code for entry in answer.nodes for reason in entry.reasons} == {"invalidGroup"}
    assert [entry.name for entry in answer.claims] == ["one-gpu"]


def test_cpu_of_all_members_counts() -> None:
    resources = {"node-a": cpu_of_node("3"), "node-b": NodeResources()}
    cores = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    world = World(gang(2), resources=resources)

    answer = world.place(pod("one", 1, containers=cores), pod("launcher", 0, containers=cores))

    assert nodes_of(answer) == {"one": "node-a", "launcher": "node-b"}
    assert answer.resources is not None
    assert answer.resources["node-a"].requested.cpu_milli == 2000


def test_resources_are_given_back_where_a_group_does_not_fit() -> None:
    resources = {"node-a": cpu_of_node("2"), "node-b": cpu_of_node("2")}
    cores = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    world = World(gang(3), resources=resources)

    answer = world.place(*[pod(f"pod-{number}", 0, containers=cores) for number in range(3)])

    assert answer.groups[0].code == "groupDoesNotFit"
    assert answer.resources == resources


@pytest.mark.parametrize(
    ("strategy", "used"),
    [
        (None, {"node-a", "node-b"}),
        (COMPACT_FIRST, {"node-c"}),
        (LOW_LOAD_FIRST, {"node-a", "node-c"}),
    ],
)
def test_a_strategy_arranges_a_group(strategy: Strategy | None, used: set[str]) -> None:
    world = World(gang(2), gpus={"node-a": 1, "node-b": 1, "node-c": 2})

    answer = world.place(pod("one"), pod("two"), strategy=strategy)

    assert set(nodes_of(answer).values()) == used


def test_a_topology_constraint_keeps_a_group_together() -> None:
    constraints = {"topology": [{"key": "rack"}]}
    world = World(
        gang(3, schedulingConstraints=constraints),
        node_a={"rack": "one"},
        node_b={"rack": "two"},
    )

    answer = world.place(pod("one"), pod("two"), pod("three"))

    assert set(nodes_of(answer).values()) == {None}
    assert answer.groups[0].reason == (
        '2 of 3 pods fit, and 3 are needed on nodes with one "rack"; default/three fits nowhere '
        "beside them"
    )
    codes = {entry.name: [reason.code for reason in entry.reasons] for entry in answer.nodes}
    assert codes == {"node-a": ["allocated"], "node-b": ["groupDoesNotFit"]}


@pytest.mark.parametrize(
    ("labels", "hint"),
    [
        ({}, "; no node has this label: label the nodes, or write another topology key"),
        ({"rack": "one"}, ""),
    ],
)
def test_a_topology_label_that_no_node_has_is_told(labels: Mapping[str, str], hint: str) -> None:
    group = gang(2, schedulingConstraints={"topology": [{"key": "rack"}]})

    answer = World(group, node_a=labels).place(pod("one", 4), pod("two", 4))

    counts = '0 of 2 pods fit, and 2 are needed on nodes with one "rack"'
    assert answer.groups[0].reason == f"{counts}{hint}"


@pytest.mark.parametrize(
    ("gpus", "hint"),
    [
        (
            1,
            "; the nodes that could take one of them lack this label: label these, or write another topology key",
        ),
        (4, ""),
    ],
)
def test_a_topology_label_of_nodes_without_devices_is_told(gpus: int, hint: str) -> None:
    """`gpus` GPUs each: with more than a node has no label would help."""
    group = gang(2, schedulingConstraints={"topology": [{"key": "rack"}]})

    world = World(group, gpus={"node-a": 0, "node-b": 2}, node_a={"rack": "one"})
    answer = world.place(pod("one", gpus), pod("two", gpus))

    counts = '0 of 2 pods fit, and 2 are needed on nodes with one "rack"'
    assert answer.groups[0].reason == f"{counts}{hint}"


def test_the_label_of_a_topology_constraint_is_escaped() -> None:
    constraints = {"topology": [{"key": "\x1b[31m" + 5_000 * "a"}]}

    answer = World(gang(1, schedulingConstraints=constraints)).place(pod("one"))

    assert answer.groups[0].code == "groupDoesNotFit"
    assert "\x1b" not in answer.groups[0].reason
    assert len(answer.groups[0].reason) < 500


def test_nothing_is_placed_where_a_later_allocation_cannot_be_written() -> None:
    terms = tuple(
        NodeSelectorTerm(match_expressions=(requirement(label, operator="Exists"),))
        for label in ("network", "fabric")
    )
    for_all = slice_of(*devices("nic-0"), pool="for-all", all_nodes=True)
    for_two_terms = slice_of(
        *devices("nic-0"), pool="network", selector=NodeSelector(node_selector_terms=terms)
    )
    world = World(gang(5), more=[for_all, for_two_terms], node_b={"network": "fast"})
    before = world.cluster.usage

    answer = world.place(*[pod(f"pod-{number}") for number in range(5)])

    assert answer.error == "unsupported ResourceSlice.NodeSelector with 2 terms"
    assert set(nodes_of(answer).values()) == {None}
    assert all(entry.allocation is None for entry in answer.claims)
    assert world.cluster.usage == before


def test_a_budget_that_ends_is_not_a_no() -> None:
    answer = World(gang(2)).place(pod("small", 1), pod("large", 2), group_budget=Budget(steps=0))

    assert set(nodes_of(answer).values()) == {None}
    assert answer.groups[0].code == "budgetExhausted"
    assert answer.groups[0].reason.startswith("not decided: the search ended after ")


def test_a_missing_class_is_the_error_of_the_whole_simulation() -> None:
    world = World(gang(1))
    world.cluster.replace_classes({})

    answer = world.place(pod("one"))

    assert answer.error is not None
    assert answer.groups[0].code == "attemptFailed"


def test_the_closest_fit_of_equal_pods_suits_all_of_them() -> None:
    """The second pod alone fits with 3 devices, and then the third has no place."""
    world = World(gang(3), gpus={"node-a": 4, "node-b": 3})
    before = world.cluster.usage

    answer = world.place(*[pod(f"pod-{number}", 4) for number in range(3)], closest_fits=1)

    (failure,) = answer.failures
    assert failure.closest_fit is not None
    assert failure.closest_fit.fix == "request 2 devices in each of the 3 pods"
    assert failure.closest_fit_when_idle is None
    assert world.cluster.usage == before


def test_equal_pods_that_no_change_helps_have_no_closest_fit() -> None:
    world = World(gang(4), gpus={"node-a": 2, "node-b": 1})

    answer = world.place(*[pod(f"pod-{number}", 2) for number in range(4)], closest_fits=1)

    assert answer.failures[0].closest_fit is None


def test_the_closest_fit_of_different_pods_is_that_of_the_one_without_a_place() -> None:
    world = World(gang(2), gpus={"node-a": 2, "node-b": 1})

    answer = world.place(pod("large", 2), pod("wide", 3), closest_fits=1)

    (failure,) = answer.failures
    assert failure.closest_fit is not None
    assert failure.closest_fit.pods == 0
