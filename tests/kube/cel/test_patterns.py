"""Sizes of regular expressions, and refusals because of them before anything compiles them."""

import pytest

from kube.api.resource import Device, DeviceAttribute
from kube.cel.compile import Environment, compile_in_place
from kube.cel.device import device_view
from kube.cel.patterns import MAX_SIZE, program_size
from kube.cel.quoting import quote
from kube.errors import InvalidSelector, SelectorTooCostly

ATTRIBUTE = 'device.attributes["d"].x'
GPU = device_view(
    "d", Device(name="gpu-0", attributes={"x": DeviceAttribute(string="NVIDIA A100")})
)


@pytest.mark.parametrize(
    "pattern",
    [
        "^NVIDIA (A|H)100",
        "(?i)nvidia.*h100",
        "^pci[0-9a-f]{4}:[0-9a-f]{2}$",
        r"^\d{1,3}(\.\d{1,3}){3}$",
        r"^GPU-[[:xdigit:]]{8}(-[[:xdigit:]]{4}){3}-[[:xdigit:]]{12}$",
        r"\pL+",
        "[^]]*",
        r"\Q(a){1000}",
        "a{1000}",
        "x{1000000000}",
    ],
)
def test_an_ordinary_pattern_is_small(pattern: str) -> None:
    assert program_size(pattern) <= MAX_SIZE


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"(?i)(\pL|.){0,700}c", id="a class that is repeated with other case"),
        pytest.param(r"\pL" * 400, id="many classes"),
        pytest.param("((a{10}){10}){100}", id="nested repetition"),
        pytest.param(
            r"(\Q)\E" + "a" * 100 + "){100}", id="a quoted parenthesis in a repeated group"
        ),
        pytest.param(
            "([)]" + "a" * 100 + "){100}", id="a parenthesis of a class in a repeated group"
        ),
        pytest.param("([]a)]" + "a" * 100 + "){100}", id="a class that begins with its end"),
        pytest.param(r"([\])]" + "a" * 100 + "){100}", id="a class with its end, escaped"),
        pytest.param("([[:alpha:])]" + "a" * 100 + "){100}", id="a class in a class"),
        pytest.param(r"[\pL\PN]{2}", id="several classes in one"),
        pytest.param(
            r"(?i)[\x{80}-\x{10FFFF}]{20}", id="a range of all characters with other case"
        ),
        pytest.param("(" * 50 + "a" + "){9}" * 50, id="many groups, each repeated"),
        pytest.param(".{1000}", id="any character a thousand times"),
        pytest.param("(?:a{1,1000}" + "b" * 2000, id="a group without its end"),
    ],
)
def test_a_costly_pattern_is_large(pattern: str) -> None:
    assert program_size(pattern) > MAX_SIZE


@pytest.mark.parametrize(
    "pattern", ["", "(", ")", "[", "[^", "\\", "{", "a{", "a{1", "*", "(?i", r"\Q", "[[:"]
)
def test_a_broken_pattern_has_a_size_too(pattern: str) -> None:
    assert program_size(pattern) <= 20


def test_a_small_pattern_is_evaluated() -> None:
    assert compile_in_place(f'{ATTRIBUTE}.matches("(?i)a100")', Environment.STORED).matches(GPU)


def test_a_large_pattern_is_not_compiled() -> None:
    pattern = quote(r"(\pL|.){0,700}c")

    with pytest.raises(SelectorTooCostly, match=r"as many as \d+ instructions, and only 2000"):
        compile_in_place(f"{ATTRIBUTE}.matches({pattern})", Environment.STORED)


def test_small_patterns_add_up() -> None:
    expression = " || ".join([f"{ATTRIBUTE}.matches({quote('a{500}')})"] * 3)

    with pytest.raises(SelectorTooCostly):
        compile_in_place(expression, Environment.STORED)


def test_a_pattern_in_a_loop_costs_what_its_compilations_cost() -> None:
    pattern = quote("a{900}")

    with pytest.raises(SelectorTooCostly, match="upstream's limit"):
        compile_in_place(
            f"lists.range(100).all(i, {ATTRIBUTE}.matches({pattern}))", Environment.STORED
        )


@pytest.mark.parametrize(
    "expression",
    [
        f"{ATTRIBUTE}.matches({ATTRIBUTE})",
        f'{ATTRIBUTE}.matches("a" + "b")',
        f'{ATTRIBUTE}.matches("a".replace("a", "b"))',
        f'cel.bind(p, "a", {ATTRIBUTE}.matches(p))',
        f'matches({ATTRIBUTE}, ["a"][0])',
    ],
)
def test_a_computed_pattern_is_not_evaluated(expression: str) -> None:
    with pytest.raises(SelectorTooCostly, match="not a string literal"):
        compile_in_place(expression, Environment.STORED)


def test_a_pattern_that_upstream_rejects_is_still_invalid() -> None:
    with pytest.raises(InvalidSelector, match="invalid argument of matches"):
        compile_in_place(f'{ATTRIBUTE}.matches("(")', Environment.STORED)
