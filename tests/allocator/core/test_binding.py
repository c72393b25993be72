import pytest

from allocator.core import binding
from allocator.core.model import Features
from allocator.core.outcome import Reason
from tests.allocator.builders import device

WITH_CONDITIONS = device(binding_conditions=("attached",), binding_failure_conditions=("failed",))


def test_devices_with_conditions_are_chosen() -> None:
    assert binding.refusal(WITH_CONDITIONS, Features()) is None


@pytest.mark.parametrize("gate", ["device_binding_conditions", "device_status"])
def test_devices_with_conditions_are_refused_without_either_gate(gate: str) -> None:
    found = binding.refusal(WITH_CONDITIONS, Features(**{gate: False}))

    assert found is not None
    assert found.reason is Reason.BINDING_CONDITIONS_OFF
    assert found.detail == "it has binding conditions, and their feature gates are off"


def test_failure_conditions_alone_do_not_matter() -> None:
    off = Features(device_binding_conditions=False)

    assert binding.refusal(device(binding_failure_conditions=("failed",)), off) is None
