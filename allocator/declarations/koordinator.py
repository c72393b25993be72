"""Koordinator's gangs: annotations with name and minimum, or a label that names a PodGroup.

Source: koordinator-sh/koordinator, apis/extension/coscheduling.go;
pkg/scheduler/plugins/coscheduling/util, GetGangNameByPod. Not modelled: gangs that wait for each other
(`gang.scheduling.koordinator.sh/groups`), mode NonStrict.
"""

from typing import Final

from allocator.declarations.model import GroupSystem, Reading, declare, read_minimum
from findings.field_path import FieldPath
from findings.finding import Finding
from kube.api.core import Pod

NAME: Final = "gang.scheduling.koordinator.sh/name"
MIN_AVAILABLE: Final = "gang.scheduling.koordinator.sh/min-available"
LABELS: Final = ("pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name")

_ANNOTATIONS: Final = FieldPath.of("metadata", "annotations")


def read_group(pod: Pod) -> Reading:
    """Return the gang of a pod."""
    for label in LABELS:
        if label in pod.labels:
            path = FieldPath.of("metadata", "labels").key(label)
            return declare(pod, GroupSystem.KOORDINATOR, pod.labels[label], path)
    name = pod.annotations.get(NAME)
    if name is None:
        return None
    text = pod.annotations.get(MIN_AVAILABLE)
    minimum = None if text is None else read_minimum(text, _ANNOTATIONS.key(MIN_AVAILABLE))
    if isinstance(minimum, Finding):
        return minimum
    return declare(pod, GroupSystem.KOORDINATOR, name, _ANNOTATIONS.key(NAME), minimum)
