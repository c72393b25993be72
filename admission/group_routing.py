"""The scheduler and the PodGroup of a new pod that belongs to a group; pure.

kube-scheduler fails a PodGroup whose pods differ in schedulerName or priority, and neither can be changed
later. So the pods of a PodGroup go to one scheduler, the launcher without claims with its workers. It is
decided by the first of:

1. the pod, if it names a scheduler of its own, or has claims of owned drivers;
2. the annotation `drawbridge.internal/scheduler` of the PodGroup, which people write, and the controllers for
   the PodGroups that they create;
3. the claims of the PodGroup;
4. the claims of the pod, if it has any, as for a pod without a group;
5. the owner: a PodGroup of the pod's own controller has pods of one template.

Where none of them tells it, the pod is denied. A pod that goes to the bridge for its allocated claims alone is
never denied for its group: kube-scheduler can bind it, too, so it stays there where its group does not let it go.

A gang of another scheduler becomes a PodGroup: its pods that go to the bridge get a `schedulingGroup`, which
cannot be added later, and `controllers/groups` creates the PodGroup. A pod without claims follows once the
PodGroup is there; before that nothing tells whether the gang is the bridge's, and its scheduler may be one
that knows the gang, so it is left as it is.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/schedule_one_podgroup.go, validatePodGroup.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from admission.pods import UNTOUCHED, Answer, Decision
from admission.routing import Bridge, route_pod, routed
from allocator.declarations.adopted import adopted_name
from allocator.declarations.agreement import member_fault, recorded_scheduler, scheduler_fault
from allocator.declarations.group_claims import check_group_claims
from allocator.declarations.model import Declaration, GroupName
from allocator.declarations.pod_group import PodGroup
from allocator.declarations.read import read_gang
from allocator.groups.model import MAX_MEMBERS
from findings.field_path import FieldPath
from findings.finding import Code, Finding, Severity, error, warning
from findings.text import quote_text
from kube.api.core import Pod, PodSpec
from kube.jsonpatch import add, pointer
from kube.names import DEFAULT_SCHEDULER_NAME, GROUP_SCHEDULER_ANNOTATION
from rules.context.claim_drivers import ClaimDrivers
from rules.context.context import Context
from rules.context.pod_scheduler import CLAIMS, drivers_of_pod, scheduler_of_pod

GROUP_PATH: Final = FieldPath.of("spec", "schedulingGroup", "podGroupName")
_NO_DRIVERS: Final[Mapping[str, frozenset[str]]] = MappingProxyType({})


class Groups(NamedTuple):
    """The known PodGroups.

    Attributes:
        by_name: Namespace and name to PodGroup.
        is_served: Whether the API server has PodGroups.
        adopts: Whether gangs of other schedulers become PodGroups.
    """

    by_name: Mapping[tuple[str, str], PodGroup] = MappingProxyType({})
    is_served: bool = False
    adopts: bool = True


class _Member(NamedTuple):
    """A new pod of a group, and all that decides about it.

    Attributes:
        own_answer: The answer to the pod by itself.
        derived: Template name to drivers, as for `route_pod`.
    """

    pod: Pod
    namespace: str
    context: Context
    bridge: Bridge
    groups: Groups
    own_answer: Answer
    derived: Mapping[str, frozenset[str]]

    @property
    def goes_to_bridge(self) -> bool:
        """Return True if the pod by itself goes to the bridge."""
        return (
            self.own_answer.decision is Decision.ROUTED
            or self.pod.spec.scheduler_name == self.bridge.scheduler
        )

    def drivers(self) -> ClaimDrivers:
        """Return the drivers of the pod's open claims."""
        return drivers_of_pod(self.pod, self.namespace, self.context, self.derived).drivers


def route_member(
    pod: Pod,
    namespace: str,
    context: Context,
    bridge: Bridge,
    *,
    groups: Groups,
    derived: Mapping[str, frozenset[str]] = _NO_DRIVERS,
) -> Answer:
    """Answer the creation of a pod with claims, or with a group; see `route_pod` for one without a group.

    Args:
        namespace: The pod's namespace.
        groups: The PodGroups of the cluster.
        derived: The same value as for `route_pod`.

    Raises:
        AnswerInterrupted: Selectors of a claim count, and are not evaluated yet.
    """
    own_answer = route_pod(pod, namespace, context, bridge, derived)
    is_foreign = pod.spec.scheduler_name not in {"", DEFAULT_SCHEDULER_NAME, bridge.scheduler}
    if not context.owned_drivers or pod.spec.node_name or is_foreign or not own_answer.allowed:
        return own_answer
    member = _Member(pod, namespace, context, bridge, groups, own_answer, derived)
    answer = _route_in_group(member)
    if answer.allowed or own_answer.decision is not Decision.ROUTED or member.drivers().all:
        return answer
    return _route_in_group(member._replace(own_answer=UNTOUCHED))


