"""The claims of a pod as a scheduler must see them: those that exist, belong to it, and may be used.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources, PreFilter and
foreachPodResourceClaim; k8s.io/dynamic-resource-allocation v0.37.1, resourceclaim/claim.go.
"""

from collections.abc import Mapping
from typing import Final

from allocator.pods.claims import Name, PodClaims, allocation_of, claim_name
from allocator.pods.extended_resource_claim import mapped_resources
from clusterstate.parameter_bounds import MAX_PARAMETER_VALUES, has_dropped_parameters
from kube.api.core import Pod, PodResourceClaim
from kube.api.resource import ResourceClaim
from sidecar.commit.writes import full_claim_message
from sidecar.model.rejections import Code, Rejection, failed_rejection, unresolvable
from sidecar.plan.group_claims import (
    NO_ENTRIES,
    NO_PROMISED_ENTRIES,
    PromisedEntries,
    entries_by_claim,
    has_place,
    is_group_of,
    recorded_claim_names,
)
from sidecar.plan.snapshot import Snapshot

NO_CLAIMS: Final = PodClaims()


def find_placeable_claims(pod: Pod, snapshot: Snapshot) -> PodClaims | Rejection:
    """Return the claims of a pod, or the reason it cannot have devices: all decisions begin here."""
    claims = find_claims(
        pod, snapshot.claims, snapshot.extended_resources, snapshot.promised_entries
    )
    if isinstance(claims, Rejection) or not claims.open:
        return claims
    namespace = pod.metadata.namespace
    if snapshot.quotas is not None and namespace not in snapshot.quotas.tenants.namespaces:
        return failed_rejection(
            Code.NAMESPACE_UNKNOWN,
            "the namespace is not known yet, whose labels choose DeviceQuotas",
        )
    if namespace in snapshot.exhausted_namespaces:
        return unresolvable(
            Code.DEVICES_HELD_BACK,
            f"namespace {namespace} has as many devices held back as it may, of pods that were deleted by "
            "force and whose containers may still run; the pod gets devices when they are free again; let "
            "pods end, rather than delete them by force",
        )
    return claims


def find_claims(
    pod: Pod,
    claims: Mapping[Name, ResourceClaim],
    extended_resources: Mapping[str, str],
    promised_entries: PromisedEntries = NO_PROMISED_ENTRIES,
) -> PodClaims | Rejection:
    """Return a pod's claims, or a rejection if the pod cannot have devices even on an idle cluster.

    Args:
        claims: All claims, with the devices that are promised to them.
        extended_resources: Name of an extended resource to the class that maps it.
        promised_entries: Entries that count beside those in claims.
    """
    resource_mapping = mapped_resources(pod, extended_resources)
    if resource_mapping:
        return unresolvable(
            Code.EXTENDED_RESOURCE,
            f"extended resource {min(resource_mapping)} is served by a DeviceClass, which this scheduler does "
            "not support; request the device by a ResourceClaim",
        )
    entries = pod.spec.resource_claims or ()
    if not entries:
        return NO_CLAIMS
    return _classify(pod, entries, claims, promised_entries)


def claim_names(pod: Pod) -> tuple[Name, ...]:
    """Return the names of the claims of a pod, as far as they are known, each once."""
    return tuple(entries_by_claim(pod, None))


def _classify(
    pod: Pod,
    entries: tuple[PodResourceClaim, ...],
    claims: Mapping[Name, ResourceClaim],
    promised_entries: PromisedEntries,
) -> PodClaims | Rejection:
    by_name: dict[Name, ResourceClaim] = {}
    recorded_names = recorded_claim_names(pod)
    for entry in entries:
        claim = _find(pod, entry, recorded_names, claims)
        if isinstance(claim, Rejection):
            return claim
        if claim is None:
            continue
        name = claim_name(claim)
        # A pod that is let on beyond these has its write refused, and others wait while it is tried again.
        if not has_place(claim, pod, promised_entries.get(name, NO_ENTRIES)):
            return unresolvable(Code.TOO_MANY_CONSUMERS, full_claim_message(name[1]))
        by_name[name] = claim
    return PodClaims(
        open=tuple(claim for claim in by_name.values() if allocation_of(claim) is None),
        held=tuple(claim for claim in by_name.values() if allocation_of(claim) is not None),
    )


def _find(
    pod: Pod,
    entry: PodResourceClaim,
    recorded_names: Mapping[str, str | None],
    claims: Mapping[Name, ResourceClaim],
) -> ResourceClaim | Rejection | None:
    """Return the claim of an entry; None when none is needed."""
    name = entry.resource_claim_name
    is_generated = name is None
    if name is None:
        if entry.name not in recorded_names:
            return unresolvable(
                Code.CLAIM_NOT_CREATED, f"the ResourceClaim of {entry.name} is not created yet"
            )
        name = recorded_names[entry.name]
        if name is None:
            return None
    claim = claims.get((pod.metadata.namespace, name))
    if claim is None:
        return unresolvable(Code.CLAIM_NOT_FOUND, f"ResourceClaim {name} not found")
    if is_generated and not _is_owned(claim, pod):
        return unresolvable(
            Code.CLAIM_NOT_OWNED, f"ResourceClaim {name} was not created for this pod"
        )
    return _usable(claim)


def _usable(claim: ResourceClaim) -> ResourceClaim | Rejection:
    if claim.metadata.deletion_timestamp is not None:
        return unresolvable(
            Code.CLAIM_DELETED, f"ResourceClaim {claim.metadata.name} is being deleted"
        )
    if allocation_of(claim) is None and has_dropped_parameters(claim):
        return unresolvable(
            Code.TOO_MANY_PARAMETERS,
            f"the opaque parameters of ResourceClaim {claim.metadata.name} have more than"
            f" {MAX_PARAMETER_VALUES} values, which this scheduler does not keep",
        )
    return claim


def _is_owned(claim: ResourceClaim, pod: Pod) -> bool:
    """Return True if a claim was made for a pod, or for its PodGroup of a UID that pods do not know."""
    return any(
        reference.controller and (reference.uid == pod.metadata.uid or is_group_of(pod, reference))
        for reference in claim.metadata.owner_references or ()
    )
