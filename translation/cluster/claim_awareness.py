"""Warnings about autoscalers and queues that handle the claims of translated pods otherwise than their keys.

The facts are those of `translation.cluster.component_statements`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import printable, quote_text
from kube.names import TRANSLATE_LABEL
from translation.cluster.component_statements import counts_template
from translation.cluster.shares import requests_share
from translation.cluster.snapshot import (
    ClaimUnawareComponent,
    TranslationOptions,
    TranslationSnapshot,
)
from translation.compiling.claims import Claim

_CLAIMS: Final = FieldPath.of("spec", "resourceClaims")
_LISTED: Final = "once it counts claims, list it in claimAwareComponents of the settings"
_AUTOSCALERS: Final = (ClaimUnawareComponent.CLUSTER_AUTOSCALER, ClaimUnawareComponent.KARPENTER)


def check_claim_awareness(
    claims: Sequence[Claim],
    resource: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    kind: str = "",
) -> Iterator[Finding]:
    """Yield a warning for each installed component that may ignore the claims.

    Args:
        resource: The device key that the claims replace.
        kind: Kind of the workload; Kueue counts the template of some, and the pods of others.
    """
    installed = snapshot.claim_unaware_components.keys() - options.claim_aware_components
    for component in sorted(installed):
        match component:
            case ClaimUnawareComponent.KUEUE:
                counted = snapshot.claim_unaware_components[component]
                yield from _kueue(claims, resource, counted, kind)
            case ClaimUnawareComponent.CLUSTER_AUTOSCALER:
                yield _unaware(
                    "the cluster autoscaler adds no node for claims, unless it is 1.35 or later, or runs with "
                    "--enable-dynamic-resource-allocation"
                )
            case ClaimUnawareComponent.KARPENTER:
                yield _unaware(
                    "Karpenter adds no node for claims, unless IGNORE_DRA_REQUESTS is false (1.14: true by "
                    "default)"
                )
    if installed.intersection(_AUTOSCALERS):
        yield warning(
            Code.NO_SCALE_FROM_ZERO,
            _CLAIMS,
            "no node is added for claims to a group that has none, unless its provider predicts devices: "
            "AWS's Karpenter and externalgrpc do not, Cluster API predicts them without attributes",
            "keep one node of each kind running; docs/neighbours.md has what each provider does",
        )


def check_provisioned_template(template: Mapping[str, Any], request: str) -> Iterator[Finding]:
    """Yield the warning about a PodTemplate with claims from templates; its path starts at the pod.

    Cluster Autoscaler makes the pods in memory alone, so no controller makes their ResourceClaims.
    Source: kubernetes/autoscaler, issue 10065.

    Args:
        template: The pod template as it is applied.
        request: The name of the ProvisioningRequest.
    """
    spec = template.get("spec")
    entries = spec.get("resourceClaims") if isinstance(spec, dict) else None
    if any(
        isinstance(entry, dict) and entry.get("resourceClaimTemplateName")
        for entry in (entries if isinstance(entries, list) else ())
    ):
        yield warning(
            Code.NO_PROVISIONED_CAPACITY,
            FieldPath.of("spec", "resourceClaims"),
            f"ProvisioningRequest {quote_text(request)} never gets its capacity: Cluster Autoscaler makes its pods in "
            "memory, where a ResourceClaimTemplate gives them no claim (kubernetes/autoscaler issue 10065)",
            f"until it does, keep the device keys in this PodTemplate: label its pod template {TRANSLATE_LABEL}=false",
        )


def _unaware(message: str, fix: str = _LISTED) -> Finding:
    return warning(Code.CLAIM_UNAWARE_COMPONENT, _CLAIMS, message, fix)


def _kueue(
    claims: Sequence[Claim], resource: str, counted: frozenset[str], kind: str
) -> Iterator[Finding]:
    if counts_template(kind):
        yield _unaware(
            f"Kueue counts {printable(resource)} in the template of a {kind}, not the claims of its pods, "
            "and does not ask deviceClassMappings",
            f"keep {printable(resource)} among the resources of its ClusterQueue",
        )
        return
    form = _form_that_kueue_refuses(claims)
    if form:
        yield _unaware(
            f"Kueue never admits claims with {form}, which these have",
            "leave the workload out of its queues, or request amounts that need no alternatives",
        )
        return
    names = {name for claim in claims for name in claim.class_names()}
    classes = sorted(names - counted)
    if classes:
        mapping = f"{{name: {printable(resource)}, deviceClassNames: [{', '.join(classes)}]}}"
        is_share = any(any(requests_share(claim)) for claim in claims)
        whole = (
            "; it counts a share as a whole device, unless the mapping has sources with capacity (0.19, alpha)"
            if is_share
            else ""
        )
        yield _unaware(
            f"Kueue does not count these claims; add to its deviceClassMappings: {mapping}; from 0.18 on it "
            f"never admits pods with claims of other classes{whole}"
        )


def _form_that_kueue_refuses(claims: Sequence[Claim]) -> str:
    """Return the form of a request that Kueue never admits; empty for none."""
    for claim in claims:
        requests: Sequence[dict[str, Any]] = claim.spec["spec"]["devices"]["requests"]
        for request in requests:
            if request.get("firstAvailable"):
                return "firstAvailable"
            if request["exactly"].get("allocationMode") == "All":
                return "allocationMode All"
    return ""
