"""Follows PodGroups, and the pods that name one, with and without claims.

Without the API of PodGroups, or the right to read it, the minimum of a group is what the scheduler says.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from allocator.declarations.pod_group import PodGroup
from allocator.pods.claims import Name, pod_group_name
from kube.api.core import Pod, PodSpec, PodStatus
from kube.api.meta import ObjectMeta, decode
from kube.api.urls import POD_GROUPS, PODS
from kube.runtime.informers import InformerFactory, Subscription
from sidecar.plan.group_claims import group_of
from sidecar.state.projections import decode_pod

ENDED: Final = frozenset({"Succeeded", "Failed"})
"""Phases of pods that have ended."""
NO_PODS: Final[Mapping[str, Pod]] = {}


def project_member(raw: bytes) -> Pod | None:
    """Project a Pod to its claims, its node and its group; None for a pod without a group."""
    pod = decode_pod(raw)
    metadata, spec, status = pod.metadata, pod.spec, pod.status or PodStatus()
    if not pod_group_name(pod):
        return None
    return Pod(
        metadata=ObjectMeta(name=metadata.name, namespace=metadata.namespace, uid=metadata.uid),
        spec=PodSpec(
            resource_claims=spec.resource_claims,
            node_name=spec.node_name,
            scheduling_group=spec.scheduling_group,
        ),
        status=PodStatus(
            phase=status.phase, resource_claim_statuses=status.resource_claim_statuses
        ),
    )


def project_pod_group(raw: bytes) -> PodGroup:
    """Project a PodGroup to its policy."""
    group = decode(raw, PodGroup)
    metadata = group.metadata
    return PodGroup(
        metadata=ObjectMeta(name=metadata.name, namespace=metadata.namespace, uid=metadata.uid),
        spec=group.spec,
    )


class GroupMembers:
    """The PodGroups of the cluster, and their pods.

    Attributes:
        pods: The subscription to pods with a group.
        groups: The subscription to PodGroups, which a cluster may not serve.
        on_change: Called with a group after each change of its PodGroup or of a pod of it.
        on_end: Called with the UID of each pod of a group that was bound or deleted.
    """

    def __init__(self, informers: InformerFactory) -> None:
        """Subscribe to pods and PodGroups."""
        self._of_group: dict[Name, dict[str, Pod]] = {}
        self._by_uid: dict[str, Pod] = {}
        # Of the groups that were asked about since they changed.
        self._bound: dict[Name, frozenset[str]] = {}
        self.on_end: Callable[[str], None] = lambda _uid: None
        self.on_change: Callable[[Name], None] = lambda _group: None
        self.pods: Final[Subscription[Pod]] = informers.subscribe(
            PODS, project_member, handlers=[self._pod_changed]
        )
        self.groups: Final[Subscription[PodGroup]] = informers.subscribe(
            POD_GROUPS, project_pod_group, handlers=[self._group_changed]
        )

    def find(self, uid: str) -> Pod | None:
        """Return a pod that names a group; None if it is not known."""
        return self._by_uid.get(uid)

    def members(self, group: Name) -> Mapping[str, Pod]:
        """Return UID to pod of those that name a group."""
        return self._of_group.get(group, NO_PODS)

    def bound(self, group: Name) -> frozenset[str]:
        """Return the UIDs of a group's pods that are bound, and have not ended."""
        bound = self._bound.get(group)
        if bound is None:
            bound = frozenset(uid for uid, pod in self.members(group).items() if is_placed(pod))
            if group in self._of_group:
                self._bound[group] = bound
        return bound

    def pod_group(self, pod: Pod) -> PodGroup | None:
        """Return the PodGroup that a pod names; None if it names none, or it is not known."""
        return self.groups.store.get(group_of(pod))

    def min_count(self, group: Name, uid: str = "") -> int | None:
        """Return the number of pods that are bound together; None for a group that is not known.

        Args:
            uid: The UID of the PodGroup that is meant; empty for the present one.
        """
        pod_group = self.groups.store.get(group)
        if pod_group is None or (uid and pod_group.metadata.uid != uid):
            return None
        return pod_group.spec.gang_minimum

    def _group_changed(self, key: Name, *_: Any) -> None:
        self.on_change(key)

    def _pod_changed(self, _key: Name, old: Pod | None, new: Pod | None) -> None:
        is_same = old is not None and new is not None and old.metadata.uid == new.metadata.uid
        changed_groups = {group_of(pod) for pod in (old, new) if pod is not None}
        for group in changed_groups:
            self._bound.pop(group, None)
        if old is not None:
            self._drop(old)
        if new is not None:
            self._by_uid[new.metadata.uid] = new
            self._of_group.setdefault(group_of(new), {})[new.metadata.uid] = new
        if old is not None and not is_same:
            self.on_end(old.metadata.uid)
        was_bound = is_same and old is not None and bool(old.spec.node_name)
        if new is not None and new.spec.node_name and not was_bound:
            self.on_end(new.metadata.uid)
        for group in changed_groups:
            self.on_change(group)

    def _drop(self, pod: Pod) -> None:
        group, uid = group_of(pod), pod.metadata.uid
        self._by_uid.pop(uid, None)
        members = self._of_group.get(group, {})
        members.pop(uid, None)
        if not members:
            self._of_group.pop(group, None)

    @property
    def names(self) -> tuple[Name, ...]:
        """Namespace and name of each group that a pod names."""
        return tuple(sorted(self._of_group))


def has_ended(pod: Pod) -> bool:
    """Return True if a pod has ended, so that it holds no place in its group any more."""
    return (pod.status or PodStatus()).phase in ENDED


def is_placed(pod: Pod) -> bool:
    """Return True if a pod is bound, and has not ended."""
    return bool(pod.spec.node_name) and not has_ended(pod)
