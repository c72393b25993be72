import pytest

from allocator.features import binding_conditions as binding
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason
from testing.allocation.builders import device

WITH_CONDITIONS = device(binding_conditions=("attached",), binding_failure_conditions=("failed",))


def test_devices_with_conditions_are_chosen() -> None:
    assert binding.rejection(WITH_CONDITIONS, Features()) is None


@pytest.mark.parametrize("gate", ["device_binding_conditions", "device_status"])
def test_devices_with_conditions_are_rejected_without_either_gate(gate: str) -> None:
    rejection = binding.rejection(WITH_CONDITIONS, Features(**{gate: False}))

    assert rejection is not None
    assert rejection.reason is Reason.BINDING_CONDITIONS_DISABLED
    assert (
        rejection.detail
        == "binding conditions (need feature gates DRADeviceBindingConditions and DRAResourceClaimDeviceStatus)"
    )


def test_failure_conditions_alone_do_not_matter() -> None:
    off = Features(device_binding_conditions=False)

    assert binding.rejection(device(binding_failure_conditions=("failed",)), off) is None
