"""The claims of a PodGroup: the entries of its pods that share them, and those that were meant to.

Kubernetes takes an entry of a pod for a claim of the PodGroup if name, claim and template are the same. Where one
of them differs, it says nothing: the pod gets a claim of its own, which its group does not share. Here an entry that
is the same names the claim, as an entry without a template does. Before Kubernetes has made it, it is built from
the template, under the name `<group>.<entry>-shared`, which no other entry has; the real one ends in
random characters.

Source: k8s.io/dynamic-resource-allocation v0.37.1, resourceclaim, BindTo and NameFromPodGroup; KEP-5729. The gate is
DRAWorkloadResourceClaims: without it, the API server drops the claims of a PodGroup.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from allocator.declarations.pod_group import KIND, PodGroup
from allocator.pods.claims import Name, pod_group_name
from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import quote_text
from kube.api.core import Pod, PodResourceClaim
from kube.api.meta import ObjectMeta, OwnerReference
from kube.api.resource import ResourceClaim, ResourceClaimTemplate

_CLAIMS = FieldPath.of("spec", "resourceClaims")
_MAX_NAME = 253


def check_group_claims(pod: Pod, group: PodGroup) -> Iterator[Finding]:
    """Yield a warning for each claim of a pod that has either the name or the source of one of its PodGroup."""
    entries = group.spec.resource_claims or ()
    for index, claim in enumerate(pod.spec.resource_claims or ()):
        if claim in entries:
            continue
        entry = next((entry for entry in entries if _resembles(claim, entry)), None)
        if entry is None:
            continue
        yield warning(
            Code.GROUP_CLAIM_DIFFERS,
            _CLAIMS.child(index),
            f"{_text(claim)} is not {_text(entry)} of PodGroup {group.metadata.name}, so the pod gets a "
            "claim of its own",
            "write the same name and the same source into both to share the claim, or other ones into the pod",
        )


def _resembles(claim: PodResourceClaim, entry: PodResourceClaim) -> bool:
    return claim.name == entry.name or (
        (claim.resource_claim_name, claim.resource_claim_template_name)
        == (entry.resource_claim_name, entry.resource_claim_template_name)
    )


def _text(claim: PodResourceClaim) -> str:
    """Return an entry for people."""
    kind, name = (
        ("template", claim.resource_claim_template_name)
        if claim.resource_claim_template_name is not None
        else ("claim", claim.resource_claim_name)
    )
    return f"{quote_text(claim.name[:_MAX_NAME])} of {kind} {quote_text((name or '')[:_MAX_NAME])}"


class SharedClaims(NamedTuple):
    """Pods with entries that name the claims of their PodGroups.

    Attributes:
        pods: The pods, in the same order.
        claims: The claims of PodGroups that do not exist yet, by namespace and name.
    """

    pods: tuple[Pod, ...]
    claims: Mapping[Name, ResourceClaim]


def share_claims(
    pods: Iterable[Pod],
    groups: Iterable[PodGroup],
    claims: Mapping[Name, ResourceClaim],
    templates: Mapping[Name, ResourceClaimTemplate],
) -> SharedClaims:
    """Return the pods with the claims that they share.

    Args:
        pods: The pods.
        groups: The PodGroups of Kubernetes.
        claims: The claims that exist.
        templates: The templates that exist; an entry with another template stays as it is.
    """
    by_name = {
        (group.metadata.namespace, group.metadata.name): group
        for group in groups
        if group.spec.resource_claims
    }
    new_claims: dict[Name, ResourceClaim] = {}
    sharing: list[Pod] = []
    for pod in pods:
        group = by_name.get((pod.metadata.namespace, pod_group_name(pod)))
        if group is None:
            sharing.append(pod)
            continue
        entries = []
        for entry in pod.spec.resource_claims or ():
            claim = _shared_claim(pod, entry, group, claims, templates)
            if claim is None:
                entries.append(entry)
                continue
            claim_name = (claim.metadata.namespace, claim.metadata.name)
            if claim_name not in claims:
                new_claims[claim_name] = claim
            entries.append(PodResourceClaim(name=entry.name, resource_claim_name=claim_name[1]))
        spec = replace(pod.spec, resource_claims=tuple(entries))
        sharing.append(replace(pod, spec=spec))
    return SharedClaims(tuple(sharing), new_claims)


def _shared_claim(
    pod: Pod,
    entry: PodResourceClaim,
    group: PodGroup,
    claims: Mapping[Name, ResourceClaim],
    templates: Mapping[Name, ResourceClaimTemplate],
) -> ResourceClaim | None:
    """Return the claim of a PodGroup for an entry; None for an entry with a claim of its own, or one that is known."""
    source = entry.resource_claim_template_name
    statuses = pod.status.resource_claim_statuses if pod.status is not None else None
    is_recorded = any(status.name == entry.name for status in statuses or ())
    if source is None or is_recorded or entry not in (group.spec.resource_claims or ()):
        return None
    namespace = pod.metadata.namespace
    name = _shared_name(entry, group)
    existing = claims.get((namespace, name))
    template = templates.get((namespace, source))
    if existing is not None or template is None:
        return existing
    head = template.spec.metadata
    owner = OwnerReference(
        api_version=group.api_version,
        kind=KIND,
        name=group.metadata.name,
        uid=group.metadata.uid,
        controller=True,
    )
    metadata = ObjectMeta(
        name=name,
        namespace=namespace,
        labels=head.labels,
        annotations=head.annotations,
        owner_references=(owner,),
    )
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)


def _shared_name(entry: PodResourceClaim, group: PodGroup) -> str:
    """Return the name of the claim, as the PodGroup's status has it, or as we call it before."""
    for status in group.status.resource_claim_statuses or ():
        if status.name == entry.name and status.resource_claim_name:
            return status.resource_claim_name
    return f"{group.metadata.name}.{entry.name}-shared"
