"""Opaque parameters: whose they are, and what they come to."""

import pytest

from driver.plan.config import Settings, TimeSlice, read_config, settings_for
from kube.errors import FieldError
from testing.allocation.builders import DRIVER
from testing.driver.builders import CONFIG, configured


def test_parameters_may_say_nothing() -> None:
    assert Settings() == settings_for("gpu", DRIVER, [configured()])


def test_a_later_entry_overrides_what_it_says_and_nothing_else() -> None:
    config = [configured(sharing={"timeSlice": "Short"}), configured(sharing={})]

    assert Settings(time_slice=TimeSlice.SHORT) == settings_for("gpu", DRIVER, config)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "is None of None"),
        ({**CONFIG, "sharing": []}, "Expected `object`, got `array`"),
        ({**CONFIG, "sharing": None}, "Expected `object`, got `null`"),
        ({**CONFIG, "sharing": {"timeSlice": 5}}, "Expected `str | null`, got `int`"),
        ({**CONFIG, "memory": "5Gi"}, "unknown field"),
    ],
    ids=["nothing", "a list", "null", "a number", "an unknown field"],
)
def test_wrong_parameters_are_a_fault(parameters: dict[str, object], words: str) -> None:
    found = read_config(parameters)

    assert isinstance(found, FieldError)
    assert words in found.message
