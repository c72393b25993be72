"""The claims of a pod, as kube-scheduler finds them and kube-controller-manager makes them.

Direct references name a claim. References to templates name it in `status.resourceClaimStatuses`;
a pod without claims yet gets those of its templates, under the predictable name `<pod>-<entry>` (the
controller appends random characters).

Source: k8s.io/dynamic-resource-allocation v0.37.1, resourceclaim/claim.go, Name;
k8s.io/kubernetes v1.37.1, pkg/controller/resourceclaim/controller.go, handleClaim.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from kube.api.core import Pod, PodResourceClaim
from kube.api.events import ObjectReference
from kube.api.meta import ObjectMeta, OwnerReference
from kube.api.resource import AllocationResult, ResourceClaim, ResourceClaimTemplate
from kube.api.urls import POD_GROUPS

Name = tuple[str, str]
"""Namespace and name."""

CLAIM_NOT_FOUND: Final = "claimNotFound"
TEMPLATE_NOT_FOUND: Final = "templateNotFound"
MAX_DRIVER_SETS: Final = 1024
"""Sets of drivers that allocated claims share; most claims have devices of one driver."""


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """An object that a pod refers to and that does not exist.

    Attributes:
        code: CLAIM_NOT_FOUND or TEMPLATE_NOT_FOUND.
        object: `ResourceClaim namespace/name`.
    """

    code: str
    object: str

    @property
    def message(self) -> str:
        """A sentence that the object does not exist."""
        return f"{self.object} not found"


class PodClaims(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a pod, in the order of its spec.

    Attributes:
        open: Not allocated; to be allocated together.
        held: Allocated already; they limit the nodes for the pod.
        missing: Objects that the pod refers to and that do not exist.
    """

    open: tuple[ResourceClaim, ...] = ()
    held: tuple[ResourceClaim, ...] = ()
    missing: tuple[Missing, ...] = ()


def pod_claims(
    pod: Pod,
    known_claims: Mapping[Name, ResourceClaim],
    templates: Mapping[Name, ResourceClaimTemplate],
) -> PodClaims:
    """Return the claims of a pod; those that are not made yet are built from their templates."""
    entries = [
        _claim(pod, entry, known_claims, templates) for entry in pod.spec.resource_claims or ()
    ]
    # Two entries may name one claim.
    claims = {claim_name(entry): entry for entry in entries if isinstance(entry, ResourceClaim)}
    return PodClaims(
        open=tuple(claim for claim in claims.values() if allocation_of(claim) is None),
        held=tuple(claim for claim in claims.values() if allocation_of(claim) is not None),
        missing=tuple(entry for entry in entries if isinstance(entry, Missing)),
    )


def claim_name(claim: ResourceClaim) -> Name:
    """Return namespace and name."""
    return claim.metadata.namespace, claim.metadata.name


def consuming_pods(claim: ResourceClaim) -> Iterator[ObjectReference]:
    """Yield the pods that a claim is reserved for."""
    for consumer in (claim.status.reserved_for if claim.status is not None else None) or ():
        if consumer.resource == "pods" and not consumer.api_group:
            yield ObjectReference(
                api_version="v1",
                kind="Pod",
                namespace=claim.metadata.namespace,
                name=consumer.name,
                uid=consumer.uid,
            )


def pod_place(pod: Pod) -> Name:
    """Return namespace and name of a pod."""
    return pod.metadata.namespace, pod.metadata.name


def pod_name(pod: Pod) -> str:
    """Return the name of a pod, or its generateName."""
    return pod.metadata.name or pod.metadata.generate_name


def pod_group_name(pod: Pod) -> str:
    """Return the name of the PodGroup of Kubernetes that a pod names; empty without one."""
    name = (pod.spec.scheduling_group or {}).get("podGroupName")
    return name if isinstance(name, str) else ""


def allocation_of(claim: ResourceClaim) -> AllocationResult | None:
    """Return the allocation of a claim; None when it is not allocated."""
    return claim.status.allocation if claim.status is not None else None


