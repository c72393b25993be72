"""The groups of a cluster: minimums, members that run, and faults of a group."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from allocator.declarations.collect import PodGroups, collect_groups
from allocator.declarations.pod_group import PodGroup
from allocator.groups.model import MAX_MEMBERS
from findings.finding import Severity
from kube.api.core import Pod
from kube.api.meta import convert
from kube.names import SCHEDULER_NAME

NAME = "gang.scheduling.koordinator.sh/name"
MINIMUM = "gang.scheduling.koordinator.sh/min-available"


def member(name: str, minimum: str | None = None, node: str = "", **group: Any) -> Pod:
    """A pod of Koordinator's gang `ring`, or of the PodGroup in `schedulingGroup`."""
    annotations = {} if group else {NAME: "ring"}
    if minimum is not None:
        annotations[MINIMUM] = minimum
    metadata = {"name": name, "namespace": "team", "annotations": annotations}
    return convert({"metadata": metadata, "spec": {"nodeName": node, **group}}, Pod)


def native(name: str, node: str = "") -> Pod:
    return member(name, node=node, schedulingGroup={"podGroupName": "ring"})


def pod_group(api_version: str = "scheduling.k8s.io/v1beta1", **spec: Any) -> PodGroup:
    return convert(
        {
            "apiVersion": api_version,
            "metadata": {"name": "ring", "namespace": "team"},
            "spec": spec,
        },
        PodGroup,
    )


def gang(minimum: int, **spec: Any) -> PodGroup:
    return pod_group(schedulingPolicy={"gang": {"minCount": minimum}}, **spec)


def collected(waiting: Sequence[Pod], *objects: PodGroup, running: Sequence[Pod] = ()) -> PodGroups:
    return collect_groups(waiting, running, objects)


def codes(groups: PodGroups) -> dict[str, str]:
    return {name: fault.code.value for (_, name), fault in groups.faults.items()}


def test_the_minimum_is_that_of_the_pod_group() -> None:
    (group,) = collected([native("a"), native("b")], gang(2)).groups

    assert str(group.name) == "PodGroup team/ring"
    assert group.min_count == 2
    assert [pod.metadata.name for pod in group.waiting] == ["a", "b"]


def test_members_that_run_are_placed() -> None:
    (group,) = collected([native("a")], gang(2), running=[native("b", node="node-b")]).groups

    assert group.placed == ("node-b",)


def test_a_topology_constraint_is_a_domain() -> None:
    constraints = {"topology": [{"key": "rack"}]}
    (group,) = collected([native("a")], gang(1, schedulingConstraints=constraints)).groups

    assert (group.domain, group.needs_one_domain) == ("rack", True)


@pytest.mark.parametrize(
    ("needs_one_domain", "levels"),
    [
        (True, {"requiredTopologyLevel": "rack", "preferredTopologyLevel": "host"}),
        (False, {"preferredTopologyLevel": "rack"}),
    ],
)
def test_kais_levels_are_domains(needs_one_domain: bool, levels: dict[str, str]) -> None:
    metadata = {"name": "a", "namespace": "team", "annotations": {"pod-group-name": "ring"}}
    object_ = pod_group(
        "scheduling.run.ai/v2alpha2",
        minMember=1,
        topologyConstraint={"topology": "site", **levels},
    )

    (group,) = collected([convert({"metadata": metadata}, Pod)], object_).groups

    assert (group.domain, group.needs_one_domain) == ("rack", needs_one_domain)


@pytest.mark.parametrize("spec", [{}, {"schedulingPolicy": {"basic": {}}}])
def test_pods_of_a_basic_group_are_scheduled_one_by_one(spec: dict[str, Any]) -> None:
    assert collected([native("a")], pod_group(**spec)) == PodGroups()


def test_koordinators_pods_may_declare_the_minimum_themselves() -> None:
    (group,) = collected([member("a", "2"), member("b", "2"), member("c")]).groups

    assert group.min_count == 2


def koordinators_pod_group(**spec: Any) -> PodGroup:
    return pod_group("scheduling.sigs.k8s.io/v1alpha1", **spec)


@pytest.mark.parametrize(
    ("expected", "annotation", "spec"),
    [
        (3, None, {"minMember": 3}),
        (3, "3", {"minMember": 3}),
        (2, "2", {}),
        (1, None, {}),
    ],
)
def test_pods_and_their_pod_group_say_one_number(
    expected: int, annotation: str | None, spec: dict[str, Any]
) -> None:
    groups = collected([member("a", annotation)], koordinators_pod_group(**spec))

    assert groups.groups[0].min_count == expected


