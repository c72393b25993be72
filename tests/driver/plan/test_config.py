"""Opaque parameters: their owners, and their joint effect."""

import pytest

from driver.plan.config import Settings, TimeSlice, read_config, settings_for
from kube.errors import FieldError
from rules.schemas.parameters import find_faults
from testing.allocation.builders import DRIVER
from testing.driver.builders import CONFIG, configured_configuration


def test_parameters_may_say_nothing() -> None:
    assert Settings() == settings_for("gpu", DRIVER, [configured_configuration()])


def test_a_later_entry_overrides_what_it_says_and_nothing_else() -> None:
    config = [
        configured_configuration(sharing={"timeSlice": "Short"}),
        configured_configuration(sharing={}),
    ]

    assert Settings(time_slice=TimeSlice.SHORT) == settings_for("gpu", DRIVER, config)


def test_null_says_nothing_as_everywhere_in_kubernetes() -> None:
    for sharing in (None, {"timeSlice": None}):
        assert Settings() == settings_for(
            "gpu", DRIVER, [configured_configuration(sharing=sharing)]
        )


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        CONFIG,
        {**CONFIG, "sharing": None},
        {**CONFIG, "sharing": []},
        {**CONFIG, "sharing": {"timeSlice": "Long"}},
        {**CONFIG, "sharing": {"timeSlice": "long"}},
        {**CONFIG, "sharing": {"timeSlice": 5}},
        {**CONFIG, "sharing": {"timeslice": "Long"}},
        {**CONFIG, "memory": "5Gi"},
        {**CONFIG, "kind": "GpuConfig"},
    ],
    ids=str,
)
def test_admission_refuses_what_the_driver_would_refuse(parameters: dict[str, object]) -> None:
    is_refused = isinstance(read_config(parameters), FieldError)

    assert is_refused == bool(list(find_faults("gpu.drawbridge.internal", parameters)))


def nested(depth: int, *, is_list: bool) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value] if is_list else {"a": value}
    return value


@pytest.mark.parametrize("is_list", [True, False], ids=["lists", "objects"])
@pytest.mark.parametrize("field", ["apiVersion", "kind", "sharing"])
@pytest.mark.parametrize("depth", [100, 500, 900, 990])
def test_parameters_of_any_depth_are_a_fault(depth: int, field: str, is_list: bool) -> None:
    """As far as they can be decoded at all."""
    parameters = {**CONFIG, field: nested(depth, is_list=is_list)}

    assert isinstance(read_config(parameters), FieldError)
    assert list(find_faults("gpu.drawbridge.internal", parameters))


@pytest.mark.parametrize(
    "parameters",
    [
        {**CONFIG, "kind": "k" * 10_000},
        {**CONFIG, "f" * 10_000: 1},
        {**CONFIG, **{f"field-{number}": number for number in range(1_000)}},
    ],
    ids=["a kind", "a field", "many fields"],
)
def test_large_parameters_make_no_large_message(parameters: dict[str, object]) -> None:
    config = read_config(parameters)

    assert isinstance(config, FieldError)
    assert len(f"{config.path}{config.message}{config.fix}") < 300


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "is None of None"),
        ({**CONFIG, "sharing": []}, "Expected `object | null`, got `array`"),
        ({**CONFIG, "sharing": {"timeSlice": 5}}, "Expected `str | null`, got `int`"),
        ({**CONFIG, "memory": "5Gi"}, "unknown field"),
    ],
    ids=["nothing", "a list", "a number", "an unknown field"],
)
def test_wrong_parameters_are_a_fault(parameters: dict[str, object], words: str) -> None:
    config = read_config(parameters)

    assert isinstance(config, FieldError)
    assert words in config.message
