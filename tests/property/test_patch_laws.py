"""`apply` agrees with the package jsonpatch on every document and patch."""

import copy
from typing import Any, Final

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.jsonpatch import Operation, PatchError, apply

pytestmark = pytest.mark.property

NAMES: Final = ("a", "b", "", "0", "1", "-", "a/b", "~", "~1", "é")
PARTS: Final = ("a", "b", "", "0", "1", "2", "-", "a~1b", "~0", "~01", "é", "01", "-1", "~2", "x")

names = st.sampled_from(NAMES)
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "text"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
paths = st.lists(st.sampled_from(PARTS), max_size=4).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    path, value = draw(paths), draw(documents)
    return draw(
        st.sampled_from(
            [
                Operation(op="add", path=path, value=value),
                Operation(op="replace", path=path, value=value),
                Operation(op="remove", path=path),
            ]
        )
    )


def oracle(document: Any, patch: list[Operation]) -> Any:
    """Return the result of the package jsonpatch; None in place of a result if it does not apply."""
    try:
        return (jsonpatch.apply_patch(document, msgspec.json.encode(patch)),)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        return None


@given(documents, st.lists(operations(), max_size=4))
def test_apply_agrees_with_jsonpatch(document: Any, patch: list[Operation]) -> None:
    oracle_ = oracle(copy.deepcopy(document), patch)
    before = msgspec.json.encode(patch)

    try:
        result = (apply(document, patch),)
    except PatchError:
        result = None

    assert oracle_ == result
    assert before == msgspec.json.encode(patch), "the values of the operations have changed"
