"""Volcano's groups: an annotation names a PodGroup of scheduling.volcano.sh, another one may have the minimum.

Source: volcano-sh/apis, pkg/apis/scheduling/v1beta1/labels.go (KubeGroupNameAnnotationKey,
VolcanoGroupNameAnnotationKey, VolcanoGroupMinMemberAnnotationKey). Not modelled: `minTaskMember`, subgroups.
"""

from typing import Final

from allocator.declarations.model import GroupSystem, Reading, declare, read_minimum
from findings.field_path import FieldPath
from findings.finding import Finding
from kube.api.core import Pod

NAME: Final = "scheduling.k8s.io/group-name"
NAMES: Final = (NAME, "scheduling.volcano.sh/group-name")
MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"

_ANNOTATIONS: Final = FieldPath.of("metadata", "annotations")


def read_group(pod: Pod) -> Reading:
    """Return the group of a pod."""
    key = next((key for key in NAMES if key in pod.annotations), None)
    if key is None:
        return None
    text = pod.annotations.get(MIN_MEMBER)
    minimum = None if text is None else read_minimum(text, _ANNOTATIONS.key(MIN_MEMBER))
    if isinstance(minimum, Finding):
        return minimum
    return declare(pod, GroupSystem.VOLCANO, pod.annotations[key], _ANNOTATIONS.key(key), minimum)