def test_a_pod_group_that_its_pods_disagree_with_is_a_warning() -> None:
    """The bridge takes the number of the pods, and Koordinator the one that it sees first."""
    groups = collected([member("a", "2"), member("b")], koordinators_pod_group(minMember=3))

    assert codes(groups) == dict.fromkeys("ab", "groupMinimumDiffers")
    assert groups.faults["team", "a"].severity is Severity.WARNING
    assert groups.faults["team", "a"].message == (
        "pods of Koordinator gang team/ring say that it needs 2 pods, and minMember of its own PodGroup is 3"
    )


def test_a_gang_of_the_bridge_has_the_number_of_its_pods() -> None:
    """`simulate` refused it, and the bridge places it."""
    pods = [
        replace(pod, spec=replace(pod.spec, scheduler_name=SCHEDULER_NAME))
        for pod in (member("a", "2"), member("b", "2"))
    ]
    groups = collected(pods, koordinators_pod_group(minMember=3))

    assert (groups.groups[0].min_count, groups.groups[0].fault, groups.faults) == (2, None, {})
    assert groups.remarks["team", "a"].detail == (
        "pods of Koordinator gang team/ring say that it needs 2 pods, and minMember of its own PodGroup is 3; "
        "the bridge takes the number of the pods"
    )


def test_a_pod_of_a_group_has_the_fault_that_is_its_own() -> None:
    """The fault of the first pod stood at each, at the name of the group."""
    low = member("c", schedulingGroup={"podGroupName": "ring"}, priority=1)
    groups = collected([native("a"), low], gang(1, priority=5))

    assert {name: str(fault.path) for (_, name), fault in groups.faults.items()} == {
        "c": "spec.priorityClassName"
    }
    assert groups.groups[0].fault is not None


def test_a_pod_group_of_another_scheduler_is_not_the_pods() -> None:
    object_ = pod_group("scheduling.volcano.sh/v1beta1", minMember=3)

    assert codes(collected([native("a")], object_)) == {"a": "groupNotFound"}


def test_members_that_disagree_are_an_error() -> None:
    groups = collected([member("a", "2"), member("b", "3"), member("c", "3")])

    assert codes(groups) == dict.fromkeys("abc", "groupMinimumDiffers")
    assert groups.groups[0].fault is not None
    assert groups.faults["team", "a"].severity is Severity.ERROR
    assert groups.faults["team", "a"].message == (
        "pods of Koordinator gang team/ring disagree on the number of pods that it needs: 2 and 3"
    )


def test_a_running_member_may_disagree_as_well() -> None:
    groups = collected([member("a", "2")], running=[member("b", "3", node="node-a")])

    assert codes(groups) == {"a": "groupMinimumDiffers"}


def test_a_group_that_nobody_describes_is_a_warning() -> None:
    groups = collected([native("a")])

    assert codes(groups) == {"a": "groupNotFound"}
    assert groups.faults["team", "a"].severity is Severity.WARNING


@pytest.mark.parametrize("minimum", [0, -1])
def test_a_minimum_below_one_is_an_error(minimum: int) -> None:
    assert codes(collected([native("a")], gang(minimum))) == {"a": "invalidGroup"}


def test_a_malformed_declaration_is_a_fault_of_the_pod_alone() -> None:
    groups = collected([member("a", "all"), member("b", "1")])

    assert codes(groups) == {"a": "invalidGroup"}
    assert [pod.metadata.name for pod in groups.groups[0].waiting] == ["b"]


def test_a_group_has_a_largest_size() -> None:
    pods = [native(f"pod-{number}") for number in range(MAX_MEMBERS + 1)]

    assert set(codes(collected(pods, gang(2))).values()) == {"groupTooLarge"}
    assert codes(collected(pods[:-1], gang(2))) == {}


def test_kais_pods_are_scheduled_one_by_one_until_their_pod_group_exists() -> None:
    metadata = {"name": "a", "namespace": "team", "annotations": {"pod-group-name": "ring"}}
    pod = convert({"metadata": metadata}, Pod)
    object_ = pod_group("scheduling.run.ai/v2alpha2", minMember=1)

    assert collected([pod]) == PodGroups()
    assert collected([pod], object_).groups[0].min_count == 1


def test_a_group_of_a_composite_group_is_not_placed() -> None:
    groups = collected([native("a")], gang(1, parentCompositePodGroupName="rings"))

    assert codes(groups) == {"a": "compositeGroup"}
    (fault,) = groups.faults.values()
    assert 'is a part of the composite group "rings"' in fault.message
    assert fault.severity is Severity.WARNING


def test_a_group_with_two_policies_is_invalid() -> None:
    policy = {"basic": {}, "gang": {"minCount": 1}}
    groups = collected([native("a")], pod_group(schedulingPolicy=policy))

    assert codes(groups) == {"a": "invalidGroup"}
    (fault,) = groups.faults.values()
    assert "has the policies basic and gang" in fault.message
