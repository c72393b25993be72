"""The groups of a cluster: its pods by their declarations, with the minimum of each group."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from allocator.declarations.agreement import pod_faults
from allocator.declarations.minimum import GangMinimum, gang_minimum
from allocator.declarations.model import Declaration, DeclaredGroup, GroupName, GroupSystem
from allocator.declarations.pod_group import PodGroup
from allocator.declarations.read import read_declaration
from allocator.groups.model import MAX_MEMBERS
from allocator.pods.claims import pod_name
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.similar_names import MISSPELT, most_similar_name
from findings.text import quote_text
from kube.api import urls
from kube.api.core import Pod
from kube.names import SCHEDULER_NAME

POD_GROUP_RESOURCES: Final = {
    GroupSystem.KUBERNETES: urls.POD_GROUPS,
    GroupSystem.KOORDINATOR: urls.SIGS_POD_GROUPS,
    GroupSystem.VOLCANO: urls.VOLCANO_POD_GROUPS,
    GroupSystem.COSCHEDULING: urls.COSCHEDULING_POD_GROUPS,
    GroupSystem.KAI: urls.KAI_POD_GROUPS,
}
"""The PodGroups of each system."""


_MAX_COMPARED: Final = 64
_MAX_SHOWN: Final = 253


class PodGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of some pods.

    Attributes:
        groups: The groups with a pod that waits, in order of the first of these.
        faults: Namespace and name of a pod that waits to what is wrong with its declaration or its group.
        remarks: The same to what is wrong with its group, and keeps nobody from a decision.
    """

    groups: tuple[DeclaredGroup, ...] = ()
    faults: Mapping[tuple[str, str], Finding] = msgspec.field(default_factory=dict)
    remarks: Mapping[tuple[str, str], Finding] = msgspec.field(default_factory=dict)


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with its declaration."""

    pod: Pod
    declaration: Declaration


def collect_groups(
    waiting: Sequence[Pod],
    running: Iterable[Pod],
    objects: Iterable[PodGroup],
    bridge_scheduler: str = SCHEDULER_NAME,
    held_back: Iterable[Pod] = (),
) -> PodGroups:
    """Return the groups of pods that wait for a node.

    Args:
        waiting: The pods, in the order in which they are scheduled, with the schedulerName that they get.
        running: The other pods of the cluster that have a node and have not ended.
        objects: The PodGroups of the cluster, of any scheduler.
        bridge_scheduler: schedulerName of the bridge.
        held_back: Further pods without a node, of which no one is tried since a quota leaves too little.
    """
    by_name = {
        (group.group, group.metadata.namespace, group.metadata.name): group for group in objects
    }
    entries: dict[GroupName, list[_Entry]] = {}
    faults: dict[tuple[str, str], Finding] = {}
    remarks: dict[tuple[str, str], Finding] = {}
    for pod in waiting:
        reading = read_declaration(pod)
        if isinstance(reading, Finding):
            faults[pod.metadata.namespace, pod.metadata.name] = reading
        elif reading is not None:
            entry = _Entry(pod=pod, declaration=reading)
            entries.setdefault(reading.group, []).append(entry)
    placed: dict[GroupName, list[_Entry]] = {}
    for pod in running if entries else ():
        reading = read_declaration(pod)
        if isinstance(reading, Declaration) and reading.group in entries:
            entry = _Entry(pod=pod, declaration=reading)
            placed.setdefault(reading.group, []).append(entry)
    held_back_by_group = Counter(
        reading.group
        for pod in held_back
        if isinstance(reading := read_declaration(pod), Declaration)
    )
    groups: list[DeclaredGroup] = []
    for name, members in entries.items():
        object_ = by_name.get((POD_GROUP_RESOURCES[name.system].group, name.namespace, name.name))
        running_members = placed.get(name, ())
        pods = [entry.pod for entry in (*members, *running_members)]
        is_of_bridge = any(pod.spec.scheduler_name == bridge_scheduler for pod in pods)
        group = _group(name, members, running_members, object_, is_of_bridge=is_of_bridge)
        if group is None:
            continue
        fault = group.fault
        if fault is not None:
            fault = _with_similar(name, fault, by_name)
            faults |= _at_declarations(members, fault)
        else:
            of_pods = _at_pods(members, pod_faults(name, pods, object_, bridge_scheduler))
            faults |= of_pods
            fault = next(iter(of_pods.values()), None)
            dispute = _dispute(name, (*members, *running_members), object_)
            if dispute is not None:
                detail = f"{dispute.detail}; the bridge takes the number of the pods"
                remark = msgspec.structs.replace(dispute, detail=detail)
                remarks |= _at_declarations(members, remark)
        groups.append(
            msgspec.structs.replace(
                group,
                min_count=group.min_count if fault is None else 0,
                fault=fault,
                held_back=held_back_by_group[name],
            )
        )
    return PodGroups(groups=tuple(groups), faults=faults, remarks=remarks)


def without_denied(groups: PodGroups, refusals: Mapping[tuple[str, str], Finding]) -> PodGroups:
    """Return groups without denied pods; a group in need of these has a fault.

    Args:
        refusals: Namespace and name of each denied pod to the reason.
    """
    if not refusals:
        return groups
    left: list[DeclaredGroup] = []
    for group in groups.groups:
        denied = [pod for pod in group.waiting if _place(pod) in refusals]
        waiting = tuple(pod for pod in group.waiting if _place(pod) not in refusals)
        is_enough = waiting and len(waiting) + len(group.placed) >= group.min_count
        if not denied or group.fault is not None:
            left.append(group)
        elif is_enough:
            left.append(msgspec.structs.replace(group, waiting=waiting))
        else:
            refusal = refusals[_place(denied[0])]
            detail = f"{quote_text(pod_name(denied[0])[:_MAX_SHOWN])} is denied: {refusal.detail}"
            fault = msgspec.structs.replace(refusal, path=FieldPath(), detail=detail)
            left.append(msgspec.structs.replace(group, fault=fault, min_count=0))
    return msgspec.structs.replace(groups, groups=tuple(left), faults={**refusals, **groups.faults})


def _at_declarations(
    members: Iterable[_Entry], finding: Finding
) -> Mapping[tuple[str, str], Finding]:
    """Return a finding about a group at the field of each pod that names the group."""
    return {
        _place(member.pod): msgspec.structs.replace(finding, path=member.declaration.path)
        for member in members
    }


def _at_pods(
    members: Sequence[_Entry], faults: Iterable[tuple[Pod, Finding]]
) -> Mapping[tuple[str, str], Finding]:
    """Return the first fault of each pod that waits; that of a running one stands at the first pod that waits."""
    places = [_place(member.pod) for member in members]
    of_pods: dict[tuple[str, str], Finding] = {}
    for pod, fault in faults:
        place = _place(pod)
        of_pods.setdefault(place if place in places else places[0], fault)
    return of_pods


def _place(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name


def _group(
    name: GroupName,
    members: Sequence[_Entry],
    placed: Sequence[_Entry],
    object_: PodGroup | None,
    *,
    is_of_bridge: bool,
) -> DeclaredGroup | None:
    """Return a group; None if its pods are scheduled one by one.

    Args:
        is_of_bridge: Pods of the group go to the bridge.
    """
    if object_ is None and name.system is GroupSystem.KAI:
        return None  # KAI's controller makes the PodGroup when the pods exist.
    minimum = (
        _minimum_of_kubernetes(name, object_)
        if name.system is GroupSystem.KUBERNETES
        else _minimum_of_gang(name, (*members, *placed), object_, is_of_bridge=is_of_bridge)
    )
    if minimum is None:
        return None
    domain, needs_one_domain = _domain(object_)
    fault = minimum if isinstance(minimum, Finding) else _size_fault(name, minimum, len(members))
    return DeclaredGroup(
        name=name,
        min_count=minimum if fault is None and isinstance(minimum, int) else 0,
        waiting=tuple(member.pod for member in members),
        placed=tuple(member.pod.spec.node_name for member in placed),
        domain=domain,
        needs_one_domain=needs_one_domain,
        fault=fault,
    )


def _with_similar(
    name: GroupName, fault: Finding, known_names: Iterable[tuple[str, str, str]]
) -> Finding:
    """Return a finding on a group that does not exist with the name that was probably meant, if there is one."""
    if fault.code is not Code.GROUP_NOT_FOUND:
        return fault
    place = (POD_GROUP_RESOURCES[name.system].group, name.namespace)
    candidates = (other for group, namespace, other in known_names if (group, namespace) == place)
    similar = most_similar_name(name.name, islice(candidates, _MAX_COMPARED), MISSPELT)
    if not similar:
        return fault
    fix = f"did you mean {quote_text(similar)}? If not, {fault.fix}"
    return msgspec.structs.replace(fault, fix=fix)


def _minimum_of_kubernetes(name: GroupName, object_: PodGroup | None) -> int | Finding | None:
    """Return the minimum of a PodGroup; None for one with pods that are scheduled one by one."""
    if object_ is None:
        return _not_found(name)
    parent = object_.spec.parent_composite_pod_group_name
    if parent:
        return warning(
            Code.COMPOSITE_GROUP,
            FieldPath(),
            f"{name} is a part of the composite group {quote_text(parent[:_MAX_SHOWN])}; only kube-scheduler places its pods, "
            "and the bridge rejects those with claims",
            "leave parentCompositePodGroupName out for pods of the bridge",
        )
    policy = object_.spec.scheduling_policy
    if policy is not None and policy.gang is not None and policy.basic is not None:
        return error(
            Code.INVALID_GROUP,
            FieldPath(),
            f"{name} has the policies basic and gang, and the API server accepts one",
            "write gang for pods that are placed together, or basic for pods that are placed one by one",
        )
    if policy is None or policy.gang is None:
        return None
    return _checked_minimum(name, policy.gang.min_count)


def _minimum_of_gang(
    name: GroupName, members: Sequence[_Entry], object_: PodGroup | None, *, is_of_bridge: bool
) -> int | Finding:
    """Return the minimum of a gang of another scheduler; in the bridge also of one with another number in its PodGroup."""
    minimum = gang_minimum((member.declaration.min_count for member in members), object_)
    if minimum.number is None:
        return _not_found(name)
    dispute = _dispute(name, members, object_)
    if dispute is not None and not (is_of_bridge and len(minimum.of_pods) == 1):
        return dispute
    return _checked_minimum(name, minimum.number)


def _dispute(
    name: GroupName, members: Sequence[_Entry], object_: PodGroup | None
) -> Finding | None:
    """Return the finding on a gang of another scheduler that needs several numbers of pods; None without one."""
    if name.system is GroupSystem.KUBERNETES:
        return None
    minimum = gang_minimum((member.declaration.min_count for member in members), object_)
    return _disputed(name, minimum) if minimum.is_disputed else None


def _checked_minimum(name: GroupName, minimum: int) -> int | Finding:
    if minimum >= 1:
        return minimum
    return error(
        Code.INVALID_GROUP,
        FieldPath(),
        f"{name} needs {minimum} pods",
        "write a minimum from 1 on",
    )


def _not_found(name: GroupName) -> Finding:
    return warning(
        Code.GROUP_NOT_FOUND,
        FieldPath(),
        f"{name} does not exist, and no scheduler places its pods before it does",
        "create it with the number of pods that it needs",
    )


def _disputed(name: GroupName, minimum: GangMinimum) -> Finding:
    """Return the finding on a group that needs several numbers of pods."""
    *others, last = map(str, minimum.of_pods)
    numbers = f"{', '.join(others)} and {last}" if others else last
    if minimum.of_object is None:
        return error(
            Code.GROUP_MINIMUM_DIFFERS,
            FieldPath(),
            f"pods of {name} disagree on the number of pods that it needs: {numbers}",
            "write one number on all of them",
        )
    return warning(
        Code.GROUP_MINIMUM_DIFFERS,
        FieldPath(),
        f"pods of {name} say that it needs {numbers} pods, and minMember of its own PodGroup is "
        f"{minimum.of_object}",
        "write one number on all of them, and into minMember",
    )


def _size_fault(name: GroupName, minimum: int, members: int) -> Finding | None:
    """Return the finding on a group with too many waiting or needed pods."""
    if max(minimum, members) <= MAX_MEMBERS:
        return None
    has = f"needs {minimum} pods" if minimum > members else f"has {members} pods without a node"
    return error(
        Code.GROUP_TOO_LARGE,
        FieldPath(),
        f"{name} {has}, and at most {MAX_MEMBERS} are decided together",
        "divide the group",
    )


def _domain(object_: PodGroup | None) -> tuple[str, bool]:
    """Return the label of a group's domains, and True if it needs one of them alone.

    Of a KAI PodGroup with both levels the preferred one is not modelled.
    """
    if object_ is None:
        return "", False
    constraints, kai_constraint = (
        object_.spec.scheduling_constraints,
        object_.spec.topology_constraint,
    )
    if constraints is not None and constraints.topology:
        return constraints.topology[0].key, True
    if kai_constraint is None:
        return "", False
    required = kai_constraint.required_topology_level
    return required or kai_constraint.preferred_topology_level, bool(required)
