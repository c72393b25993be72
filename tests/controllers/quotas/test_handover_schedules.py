"""Handovers between gates and bridge in a model with every order of events: no quota is ever exceeded."""

import pytest

from testing.handover_schedules import Fault, main, play


def test_no_handover_exceeds_the_quota() -> None:
    assert play(range(60)) == []


@pytest.mark.parametrize(
    ("fault", "seed"),
    [
        (Fault.GATES_LET_GO, 15),
        (Fault.FENCE_IS_IGNORED, 6),
        (Fault.PROMISED_IS_NOT_COUNTED, 3),
        (Fault.NO_PAUSE, 755),
    ],
)
def test_a_planted_fault_is_found_and_its_seed_is_a_schedule(fault: Fault, seed: int) -> None:
    """`make chaos` looks for it in 5,000 seeds; a change of a decision moves them."""
    (text,) = play(range(seed, seed + 1), fault)

    assert text.startswith(f"seed {seed}: ")
    assert "allowed" in text
    assert main(["--first", str(seed), "--seeds", "1", "--fault", fault.value]) == 0
    assert main(["--first", str(seed), "--seeds", "1"]) == 0
