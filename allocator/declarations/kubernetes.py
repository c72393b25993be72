"""Kubernetes' own groups: `spec.schedulingGroup.podGroupName` names a PodGroup of scheduling.k8s.io.

Source: k8s.io/api v0.37.1, core/v1/types.go, PodSchedulingGroup; the gate GenericWorkload.
"""

from allocator.declarations.model import GroupSystem, Reading, declare
from findings.field_path import FieldPath
from findings.finding import Code, error
from findings.text import quote_text
from kube.api.core import Pod

_PATH = FieldPath.of("spec", "schedulingGroup", "podGroupName")


def read_group(pod: Pod) -> Reading:
    """Return the group of a pod."""
    group = pod.spec.scheduling_group
    if not group:
        return None
    name = group.get("podGroupName")
    if not isinstance(name, str):
        return error(
            Code.INVALID_GROUP,
            _PATH,
            f"{quote_text(str(name))} is not the name of a PodGroup",
            "write the name of a PodGroup of the pod's namespace",
        )
    return declare(pod, GroupSystem.KUBERNETES, name, _PATH)