def _route_in_group(member: _Member) -> Answer:
    if member.pod.spec.scheduling_group:
        return _route_group_member(member, member.pod.spec.scheduling_group.get("podGroupName"))
    return _route_gang_member(member)


class AdmittedMember(NamedTuple):
    """A new pod after its admission.

    Attributes:
        scheduler: Its schedulerName, also of one that follows its group.
        refusal: The reason it is denied for the sake of its group; None if it is not.
    """

    scheduler: str
    refusal: Finding | None = None


def admit_member(
    pod: Pod,
    namespace: str,
    context: Context,
    groups: Groups,
    derived: Mapping[str, frozenset[str]] = _NO_DRIVERS,
) -> AdmittedMember:
    """Return a new pod after its admission.

    Args:
        namespace: The pod's namespace.
        groups: The PodGroups of the cluster.
        derived: The same value as for `route_pod`.
    """
    bridge = Bridge(context.bridge_scheduler)
    answer = route_member(pod, namespace, context, bridge, groups=groups, derived=derived)
    if answer.decision is Decision.ROUTED:
        return AdmittedMember(bridge.scheduler)
    if answer.allowed:
        return AdmittedMember(pod.spec.scheduler_name)
    scheduler = scheduler_of_pod(pod, namespace, context, derived)
    # A pod that is denied by itself has no answer about its group.
    is_refused = route_pod(pod, namespace, context, bridge, derived).allowed
    return AdmittedMember(scheduler, answer.findings[0] if is_refused else None)


def is_group_unknown(answer: Answer) -> bool:
    """Return True if an answer depends on a PodGroup that may be known a moment later."""
    return any(finding.code is Code.GROUP_SCHEDULER_UNKNOWN for finding in answer.findings)


# --- PodGroups ------------------------------------------------------------------------------------


def _route_group_member(member: _Member, name: object) -> Answer:
    """Answer for a pod with a `schedulingGroup`."""
    if not isinstance(name, str):
        return member.own_answer  # The API server rejects it.
    group = member.groups.by_name.get((member.namespace, name))
    answer = _group_answer(member, name, group)
    if group is None or not answer.allowed:
        return answer
    return _with_findings(answer, *check_group_claims(member.pod, group))


def _group_answer(member: _Member, name: str, group: PodGroup | None) -> Answer:
    """Answer by the scheduler of a PodGroup."""
    recorded = recorded_scheduler(group)
    scheduler = member.bridge.scheduler
    if member.goes_to_bridge:
        if recorded and recorded != scheduler:
            return _refused(scheduler_fault(name, recorded, scheduler))
        return _checked(member, group, member.own_answer)
    if recorded == scheduler or (not recorded and _has_owned_claims(member, group)):
        drivers = member.drivers().all - member.context.owned_drivers
        if drivers:
            return _refused(_driver_differs(name, scheduler, min(drivers)))
        return _checked(
            member, group, routed(member.pod, member.bridge, *member.own_answer.findings)
        )
    if recorded or member.pod.spec.resource_claims or _has_owner_of(member.pod, group):
        return member.own_answer
    return _refused(_scheduler_unknown(name, group, scheduler))


def _has_owned_claims(member: _Member, group: PodGroup | None) -> bool:
    """Return True if a claim of the PodGroup itself is of drivers that the bridge owns."""
    if group is None or not group.spec.resource_claims:
        return False
    pod = Pod(spec=PodSpec(resource_claims=group.spec.resource_claims))
    drivers = drivers_of_pod(pod, member.namespace, member.context).drivers.all
    return bool(drivers) and drivers <= member.context.owned_drivers


def _has_owner_of(pod: Pod, group: PodGroup | None) -> bool:
    """Return True if a PodGroup and a pod have one controller; its pods are of one template."""
    if group is None:
        return False
    controllers = {
        owner.uid for owner in pod.metadata.owner_references or () if owner.controller and owner.uid
    }
    return any(owner.uid in controllers for owner in group.metadata.owner_references or ())


def _checked(member: _Member, group: PodGroup | None, answer: Answer) -> Answer:
    """Return an answer, or a refusal of a pod with another priority than its PodGroup."""
    fault = member_fault(member.pod, group) if group is not None else None
    return answer if fault is None or fault.severity is not Severity.ERROR else _refused(fault)


# --- gangs of other schedulers --------------------------------------------------------------------


