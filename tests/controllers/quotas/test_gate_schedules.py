"""Gates, and their handover to the bridge, in models with every order of events: no quota is ever exceeded."""

from enum import StrEnum
from types import ModuleType

import pytest

from testing import gate_schedules, handover_schedules


@pytest.mark.parametrize("model", [gate_schedules, handover_schedules])
def test_no_schedule_exceeds_the_quota(model: ModuleType) -> None:
    assert model.play(range(60)) == []


@pytest.mark.parametrize(
    ("model", "fault", "seed"),
    [
        (gate_schedules, gate_schedules.Fault.REMOVAL_WITHOUT_HOLDER, 14),
        (gate_schedules, gate_schedules.Fault.PROMISED_IS_FORGOTTEN, 9),
        (gate_schedules, gate_schedules.Fault.NO_SETTLING, 86),
        (gate_schedules, gate_schedules.Fault.SAME_IDENTITY, 1959),
        (handover_schedules, handover_schedules.Fault.GATES_LET_GO, 15),
        (handover_schedules, handover_schedules.Fault.FENCE_IS_IGNORED, 6),
        (handover_schedules, handover_schedules.Fault.PROMISED_IS_NOT_COUNTED, 3),
        (handover_schedules, handover_schedules.Fault.NO_PAUSE, 755),
    ],
)
def test_a_planted_fault_is_found_and_its_seed_is_a_schedule(
    model: ModuleType, fault: StrEnum, seed: int
) -> None:
    """`make chaos` looks for it; a change of a decision moves them."""
    (text,) = model.play(range(seed, seed + 1), fault)

    assert text.startswith(f"seed {seed}: ")
    assert "allowed" in text
    assert model.main(["--first", str(seed), "--seeds", "1", "--fault", fault.value]) == 0
    assert model.main(["--first", str(seed), "--seeds", "1"]) == 0
