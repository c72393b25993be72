"""Which claims a pod needs, as kube-scheduler finds them and kube-controller-manager makes them.

Direct references name a claim. References to templates name it in `status.resourceClaimStatuses`;
a pod that nobody has made claims for yet gets what the template says, under the foreseeable name
`<pod>-<entry>` (the controller appends random characters).

Source: k8s.io/dynamic-resource-allocation v0.37.1, resourceclaim/claim.go, Name;
k8s.io/kubernetes v1.37.1, pkg/controller/resourceclaim/controller.go, handleClaim.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from kube.api.core import Pod, PodResourceClaim
from kube.api.meta import ObjectMeta, OwnerReference
from kube.api.resource import AllocationResult, ResourceClaim, ResourceClaimTemplate

Name = tuple[str, str]
"""Namespace and name."""

CLAIM_NOT_FOUND: Final = "claimNotFound"
TEMPLATE_NOT_FOUND: Final = "templateNotFound"


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """An object that a pod waits for.

    Attributes:
        code: CLAIM_NOT_FOUND or TEMPLATE_NOT_FOUND.
    """

    code: str
    message: str


class PodClaims(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a pod, in the order of its spec.

    Attributes:
        open: To be allocated, all together.
        held: Allocated already; they decide where the pod can go.
        missing: What the pod waits for.
    """

    open: tuple[ResourceClaim, ...] = ()
    held: tuple[ResourceClaim, ...] = ()
    missing: tuple[Missing, ...] = ()


def pod_claims(
    pod: Pod,
    known: Mapping[Name, ResourceClaim],
    templates: Mapping[Name, ResourceClaimTemplate],
) -> PodClaims:
    """Return what a pod needs, with claims made of templates where there are none yet."""
    found = [_claim(pod, entry, known, templates) for entry in pod.spec.resource_claims or ()]
    # Two entries may name one claim.
    claims = {claim_name(each): each for each in found if isinstance(each, ResourceClaim)}
    return PodClaims(
        open=tuple(each for each in claims.values() if allocation_of(each) is None),
        held=tuple(each for each in claims.values() if allocation_of(each) is not None),
        missing=tuple(each for each in found if isinstance(each, Missing)),
    )


def claim_name(claim: ResourceClaim) -> Name:
    """Return namespace and name."""
    return claim.metadata.namespace, claim.metadata.name


def pod_name(pod: Pod) -> str:
    """Return its name, or what its name will begin with."""
    return pod.metadata.name or pod.metadata.generate_name


def allocation_of(claim: ResourceClaim) -> AllocationResult | None:
    """Return what a claim holds; None when it is not allocated."""
    return claim.status.allocation if claim.status is not None else None


def owner(pod: Pod) -> OwnerReference:
    """Return the reference by which a claim belongs to its pod."""
    metadata = pod.metadata
    return OwnerReference(
        api_version="v1", kind="Pod", name=metadata.name, uid=metadata.uid, controller=True
    )


def _claim(
    pod: Pod,
    entry: PodResourceClaim,
    known: Mapping[Name, ResourceClaim],
    templates: Mapping[Name, ResourceClaimTemplate],
) -> ResourceClaim | Missing | None:
    """Return the claim of an entry; None when the controller found that none is needed."""
    namespace = pod.metadata.namespace
    if entry.resource_claim_name is not None:
        name = entry.resource_claim_name
        return known.get((namespace, name)) or Missing(
            code=CLAIM_NOT_FOUND, message=f"there is no claim {namespace}/{name}"
        )
    made = _made_name(pod, entry)
    if made is None:
        return None
    existing = known.get((namespace, made))
    if existing is not None and (_is_recorded(pod, entry) or _is_owned(existing, pod)):
        return existing
    source = entry.resource_claim_template_name or ""
    template = templates.get((namespace, source))
    if template is None:
        return Missing(
            code=TEMPLATE_NOT_FOUND, message=f"there is no claim template {namespace}/{source}"
        )
    return _made(template, pod, made)


def _made_name(pod: Pod, entry: PodResourceClaim) -> str | None:
    """Return the name of the claim made for an entry; None when none is needed."""
    for status in (pod.status.resource_claim_statuses if pod.status else None) or ():
        if status.name == entry.name:
            return status.resource_claim_name
    return f"{pod_name(pod)}-{entry.name}"


def _is_recorded(pod: Pod, entry: PodResourceClaim) -> bool:
    statuses = (pod.status.resource_claim_statuses if pod.status else None) or ()
    return any(status.name == entry.name for status in statuses)


def _is_owned(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether a claim was made for this pod; files may not know uids."""
    return any(
        each.kind == "Pod"
        and each.name == pod.metadata.name
        and (not each.uid or not pod.metadata.uid or each.uid == pod.metadata.uid)
        for each in claim.metadata.owner_references or ()
    )


def _made(template: ResourceClaimTemplate, pod: Pod, name: str) -> ResourceClaim:
    head = template.spec.metadata
    return ResourceClaim(
        metadata=ObjectMeta(
            name=name,
            namespace=pod.metadata.namespace,
            labels=head.labels,
            annotations=head.annotations,
            owner_references=(owner(pod),),
        ),
        spec=template.spec.spec,
    )
