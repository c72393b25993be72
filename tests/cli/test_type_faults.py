"""Values of the wrong type, in documents that no API server has seen."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from msgspec import inspect

from answers.model.kinds import STATE_KINDS
from answers.model.type_faults import type_faults
from kube.api.core import Pod
from kube.api.meta import ApiStruct
from kube.api.policy import DeviceCompatibilityPolicy
from kube.api.resource import ResourceClaim, ResourceSlice


class Case(NamedTuple):
    name: str
    want: list[str]
    kind: type[ApiStruct]
    document: Any


CASES = (
    Case("a document of the right types", [], Pod, {"metadata": {"name": "a"}, "spec": {}}),
    Case("no object at all", [" must be an object"], Pod, "x"),
    Case("text for an object", ["spec must be an object"], Pod, {"spec": "x"}),
    Case("an object for a list", ["spec.containers must be a list"], Pod, {"spec": {"containers": {}}}),
    Case("a number for text", ["metadata.name must be a string"], Pod, {"metadata": {"name": 5}}),
    Case("the value of a map", ["metadata.labels[a/b] must be a string"], Pod,
         {"metadata": {"labels": {"a/b": True, "c": "d"}}}),
    Case("true is no integer", ["metadata.generation must be an integer"], Pod,
         {"metadata": {"generation": True}}),
    Case("a fraction is no integer", ["metadata.generation must be an integer"], Pod,
         {"metadata": {"generation": 1.5}}),
    Case("an amount", ["spec.containers[0].resources.limits[gpu] is no amount"], Pod,
         {"spec": {"containers": [{"resources": {"limits": {"gpu": "x", "cpu": 1}}}]}}),
    Case("a required field", ["spec lacks pool"], ResourceSlice, {"spec": {"driver": "d"}}),
    Case("every fault, in the order of fields",
         ["metadata.name must be a string", "spec.devices.requests[0] lacks name",
          "spec.devices.requests[1].exactly.count must be an integer"],
         ResourceClaim,
         {"spec": {"devices": {"requests": [{}, {"name": "a", "exactly": {"count": "1"}}]}},
          "metadata": {"name": 1}}),
    Case("a word of a list of words", ["spec.scope must be one of Physical, Pool"],
         DeviceCompatibilityPolicy, {"spec": {"driver": "d", "scope": "Node"}}),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_type_faults(case: Case) -> None:
    assert case.want == [
        f"{fault.path} lacks {fault.missing}"
        if fault.missing
        else f"{fault.path} must be {fault.expected_type}"
        if fault.expected_type
        else f"{fault.path} is no amount"
        for fault in type_faults(case.document, case.kind)
    ]


def inner_types(kind: inspect.Type) -> Iterator[inspect.Type]:
    yield kind
    children = [
        *(field.type for field in getattr(kind, "fields", ())),
        *getattr(kind, "types", ()),
        *(getattr(kind, name) for name in ("value_type", "item_type") if hasattr(kind, name)),
    ]
    for child in children:
        yield from inner_types(child)


@pytest.mark.parametrize("kind", STATE_KINDS.values(), ids=lambda kind: kind.__name__)
def test_every_type_in_a_view_is_one_that_is_compared(kind: type[ApiStruct]) -> None:
    assert {type(inner) for inner in inner_types(inspect.type_info(kind))} <= {
        inspect.AnyType,
        inspect.BoolType,
        inspect.CustomType,
        inspect.DictType,
        inspect.EnumType,
        inspect.IntType,
        inspect.NoneType,
        inspect.StrType,
        inspect.StructType,
        inspect.UnionType,
        inspect.VarTupleType,
    }