def allocated_drivers(claim: ResourceClaim) -> frozenset[str] | None:
    """Return the drivers of the devices of a claim; None when it is not allocated."""
    allocation = allocation_of(claim)
    if allocation is None:
        return None
    return _driver_set(
        tuple(dict.fromkeys(result.driver for result in allocation.devices.results or ()))
    )


@lru_cache(maxsize=MAX_DRIVER_SETS)
def _driver_set(drivers: tuple[str, ...]) -> frozenset[str]:
    """Return drivers as a set, one for all claims with the same."""
    return frozenset(drivers)


def owner_reference(pod: Pod) -> OwnerReference:
    """Return the owner reference from a claim to its pod."""
    metadata = pod.metadata
    return OwnerReference(
        api_version="v1", kind="Pod", name=metadata.name, uid=metadata.uid, controller=True
    )


def _claim(
    pod: Pod,
    entry: PodResourceClaim,
    known_claims: Mapping[Name, ResourceClaim],
    templates: Mapping[Name, ResourceClaimTemplate],
) -> ResourceClaim | Missing | None:
    """Return the claim of an entry; None when the controller found that none is needed."""
    namespace = pod.metadata.namespace
    if entry.resource_claim_name is not None:
        name = entry.resource_claim_name
        return known_claims.get((namespace, name)) or Missing(
            code=CLAIM_NOT_FOUND, object=f"ResourceClaim {namespace}/{name}"
        )
    generated_name = _generated_name(pod, entry)
    if generated_name is None:
        return None
    existing = known_claims.get((namespace, generated_name))
    if existing is not None and (_is_recorded(pod, entry) or _is_owned(existing, pod)):
        return existing
    source = entry.resource_claim_template_name or ""
    template = templates.get((namespace, source))
    if template is None:
        return Missing(
            code=TEMPLATE_NOT_FOUND, object=f"ResourceClaimTemplate {namespace}/{source}"
        )
    return _from_template(template, pod, generated_name)


def _generated_name(pod: Pod, entry: PodResourceClaim) -> str | None:
    """Return the name of the claim made for an entry; None when none is needed."""
    for status in (pod.status.resource_claim_statuses if pod.status else None) or ():
        if status.name == entry.name:
            return status.resource_claim_name
    return f"{pod_name(pod)}-{entry.name}"


def _is_recorded(pod: Pod, entry: PodResourceClaim) -> bool:
    statuses = (pod.status.resource_claim_statuses if pod.status else None) or ()
    return any(status.name == entry.name for status in statuses)


def _is_owned(claim: ResourceClaim, pod: Pod) -> bool:
    """Return True if a claim was made for this pod; files may not know uids."""
    return any(
        reference.kind == "Pod"
        and reference.name == pod.metadata.name
        and (not reference.uid or not pod.metadata.uid or reference.uid == pod.metadata.uid)
        for reference in claim.metadata.owner_references or ()
    )


def _from_template(template: ResourceClaimTemplate, pod: Pod, name: str) -> ResourceClaim:
    head = template.spec.metadata
    return ResourceClaim(
        metadata=ObjectMeta(
            name=name,
            namespace=pod.metadata.namespace,
            labels=head.labels,
            annotations=head.annotations,
            owner_references=(owner_reference(pod),),
        ),
        spec=template.spec.spec,
    )


def pinned_to(allocation: AllocationResult) -> str | None:
    """Return the node that an allocation is local to; None when it is usable on several."""
    selector = allocation.node_selector
    for term in selector.node_selector_terms if selector is not None else ():
        for field in term.match_fields or ():
            if field.key == "metadata.name" and field.operator == "In" and field.values:
                return field.values[0]
    return None


def is_pod_group(owner: OwnerReference) -> bool:
    """Return True if a claim was made for a PodGroup of Kubernetes by its owner reference.

    Source: k8s.io/dynamic-resource-allocation v0.37.1, resourceclaim, isForPodGroupByPod.
    """
    return (
        owner.controller is True
        and owner.kind == "PodGroup"
        and owner.api_version.startswith(f"{POD_GROUPS.group}/")
    )
