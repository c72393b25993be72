"""Conversion to views: error messages, and pruning."""

from typing import Any

import msgspec
import pytest

from kube.api.core import ResourceRequirements
from kube.api.meta import ObjectHead, convert, decode, prune


@pytest.mark.parametrize(
    ("want", "amount"),
    [
        ("Expected `str`, got true - at `$.limits[...]`", True),
        ("Expected `str`, got null - at `$.limits[...]`", None),
        ("Expected `str`, got [1] - at `$.limits[...]`", [1]),
        ("'abc' is not a quantity such as 500m, 3Gi or 1e3 - at `$.limits[...]`", "abc"),
    ],
)
def test_convert_rejects_what_is_not_a_quantity(want: str, amount: object) -> None:
    with pytest.raises(msgspec.ValidationError) as excinfo:
        convert({"limits": {"cpu": amount}}, ResourceRequirements)

    assert want == str(excinfo.value)


@pytest.mark.parametrize(
    ("want", "text"),
    [
        pytest.param('{"a": 1}', '{"a": 1}', id="what is shallow stays as it is"),
        pytest.param("[[null, null], 1]", "[[[[]], {}], 1]", id="what is too deep becomes null"),
        pytest.param('["[[[", "\\"[[[{"]', '["[[[", "\\"[[[{"]', id="brackets in text are text"),
        pytest.param('{"a": {"b": null}}', '{"a": {"b": {"]": "}"}}}', id="and below as well"),
        pytest.param("", "", id="nothing is nothing"),
    ],
)
def test_prune(want: str, text: str) -> None:
    assert want == prune(text.encode(), depth=2).decode()


@pytest.mark.parametrize("text", ["[[[", "[[[1]", "]", "[[[[]]]]]", '["'])
def test_prune_keeps_invalid_json_invalid(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(prune(text.encode(), depth=2), Any)


def test_json_deeper_than_the_recursion_limit_decodes_after_prune() -> None:
    text = f'{{"metadata": {{"name": "a"}}, "x": {"[" * 5000}{"]" * 5000}}}'.encode()

    with pytest.raises(RecursionError):
        decode(text, dict[str, Any])
    assert "a" == decode(prune(text), ObjectHead).metadata.name
