"""CustomResourceDefinitions of our kinds, made of the types that read them.

Types, field names and defaults come from kube/api; what a type cannot say - limits, formats, rules in
CEL, words for `kubectl explain` - stands beside it, field by field, in `KindWords`. A field that has no
entry there, or an entry without a field, is an error, so neither can drift from the other.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import inspect

from kube.api.meta import ObjectMeta
from kube.api.policy import Condition
from kube.api.urls import Resource
from kube.names import GROUP, NAME

Document = dict[str, Any]
Entry = Mapping[str, Any]
"""More of a field's schema; `items` holds more of its items' schema."""

SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


def name_schema(pattern: str, most: int) -> Document:
    """Return the limits of a name."""
    return {"minLength": 1, "maxLength": most, "pattern": pattern}


def column(name: str, path: str, kind: str = "string", **more: Any) -> Document:
    """Return a column of `kubectl get`."""
    return {"name": name, "type": kind, "jsonPath": path, **more}


CONDITION_FIELDS: Final[Mapping[type, Mapping[str, Entry]]] = {
    Condition: {
        "type": {"description": "The condition.", "maxLength": 316},
        "status": {"description": "Whether it holds.", "enum": ["True", "False", "Unknown"]},
        "reason": {
            "description": "Why, in one word: the code of a finding, or what the controller did.",
            "minLength": 1,
            "maxLength": 1024,
        },
        "message": {"description": "Why, for people.", "maxLength": 32768},
        "lastTransitionTime": {"description": "Since when.", "format": "date-time"},
        "observedGeneration": {
            "description": "Of the spec that this is about.",
            "format": "int64",
            "minimum": 0,
        },
    },
}
CONDITION_REQUIRED: Final[Mapping[type, frozenset[str]]] = {
    Condition: frozenset({"reason", "message", "lastTransitionTime"}),
}


_SCALARS: Final[Mapping[type, str]] = {
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
}


class KindWords(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of ours: its names, and what its types cannot say.

    Attributes:
        view: Type of the kind, from which the schema is made.
        parts: Description of `spec` and `status`.
        columns: Of `kubectl get`.
        fields: Type to field to what its type does not say.
        rules: Type to what holds between its fields; the kind's own type is the whole object.
        required: Type to fields that the API wants and a view does without.
        defaulted: Fields whose default the API server writes into the object.
        omitted: Type to fields that only its reader has.
    """

    kind: str
    short_name: str
    version: str
    resource: Resource
    view: type[msgspec.Struct]
    description: str
    parts: Mapping[str, str]
    columns: tuple[Document, ...]
    fields: Mapping[type, Mapping[str, Entry]]
    rules: Mapping[type, Sequence[Document]] = {}
    required: Mapping[type, frozenset[str]] = {}
    defaulted: frozenset[str] = frozenset()
    omitted: Mapping[type, frozenset[str]] = {}

    def definition(self) -> Document:
        """Return the definition as it is applied."""
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{self.resource.plural}.{GROUP}",
                "labels": {"app.kubernetes.io/name": NAME},
            },
            "spec": {
                "group": GROUP,
                "scope": "Cluster",
                "names": {
                    "kind": self.kind,
                    "listKind": f"{self.kind}List",
                    "plural": self.resource.plural,
                    "singular": self.kind.lower(),
                    "shortNames": [self.short_name],
                    "categories": [NAME],
                },
                "versions": [
                    {
                        "name": self.version,
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                        "additionalPrinterColumns": list(self.columns),
                        "schema": {"openAPIV3Schema": self._root()},
                    }
                ],
            },
        }

    def _root(self) -> Document:
        rules = self.rules.get(self.view, ())
        return {
            "description": self.description,
            "type": "object",
            "required": ["spec"],
            **({"x-kubernetes-validations": list(rules)} if rules else {}),
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                **{
                    field.encode_name: {
                        "description": self.parts[field.encode_name],
                        **self._schema(inspect.type_info(field.type)),
                    }
                    for field in msgspec.structs.fields(self.view)
                    if field.type is not ObjectMeta
                },
            },
        }

    def _schema(self, kind: inspect.Type) -> Document:
        """Return the structural schema of a type."""
        match kind:
            case inspect.AnyType() | inspect.UnionType(types=(inspect.BoolType(), *_)):
                return {"x-kubernetes-preserve-unknown-fields": True}
            case inspect.UnionType(types=types):
                (only,) = [type_ for type_ in types if not isinstance(type_, inspect.NoneType)]
                return self._schema(only)
            case inspect.VarTupleType(item_type=item):
                return {"type": "array", "items": self._schema(item)}
            case inspect.EnumType(cls=cls):
                return {"type": "string", "enum": [str(member.value) for member in cls]}
            case inspect.StructType(cls=cls):
                return self.object_schema(cls)
            case inspect.DictType():
                return {"type": "object", **self._map_schema(kind)}
            case inspect.StrType() | inspect.BoolType():
                return {"type": _SCALARS[type(kind)]}
            case inspect.IntType(ge=least, le=most):
                limits = {"minimum": least, "maximum": most}
                return {"type": "integer"} | {
                    name: limit for name, limit in limits.items() if limit is not None
                }
            case _:
                raise TypeError(f"no schema for {kind}")

    def _map_schema(self, kind: inspect.DictType) -> Document:
        """Return the schema of the values of a map."""
        match kind:
            case inspect.DictType(value_type=inspect.AnyType()):
                return {"x-kubernetes-preserve-unknown-fields": True}
            case inspect.DictType(key_type=inspect.EnumType(cls=names), value_type=value):
                return {"properties": {str(member.value): self._schema(value) for member in names}}
            case inspect.DictType(value_type=value):
                return {"additionalProperties": self._schema(value)}

    def object_schema(self, cls: type[msgspec.Struct]) -> Document:
        """Return the schema of a Struct.

        Raises:
            ValueError: Its fields are not those that `fields` has words for.
        """
        omitted = self.omitted.get(cls, frozenset())
        fields = {
            field.encode_name: field
            for field in msgspec.structs.fields(cls)
            if field.encode_name not in omitted
        }
        entries = self.fields.get(cls, {})
        if fields.keys() != entries.keys():
            raise ValueError(
                f"{cls.__name__}: {sorted(fields.keys() ^ entries.keys())} only on one side"
            )
        required_names = [
            name
            for name, field in fields.items()
            if field.required or name in self.required.get(cls, frozenset())
        ]
        rules = self.rules.get(cls, ())
        return {
            "type": "object",
            **({"required": required_names} if required_names else {}),
            **({"x-kubernetes-validations": list(rules)} if rules else {}),
            "properties": {
                name: _with(
                    self._schema(inspect.type_info(field.type)), entries[name], self._default(field)
                )
                for name, field in fields.items()
            },
        }

    def _default(self, field: msgspec.structs.FieldInfo) -> Document:
        value = field.default
        if field.encode_name in self.defaulted and isinstance(value, StrEnum):
            return {"default": value.value}
        return {}


def _with(schema: Document, entry: Entry, default: Document) -> Document:
    """Return a field's schema with what its entry adds, the words first."""
    first = {"description": entry["description"]}
    items = {"items": {**schema["items"], **entry.get("items", {})}} if "items" in schema else {}
    return {**first, **schema, **default, **entry, **items}
