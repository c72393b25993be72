"""The unmet condition of a selector, in words, and the least amounts that selectors ask for."""

from typing import NamedTuple

import pytest

from allocator.explain.selector import conjuncts, lower_bound, one_line, unmet_condition
from allocator.model.devices import DeviceId, PublishedDevice
from allocator.model.requests import Expression
from testing.allocation.builders import DRIVER, Version, device, slice_of

ATTRIBUTES = f'device.attributes["{DRIVER}"]'
CAPACITY = f'device.capacity["{DRIVER}"]'

GPU = device(
    attributes={
        "model": "T4",
        "index": 3,
        "healthy": False,
        "firmware": Version("1.2.0"),
        "hostile": "a\x1b[31m\nb\u202e",
    },
    capacity={"memory": "16Gi"},
)
PUBLISHED = PublishedDevice(id=DeviceId(DRIVER, "node-1", "gpu-0"), device=GPU, slice=slice_of(GPU))


class Row(NamedTuple):
    """A selector and the words for it."""

    want: str
    name: str
    selector: str


ROWS = (
    Row(
        "memory 16Gi (< 40Gi)",
        "an amount that is too small",
        f'{CAPACITY}.memory.compareTo(quantity("40Gi")) >= 0',
    ),
    Row(
        "memory 16Gi (<= 16Gi)",
        "an amount that is only as large",
        f'{CAPACITY}.memory.compareTo(quantity("16Gi")) > 0',
    ),
    Row(
        "memory 16Gi (<= 40Gi)",
        "another word for greater",
        f'{CAPACITY}.memory.isGreaterThan(quantity("40Gi"))',
    ),
    Row(
        "memory 16Gi (< 40Gi)",
        "an amount by its key",
        f'{CAPACITY}["memory"].compareTo(quantity("40Gi")) >= 0',
    ),
    Row(
        "memory 16Gi (< 40Gi)",
        "an amount with a default",
        f'{CAPACITY}.?memory.orValue(quantity("0")).compareTo(quantity("40Gi")) >= 0',
    ),
    Row("index 3 (>= 3)", "a number that is too large", f"{ATTRIBUTES}.index < 3"),
    Row("index 3 (> 2)", "a number that is above a limit", f"{ATTRIBUTES}.index <= 2"),
    Row(
        "memory 16Gi (>= 8Gi)",
        "an amount that is too large",
        f'{CAPACITY}.memory.isLessThan(quantity("8Gi"))',
    ),
    Row(
        "memory 16Gi (> 8Gi)",
        "an amount above a limit",
        f'{CAPACITY}.memory.compareTo(quantity("8Gi")) <= 0',
    ),
    Row("index 3 (< 4)", "a number that is too small", f"{ATTRIBUTES}.index >= 4"),
    Row('model "T4" (!= "A100")', "another text", f'{ATTRIBUTES}.model == "A100"'),
    Row(
        'model "T4" (!= "A100")',
        "another text than a default",
        f'{ATTRIBUTES}.?model.orValue("") == "A100"',
    ),
    Row("healthy false (!= true)", "another truth", f"{ATTRIBUTES}.healthy == true"),
    Row(
        "driver gpu.example.com (!= nic.example.com)",
        "another driver",
        'device.driver == "nic.example.com"',
    ),
    Row(
        'driver gpu.example.com (selector: device.driver.startsWith("nic"))',
        "a test of the driver",
        'device.driver.startsWith("nic")',
    ),
    Row(
        'model "T4" (selector: device.attributes["gpu.example.com"].model in ["A100", "H100"])',
        "none of several",
        f'{ATTRIBUTES}.model in ["A100", "H100"]',
    ),
    Row(
        'firmware 1.2.0 (selector: device.attributes["gpu.example.com"].firmware.isGreaterThan(semver("2.0.0")))',
        "an old version",
        f'{ATTRIBUTES}.firmware.isGreaterThan(semver("2.0.0"))',
    ),
    Row(
        'no cores (selector: "cores" in device.capacity["gpu.example.com"])',
        "what the device does not have",
        f'"cores" in {CAPACITY}',
    ),
    Row(
        'model "T4" (!= "A100")',
        "the first link of a chain that breaks",
        f'{ATTRIBUTES}.index == 3 && {ATTRIBUTES}.model == "A100" && false',
    ),
    Row("selector false", "nothing of the device", "false"),
    Row(
        'hostile "a [31m b" (!= "x")',
        "a driver's control characters",
        f'{ATTRIBUTES}.hostile == "x"',
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_unmet(row: Row) -> None:
    assert (
        row.want == unmet_condition((Expression(text=row.selector, origin=""),), PUBLISHED).detail
    )


def test_unmet_tells_of_the_first_selector_that_is_not_met() -> None:
    texts = ("true", f"{ATTRIBUTES}.index == 4", "false")

    unmet = unmet_condition(tuple(Expression(text=text, origin="") for text in texts), PUBLISHED)

    assert "index 3 (!= 4)" == unmet.detail


CONJUNCTS = (
    (("a",), "a"),
    (("a", "b", "c"), "a && b&&c"),
    (("a", "b", "c"), "(a && (b)) && c"),
    (("a || b",), "a || b"),
    (("a || b", "c"), "(a || b) && c"),
    (("a && b || c",), "a && b || c"),
    (("a ? b : c && d",), "a ? b : c && d"),
    (("f(a && b)", "c"), "f(a && b) && c"),
    (("a.?b.orValue(1) == 1", "c"), "a.?b.orValue(1) == 1 && c"),
    (('x == "a && b"', "c"), 'x == "a && b" && c'),
    (("x == r'\\'", "c"), "x == r'\\' && c"),
)


@pytest.mark.parametrize(("want", "text"), CONJUNCTS, ids=str)
def test_conjuncts(want: tuple[str, ...], text: str) -> None:
    assert want == conjuncts(text)


def test_conjuncts_of_deep_parentheses() -> None:
    """A stranger nests as deep as an expression is long."""
    deep = 5000

    assert conjuncts("(" * deep + "a && b" + ")" * deep) == ("a", "b")
    assert conjuncts("(a && " * deep + "a" + ")" * deep) == ("a",) * (deep + 1)
    assert conjuncts("(" * deep) == ("(" * deep,)


BOUNDS = (
    ("40Gi", f'{CAPACITY}.memory.compareTo(quantity("40Gi")) >= 0'),
    ("40Gi", f"{CAPACITY}.?memory.orValue(quantity('0')).compareTo(quantity('40Gi')) >= 0"),
    ("4", f"{ATTRIBUTES}.index >= 4"),
    (None, f'{CAPACITY}.memory.compareTo(quantity("40Gi")) > 0'),
    (None, f'{ATTRIBUTES}.model == "A100"'),
    (None, f"{ATTRIBUTES}.index + {ATTRIBUTES}.other >= 4"),
    (None, "true"),
)


@pytest.mark.parametrize(("want", "text"), BOUNDS, ids=str)
def test_bound(want: str | None, text: str) -> None:
    bound = lower_bound(text)

    assert want == (bound.amount if bound is not None else None)
    if bound is not None:
        assert bound.replace_amount(text, "1") == text.replace(bound.amount, "1")


def test_what_is_shown_is_one_line_of_bounded_length() -> None:
    assert one_line("a\tb\r\n c\x00\u202e") == "a b c"
    assert one_line("x" * 1000, 10) == "xxxxxxx..."
