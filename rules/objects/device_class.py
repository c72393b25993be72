"""Faults of the extended resource name of a DeviceClass.

Source: KEP-5004, and k8s.io/kubernetes v1.37.1, pkg/apis/core/v1/helper, IsExtendedResourceName, for
names of extended resources; of two classes with one name the newest wins.
"""

from collections.abc import Iterator
from typing import Final

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from kube.api.resource import DeviceClass
from rules.context.context import Context
from rules.context.rule import (
    BUILT_IN_VALIDATION,
    OTHER_OBJECTS,
    Category,
    ClassRule,
    Scope,
    Subject,
)
from rules.model.formats import is_label_key

_QUOTA_PREFIX: Final = "requests."
"""The prefix of an extended resource in a ResourceQuota; with it, the domain has at most 253 characters."""
_MAX_DOMAIN: Final = 253 - len(_QUOTA_PREFIX)


def find_invalid_extended_resource(
    device_class: Subject[DeviceClass], path: FieldPath, _context: Context
) -> Iterator[Finding]:
    """Yield a name that no container could request."""
    name = device_class.view.spec.extended_resource_name
    if name is None:
        return
    reserved = "kubernetes.io/" in name or name.startswith(_QUOTA_PREFIX)
    if reserved or "/" not in name or not is_label_key(f"{_QUOTA_PREFIX}{name}"):
        yield error(
            Code.INVALID_EXTENDED_RESOURCE,
            path.child("spec", "extendedResourceName"),
            f"{quote_text(name)} is not a valid extended resource name",
            f"use a DNS subdomain of at most {_MAX_DOMAIN} characters, other than those of kubernetes.io, a"
            " slash and a name",
        )


def find_shared_extended_resource(
    device_class: Subject[DeviceClass], path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield a name that another class maps, too; the newest class serves all pods."""
    name = device_class.view.spec.extended_resource_name
    others = sorted(
        other.metadata.name
        for other in context.classes.values()
        if other.spec.extended_resource_name == name
        and other.metadata.name != device_class.view.metadata.name
    )
    if name and others:
        yield warning(
            Code.DUPLICATE_EXTENDED_RESOURCE,
            path.child("spec", "extendedResourceName"),
            f"class {', '.join(others)} also maps {quote_text(name)}, and the newest class serves its pods",
            "keep the name in one class",
        )


RULES: Final[tuple[ClassRule, ...]] = (
    ClassRule(
        code=Code.INVALID_EXTENDED_RESOURCE,
        scope=Scope.CLASS,
        category=Category.INVALID,
        validate=find_invalid_extended_resource,
        fix="Use a domain other than `kubernetes.io`, a slash and a name.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    ClassRule(
        code=Code.DUPLICATE_EXTENDED_RESOURCE,
        scope=Scope.CLASS,
        category=Category.ADVICE,
        validate=find_shared_extended_resource,
        fix="Keep the name in one class.",
        no_cel_reason=OTHER_OBJECTS,
    ),
)
