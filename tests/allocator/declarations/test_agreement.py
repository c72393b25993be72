"""Pods of a group that differ in scheduler, priority or preemption policy."""

from typing import Any

import pytest

from allocator.declarations.agreement import member_fault, pod_faults
from allocator.declarations.model import GroupName, GroupSystem
from allocator.declarations.pod_group import PodGroup
from findings.finding import Finding, Severity
from kube.api.core import Pod
from kube.api.meta import convert
from kube.names import GROUP_SCHEDULER_ANNOTATION, SCHEDULER_NAME

RING = GroupName(GroupSystem.KUBERNETES, "team", "ring")
GANG = GroupName(GroupSystem.KOORDINATOR, "team", "ring")
BRIDGE = {"schedulerName": SCHEDULER_NAME}
HIGH = {"priorityClassName": "high"}
NEVER = {"preemptionPolicy": "Never"}


def pods(*specs: dict[str, Any], uid: str = "") -> list[Pod]:
    return [
        convert({"metadata": {"name": name, "uid": uid}, "spec": spec}, Pod)
        for name, spec in zip("abc", specs, strict=False)
    ]


def pod_group(scheduler: str = "", **spec: Any) -> PodGroup:
    annotations = {GROUP_SCHEDULER_ANNOTATION: scheduler} if scheduler else {}
    return convert(
        {"metadata": {"name": "ring", "annotations": annotations}, "spec": spec}, PodGroup
    )


def group_fault(
    name: GroupName, members: list[Pod], group: PodGroup | None, scheduler: str
) -> Finding | None:
    """The first fault."""
    return next((fault for _, fault in pod_faults(name, members, group, scheduler)), None)


@pytest.mark.parametrize(
    ("name", "specs", "group"),
    [
        ("no name is the default one", [{}, {"schedulerName": "default-scheduler"}], pod_group()),
        ("one class", [HIGH, HIGH], pod_group(**HIGH)),
        ("one resolved priority", [{"priority": 5}, {"priority": 5}], pod_group(priority=5)),
        ("a class that is not resolved beside the default one", [{"priority": 5}, {}], pod_group()),
        ("one policy", [NEVER, NEVER], pod_group()),
        ("a policy that only the default class tells", [{**NEVER, "priority": 5}, {}], None),
        ("a policy of the PodGroup, which counts for nothing without a gate", [{**NEVER, "priority": 5}],
         pod_group(priority=5, preemptionPolicy="PreemptLowerPriority")),
        ("a class that may be the default one of the PodGroup", [HIGH], pod_group()),
        ("a PodGroup with a class that may be the default one", [{}, {}], pod_group(**HIGH)),
        ("a class that may be the default one of another pod", [{}, HIGH], None),
        ("a policy that the class tells", [{**HIGH, **NEVER}, HIGH], None),
        ("the bridge by its annotation", [BRIDGE, BRIDGE], pod_group(SCHEDULER_NAME)),
        ("another scheduler by its annotation", [{}, {}], pod_group("default-scheduler")),
        ("two schedulers of a gang that is no PodGroup", [{}, BRIDGE], None),
        ("two priorities of such a gang", [{"priority": 1}, {"priority": 2}], None),
    ],
    ids=str,
)  # fmt: skip
def test_pods_agree(name: str, specs: list[dict[str, Any]], group: PodGroup | None) -> None:
    system = GANG if "gang" in name else RING

    assert group_fault(system, pods(*specs), group, SCHEDULER_NAME) is None, name


@pytest.mark.parametrize(
    ("words", "specs", "group"),
    [
        ('go to "default-scheduler" and "x"', [{}, {"schedulerName": "x"}], None),
        ('go to "drawbridge-scheduler" and "default-scheduler"', [BRIDGE, {}], pod_group()),
        ('of PodGroup "ring" names "other"', [BRIDGE, BRIDGE], pod_group("other")),
        ('"b" has priority 7, and "a" has 5', [{"priority": 5}, {"priority": 7}], None),
        ('"a" has priority 7, and PodGroup ring has 0', [{"priority": 7}], pod_group(priority=0)),
        ('"b" has preemptionPolicy "Never", and "a" has "PreemptLowerPriority"',
         [{"preemptionPolicy": "PreemptLowerPriority"}, NEVER], None),
    ],
)  # fmt: skip
def test_pods_that_differ_fail_their_group(
    words: str, specs: list[dict[str, Any]], group: PodGroup | None
) -> None:
    fault = group_fault(RING, pods(*specs), group, SCHEDULER_NAME)

    assert fault is not None
    assert words in fault.message
    assert fault.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("words", "specs", "group"),
    [
        ('of "a" is "high", and that of PodGroup ring is "low"', [HIGH],
         pod_group(priorityClassName="low")),
        ('of "b" is "low", and that of "a" is "high"',
         [{**HIGH, "priority": 5}, {"priorityClassName": "low"}], None),
    ],
)  # fmt: skip
def test_names_of_classes_that_differ_are_a_warning(
    words: str, specs: list[dict[str, Any]], group: PodGroup | None
) -> None:
    """Two classes may have one priority."""
    fault = group_fault(RING, pods(*specs), group, SCHEDULER_NAME)

    assert fault is not None
    assert words in fault.message
    assert fault.severity is Severity.WARNING


def test_pods_of_a_gang_that_go_to_the_bridge_are_one_group() -> None:
    fault = group_fault(
        GANG, pods({**BRIDGE, "priority": 1}, {}, {**BRIDGE, "priority": 2}), None, SCHEDULER_NAME
    )

    assert fault is not None
    assert '"c" has priority 2, and "a" has 1' in fault.message


def test_the_annotation_counts_for_new_pods() -> None:
    admitted = pods(BRIDGE, uid="1")

    assert group_fault(RING, admitted, pod_group("other"), SCHEDULER_NAME) is None


def test_a_pod_is_compared_with_its_group_alone() -> None:
    (pod,) = pods({**NEVER, "priority": 5})

    assert member_fault(pod, pod_group(priority=5)) is None
    fault = member_fault(pod, pod_group(priority=4))
    assert fault is not None
    assert fault.message.startswith("the pod has priority 5, and PodGroup ring has 4")


def test_each_pod_has_its_own_fault() -> None:
    of_pods = [
        (pod.metadata.name, str(fault.path))
        for pod, fault in pod_faults(
            RING,
            pods({}, {"priority": 4}, {"schedulerName": "x"}),
            pod_group(priority=5),
            SCHEDULER_NAME,
        )
    ]

    assert of_pods == [("b", "spec.priorityClassName"), ("c", "spec.schedulerName")]
