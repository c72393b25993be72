"""Quantities by table; the same laws are checked against Go in tests/oracle."""

import copy
import pickle
from typing import NamedTuple

import pytest

from kube.errors import QuantityError
from kube.quantity import MAX_EXPONENT, MAX_TEXT, Format, Quantity, read_stored


class Case(NamedTuple):
    name: str
    want: str
    text: str


CANONICAL = (
    Case("a whole number stays", "3", "3"),
    Case("thousands take a suffix", "3k", "3000"),
    Case("a fraction becomes thousandths", "1500m", "1.5"),
    Case("the largest suffix without a fraction", "1500M", "1.5G"),
    Case("1024 of one suffix is one of the next", "1Gi", "1024Mi"),
    Case("a binary fraction goes one suffix down", "1536Mi", "1.5Gi"),
    Case("binary below 1024 has no suffix", "512", "0.5Ki"),
    Case("binary below 1 turns decimal", "102400u", "0.0001Ki"),
    Case("binary with a fraction is written in decimals", "1126400m", "1.1Ki"),
    Case("exponents stay exponents", "1e3", "1e3"),
    Case("exponents are multiples of three", "100e3", "1e5"),
    Case("exponent nought is not written", "1500", "15e2"),
    Case("a negative exponent", "1e-3", "0.1e-2"),
    Case("capital E with digits is an exponent", "1e3", "1E3"),
    Case("capital E alone is exa", "1E", "1E"),
    Case("a signed exponent, as Python prints floats", "10e15", "1e+16"),
    Case("a float's shortest text", "500m", repr(0.5)),
    Case("a plus sign is dropped", "5", "+5"),
    Case("a minus sign is kept", "-500m", "-0.5"),
    Case("leading zeros are dropped", "7Mi", "007Mi"),
    Case("trailing zeros are dropped", "1500m", "1.500"),
    Case("nothing after the point", "5G", "5.G"),
    Case("nothing before the point", "500m", ".5"),
    Case("zero has no suffix", "0", "0Gi"),
    Case("upstream reads a lone sign as zero", "0", "-"),
    Case("upstream reads a lone suffix as zero", "0", "Ki"),
    Case("finer than a nano goes up", "1n", "0.1n"),
    Case("finer than a nano goes away from zero", "-1n", "-0.1n"),
    Case("the last nano goes up", "1000000001n", "1.0000000001"),
    Case("binary is capped at 2^63-1", "9223372036854775807", "9Ei"),
    Case("binary is capped on both sides", "-9223372036854775807", "-9Ei"),
    Case("below the cap is exact", "8191Pi", "8191Pi"),
    Case("8Ei is one above the cap", "9223372036854775807", "8Ei"),
    Case("decimal is not capped", "18446744073709551616", "18446744073709551616"),
    Case("exponents are not capped", "1e21", "1e21"),
    Case("beyond the largest suffix keeps it", "1000E", "1000E"),
)


@pytest.mark.parametrize("case", CANONICAL, ids=lambda case: case.name)
def test_canonical_text(case: Case) -> None:
    assert case.want == str(Quantity(case.text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        " 1",
        "1 ",
        "1K",
        "Pi",
        "-.Ei",
        "e-10",
        "1ki",
        "1mi",
        "1e",
        "1e+",
        "1e1.5",
        "1ee3",
        "1Gi3",
        "1GiB",
        "--1",
        "1-",
        "1.5.5",
        "1,5",
        "0x10",
        "1_000",
        "inf",
        "NaN",
        "None",
        "1\n",
        "\u0661",  # A digit of another script.
        "1" * (MAX_TEXT + 1),
        f"1e{MAX_EXPONENT + 1}",
        f"1e-{MAX_EXPONENT + 1}",
        "1e999999999999",
    ],
)
def test_text_that_is_not_a_quantity(text: str) -> None:
    with pytest.raises(QuantityError, match=r"not a quantity|beyond|no digits"):
        Quantity(text)


def test_the_error_for_a_long_text_is_short() -> None:
    with pytest.raises(QuantityError) as excinfo:
        Quantity("9" * 1_000_000)

    assert len(str(excinfo.value)) < 120


