"""Conjunctions have the engine's results; tests/kube/cel/test_cel_table.py compares those with Go."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.api.meta import convert
from kube.api.resource import Device, DeviceAttribute, DeviceCapacity
from kube.cel.compile import Environment, LocalSelector, compile_in_place
from kube.cel.conjunction import MAX_CONDITIONS
from kube.cel.device import NamedDevice, device_view
from kube.errors import CelError
from kube.quantity import Quantity

RECORD: Final = json.loads((Path(__file__).parents[3] / "testing/oracle/data/cel.json").read_text())
DRIVER: Final = "gpu.example.com"
GPU: Final = Device(
    name="gpu-0",
    attributes={
        "model": DeviceAttribute(string="A100"),
        "healthy": DeviceAttribute(bool_=True),
        "index": DeviceAttribute(int_=1),
        "other.example.com/zone": DeviceAttribute(string="a"),
        "a.b/c/d": DeviceAttribute(string="x"),
    },
    capacity={"memory": DeviceCapacity(value=Quantity("80Gi"))},
)
MODEL: Final = f'device.attributes["{DRIVER}"].model'
MEMORY: Final = f'device.capacity["{DRIVER}"].memory'


def engine_verdict(selector: LocalSelector, driver: str, device: Device) -> bool | str:
    try:
        return selector.matches(device_view(driver, device))
    except CelError as error:
        return f"{type(error).__name__}: {error}"


def verdict(selector: LocalSelector, driver: str, device: Device) -> bool | str:
    (result,) = selector.verdicts([NamedDevice(driver, device)])
    return result if isinstance(result, bool) else f"{type(result).__name__}: {result}"


def conjunction_holds(expression: str, device: Device = GPU) -> bool | None:
    """Return the result without the engine; None if there is none."""
    selector = compile_in_place(expression, Environment.STORED)
    usual_conditions = selector.conjunction
    return None if usual_conditions is None else usual_conditions.holds(DRIVER, device)


@pytest.mark.parametrize(
    ("holds", "expression"),
    [
        (True, f'device.driver == "{DRIVER}"'),
        (False, 'device.driver == "other.example.com"'),
        (True, f'{MODEL} == "A100"'),
        (False, f'{MODEL} == "H100"'),
        (True, f'device.driver == "{DRIVER}" && {MODEL} == "A100"'),
        (False, f'{MODEL} == "A100" && device.driver == "other.example.com"'),
        (True, 'device.attributes["other.example.com"].zone == "a"'),
        (True, f'device.attributes["{DRIVER}"].healthy == true'),
        (False, f'device.attributes["{DRIVER}"].healthy == false'),
        (True, f'"model" in device.attributes["{DRIVER}"]'),
        (True, f"has({MEMORY})"),
        (False, f'"index" in device.capacity["{DRIVER}"]'),
        (False, 'has(device.attributes["unknown.example.com"].model)'),
        (True, f'{MEMORY}.compareTo(quantity("80Gi")) == 0'),
        (True, f'{MEMORY}.compareTo(quantity("80Gi")) >= 0'),
        (False, f'{MEMORY}.compareTo(quantity("80Gi")) > 0'),
        (True, f'{MEMORY}.compareTo(quantity("80Gi")) <= 0'),
        (True, f'{MEMORY}.compareTo(quantity("81Gi")) < 0'),
    ],
)
def test_usual_conditions_need_no_engine(holds: bool, expression: str) -> None:
    selector = compile_in_place(expression, Environment.STORED)

    assert conjunction_holds(expression) is holds
    assert engine_verdict(selector, DRIVER, GPU) is holds


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        f'{MODEL} == "A100" || true',
        f'{MODEL} != "H100"',
        f'"A100" == {MODEL}',
        f'{MODEL}.startsWith("A")',
        f'device.attributes["{DRIVER}"].index == 1',
        f'device.attributes["{DRIVER}"].index == "1"',
        f'device.attributes["{DRIVER}"].missing == "x"',
        f'device.attributes["{DRIVER}"].healthy == "true"',
        f"{MODEL} == true",
        'device.attributes["a.b"]["c/d"] == "x"',
        'device.attributes["a.b/c"].d == "x"',
        f'{MEMORY}.compareTo(quantity("80Gi")) >= 1',
        f'{MEMORY}.compareTo(device.capacity["{DRIVER}"].memory) == 0',
        f'{MEMORY}.compareTo(quantity("?")) == 0',
        " && ".join([f'{MODEL} == "A100"'] * (MAX_CONDITIONS + 1)),
    ],
)
def test_all_else_is_left_to_the_engine(expression: str) -> None:
    selector = compile_in_place(expression, Environment.STORED)

    assert conjunction_holds(expression) is None
    assert verdict(selector, DRIVER, GPU) == engine_verdict(selector, DRIVER, GPU)


@pytest.mark.parametrize(
    "attributes",
    [
        {"model": DeviceAttribute(strings=("A100",))},
        {"model": DeviceAttribute(string="A100", versions=("bad",))},
        {"model": DeviceAttribute(string="A100", version="1.0.0")},
        {"model": DeviceAttribute(string="A100"), "broken": DeviceAttribute(version="v1")},
        {"model": DeviceAttribute(string="A100"), "cut": DeviceAttribute(string="a\0b")},
        {"model": DeviceAttribute(version="1.0.0")},
        {"model": DeviceAttribute()},
    ],
)
@pytest.mark.parametrize("expression", [f'{MODEL} == "A100"', f"has({MODEL}) && {MODEL} == true"])
def test_an_unusual_device_is_left_to_the_engine(
    expression: str, attributes: dict[str, DeviceAttribute]
) -> None:
    device = Device(name="x", attributes=attributes)
    selector = compile_in_place(expression, Environment.STORED)

    assert conjunction_holds(expression, device) is None
    assert verdict(selector, DRIVER, device) == engine_verdict(selector, DRIVER, device)


def test_a_name_that_is_published_twice_is_left_to_the_engine() -> None:
    both = {"model": DeviceAttribute(string="A"), f"{DRIVER}/model": DeviceAttribute(string="B")}

    assert conjunction_holds(f'{MODEL} == "A"', Device(name="x", attributes=both)) is None


@pytest.mark.parametrize("environment", Environment)
def test_recorded_expressions_have_the_engines_results(environment: Environment) -> None:
    devices = [_decode_device(document) for document in RECORD["devices"].values()]
    decided_count = 0
    for expression in dict.fromkeys(row["expression"] for row in RECORD["rows"]):
        try:
            selector = compile_in_place(expression, environment)
        except CelError:
            continue
        for driver, device in devices if selector.conjunction is not None else ():
            holds = selector.conjunction.holds(driver, device)  # type: ignore[union-attr]
            decided_count += holds is not None
            assert holds in {None, engine_verdict(selector, driver, device)}, expression

    assert decided_count > 0


_NAMES: Final = st.sampled_from(["x", "d/x", f"{DRIVER}/x"])
_DEVICES: Final = st.builds(
    Device,
    name=st.just("device"),
    attributes=st.none()
    | st.dictionaries(
        _NAMES,
        st.builds(
            DeviceAttribute,
            string=st.sampled_from([None, None, "a", "b", "a\0"]),
            bool_=st.sampled_from([None, None, True, False]),
            version=st.sampled_from([None, None, None, "1.0.0", "bad"]),
            int_=st.sampled_from([None, None, None, 1]),
        ),
    ),
    capacity=st.none()
    | st.dictionaries(
        _NAMES,
        st.sampled_from(["1", "2", "-1", "1500m"]).map(
            lambda amount: DeviceCapacity(value=Quantity(amount))
        ),
    ),
)
_CONDITIONS: Final = st.sampled_from(
    [
        'device.driver == "d"',
        'device.attributes["d"].x == "a"',
        f'device.attributes["{DRIVER}"].x == "a"',
        'device.attributes["d"].x == true',
        '"x" in device.attributes["d"]',
        'has(device.capacity["d"].x)',
        'device.capacity["d"].x.compareTo(quantity("1")) >= 0',
        'device.capacity["d"].x.compareTo(quantity("1500m")) < 0',
    ]
)


@given(
    conditions=st.lists(_CONDITIONS, min_size=1, max_size=3),
    driver=st.sampled_from(["d", DRIVER]),
    device=_DEVICES,
)
def test_a_conjunction_has_the_engines_result(
    conditions: list[str], driver: str, device: Device
) -> None:
    selector = compile_in_place(" && ".join(conditions), Environment.STORED)
    assert selector.conjunction is not None

    holds = selector.conjunction.holds(driver, device)

    assert holds in {None, engine_verdict(selector, driver, device)}


def _decode_device(document: dict[str, Any]) -> tuple[str, Device]:
    fields = {key: value for key, value in document.items() if key != "driver"}
    return document["driver"], convert({"name": "device", **fields}, Device)
