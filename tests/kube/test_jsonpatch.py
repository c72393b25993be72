"""JSON Patch: pointers, and operations that apply as RFC 6902 says."""

from typing import Any, NamedTuple

import jsonpatch
import msgspec
import pytest

from kube.jsonpatch import Operation, add, apply, pointer, remove


class Case(NamedTuple):
    name: str
    document: Any
    operation: Operation
    want: Any


CASES = (
    Case("a member is added", {}, add("/a", 1), {"a": 1}),
    Case("a member is replaced", {"a": 1}, add("/a", 2), {"a": 2}),
    Case("an element goes to the end", {"a": [1]}, add("/a/-", 2), {"a": [1, 2]}),
    Case("a member is removed", {"a": 1, "b": 2}, remove("/a"), {"b": 2}),
    Case("an element is removed", [1, 2], remove("/0"), [2]),
    Case("null is a value", {}, add("/a", None), {"a": None}),
    Case("slash and tilde", {"a/b~1": 1}, remove(pointer("a/b~1")), {}),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_apply(case: Case) -> None:
    assert case.want == apply(case.document, [case.operation])


def test_an_operation_that_does_not_apply_raises() -> None:
    with pytest.raises(jsonpatch.JsonPatchException):
        apply({}, [remove("/a")])


WIRE = (
    (remove("/a"), {"op": "remove", "path": "/a"}),
    (add("/a", None), {"op": "add", "path": "/a", "value": None}),
    (add("/a", {"b": (1,)}), {"op": "add", "path": "/a", "value": {"b": [1]}}),
)


@pytest.mark.parametrize(("operation", "want"), WIRE)
def test_encoding(operation: Operation, want: dict[str, Any]) -> None:
    assert want == msgspec.json.decode(msgspec.json.encode(operation))


def test_an_added_value_is_copied() -> None:
    value: dict[str, Any] = {"list": []}

    after = apply({}, [add("/a", value), add("/a/list/-", 1)])

    assert after == {"a": {"list": [1]}}
    assert value == {"list": []}
