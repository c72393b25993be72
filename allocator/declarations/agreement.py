"""The pods of a group agree on scheduler, priority and preemption policy, or kube-scheduler fails all of them.

None of the three can be changed later. A priority is known once the API server has resolved the priorityClassName;
before that names are compared, where both are named.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/schedule_one_podgroup.go, validatePodGroup. With the gate
PodGroupPreemptionPolicy, which is off, it compares the policy of the PodGroup, too; that is not modelled.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from allocator.declarations.model import GroupName, GroupSystem
from allocator.declarations.pod_group import PodGroup, PodGroupSpec
from allocator.pods.claims import pod_name
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from kube.api.core import Pod, PodSpec
from kube.names import DEFAULT_SCHEDULER_NAME, GROUP_SCHEDULER_ANNOTATION

_SCHEDULER: Final = FieldPath.of("spec", "schedulerName")
_PRIORITY: Final = FieldPath.of("spec", "priorityClassName")
_MAX_NAME: Final = 253
_ONE_CLASS: Final = "give all pods of the group, and the PodGroup, one priorityClassName"


def recorded_scheduler(group: PodGroup | None) -> str:
    """Return the scheduler that a PodGroup's annotation names; empty for none."""
    annotations = (group.metadata.annotations or {}) if group is not None else {}
    return annotations.get(GROUP_SCHEDULER_ANNOTATION, "")


def member_fault(pod: Pod, group: PodGroup, subject: str = "the pod") -> Finding | None:
    """Return the fault of a pod with another priority or preemption policy than its PodGroup; None without one.

    Args:
        pod: The pod.
        group: Its PodGroup.
        subject: The words for the pod.
    """
    return _fault(pod.spec, group.spec, subject, f"PodGroup {group.metadata.name}")


def scheduler_fault(name: str, recorded: str, scheduler: str) -> Finding:
    """Return the fault of a pod of the bridge in a PodGroup with the annotation of another scheduler.

    Args:
        name: The name of the PodGroup.
        recorded: The scheduler in its annotation.
        scheduler: The schedulerName of the bridge.
    """
    return error(
        Code.GROUP_SCHEDULER_DIFFERS,
        _SCHEDULER,
        f"{scheduler} allocates the pod's devices, and annotation {GROUP_SCHEDULER_ANNOTATION} of PodGroup "
        f"{quote_text(name[:_MAX_NAME])} names {quote_text(recorded[:_MAX_NAME])}; kube-scheduler fails a group "
        "with pods of two schedulers",
        f"write {scheduler} into the annotation, and into schedulerName of the group's other pods",
    )


def pod_faults(
    name: GroupName, pods: Sequence[Pod], group: PodGroup | None, bridge_scheduler: str
) -> Iterator[tuple[Pod, Finding]]:
    """Yield the faults of a group, each with the pod that differs from the first one, or from the PodGroup.

    Args:
        name: The group. Of a gang of another scheduler the pods of the bridge are one group.
        pods: All of its pods, with the schedulerName that the webhook gives them.
        group: The PodGroup of Kubernetes; None without one.
        bridge_scheduler: schedulerName of the bridge.
    """
    if name.system is not GroupSystem.KUBERNETES:
        pods = [pod for pod in pods if pod.spec.scheduler_name == bridge_scheduler]
        group = None
    recorded = recorded_scheduler(group)
    for pod in pods:
        subject = _quoted(pod_name(pod))
        # A pod with a UID has been admitted, and the annotation counts for new ones.
        goes_to_bridge = pod.spec.scheduler_name == bridge_scheduler and not pod.metadata.uid
        if goes_to_bridge and recorded not in {"", bridge_scheduler}:
            yield pod, scheduler_fault(name.name, recorded, bridge_scheduler)
        if group is not None and (fault := member_fault(pod, group, subject)) is not None:
            yield pod, fault
        first, other = _scheduler(pods[0]), _scheduler(pod)
        if first != other:
            yield (
                pod,
                error(
                    Code.GROUP_SCHEDULER_DIFFERS,
                    _SCHEDULER,
                    f"pods of {name} go to {_quoted(first)} and {_quoted(other)}; kube-scheduler fails a group "
                    "with pods of two schedulers",
                    "write one schedulerName into all of them, or for the bridge the annotation "
                    f"{GROUP_SCHEDULER_ANNOTATION}: {bridge_scheduler} into the PodGroup",
                ),
            )
        beside = _fault(pod.spec, pods[0].spec, subject, _quoted(pod_name(pods[0])))
        if beside is not None:
            yield pod, beside


def _scheduler(pod: Pod) -> str:
    return pod.spec.scheduler_name or DEFAULT_SCHEDULER_NAME


def _quoted(text: str) -> str:
    return quote_text(text[:_MAX_NAME])


def _fault(
    spec: PodSpec, other: PodSpec | PodGroupSpec, subject: str, object_: str
) -> Finding | None:
    """Return the fault of a pod that differs from another one, or from its PodGroup, as far as both are known."""
    return _priority_fault(spec, other, subject, object_) or _policy_fault(
        spec, other, subject, object_
    )


def _priority_fault(
    spec: PodSpec, other: PodSpec | PodGroupSpec, subject: str, object_: str
) -> Finding | None:
    end = "kube-scheduler fails a group with pods of other priorities"
    if spec.priority is not None and other.priority is not None:
        if spec.priority == other.priority:
            return None
        return error(
            Code.GROUP_PRIORITY_DIFFERS,
            _PRIORITY,
            f"{subject} has priority {spec.priority}, and {object_} has {other.priority}; {end}",
            _ONE_CLASS,
        )
    names = (spec.priority_class_name, other.priority_class_name)
    # A class that is not named is the default one, which only the cluster knows.
    if names[0] == names[1] or "" in names:
        return None
    mine, theirs = map(_quoted, names)
    return warning(
        Code.GROUP_PRIORITY_DIFFERS,
        _PRIORITY,
        f"the priorityClassName of {subject} is {mine}, and that of {object_} is {theirs}; {end}",
        _ONE_CLASS,
    )


def _policy_fault(
    spec: PodSpec, other: PodSpec | PodGroupSpec, subject: str, object_: str
) -> Finding | None:
    # As the API server has resolved them; before that they depend on the classes, also on the default one.
    mine = spec.preemption_policy
    theirs = other.preemption_policy if isinstance(other, PodSpec) else None
    if mine is None or theirs is None or mine == theirs:
        return None
    return error(
        Code.GROUP_PRIORITY_DIFFERS,
        _PRIORITY,
        f"{subject} has preemptionPolicy {_quoted(mine)}, and {object_} has {_quoted(theirs)}; kube-scheduler fails "
        "a group with pods of other policies",
        _ONE_CLASS,
    )
