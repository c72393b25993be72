"""Groups of pods that are of use together only, by the keys of schedulers and queues.

Sources: KEP-4671 (`spec.schedulingGroup`); Koordinator docs/user-manuals/gang-scheduling; scheduler-plugins
coscheduling; Volcano PodGroup; KAI pod-group annotation; Kueue plain pod groups.
"""

from typing import Final, NamedTuple

from kube.api.core import Pod
from kube.api.meta import ObjectMeta

MAX_MEMBERS: Final = 100_000
"""The largest minimum that is believed; beyond it the declaration counts as none."""


class GroupKeys(NamedTuple):
    """The keys of one system.

    Attributes:
        name: The label or annotation with the name of the group.
        minimum: The annotation with the number of members without which the group does not start; empty
            where an object of the system has it.
    """

    name: str
    minimum: str = ""


GROUP_KEYS: Final = (
    GroupKeys(
        "gang.scheduling.koordinator.sh/name", "gang.scheduling.koordinator.sh/min-available"
    ),
    GroupKeys("kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"),
    GroupKeys("scheduling.x-k8s.io/pod-group"),
    GroupKeys("scheduling.k8s.io/group-name"),
    GroupKeys("pod-group-name"),
)
"""Koordinator, Kueue, coscheduling, Volcano, KAI; the first that a pod has counts."""


class Group(NamedTuple):
    """A group of pods of one namespace.

    Attributes:
        name: Its name, with the key that it was found by.
        minimum: The declared number of members; None without a declaration on the pod.
    """

    name: tuple[str, str]
    minimum: int | None = None


def group_of(pod: Pod) -> Group | None:
    """Return the group of a pod; None without one."""
    name = (pod.spec.scheduling_group or {}).get("podGroupName")
    if isinstance(name, str) and name:
        return Group(("schedulingGroup", name))
    values = {**pod.labels, **pod.annotations}
    for keys in GROUP_KEYS:
        if name := values.get(keys.name):
            return Group((keys.name, name), _minimum(values.get(keys.minimum, "")))
    return None


def group_metadata(metadata: ObjectMeta) -> dict[str, str] | None:
    """Return the labels and annotations that tell the group of a pod, as annotations; None without any."""
    values = {**(metadata.labels or {}), **(metadata.annotations or {})}
    names = {name for keys in GROUP_KEYS for name in keys}
    return {name: values[name] for name in sorted(values.keys() & names)} or None


def _minimum(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_MEMBERS))):
        return None
    return int(text) if 0 < int(text) <= MAX_MEMBERS else None
