"""KAI's groups: an annotation names a PodGroup of scheduling.run.ai.

KAI's own controller mostly makes the PodGroup, and the annotation with it.

Source: kai-scheduler/KAI-Scheduler, pkg/common/constants/constants.go, PodGroupAnnotationForPod. Not modelled:
subgroups.
"""

from typing import Final

from allocator.declarations.model import GroupSystem, Reading, declare
from findings.field_path import FieldPath
from kube.api.core import Pod

NAME: Final = "pod-group-name"


def read_group(pod: Pod) -> Reading:
    """Return the group of a pod."""
    if NAME not in pod.annotations:
        return None
    path = FieldPath.of("metadata", "annotations").key(NAME)
    return declare(pod, GroupSystem.KAI, pod.annotations[NAME], path)
