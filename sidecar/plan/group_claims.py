"""The entries of pods in `status.reservedFor` of their claims: their own, or that of their PodGroup.

A claim that the PodGroup and the pod name alike is shared by the group, and has one entry for all its pods: a
claim has 256 entries at most, and a group more pods.

Source: k8s.io/dynamic-resource-allocation v0.37.1, resourceclaim, BindTo and IsReservedForPod. The API server
drops `spec.resourceClaims` of a PodGroup without the feature gate DRAWorkloadResourceClaims, so that its pods
have entries of their own then.
"""

from collections.abc import Mapping

from allocator.declarations.pod_group import PodGroup
from allocator.pods.claims import Name, is_pod_group, pod_group_name
from kube.api.core import Pod
from kube.api.meta import OwnerReference
from kube.api.resource import ResourceClaim, ResourceClaimConsumerReference
from kube.api.urls import POD_GROUPS
from sidecar.commit.writes import consumers


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
