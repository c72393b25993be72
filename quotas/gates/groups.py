"""Groups of pods that are of use together only: their members, and the number that each group needs.

The words are those of every scheduler (`allocator.declarations`), and of Kueue's plain pod groups. A declaration
that its own scheduler rejects makes no group, so that nobody waits for it.

Sources: KEP-4671 (`spec.schedulingGroup`); Kueue plain pod groups.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from allocator.declarations.collect import POD_GROUP_RESOURCES
from allocator.declarations.model import Declaration, GroupName, GroupSystem
from allocator.declarations.pod_group import PodGroup
from allocator.declarations.read import (
    COSCHEDULING_LABEL,
    KAI_NAME,
    KOORDINATOR_LABELS,
    KOORDINATOR_MIN_AVAILABLE,
    KOORDINATOR_NAME,
    VOLCANO_MIN_MEMBER,
    VOLCANO_NAMES,
    read_declaration,
)
from allocator.pods.claims import Name, pod_group_name
from findings.text import printable
from kube.api.core import Pod
from kube.api.meta import ObjectMeta

MAX_MEMBERS: Final = 100_000
"""The largest number that Kueue's annotation is believed; beyond it the group declares none."""
MAX_VALUE: Final = 256
"""Characters of a label or annotation that are kept; the names of groups have at most 253."""
KUEUE_NAME: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
LABELS: Final = (*KOORDINATOR_LABELS, COSCHEDULING_LABEL, KUEUE_NAME)
ANNOTATIONS: Final = (
    KOORDINATOR_NAME,
    KOORDINATOR_MIN_AVAILABLE,
    *VOLCANO_NAMES,
    VOLCANO_MIN_MEMBER,
    KAI_NAME,
    KUEUE_COUNT,
)


class KueueGroup(NamedTuple):
    """The identity of a plain pod group of Kueue."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"Kueue pod group {self.namespace}/{printable(self.name)}"


GroupId = GroupName | KueueGroup


class Membership(NamedTuple):
    """The group of a pod.

    Attributes:
        minimum: The number of members that the pod itself declares; None where it does not.
    """

    group: GroupId
    minimum: int | None = None


class Minimum(Enum):
    """A reason for the lack of a number of members that a group needs."""

    UNKNOWN = "nothing tells it"
    MISSING = "a PodGroup that does not exist tells it"


def membership(pod: Pod) -> Membership | None:
    """Return the group of a pod; None without one."""
    reading = read_declaration(pod)
    if isinstance(reading, Declaration):
        return Membership(reading.group, reading.min_count)
    name = pod.labels.get(KUEUE_NAME)
    if not name:
        return None
    count = _count(pod.annotations.get(KUEUE_COUNT, ""))
    return Membership(KueueGroup(pod.metadata.namespace, name), count)


def group_labels(metadata: ObjectMeta) -> dict[str, str] | None:
    """Return the labels that tell the group of a pod; None without any."""
    return _selected(metadata.labels or {}, LABELS)


def group_annotations(metadata: ObjectMeta) -> dict[str, str] | None:
    """Return the annotations that tell the group of a pod; None without any."""
    return _selected(metadata.annotations or {}, ANNOTATIONS)


class KnownPodGroup(NamedTuple):
    """A PodGroup.

    Attributes:
        minimum: The number of members that it needs.
        uid: Its UID, by which it owns claims.
    """

    minimum: int
    uid: str = ""


class PodGroupIndex:
    """The groups of a cluster, from its pods and PodGroups.

    Attributes:
        served: The systems whose PodGroups are followed. Of others only what pods declare is known.
    """

    def __init__(self) -> None:
        """Begin without pods and PodGroups."""
        self.served: Collection[GroupSystem] = frozenset(POD_GROUP_RESOURCES)
        self._memberships: dict[Name, Membership] = {}
        self._members: dict[GroupId, set[Name]] = {}
        self._pod_groups: dict[GroupName, KnownPodGroup] = {}

    def replace_pod(self, key: Name, pod: Pod | None) -> None:
        """Take a pod that was added, changed or, with None, deleted."""
        before = self._memberships.pop(key, None)
        after = membership(pod) if pod is not None else None
        if before is not None and (after is None or after.group != before.group):
            members = self._members[before.group]
            members.discard(key)
            if not members:
                del self._members[before.group]
        if after is not None:
            self._memberships[key] = after
            self._members.setdefault(after.group, set()).add(key)

    def replace_pod_group(self, group: GroupName, pod_group: KnownPodGroup | None) -> None:
        """Take a PodGroup that was added, changed or, with None, deleted."""
        self._pod_groups.pop(group, None)
        if pod_group is not None:
            self._pod_groups[group] = pod_group

    def uid_of_group(self, pod: Pod) -> str:
        """Return the UID of the PodGroup of Kubernetes that a pod names; empty if there is none."""
        name = pod_group_name(pod)
        group = GroupName(GroupSystem.KUBERNETES, pod.metadata.namespace, name)
        pod_group = self._pod_groups.get(group) if name else None
        return pod_group.uid if pod_group is not None else ""

    def members(self, group: GroupId) -> Collection[Name]:
        """Return the pods of a group, by namespace and name."""
        return self._members.get(group, ())

    def group_of(self, key: Name) -> GroupId | None:
        """Return the group of a pod; None without one."""
        member = self._memberships.get(key)
        return member.group if member is not None else None

    def minimum(self, group: GroupId) -> int | Minimum:
        """Return the number of members that a group needs.

        Its PodGroup counts before what pods declare, and of those that disagree the largest number.
        """
        if isinstance(group, GroupName) and group in self._pod_groups:
            return self._pod_groups[group].minimum
        declared = (self._memberships[key].minimum for key in self._members.get(group, ()))
        largest = max((count for count in declared if count is not None), default=None)
        if largest is not None:
            return largest
        is_followed = isinstance(group, GroupName) and group.system in self.served
        return Minimum.MISSING if is_followed else Minimum.UNKNOWN


def group_of_object(pod_group: PodGroup) -> GroupName | None:
    """Return the group that a PodGroup stands for; None if it is of no scheduler that we know."""
    system = _SYSTEMS.get(pod_group.group)
    if system is None:
        return None
    return GroupName(system, pod_group.metadata.namespace, pod_group.metadata.name)


def known_pod_group(pod_group: PodGroup, system: GroupSystem) -> KnownPodGroup:
    """Return the UID of a PodGroup, and the number of members that it needs."""
    spec, uid = pod_group.spec, pod_group.metadata.uid
    if system is not GroupSystem.KUBERNETES:
        return KnownPodGroup(max(1, spec.min_member or 1), uid)
    return KnownPodGroup(spec.gang_minimum, uid)


_SYSTEMS: Final[Mapping[str, GroupSystem]] = {
    resource.group: system for system, resource in POD_GROUP_RESOURCES.items()
}
"""The system of each API group that has PodGroups."""


def _selected(values: Mapping[str, str], names: Iterable[str]) -> dict[str, str] | None:
    return {name: values[name][:MAX_VALUE] for name in names if name in values} or None


def _count(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_MEMBERS))):
        return None
    return int(text) if 0 < int(text) <= MAX_MEMBERS else None
