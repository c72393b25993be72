"""Limits of fields beyond their types, as keywords of a structural schema.

A view reads what was stored before a limit existed, so limits stand beside the types and not in them;
the API server checks them on every write.

Source: apiextensions.k8s.io/v1, JSONSchemaProps.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

Keywords = Mapping[str, Any]
"""Keywords of a field's schema; those under `items` apply to the items of a list."""

SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
COUNT: Final[Keywords] = {"format": "int64", "minimum": 0}
DATE_TIME: Final[Keywords] = {"format": "date-time"}


class Validation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A rule in CEL, with the message for an object that breaks it."""

    rule: str
    message: str
    field_path: str = ""


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a kind's schema that its types cannot express, by type.

    Attributes:
        limits: Field name in JSON to its keywords.
        validations: Rules between the fields of a type; those of the kind's type see the whole object.
        required: Fields that the API requires although the view reads objects without them.
        defaulted: Fields whose default the API server writes into the object, visible to everybody.
        omitted: Fields that only the reader of an object sets.
    """

    limits: Mapping[type, Mapping[str, Keywords]] = {}
    validations: Mapping[type, tuple[Validation, ...]] = {}
    required: Mapping[type, frozenset[str]] = {}
    defaulted: Mapping[type, frozenset[str]] = {}
    omitted: Mapping[type, frozenset[str]] = {}

    def join(self, other: "Schema") -> "Schema":
        """Return a schema with the parts of both."""
        return Schema(**{name: {**getattr(self, name), **getattr(other, name)} for name in _PARTS})


_PARTS: Final = Schema.__struct_fields__


def text(most: int) -> Keywords:
    """Return the limit of a text that may be empty."""
    return {"maxLength": most}


def name(pattern: str, most: int) -> Keywords:
    """Return the limits of a name."""
    return {"minLength": 1, "maxLength": most, "pattern": pattern}


def entries(most: int, items: Keywords | None = None) -> Keywords:
    """Return the limits of a list that is written as a whole."""
    return {
        "maxItems": most,
        "x-kubernetes-list-type": "atomic",
        **({"items": items} if items else {}),
    }


def entries_by_key(*keys: str, most: int) -> Keywords:
    """Return the limits of a list with entries that are told apart by some of their fields."""
    return {
        "maxItems": most,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
    }


CONDITIONS: Final = entries_by_key("type", most=8)
