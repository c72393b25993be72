"""Faults of the claims of a pod, or of the pod template of a workload.

Source: k8s.io/kubernetes v1.37.1, pkg/apis/core/validation, for what the API server rejects; the
kubelet for what fails only when the pod starts. The translation reports a claim beside device keys
for the same devices, since it knows what the keys become.
"""

from collections.abc import Iterator
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from kube.api.core import Container, Pod, PodResourceClaim
from kube.api.resource import DeviceClaim
from kube.names import REQUEST_ANNOTATION
from rules.context.claim_drivers import drivers_of_claim
from rules.context.context import Context
from rules.context.rule import BUILT_IN_VALIDATION, OTHER_OBJECTS, Category, PodRule, Scope, Subject
from rules.model.missing_claims import locate_missing, named_object
from rules.model.naming import (
    closest_name,
    find_duplicates,
    find_similar_name,
    suggest_name,
)

PodSubject = Subject[Pod]
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
MAX_CLAIMS_COMPARED: Final = 8
"""Claims of a pod with names that are compared with those in its namespace."""
NO_DEVICES: Final = frozenset({"", "void", "none"})
"""Values of this variable that expose no device."""


def find_invalid_sources(pod: PodSubject, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield claims of a pod that name neither or both of a claim and a template."""
    for index, entry in enumerate(_claims(pod)):
        both = entry.resource_claim_name and entry.resource_claim_template_name
        if both or not (entry.resource_claim_name or entry.resource_claim_template_name):
            yield error(
                Code.INVALID_CLAIM_SOURCE,
                path.child("spec", "resourceClaims", index),
                "exactly one of resourceClaimName and resourceClaimTemplateName must be set, found"
                f" {'both' if both else 'neither'}",
            )


def find_duplicate_names(pod: PodSubject, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield duplicate names of claims."""
    names = (entry.name for entry in _claims(pod))
    yield from find_duplicates(names, path.child("spec", "resourceClaims"))


def find_unknown_claims(pod: PodSubject, path: FieldPath, _context: Context) -> Iterator[Finding]:
    """Yield uses of claims that the pod does not have."""
    known_names = dict.fromkeys(entry.name for entry in _claims(pod))
    for place, container in _containers(pod, path):
        for index, use in enumerate(container.claims):
            if use.name not in known_names:
                yield error(
                    Code.UNKNOWN_CLAIM,
                    place.child("resources", "claims", index, "name"),
                    f"the pod has no claim {quote_text(use.name)}",
                    suggest_name(use.name, known_names) or "add it to spec.resourceClaims",
                ).rewritten(use.name, closest_name(use.name, known_names))


def find_unknown_requests(pod: PodSubject, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield uses of requests that the claim does not have, so that the pod would never start."""
    by_name = {entry.name: entry for entry in _claims(pod)}
    for place, container in _containers(pod, path):
        for index, use in enumerate(container.claims):
            claim = _known_claim(by_name.get(use.name), pod.namespace, context)
            if claim is None or not use.request:
                continue
            known_requests = tuple(request.name for request in claim.requests or ())
            if use.request not in known_requests:
                yield error(
                    Code.UNKNOWN_REQUEST,
                    place.child("resources", "claims", index, "request"),
                    f"the claim has no request {quote_text(use.request)}, so the container would"
                    " never start",
                    suggest_name(use.request, known_requests),
                ).rewritten(use.request, closest_name(use.request, known_requests))


def find_missing_claims(pod: PodSubject, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield claims and templates that do not exist in the cluster.

    Where they may come a moment later, only those with a name that is probably misspelt.
    """
    if not context.has_all_claims and REQUEST_ANNOTATION in pod.view.annotations:
        return
    names_by_kind: dict[str, list[str]] = {}
    for index, entry in enumerate(_claims(pod)):
        place = path.child("spec", "resourceClaims", index)
        if _known_claim(entry, pod.namespace, context) is not None:
            continue
        reference = named_object(entry, context.claims.keys(), context.templates.keys())
        if reference is None:
            continue
        if reference.kind not in names_by_kind:
            names_by_kind[reference.kind] = [
                other for namespace, other in reference.existing if namespace == pod.namespace
            ]
        is_compared = index < MAX_CLAIMS_COMPARED
        similar = (
            find_similar_name(reference.name, names_by_kind[reference.kind]) if is_compared else ""
        )
        is_of_other_kind = (pod.namespace, reference.name) in reference.other_kind[1]
        if not context.has_all_claims and not similar and not is_of_other_kind:
            continue
        yield warning(
            Code.CLAIM_MISSING,
            place.child(reference.field),
            f"{reference.kind} {quote_text(reference.name)} does not exist in namespace {pod.namespace}, and the pod"
            " waits for it",
            locate_missing(pod.namespace, reference, similar),
        ).rewritten(reference.name, similar)


def find_exposed_devices(pod: PodSubject, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield variables that may expose devices beside a container's claims of owned drivers."""
    # The translation reports it for its pods: devicesExposedByEnv.
    if not context.owned_drivers or REQUEST_ANNOTATION in pod.view.annotations:
        return
    by_name = {entry.name: entry for entry in _claims(pod)}
    for place, container in _containers(pod, path):
        variables = [
            index
            for index, variable in enumerate(container.env or ())
            if variable.name == VISIBLE_DEVICES and variable.value not in NO_DEVICES
        ]
        if not variables:
            continue
        claims = (
            _known_claim(by_name.get(use.name), pod.namespace, context) for use in container.claims
        )
        drivers = {
            driver for claim in claims if claim for driver in drivers_of_claim(claim, context).all
        }
        for driver in sorted(drivers & context.owned_drivers)[:1]:
            for index in variables:
                yield warning(
                    Code.OWNED_DEVICES_EXPOSED,
                    place.child("env", index),
                    f"{VISIBLE_DEVICES} may expose devices of {driver} that the bridge gives to others",
                    "remove it; the driver injects the claimed devices",
                )


def _claims(pod: PodSubject) -> tuple[PodResourceClaim, ...]:
    return pod.view.spec.resource_claims or ()


def _known_claim(
    entry: PodResourceClaim | None, namespace: str, context: Context
) -> DeviceClaim | None:
    """Return the requested devices of an entry; None if they are unknown."""
    if entry is None:
        return None
    if entry.resource_claim_template_name:
        return context.templates.get((namespace, entry.resource_claim_template_name))
    if entry.resource_claim_name:
        return context.claims.get((namespace, entry.resource_claim_name))
    return None


def _containers(pod: PodSubject, path: FieldPath) -> Iterator[tuple[FieldPath, Container]]:
    spec = pod.view.spec
    for field, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
    ):
        for index, container in enumerate(containers or ()):
            yield path.child("spec", field, index), container


RULES: Final[tuple[PodRule, ...]] = (
    PodRule(
        code=Code.INVALID_CLAIM_SOURCE,
        scope=Scope.POD,
        category=Category.INVALID,
        validate=find_invalid_sources,
        fix="Name a ResourceClaim, or a ResourceClaimTemplate.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    PodRule(
        code=Code.DUPLICATE_NAME,
        scope=Scope.POD,
        category=Category.INVALID,
        validate=find_duplicate_names,
        fix="Use unique names.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    PodRule(
        code=Code.UNKNOWN_CLAIM,
        scope=Scope.POD,
        category=Category.INVALID,
        validate=find_unknown_claims,
        fix="Add the claim to `spec.resourceClaims`, or name one that exists.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    PodRule(
        code=Code.UNKNOWN_REQUEST,
        scope=Scope.POD,
        category=Category.INVALID,
        validate=find_unknown_requests,
        fix="Name a request of the claim.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    PodRule(
        code=Code.CLAIM_MISSING,
        scope=Scope.POD,
        category=Category.NOT_YET,
        validate=find_missing_claims,
        fix="Apply the claim or the template as well.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    PodRule(
        code=Code.OWNED_DEVICES_EXPOSED,
        scope=Scope.POD,
        category=Category.ADVICE,
        validate=find_exposed_devices,
        fix="Remove the variable; the driver injects the claimed devices.",
        no_cel_reason=OTHER_OBJECTS,
    ),
)