def _route_gang_member(member: _Member) -> Answer:
    """Answer for a pod without a `schedulingGroup` that may belong to a gang of another scheduler."""
    gang = read_gang(member.pod)
    if gang is None:
        return member.own_answer
    if isinstance(gang, Finding):
        return _refused(gang) if member.goes_to_bridge else member.own_answer
    groups = member.groups
    if not (groups.is_served and groups.adopts):
        if not member.goes_to_bridge:
            return member.own_answer
        return _with_findings(member.own_answer, _not_adopted(gang, groups))
    # As the API server names the pod's namespace, which the manifest may leave out.
    name = adopted_name(GroupName(gang.group.system, member.namespace, gang.group.name))
    group = groups.by_name.get((member.namespace, name))
    answer = member.own_answer
    if not member.goes_to_bridge:
        if recorded_scheduler(group) != member.bridge.scheduler or member.drivers().all:
            return answer
        answer = routed(member.pod, member.bridge, *answer.findings)
    fault = _minimum_fault(gang, group)
    if fault is not None:
        return _refused(fault)
    answer = _checked(member, group, answer)
    if not answer.allowed:
        return answer
    return msgspec.structs.replace(
        answer,
        decision=Decision.ROUTED,
        operations=(
            *answer.operations,
            add(pointer("spec", "schedulingGroup"), {"podGroupName": name}),
        ),
    )


def _minimum_fault(gang: Declaration, group: PodGroup | None) -> Finding | None:
    """Return the fault of the minimum that a pod declares; None without one."""
    minimum = gang.min_count
    if minimum is None:
        return None
    if minimum > MAX_MEMBERS:
        return error(
            Code.GROUP_TOO_LARGE,
            gang.path,
            f"{gang.group.system} {gang.group.name} needs {minimum} pods, and at most {MAX_MEMBERS} are "
            "decided together",
            "divide the gang",
        )
    policy = group.spec.scheduling_policy if group is not None else None
    if group is None or policy is None or policy.gang is None or policy.gang.min_count == minimum:
        return None
    return error(
        Code.GROUP_MINIMUM_DIFFERS,
        gang.path,
        f"the pod says that {gang.group.system} {gang.group.name} needs {minimum} pods, and PodGroup "
        f"{group.metadata.name}, which was created for earlier pods of it, needs {policy.gang.min_count}",
        "write one number on all of them, or delete the earlier pods; the PodGroup goes with the last",
    )


def _not_adopted(gang: Declaration, groups: Groups) -> Finding:
    """Return the warning about a gang that the bridge does not know as one."""
    reason, fix = (
        (
            "adoptGangs is off",
            "set validation.adoptGangs to true, or name a PodGroup in spec.schedulingGroup",
        )
        if groups.is_served
        else (
            "this API server has no PodGroups",
            "turn on the feature gate GenericWorkload and scheduling.k8s.io/v1beta1",
        )
    )
    return warning(
        Code.GANG_NOT_ADOPTED,
        gang.path,
        f"the bridge places the pod by itself, not with the other pods of {gang.group.system} "
        f"{gang.group.name}: {reason}",
        fix,
    )


# --- answers --------------------------------------------------------------------------------------


def _refused(finding: Finding) -> Answer:
    return Answer(decision=Decision.REFUSED, findings=(finding,))


def _with_findings(answer: Answer, *findings: Finding) -> Answer:
    if not findings:
        return answer
    decision = Decision.VALIDATED if answer.decision is Decision.UNTOUCHED else answer.decision
    return msgspec.structs.replace(
        answer, decision=decision, findings=(*answer.findings, *findings)
    )


def _driver_differs(name: str, scheduler: str, driver: str) -> Finding:
    return error(
        Code.MIXED_DRIVER_OWNERSHIP,
        CLAIMS,
        f"the pods of PodGroup {quote_text(name[:253])} go to {scheduler}, which does not allocate "
        f"{quote_text(driver[:253])}",
        "own the driver (drawbridge bridge own), or leave the pod out of the group",
    )


def _scheduler_unknown(name: str, group: PodGroup | None, scheduler: str) -> Finding:
    what = (
        f"PodGroup {quote_text(name[:253])} does not exist yet"
        if group is None
        else f"PodGroup {quote_text(name[:253])} has neither claims nor annotation "
        f"{GROUP_SCHEDULER_ANNOTATION}, and not the pod's owner"
    )
    fix = "create it before its pods, with" if group is None else "give the PodGroup"
    return error(
        Code.GROUP_SCHEDULER_UNKNOWN,
        GROUP_PATH,
        f"the pod has no devices of its own, and {what}, so it is not known whether its group goes to "
        f"{scheduler}; all pods of a group need one scheduler",
        f"{fix} the annotation {GROUP_SCHEDULER_ANNOTATION}: {scheduler} or {DEFAULT_SCHEDULER_NAME}; or "
        "write schedulerName into the pods",
    )
