"""Our API types against the API server's own description of them: names, acronyms, shapes."""

import inspect
import json
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any, Final, NamedTuple

import msgspec.inspect
import pytest

import kube.api.admission
import kube.api.core
import kube.api.meta
import kube.api.node_selector
import kube.api.resource
from e2e.access import Access
from kube.api.meta import ApiStruct
from rules.model.recorded_pods import FIELDS
from tools.pod_fields import record_fields

Schema = dict[str, Any]

MODULES: Final = (
    kube.api.admission,
    kube.api.core,
    kube.api.meta,
    kube.api.node_selector,
    kube.api.resource,
)

UNDESCRIBED: Final = {
    # admission.k8s.io is spoken to webhooks only; the API server serves no document of it.
    "AdmissionRequest",
    "AdmissionResponse",
    "AdmissionReview",
    "GroupVersionKind",
    "GroupVersionResource",
}


class Root(NamedTuple):
    """A type of ours, and the place of its original in the API server's description."""

    type: type[ApiStruct]
    document: str
    schema: str


ROOTS: Final = (
    Root(kube.api.core.Pod, "api/v1", "io.k8s.api.core.v1.Pod"),
    Root(kube.api.core.Node, "api/v1", "io.k8s.api.core.v1.Node"),
    Root(kube.api.core.Namespace, "api/v1", "io.k8s.api.core.v1.Namespace"),
    Root(kube.api.core.ResourceQuota, "api/v1", "io.k8s.api.core.v1.ResourceQuota"),
    Root(kube.api.core.LimitRange, "api/v1", "io.k8s.api.core.v1.LimitRange"),
    Root(kube.api.meta.ObjectHead, "api/v1", "io.k8s.api.core.v1.Pod"),
    Root(
        kube.api.meta.LabelSelector,
        "apis/apps/v1",
        "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    ),
    Root(kube.api.admission.Status, "api/v1", "io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
    Root(
        kube.api.admission.UserInfo,
        "apis/authentication.k8s.io/v1",
        "io.k8s.api.authentication.v1.UserInfo",
    ),
    *(
        Root(example, "apis/resource.k8s.io/v1", f"io.k8s.api.resource.v1.{example.__name__}")
        for example in (
            kube.api.resource.DeviceClass,
            kube.api.resource.DeviceTaintRule,
            kube.api.resource.ResourceClaim,
            kube.api.resource.ResourceClaimTemplate,
            kube.api.resource.ResourceSlice,
        )
    ),
)


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.type.__name__)
def test_every_field_is_one_that_the_api_server_describes(cluster: Access, root: Root) -> None:
    documents = _Documents(cluster)

    faults = [
        fault
        for struct, schema in documents.pairs(root)
        for fault in _faults(struct, schema, documents.schemas(root))
    ]

    assert faults == []


def test_every_type_is_reached_from_a_root(cluster: Access) -> None:
    documents = _Documents(cluster)

    reached = {struct.cls.__name__ for root in ROOTS for struct, _ in documents.pairs(root)}

    ours = {name for module in MODULES for name in _structs(module)}
    assert ours - UNDESCRIBED == reached & ours


class _Documents:
    """The API server's OpenAPI documents, each asked for once."""

    def __init__(self, cluster: Access) -> None:
        self._cluster = cluster
        self._schemas: dict[str, dict[str, Schema]] = {}

    def schemas(self, root: Root) -> dict[str, Schema]:
        if root.document not in self._schemas:
            document = json.loads(_document(self._cluster, root.document))
            self._schemas[root.document] = document["components"]["schemas"]
        return self._schemas[root.document]

    def pairs(self, root: Root) -> Iterator[tuple[msgspec.inspect.StructType, Schema]]:
        """Each struct that can be reached from the root, with the schema found on the same way."""
        schemas = self.schemas(root)
        start = msgspec.inspect.type_info(root.type)
        ways: list[tuple[msgspec.inspect.Type, Schema]] = [(start, schemas[root.schema])]
        names: set[str] = set()
        while ways:
            kind, schema = ways.pop()
            kind, schema = _inner(kind, schema, schemas)
            if not isinstance(kind, msgspec.inspect.StructType) or kind.cls.__name__ in names:
                continue
            names.add(kind.cls.__name__)
            yield kind, schema
            properties = schema.get("properties", {})
            ways += [
                (field.type, properties[field.encode_name])
                for field in kind.fields
                if field.encode_name in properties
            ]


@cache
def _document(cluster: Access, name: str) -> bytes:
    return cluster.raw(f"/openapi/v3/{name}")


def _structs(module: ModuleType) -> Iterator[str]:
    for name, value in inspect.getmembers(module, inspect.isclass):
        if issubclass(value, ApiStruct) and value is not ApiStruct:
            yield name


def _faults(
    struct: msgspec.inspect.StructType, schema: Schema, schemas: dict[str, Schema]
) -> Iterator[str]:
    properties = schema.get("properties", {})
    for field in struct.fields:
        place = f"{struct.cls.__name__}.{field.name} ({field.encode_name})"
        if field.encode_name not in properties:
            yield f"{place}: upstream has {sorted(properties)}"
            continue
        shape = _shape(_resolved(properties[field.encode_name], schemas))
        ours = _our_shape(_present(field.type))
        if shape != ours:
            yield f"{place}: is {ours} here and {shape} upstream"


def _inner(
    kind: msgspec.inspect.Type, schema: Schema, schemas: dict[str, Schema]
) -> tuple[msgspec.inspect.Type, Schema]:
    """The type and the schema below optionals, lists and maps."""
    kind, schema = _present(kind), _resolved(schema, schemas)
    if isinstance(kind, msgspec.inspect.VarTupleType):
        return _inner(kind.item_type, schema.get("items", {}), schemas)
    if isinstance(kind, msgspec.inspect.DictType):
        return _inner(kind.value_type, schema.get("additionalProperties", {}), schemas)
    return kind, schema


def _present(kind: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """The type without None."""
    if isinstance(kind, msgspec.inspect.UnionType):
        (kind,) = (type_ for type_ in kind.types if not isinstance(type_, msgspec.inspect.NoneType))
    return kind


def _resolved(schema: Schema, schemas: dict[str, Schema]) -> Schema:
    """The schema that a reference leads to; OpenAPI wraps one that has a default in `allOf`."""
    if "allOf" in schema:
        (schema,) = schema["allOf"]
    if "$ref" in schema:
        return schemas[schema["$ref"].rpartition("/")[2]]
    return schema


def _shape(schema: Schema) -> str:
    """Return the JSON types of a field; quantities are strings or numbers."""
    return str(schema.get("type", "string" if "oneOf" in schema else "object"))


_SHAPES: Final = {
    msgspec.inspect.StrType: "string",
    msgspec.inspect.CustomType: "string",  # Quantity
    msgspec.inspect.IntType: "integer",
    msgspec.inspect.BoolType: "boolean",
    msgspec.inspect.VarTupleType: "array",
    msgspec.inspect.DictType: "object",
    msgspec.inspect.StructType: "object",
}


def _our_shape(kind: msgspec.inspect.Type) -> str:
    return _SHAPES[type(kind)]


def test_the_recorded_fields_of_pods_are_those_of_the_api_server(cluster: Access) -> None:
    schemas = _Documents(cluster).schemas(ROOTS[0])

    assert record_fields(schemas) == dict(FIELDS)
