"""What a pod, or the template of pods, cannot mean by its claims.

Source: k8s.io/kubernetes v1.37.1, pkg/apis/core/validation for what the API server refuses; the
kubelet for what only fails when the pod starts. A claim beside device keys for the same devices is
told by the translation, which knows what the keys become.
"""

from collections.abc import Iterator
from typing import Final

from kube.api.core import Container, Pod, PodResourceClaim
from kube.api.resource import DeviceClaim
from webhook.findings import Code, Finding, error, shown, warning
from webhook.rules.asked import at
from webhook.rules.claim import nearest, twice
from webhook.rules.context import Context
from webhook.rules.rule import BUILT_IN, OTHER_OBJECTS, Class, Part, PodRule, Subject

JudgedPod = Subject[Pod]


def sources(pod: JudgedPod, path: str, _context: Context) -> Iterator[Finding]:
    """Yield claims of a pod that name neither or both of a claim and a template."""
    for index, one in enumerate(_claims(pod)):
        both = one.resource_claim_name and one.resource_claim_template_name
        if both or not (one.resource_claim_name or one.resource_claim_template_name):
            yield error(
                Code.CLAIM_SOURCE,
                at(path, f"spec.resourceClaims[{index}]"),
                "exactly one of resourceClaimName and resourceClaimTemplateName must be set, found"
                f" {'both' if both else 'neither'}",
            )


def names(pod: JudgedPod, path: str, _context: Context) -> Iterator[Finding]:
    """Yield names of claims that stand twice."""
    yield from twice((one.name for one in _claims(pod)), at(path, "spec.resourceClaims"))


def uses(pod: JudgedPod, path: str, _context: Context) -> Iterator[Finding]:
    """Yield claims of containers that the pod does not have."""
    known = dict.fromkeys(one.name for one in _claims(pod))
    for place, container in _containers(pod, path):
        for index, use in enumerate(container.claims):
            if use.name not in known:
                yield error(
                    Code.UNKNOWN_CLAIM,
                    f"{place}.resources.claims[{index}].name",
                    f"{shown(use.name)} is no claim of this pod",
                    nearest(use.name, known) or "add it to spec.resourceClaims",
                )


def requests(pod: JudgedPod, path: str, context: Context) -> Iterator[Finding]:
    """Yield requests of containers that their claim does not have: the pod would never start."""
    by_name = {one.name: one for one in _claims(pod)}
    for place, container in _containers(pod, path):
        for index, use in enumerate(container.claims):
            claim = _claim(by_name.get(use.name), pod.namespace, context)
            if claim is None or not use.request:
                continue
            known = tuple(one.name for one in claim.requests or ())
            if use.request not in known:
                yield error(
                    Code.UNKNOWN_REQUEST,
                    f"{place}.resources.claims[{index}].request",
                    f"{shown(use.request)} is no request of that claim, so the container would"
                    " never start",
                    nearest(use.request, known),
                )


def missing(pod: JudgedPod, path: str, context: Context) -> Iterator[Finding]:
    """Yield claims and templates that the state of the cluster does not have."""
    if not context.knows_claims:
        return
    for index, one in enumerate(_claims(pod)):
        place = at(path, f"spec.resourceClaims[{index}]")
        if _claim(one, pod.namespace, context) is not None:
            continue
        if one.resource_claim_template_name:
            kind, field, name = (
                "ResourceClaimTemplate",
                "resourceClaimTemplateName",
                one.resource_claim_template_name,
            )
        elif one.resource_claim_name:
            kind, field, name = "ResourceClaim", "resourceClaimName", one.resource_claim_name
        else:
            continue
        yield warning(
            Code.CLAIM_MISSING,
            f"{place}.{field}",
            f"there is no {kind} {shown(name)} in namespace {pod.namespace} here, and the pod waits"
            " for it",
        )


def _claims(pod: JudgedPod) -> tuple[PodResourceClaim, ...]:
    return pod.view.spec.resource_claims or ()


def _claim(one: PodResourceClaim | None, namespace: str, context: Context) -> DeviceClaim | None:
    """Return what an entry asks for; None where that is not known."""
    if one is None:
        return None
    if one.resource_claim_template_name:
        return context.templates.get((namespace, one.resource_claim_template_name))
    if one.resource_claim_name:
        return context.claims.get((namespace, one.resource_claim_name))
    return None


def _containers(pod: JudgedPod, path: str) -> Iterator[tuple[str, Container]]:
    spec = pod.view.spec
    for field, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
    ):
        for index, container in enumerate(containers or ()):
            yield at(path, f"spec.{field}[{index}]"), container


RULES: Final[tuple[PodRule, ...]] = (
    PodRule(
        code=Code.CLAIM_SOURCE,
        part=Part.POD,
        rank=Class.WRONG,
        judge=sources,
        cure="Name a ResourceClaim, or a ResourceClaimTemplate.",
        why_not_cel=BUILT_IN,
    ),
    PodRule(
        code=Code.DUPLICATE_NAME,
        part=Part.POD,
        rank=Class.WRONG,
        judge=names,
        cure="Give each entry a name of its own.",
        why_not_cel=BUILT_IN,
    ),
    PodRule(
        code=Code.UNKNOWN_CLAIM,
        part=Part.POD,
        rank=Class.WRONG,
        judge=uses,
        cure="Add the claim to `spec.resourceClaims`, or name one that is there.",
        why_not_cel=BUILT_IN,
    ),
    PodRule(
        code=Code.UNKNOWN_REQUEST,
        part=Part.POD,
        rank=Class.WRONG,
        judge=requests,
        cure="Name a request of the claim.",
        why_not_cel=OTHER_OBJECTS,
    ),
    PodRule(
        code=Code.CLAIM_MISSING,
        part=Part.POD,
        rank=Class.NOW,
        judge=missing,
        cure="Apply the claim or the template, too.",
        why_not_cel=OTHER_OBJECTS,
    ),
)
