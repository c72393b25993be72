"""The claims and templates that pods name, and the place of one that does not exist."""

from collections.abc import Collection
from typing import NamedTuple

from findings.text import quote_text
from kube.api.core import PodResourceClaim

Name = tuple[str, str]
"""Namespace and name."""


class NamedObject(NamedTuple):
    """A claim or template that a pod names.

    Attributes:
        kind: Its kind.
        field: The field with its name.
        name: Its name.
        existing: The objects of its kind.
        other_kind: The field for the other kind, and the objects of that.
    """

    kind: str
    field: str
    name: str
    existing: Collection[Name]
    other_kind: tuple[str, Collection[Name]]


def named_object(
    entry: PodResourceClaim, claims: Collection[Name], templates: Collection[Name]
) -> NamedObject | None:
    """Return the claim or template that an entry of a pod names; None if it names neither.

    Args:
        entry: The entry.
        claims: The ResourceClaims that exist.
        templates: The ResourceClaimTemplates that exist.
    """
    claim_field, template_field = "resourceClaimName", "resourceClaimTemplateName"
    if name := entry.resource_claim_template_name:
        other_kind = (claim_field, claims)
        return NamedObject("ResourceClaimTemplate", template_field, name, templates, other_kind)
    if name := entry.resource_claim_name:
        other_kind = (template_field, templates)
        return NamedObject("ResourceClaim", claim_field, name, claims, other_kind)
    return None


def locate_missing(namespace: str, reference: NamedObject, similar: str) -> str:
    """Return the fix for a missing claim or template: another field, name or namespace; empty without one.

    It tells of other namespaces, so the existing objects must be known to the reader.

    Args:
        namespace: The namespace of the pod.
        reference: The claim or template that the pod names.
        similar: The name that was probably meant; empty if none is known.
    """
    other_field, others = reference.other_kind
    if (namespace, reference.name) in others:
        return f"write {other_field}: {quote_text(reference.name)}, which exists"
    if similar:
        return f"did you mean {quote_text(similar)}?"
    elsewhere = sorted(place for place, other in reference.existing if other == reference.name)
    if not elsewhere:
        return ""
    return (
        f"namespace {elsewhere[0]} has it, but a pod gets claims of its own namespace only: create it in "
        f"{namespace}, or the pod in {elsewhere[0]}"
    )
