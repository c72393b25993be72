"""The groups of the coscheduling plugin: a label names a PodGroup of scheduling.x-k8s.io.

Source: kubernetes-sigs/scheduler-plugins, apis/scheduling/v1alpha1/types.go, PodGroupLabel.
"""

from typing import Final

from allocator.declarations.model import GroupSystem, Reading, declare
from findings.field_path import FieldPath
from kube.api.core import Pod

LABEL: Final = "scheduling.x-k8s.io/pod-group"


def read_group(pod: Pod) -> Reading:
    """Return the group of a pod."""
    if LABEL not in pod.labels:
        return None
    path = FieldPath.of("metadata", "labels").key(LABEL)
    return declare(pod, GroupSystem.COSCHEDULING, pod.labels[LABEL], path)
