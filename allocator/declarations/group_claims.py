"""The claims of a PodGroup, and the entries of its pods that were meant to be them.

Kubernetes takes an entry of a pod for a claim of the PodGroup if name, claim and template are the same. Where one
of them differs, it says nothing: the pod gets a claim of its own, which its group does not share.

Source: k8s.io/dynamic-resource-allocation v0.37.1, resourceclaim, BindTo; KEP-5729.
"""

from collections.abc import Iterator

from allocator.declarations.pod_group import PodGroup
from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import quote_text
from kube.api.core import Pod, PodResourceClaim

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
