"""The group that a pod declares, in the words of each scheduler, and the rejected declarations."""

from typing import Any

import pytest

from allocator.declarations.model import Declaration, GroupName, GroupSystem
from allocator.declarations.read import read_declaration
from findings.finding import Code, Finding
from kube.api.core import Pod
from kube.api.meta import convert

KOORDINATOR = "gang.scheduling.koordinator.sh"
SIGS = "pod-group.scheduling.sigs.k8s.io"
VOLCANO = "scheduling.volcano.sh"


def pod(
    annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any
) -> Pod:
    metadata = {
        "name": "pod",
        "namespace": "team",
        "annotations": annotations or {},
        "labels": labels or {},
    }
    return convert({"metadata": metadata, "spec": spec}, Pod)


@pytest.mark.parametrize(
    ("system", "min_count", "value"),
    [
        (GroupSystem.KUBERNETES, None, pod(schedulingGroup={"podGroupName": "ring"})),
        (GroupSystem.KOORDINATOR, None, pod({f"{KOORDINATOR}/name": "ring"})),
        (
            GroupSystem.KOORDINATOR,
            4,
            pod({f"{KOORDINATOR}/name": "ring", f"{KOORDINATOR}/min-available": "4"}),
        ),
        (GroupSystem.KOORDINATOR, None, pod(labels={SIGS: "ring"})),
        (GroupSystem.KOORDINATOR, None, pod(labels={f"{SIGS}/name": "ring"})),
        (GroupSystem.VOLCANO, None, pod({"scheduling.k8s.io/group-name": "ring"})),
        (
            GroupSystem.VOLCANO,
            3,
            pod({f"{VOLCANO}/group-name": "ring", f"{VOLCANO}/group-min-member": "3"}),
        ),
        (GroupSystem.COSCHEDULING, None, pod(labels={"scheduling.x-k8s.io/pod-group": "ring"})),
        (GroupSystem.KAI, None, pod({"pod-group-name": "ring"})),
        # Kubernetes' own field is what counts beside another system's.
        (
            GroupSystem.KUBERNETES,
            None,
            pod({"pod-group-name": "other"}, schedulingGroup={"podGroupName": "ring"}),
        ),
    ],
)
def test_a_pod_declares_its_group(system: GroupSystem, min_count: int | None, value: Pod) -> None:
    declaration = read_declaration(value)

    assert isinstance(declaration, Declaration)
    assert declaration.group == GroupName(system, "team", "ring")
    assert declaration.min_count == min_count


@pytest.mark.parametrize(
    "value",
    [
        pod(),
        pod({f"{VOLCANO}/group-min-member": "3"}),
        pod({f"{KOORDINATOR}/min-available": "3"}),
        pod(labels={"pod-group-name": "ring"}),
    ],
)
def test_other_pods_declare_none(value: Pod) -> None:
    assert read_declaration(value) is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.schedulingGroup.podGroupName", pod(schedulingGroup={"podGroupName": ["ring"]})),
        ("spec.schedulingGroup.podGroupName", pod(schedulingGroup={"other": 1})),
        ("spec.schedulingGroup.podGroupName", pod(schedulingGroup={"podGroupName": ""})),
        ("spec.schedulingGroup.podGroupName", pod(schedulingGroup={"podGroupName": "../a"})),
        ("metadata.annotations[pod-group-name]", pod({"pod-group-name": "a" * 100_000})),
        ("metadata.annotations[pod-group-name]", pod({"pod-group-name": "\x1b[31mred"})),
        (
            f"metadata.annotations[{KOORDINATOR}/min-available]",
            pod({f"{KOORDINATOR}/name": "ring", f"{KOORDINATOR}/min-available": "0"}),
        ),
        (
            f"metadata.annotations[{VOLCANO}/group-min-member]",
            pod({"scheduling.k8s.io/group-name": "a", f"{VOLCANO}/group-min-member": "-1"}),
        ),
        *[
            (
                f"metadata.annotations[{KOORDINATOR}/min-available]",
                pod({f"{KOORDINATOR}/name": "ring", f"{KOORDINATOR}/min-available": text}),
            )
            for text in ("all", "", "1.5", "9" * 5_000, "3000000000", "\u0663", " 2")
        ],
    ],
)
def test_a_declaration_that_cannot_be_one_is_a_short_finding(path: str, value: Pod) -> None:
    finding = read_declaration(value)

    assert isinstance(finding, Finding)
    assert finding.code is Code.INVALID_GROUP
    assert finding.is_error
    assert str(finding.path) == path
    assert len(finding.message) < 500
    assert "\x1b" not in finding.message


@pytest.mark.parametrize(
    ("system", "scheduler"),
    [
        (GroupSystem.VOLCANO, "volcano"),
        (GroupSystem.KAI, "kai-scheduler"),
        (GroupSystem.KOORDINATOR, "koord-scheduler"),
        (GroupSystem.KOORDINATOR, ""),
        (GroupSystem.KOORDINATOR, "drawbridge-scheduler"),
        (GroupSystem.KOORDINATOR, "second"),
    ],
)
def test_of_several_declarations_that_of_the_own_scheduler_counts(
    system: GroupSystem, scheduler: str
) -> None:
    """A stray annotation of Koordinator hid the PodGroup of a pod of Volcano."""
    names = (f"{KOORDINATOR}/name", "scheduling.k8s.io/group-name", "pod-group-name")
    declaration = read_declaration(pod(dict.fromkeys(names, "ring"), schedulerName=scheduler))

    assert isinstance(declaration, Declaration)
    assert declaration.group.system is system
