"""Resolution of unquoted words; each row was checked against sigs.k8s.io/yaml 1.6 (go-yaml v2.4)."""

import math
from typing import NamedTuple

import pytest

from kube.manifests import scalars


class Case(NamedTuple):
    name: str
    text: str
    want: scalars.Scalar
    key: str | None


CASES = (
    Case("yes is true, as in YAML 1.1", "yes", True, "true"),
    Case("a lone y is true", "y", True, "true"),
    Case("On is true", "On", True, "true"),
    Case("NO is false", "NO", False, "false"),
    Case("mixed case is no boolean", "yEs", "yEs", "yEs"),
    Case("a tilde is null, which is no key", "~", None, None),
    Case("nothing is null", "", None, None),
    Case("a leading zero means octal", "010", 8, "8"),
    Case("unless a digit is not octal", "08", 8, "8"),
    Case("octal as in YAML 1.2", "0o17", 15, "15"),
    Case("hexadecimal with a sign", "-0x1f", -31, "-31"),
    Case("binary", "0b101", 5, "5"),
    Case("underscores are dropped", "1_000", 1000, "1000"),
    Case("an exponent without a dot is a number", "1e3", 1000, "1000"),
    Case("a whole float becomes an integer on its way through JSON", "1.0", 1, "1"),
    Case("a fraction stays", "-.5", -0.5, "-0.5"),
    Case("a version loses its zero, as the key does", "1.10", 1.1, "1.1"),
    Case("keys are written as 32-bit floats", "16777217.0", 16777217, "1.6777216e+07"),
    Case("small keys keep four places", "0.0001", 0.0001, "0.0001"),
    Case("smaller keys get an exponent", "0.00001", 0.00001, "1e-05"),
    Case("large keys get an exponent", "1e9", 10**9, "1e+09"),
    Case("keys beyond 32-bit floats", "1e300", 1e300, ".inf"),
    Case("the largest int64", "9223372036854775807", 2**63 - 1, "9223372036854775807"),
    Case("uint64 is a value and no key", "18446744073709551615", 2**64 - 1, None),
    Case("beyond 64 bits it is a float", "18446744073709551616", 2.0**64, "1.8446744e+19"),
    Case("beyond 64 bits a hexadecimal is text", "0x" + "f" * 40, "0x" + "f" * 40, "0x" + "f" * 40),
    Case("what a float cannot hold is text", "1e999", "1e999", "1e999"),
    Case("very many digits are text, in no time", "9" * 5000, "9" * 5000, "9" * 5000),
    Case("infinity", "-.INF", -math.inf, "-.inf"),
    Case("base 60 is text", "12:30", "12:30", "12:30"),
    Case("a date is text", "2024-01-01", "2024-01-01", "2024-01-01"),
    Case("a quantity is text", "3Gi", "3Gi", "3Gi"),
    Case("digits of other scripts are text", "٣", "٣", "٣"),
    Case("a sign alone is text", "-", "-", "-"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_resolve(case: Case) -> None:
    pending = scalars.resolve(case.text)

    assert (case.want, type(case.want)) == (pending, type(pending))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_resolve_key(case: Case) -> None:
    assert case.key == scalars.resolve_key(case.text)


def test_resolve_nan() -> None:
    pending = scalars.resolve(".NaN")

    assert isinstance(pending, float)
    assert math.isnan(pending)
    assert scalars.resolve_key(".NaN") == ".nan"


@pytest.mark.parametrize("text", [case.text for case in CASES if not isinstance(case.want, str)])
def test_quote_a_word_that_would_have_another_type(text: str) -> None:
    assert scalars.quote(text) == f'"{text}"'


@pytest.mark.parametrize(
    ("want", "text"),
    [
        ('"12:30"', "12:30"),
        ('"2024-01-01T10:00:00Z"', "2024-01-01T10:00:00Z"),
        ('"<<"', "<<"),
        ('"a #b"', "a #b"),
        ("a#b", "a#b"),
        ('"a: b"', "a: b"),
        ("a:b", "a:b"),
        ('"a:"', "a:"),
        ('"- a"', "- a"),
        ('"a "', "a "),
        ("a b, [c]", "a b, [c]"),
        ('"\\u2028\\u0085\\ufeff"', "\u2028\u0085\ufeff"),
        ('"\\u202egnp\\u2066\\u200b"', "\u202egnp\u2066\u200b"),
        ('"\\U000e0041"', "\U000e0041"),
        ('"😀"', "😀"),
        ('"a\\tb"', "a\tb"),
        ("unix:///run/x.sock", "unix:///run/x.sock"),
        ("'{\"a\": \"it''s\"}'", '{"a": "it\'s"}'),
    ],
)
def test_quote(want: str, text: str) -> None:
    assert want == scalars.quote(text)


@pytest.mark.parametrize(
    ("want", "text"),
    [
        ("|-\n  a\n  b", "a\nb"),
        ("|\n  a\n\n  b", "a\n\nb\n"),
        ("|+\n  a\n", "a\n\n"),
        ("|2-\n   a\n  b", " a\nb"),
        (None, "one line"),
        (None, "\n\n"),
        (None, "a\r\nb"),
        (None, "a\nb\x00"),
    ],
)
def test_block_literal(want: str | None, text: str) -> None:
    assert want == scalars.block_literal(text, "  ")
