"""The group that a pod declares, in any scheduler's words.

Not modelled: Koordinator's gangs that wait for each other (`gang.scheduling.koordinator.sh/groups`) and its mode
NonStrict, Volcano's `minTaskMember`, subgroups of Volcano and KAI.
"""

from collections.abc import Callable, Mapping
from typing import Final

from allocator.declarations.model import GroupSystem, Reading, declare, read_minimum
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error
from findings.text import quote_text
from kube.api.core import Pod

KOORDINATOR_NAME: Final = "gang.scheduling.koordinator.sh/name"
KOORDINATOR_MIN_AVAILABLE: Final = "gang.scheduling.koordinator.sh/min-available"
KOORDINATOR_LABELS: Final = (
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
)
VOLCANO_NAME: Final = "scheduling.k8s.io/group-name"
VOLCANO_NAMES: Final = (VOLCANO_NAME, "scheduling.volcano.sh/group-name")
VOLCANO_MIN_MEMBER: Final = "scheduling.volcano.sh/group-min-member"
COSCHEDULING_LABEL: Final = "scheduling.x-k8s.io/pod-group"
KAI_NAME: Final = "pod-group-name"

_KUBERNETES_FIELD: Final = FieldPath.of("spec", "schedulingGroup", "podGroupName")
_LABELS: Final = FieldPath.of("metadata", "labels")
_ANNOTATIONS: Final = FieldPath.of("metadata", "annotations")


def _read_kubernetes(pod: Pod) -> Reading:
    """Return Kubernetes' own group: `spec.schedulingGroup` names a PodGroup of scheduling.k8s.io.

    Source: k8s.io/api v0.37.1, core/v1/types.go, PodSchedulingGroup; the gate GenericWorkload.
    """
    group = pod.spec.scheduling_group
    if not group:
        return None
    name = group.get("podGroupName")
    if not isinstance(name, str):
        return error(
            Code.INVALID_GROUP,
            _KUBERNETES_FIELD,
            f"{quote_text(str(name))} is not the name of a PodGroup",
            "write the name of a PodGroup of the pod's namespace",
        )
    return declare(pod, GroupSystem.KUBERNETES, name, _KUBERNETES_FIELD)


def _read_koordinator(pod: Pod) -> Reading:
    """Return Koordinator's gang: annotations with name and minimum, or a label that names a PodGroup.

    Source: koordinator-sh/koordinator, apis/extension/coscheduling.go;
    pkg/scheduler/plugins/coscheduling/util, GetGangNameByPod.
    """
    for label in KOORDINATOR_LABELS:
        if label in pod.labels:
            return declare(pod, GroupSystem.KOORDINATOR, pod.labels[label], _LABELS.key(label))
    if KOORDINATOR_NAME not in pod.annotations:
        return None
    return _read_annotations(
        pod, GroupSystem.KOORDINATOR, KOORDINATOR_NAME, KOORDINATOR_MIN_AVAILABLE
    )


def _read_volcano(pod: Pod) -> Reading:
    """Return Volcano's group: an annotation names a PodGroup, another one may have the minimum.

    Source: volcano-sh/apis, pkg/apis/scheduling/v1beta1/labels.go (KubeGroupNameAnnotationKey,
    VolcanoGroupNameAnnotationKey, VolcanoGroupMinMemberAnnotationKey).
    """
    key = next((key for key in VOLCANO_NAMES if key in pod.annotations), None)
    if key is None:
        return None
    return _read_annotations(pod, GroupSystem.VOLCANO, key, VOLCANO_MIN_MEMBER)


def _read_coscheduling(pod: Pod) -> Reading:
    """Return the group of the coscheduling plugin: a label names a PodGroup of scheduling.x-k8s.io.

    Source: kubernetes-sigs/scheduler-plugins, apis/scheduling/v1alpha1/types.go, PodGroupLabel.
    """
    name = pod.labels.get(COSCHEDULING_LABEL)
    if name is None:
        return None
    return declare(pod, GroupSystem.COSCHEDULING, name, _LABELS.key(COSCHEDULING_LABEL))


def _read_kai(pod: Pod) -> Reading:
    """Return KAI's group: an annotation, mostly of KAI's own controller, names a PodGroup.

    Source: kai-scheduler/KAI-Scheduler, pkg/common/constants/constants.go, PodGroupAnnotationForPod.
    """
    name = pod.annotations.get(KAI_NAME)
    return None if name is None else declare(pod, GroupSystem.KAI, name, _ANNOTATIONS.key(KAI_NAME))


def _read_annotations(pod: Pod, system: GroupSystem, name_key: str, minimum_key: str) -> Reading:
    """Return the group that one annotation names, with the minimum of another, or its fault."""
    text = pod.annotations.get(minimum_key)
    minimum = None if text is None else read_minimum(text, _ANNOTATIONS.key(minimum_key))
    if isinstance(minimum, Finding):
        return minimum
    return declare(pod, system, pod.annotations[name_key], _ANNOTATIONS.key(name_key), minimum)


OWN_SYSTEMS: Final[Mapping[str, GroupSystem]] = {
    "koord-scheduler": GroupSystem.KOORDINATOR,
    "volcano": GroupSystem.VOLCANO,
    "kai-scheduler": GroupSystem.KAI,
    "runai-scheduler": GroupSystem.KAI,
}
"""The schedulerName that a project's own charts give to its scheduler, to the groups that this scheduler reads."""

_GANG_READERS: Final[Mapping[GroupSystem, Callable[[Pod], Reading]]] = {
    GroupSystem.KOORDINATOR: _read_koordinator,
    GroupSystem.VOLCANO: _read_volcano,
    GroupSystem.COSCHEDULING: _read_coscheduling,
    GroupSystem.KAI: _read_kai,
}
"""The readers of other schedulers' words."""
_ORDER: Final = tuple(_GANG_READERS.values())
_ORDER_OF_SCHEDULER: Final = {
    scheduler: (_GANG_READERS[system], *_ORDER) for scheduler, system in OWN_SYSTEMS.items()
}


def read_declaration(pod: Pod) -> Reading:
    """Return the group of a pod, or its fault.

    If a pod uses several words, Kubernetes' own field counts, then the words of the scheduler that it names, then the
    first of Koordinator, Volcano, the coscheduling plugin and KAI.
    """
    reading = _read_kubernetes(pod)
    return read_gang(pod) if reading is None else reading


def read_gang(pod: Pod) -> Reading:
    """Return the group of a pod in other schedulers' words, or its fault; as `read_declaration` does."""
    readers = _ORDER_OF_SCHEDULER.get(pod.spec.scheduler_name, _ORDER)
    return next((reading for read in readers if (reading := read(pod)) is not None), None)