@pytest.mark.parametrize(
    ("want", "text"),
    [
        (Format.DECIMAL, "1"),
        (Format.DECIMAL, "1m"),
        (Format.DECIMAL, "1E"),
        (Format.DECIMAL, "0"),
        (Format.BINARY, "1Ki"),
        (Format.BINARY, "0Ki"),
        (Format.DECIMAL, "0.0001Ki"),
        (Format.EXPONENT, "1e3"),
    ],
)
def test_format(want: Format, text: str) -> None:
    assert want is Quantity(text).format


def test_a_sum_is_exact_and_has_the_format_of_its_first_term() -> None:
    assert str(Quantity("1Gi") + Quantity("1M")) == "1074741824"
    assert str(Quantity("0.1") + Quantity("0.2")) == "300m"
    assert str(Quantity("0") + Quantity("1Gi")) == "1Gi"
    assert str(Quantity("1G") + Quantity("1Gi")) == "2073741824"


def test_difference_and_product() -> None:
    assert str(Quantity("80Gi") - Quantity("3Gi")) == "77Gi"
    assert str(Quantity("1Gi") - Quantity("1Gi")) == "0"
    assert str(Quantity("3000") * 2**20) == "3145728k"
    assert str(2 * Quantity("512Mi")) == "1Gi"


def test_order_and_equality_are_by_value() -> None:
    assert Quantity("1024Mi") == Quantity("1Gi")
    assert hash(Quantity("1k")) == hash(Quantity("1e3"))
    assert Quantity("1G") < Quantity("1Gi")
    assert max(Quantity("2"), Quantity("1500m"), Quantity("1Ki")) == Quantity(1024)
    assert Quantity(1) != 1
    with pytest.raises(TypeError):
        _ = Quantity(1) < 2


@pytest.mark.parametrize(
    ("want", "text"), [(2, "1500m"), (1, "1n"), (0, "0"), (-2, "-1500m"), (5, "5"), (1024, "1Ki")]
)
def test_round_up_rounds_away_from_zero(want: int, text: str) -> None:
    assert want == Quantity(text).round_up()


def test_int_is_exact_or_raises() -> None:
    assert int(Quantity("3Gi")) == 3 * 2**30
    assert Quantity("2.000").is_whole
    with pytest.raises(ValueError, match="1500m is not a whole number"):
        int(Quantity("1500m"))


def test_zero_is_false() -> None:
    assert not Quantity("0Gi")
    assert Quantity("1n")


def test_from_int_keeps_the_format() -> None:
    assert str(Quantity.from_int(2**31, Format.BINARY)) == "2Gi"
    assert str(Quantity.from_int(5)) == "5"


def test_a_quantity_is_immutable_and_can_be_copied() -> None:
    q = Quantity("1Gi")

    with pytest.raises(AttributeError, match="immutable"):
        q.nanos = 3
    with pytest.raises(AttributeError, match="immutable"):
        del q.nanos

    assert (copy.deepcopy(q), pickle.loads(pickle.dumps(q))) == (q, q)
    assert str(copy.copy(q)) == "1Gi"


class Stored(NamedTuple):
    text: str
    want: str


STORED = (
    Stored("10e399", "1e128"),
    Stored("-10e399", "-1e128"),
    Stored("9" * 5000, "1e128"),
    Stored("9" * 200 + "Gi", "1e128"),
    Stored("1e129", "1e128"),
    Stored("1e" + "9" * 5000, "1e128"),
    Stored("1e4294967296", "1"),
    Stored("5e-4294967296", "5"),
    Stored("0" * 5000 + "7", "7"),
    Stored("0e9999", "0"),
    Stored("8Gi", "8Gi"),
)


@pytest.mark.parametrize("case", STORED, ids=lambda case: case.text[:20])
def test_what_an_api_server_stores_is_read_however_large_it_is(case: Stored) -> None:
    assert read_stored(case.text) == Quantity(case.want)


@pytest.mark.parametrize("text", ["1e-400", "0." + "0" * 200 + "1", "1e", "x" * 5000, "1e5Gi"])
def test_what_no_api_server_stores_is_no_amount(text: str) -> None:
    with pytest.raises(QuantityError):
        read_stored(text)
