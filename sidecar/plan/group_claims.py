"""The entries of pods in `status.reservedFor` of their claims: their own, or that of their PodGroup.

A claim that the PodGroup and the pod name alike is shared by the group, and has one entry for all its pods: a
claim has 256 entries at most, and a group more pods.

Source: k8s.io/dynamic-resource-allocation v0.37.1, resourceclaim, BindTo and IsReservedForPod. The API server
drops `spec.resourceClaims` of a PodGroup without the feature gate DRAWorkloadResourceClaims, so that its pods
have entries of their own then.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Final

from allocator.declarations.pod_group import PodGroup
from allocator.pods.claims import Name, is_pod_group, pod_group_name
from kube.api.core import Pod
from kube.api.meta import OwnerReference
from kube.api.resource import ResourceClaim, ResourceClaimConsumerReference
from kube.api.urls import POD_GROUPS
from sidecar.commit.writes import MAX_CONSUMERS, consumers

Entries = Mapping[str, ResourceClaimConsumerReference]
"""UID of a pod or a PodGroup to its entry."""
PromisedEntries = Mapping[Name, Entries]
"""Names of claims to the entries of pods that are reserved, and may not be written yet."""
NO_ENTRIES: Final[Entries] = {}
NO_PROMISED_ENTRIES: Final[PromisedEntries] = {}


def entries_by_claim(
    pod: Pod, pod_group: PodGroup | None
) -> Mapping[Name, ResourceClaimConsumerReference]:
    """Return the names of the claims of a pod, as far as they are known, with its entries in them.

    Args:
        pod_group: The PodGroup that the pod names; None if there is none.
    """
    recorded_names = recorded_claim_names(pod)
    own_entry = pod_entry(pod.metadata.name, pod.metadata.uid)
    shared = frozenset((pod_group and pod_group.spec.resource_claims) or ())
    entries: dict[Name, ResourceClaimConsumerReference] = {}
    for claim in pod.spec.resource_claims or ():
        name = claim.resource_claim_name or recorded_names.get(claim.name)
        if not name:
            continue
        if pod_group is not None and claim in shared:
            entries[pod.metadata.namespace, name] = group_entry(pod_group)
        else:
            entries.setdefault((pod.metadata.namespace, name), own_entry)
    return entries


def recorded_claim_names(pod: Pod) -> Mapping[str, str | None]:
    """Return the claims that were made for a pod, by the names of its entries; None for one without a claim."""
    statuses = (pod.status.resource_claim_statuses if pod.status else None) or ()
    return {status.name: status.resource_claim_name for status in statuses}


def pod_entry(name: str, uid: str) -> ResourceClaimConsumerReference:
    """Return the entry of a pod."""
    return ResourceClaimConsumerReference(resource="pods", name=name, uid=uid)


def group_entry(pod_group: PodGroup) -> ResourceClaimConsumerReference:
    """Return the entry of a PodGroup."""
    metadata = pod_group.metadata
    return ResourceClaimConsumerReference(
        api_group=POD_GROUPS.group, resource=POD_GROUPS.plural, name=metadata.name, uid=metadata.uid
    )


def is_reserved_for_pod(claim: ResourceClaim, pod: Pod) -> bool:
    """Return True if a pod may use a claim, by its own entry or that of its PodGroup."""
    return any(is_entry_of(consumer, pod) for consumer in consumers(claim))


def is_entry_of(entry: ResourceClaimConsumerReference, pod: Pod) -> bool:
    """Return True if an entry is that of a pod, or of its PodGroup by name: pods do not know the UID."""
    if is_group_entry(entry):
        return bool(entry.name) and entry.name == pod_group_name(pod)
    return entry.uid == pod.metadata.uid


def is_group_entry(entry: ResourceClaimConsumerReference) -> bool:
    """Return True if an entry is that of a PodGroup."""
    return entry.api_group == POD_GROUPS.group and entry.resource == POD_GROUPS.plural


def is_group_of(pod: Pod, owner: OwnerReference) -> bool:
    """Return True if an owner is the PodGroup of a pod.

    Source: k8s.io/dynamic-resource-allocation v0.37.1, resourceclaim, isForPodGroupByPod.
    """
    return bool(owner.name) and owner.name == pod_group_name(pod) and is_pod_group(owner)


def group_of(pod: Pod) -> Name:
    """Return namespace and name of the PodGroup that a pod names."""
    return pod.metadata.namespace, pod_group_name(pod)


def has_place(claim: ResourceClaim, pod: Pod, promised: Entries) -> bool:
    """Return True if a pod has an entry in a claim, or there is a place for one.

    Args:
        promised: The entries that count beside those in the claim.
    """
    entries = consumers(claim)
    if len(entries) + len(promised) < MAX_CONSUMERS:
        return True
    uids = {entry.uid for entry in entries}.union(promised)
    return (
        len(uids) < MAX_CONSUMERS
        or pod.metadata.uid in uids
        or _has_group_entry(pod, (*entries, *promised.values()))
    )


def with_promised(
    promised: PromisedEntries, entries: Mapping[Name, ResourceClaimConsumerReference]
) -> PromisedEntries:
    """Return promised entries with those of one more pod."""
    added = {
        name: {**promised.get(name, NO_ENTRIES), entry.uid: entry}
        for name, entry in entries.items()
    }
    return {**promised, **added}


class ClaimPlaces:
    """The places of claims for entries, as pods take them one after the other."""

    def __init__(
        self,
        claims: Mapping[Name, ResourceClaim],
        promised: PromisedEntries,
        pod_groups: Mapping[Name, PodGroup],
    ) -> None:
        """Begin with the entries that are there or promised."""
        self._claims = claims
        self._promised = promised
        self._pod_groups = pod_groups
        self._uids: dict[Name, set[str]] = {}

    def has(self, pod: Pod) -> bool:
        """Return True if each claim of a pod has its entry, or a place for it."""
        return all(
            entry.uid in uids or len(uids) < MAX_CONSUMERS or self._has_group_entry(name, pod)
            for name, entry in self._entries(pod).items()
            if (uids := self._uids_of(name)) is not None
        )

    def take(self, pod: Pod) -> bool:
        """Take a place of each claim for a pod or its PodGroup; return False, and take none, if one has none left."""
        if not self.has(pod):
            return False
        for name, entry in self._entries(pod).items():
            uids = self._uids_of(name)
            if uids is not None and not self._has_group_entry(name, pod):
                uids.add(entry.uid)
        return True

    def take_all(self, uids: Container[str], pods: Iterable[Pod]) -> None:
        """Take the places of those pods that have one of some UIDs."""
        for pod in pods:
            if pod.metadata.uid in uids:
                self.take(pod)

    def _entries(self, pod: Pod) -> Mapping[Name, ResourceClaimConsumerReference]:
        return entries_by_claim(pod, self._pod_groups.get(group_of(pod)))

    def _uids_of(self, name: Name) -> set[str] | None:
        """Return the UIDs of the entries of a claim; None if it does not exist."""
        uids = self._uids.get(name)
        if uids is None and (claim := self._claims.get(name)) is not None:
            stored_uids = {entry.uid for entry in consumers(claim)}
            uids = self._uids[name] = stored_uids.union(self._promised.get(name, NO_ENTRIES))
        return uids

    def _has_group_entry(self, name: Name, pod: Pod) -> bool:
        if not pod_group_name(pod):
            return False
        entries = consumers(self._claims[name])
        return _has_group_entry(pod, (*entries, *self._promised.get(name, NO_ENTRIES).values()))


def _has_group_entry(pod: Pod, entries: Iterable[ResourceClaimConsumerReference]) -> bool:
    """Return True if the entry of a pod's PodGroup is among some."""
    return bool(pod_group_name(pod)) and any(
        is_group_entry(entry) and is_entry_of(entry, pod) for entry in entries
    )
