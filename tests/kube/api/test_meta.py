"""Conversion to views: error messages, and pruning."""

import json
import time
from typing import Any

import msgspec
import pytest

from kube.api.core import ResourceRequirements
from kube.api.meta import MAX_DEPTH, ObjectHead, convert, decode, decode_document, prune
from kube.client.responses import Page
from kube.manifests.json_reader import check_depth


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


@pytest.mark.parametrize("levels", [MAX_DEPTH, MAX_DEPTH + 1, 5000])
def test_a_document_is_as_deep_as_one_of_a_file(levels: int) -> None:
    nested = "[" * (levels - 1) + "]" * (levels - 1)
    text = f'{{"x": {nested}}}'.encode()

    document = decode_document(text)

    check_depth(document, "", 1)
    assert (levels == MAX_DEPTH) == (json.dumps(document).encode() == text)


@pytest.mark.parametrize(
    ("want", "text"),
    [
        pytest.param("\ufffd", rb"\ud800", id="the first half of a character"),
        pytest.param("\ufffd", rb"\uDC00", id="the second half of a character"),
        pytest.param("\ufffdA", rb"\ud800\u0041", id="a half before another character"),
        pytest.param("\ufffd\ufffd", rb"\ud800\uD800", id="two first halves"),
        pytest.param(
            "\U0001f600\ufffd", rb"\uD83D\ude00\ude00", id="a half behind a whole character"
        ),
        pytest.param(
            "\ufffd\U0001f600", rb"\ud83d\ud83d\ude00", id="a half before a whole character"
        ),
        pytest.param("\\\ufffd", rb"\\\ud800", id="a half behind a backslash"),
        pytest.param(
            "\\ud800\ufffd", rb"\\ud800\ud800", id="a backslash that is none of an escape"
        ),
        pytest.param("a\ufffdb", b"a\xffb", id="a byte that UTF-8 does not have"),
        pytest.param("\ufffd" * 3, b"\xed\xa0\x80", id="half a character in UTF-8"),
        pytest.param("\ufffd\ufffd\\\\", rb"\ud800" + b"\xff" + rb"\\\\", id="all of it"),
    ],
)
def test_text_that_is_no_unicode_is_read_as_the_api_server_reads_it(want: str, text: bytes) -> None:
    """It stores opaque parameters byte by byte, and one object would make a list unreadable."""
    listed = decode(b'{"items": [{"' + text + b'": "' + text + b'"}, {"a": "b"}]}', Page)

    objects = [decode(raw, dict[str, Any]) for raw in listed.items or ()]
    assert [{want: want}, {"a": "b"}] == objects


@pytest.mark.parametrize("text", [rb"\ud800", b'"\xff', rb'"\ud80"', rb'["\ud800", ]', b'"a"\xff'])
def test_invalid_json_stays_invalid_whatever_its_text(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(text, Any)


def test_text_without_an_end_is_pruned_at_once() -> None:
    """Searching each quotation mark anew for the end of its string would take an hour."""
    text = b"[" * 300 + rb"\"" * 2_000_000

    began_s = time.process_time()
    prune(text)

    assert time.process_time() - began_s < 120
