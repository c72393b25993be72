from typing import Final

import pytest

from kube.api.resource import DeviceAttribute
from kube.cel.derived import compile_derived
from kube.cel.device import device_view
from kube.cel.library import Environment
from kube.errors import InvalidSelector, SelectorFailed
from testing.allocation.builders import Version, attribute, device

DEVICE: Final = device(
    attributes={
        "flag": True,
        "numa": 3,
        "model": "a100",
        "firmware": Version("1.2.3-rc.1"),
        "roots": ("pci0", "pci1"),
        "versions": (Version("1.0.0"), Version("2.0.0-x")),
    },
    capacity={"memory": "80Gi"},
)
OWN: Final = 'device.attributes["gpu.example.com"]'

VALUES = (
    (attribute(True), f"{OWN}.flag"),
    (attribute(3), f"{OWN}.numa"),
    (attribute(4), f"{OWN}.numa + 1"),
    (attribute(0), "0"),
    (attribute("a100"), f"{OWN}.model"),
    (attribute("gpu.example.com"), "device.driver"),
    (attribute(Version("1.2.3-rc.1")), f"{OWN}.firmware"),
    (attribute(Version("1.0.0")), 'semver("1.0.0")'),
    (attribute(("pci0", "pci1")), f"{OWN}.roots"),
    (attribute((Version("1.0.0"), Version("2.0.0-x"))), f"{OWN}.versions"),
    (attribute((3, 4)), f"[{OWN}.numa, dyn(4)]"),
    (attribute((True,)), "[true]"),
    (DeviceAttribute(strings=()), "[]"),
    (attribute(80 * 2**30), 'device.capacity["gpu.example.com"].memory.asInteger()'),
    (attribute(7), f"{OWN}.?socket.orValue(7)"),
)  # fmt: skip


@pytest.mark.parametrize(("want", "expression"), VALUES, ids=[text for _, text in VALUES])
def test_attribute(want: DeviceAttribute, expression: str) -> None:
    assert want == compile_derived(expression).attribute(device_view("gpu.example.com", DEVICE))


@pytest.mark.parametrize(
    ("want", "expression"),
    [
        ("no such key: missing", f"{OWN}.missing"),
        ("unsupported CEL return type: DOUBLE", "dyn(1.5)"),
        ("unsupported CEL return type: NULL", "dyn(null)"),
        ("unsupported CEL return type: UINT", "[dyn(1u)]"),
        ("unsupported CEL return type: LIST", "[dyn([1])]"),
        ("index 1 to be int, got string", f"[{OWN}.numa, {OWN}.model]"),
    ],
)
def test_attribute_of_an_unsupported_type(want: str, expression: str) -> None:
    derived_expression = compile_derived(expression)

    with pytest.raises(SelectorFailed, match=want):
        derived_expression.attribute(device_view("gpu.example.com", DEVICE))


@pytest.mark.parametrize(
    "expression",
    ["1.5", "1u", 'b"x"', "null", "{}", '{"a": 1}', "[[1]]", "[1.5]", "optional.of(1)",
     'quantity("1")', 'duration("1s")', "device", "nonsense"],
)  # fmt: skip
def test_expressions_of_a_wrong_type_are_invalid(expression: str) -> None:
    with pytest.raises(InvalidSelector):
        compile_derived(expression)


def test_new_expressions_may_not_be_lists() -> None:
    with pytest.raises(InvalidSelector, match="must evaluate to a string, integer, boolean or"):
        compile_derived("[1]", Environment.NEW)
    assert compile_derived("[1]", Environment.STORED).expression == "[1]"


def test_an_invalid_attribute_fails_every_expression() -> None:
    broken_device_view = device_view(
        "gpu.example.com", device(attributes={"firmware": Version("one")})
    )

    with pytest.raises(SelectorFailed, match="attribute firmware"):
        compile_derived("1").attribute(broken_device_view)


def test_expressions_know_what_they_read() -> None:
    derived_expression = compile_derived(f"{OWN}.numa + {OWN}.socket")

    assert (
        frozenset({("gpu.example.com", "numa"), ("gpu.example.com", "socket")})
        == derived_expression.attributes
    )
