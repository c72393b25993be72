"""JSON Patch: pointers, and operations that apply as RFC 6902 says."""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from kube.jsonpatch import Operation, PatchError, add, apply, pointer, remove


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


REFUSED: Final[Sequence[tuple[str, Any, Operation, str]]] = (
    ("a member that does not exist", {}, remove("/a"), "/a: does not exist"),
    ("a parent that does not exist", {}, add("/a/b", 1), "/a/b: its parent does not exist"),
    ("a parent that has no members", {"a": "b"}, add("/a/b", 1), "/a/b: its parent is neither"),
    ("an element beyond the end", [1], remove("/1"), "/1: is beyond the end of a list of 1"),
    ("a gap before a new element", [1], add("/2", 0), "/2: is beyond the end of a list of 1"),
    ("an index with a leading zero", [1, 2], remove("/01"), "/01: 01 is not an index"),
    ("the place after the last, removed", [1], remove("/-"), "/-: - is not an index"),
    ("a tilde that is not escaped", {"~": 1}, remove("/~"), "/~: ~ is written as ~0"),
    ("a pointer without a slash", {"a": 1}, remove("a"), "a: a pointer begins with a slash"),
    ("the whole document", {"a": 1}, remove(""), "the whole document cannot be removed"),
)


@pytest.mark.parametrize(
    ("document", "operation", "message"), [row[1:] for row in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_an_operation_that_does_not_apply_raises(
    document: Any, operation: Operation, message: str
) -> None:
    with pytest.raises(PatchError, match=re.escape(message)):
        apply(document, [operation])


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


def test_the_given_document_stays_as_it_is() -> None:
    document = {"a": {"b": [1, {"c": 2}]}, "d": {"e": 3}}

    after = apply(document, [add("/a/b/1/c", 4), remove("/a/b/0"), add("/a/f", 5)])

    assert after == {"a": {"b": [{"c": 4}], "f": 5}, "d": {"e": 3}}
    assert document == {"a": {"b": [1, {"c": 2}]}, "d": {"e": 3}}
    assert after["d"] is document["d"]


def test_a_part_that_came_from_another_place_is_copied_before_it_changes() -> None:
    document: dict[str, Any] = {"a": {"b": {}}, "c": {}}
    shared = document["a"]

    after = apply(document, [add("/a/b/d", 1), remove("/a"), add("/a", shared), add("/a/b/e", 2)])

    assert after == {"a": {"b": {"e": 2}}, "c": {}}
    assert document == {"a": {"b": {}}, "c": {}}
