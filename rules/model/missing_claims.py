"""The place of a claim or template that a pod names and that does not exist."""

from collections.abc import Collection

from findings.text import quote_text

Name = tuple[str, str]
"""Namespace and name."""


def locate_missing(
    name: Name, existing: Collection[Name], other_kind: tuple[str, Collection[Name]], similar: str
) -> str:
    """Return the fix for a missing claim or template: another field, name or namespace; empty without one.

    It tells of other namespaces, so `existing` must be known to the reader.

    Args:
        name: The namespace of the pod, and the name in it.
        existing: The objects of the kind.
        other_kind: The field for the other kind, and the objects of that.
        similar: The name that was probably meant; empty if none is known.
    """
    namespace, missing_name = name
    other_field, others = other_kind
    if name in others:
        return f"write {other_field}: {quote_text(missing_name)}, which exists"
    if similar:
        return f"did you mean {quote_text(similar)}?"
    elsewhere = sorted(place for place, other in existing if other == missing_name)
    if not elsewhere:
        return ""
    return (
        f"namespace {elsewhere[0]} has it, but a pod gets claims of its own namespace only: create it in "
        f"{namespace}, or the pod in {elsewhere[0]}"
    )
