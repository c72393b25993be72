"""The removal of gates in a model with every order of events: no quota is ever exceeded."""

import pytest

from testing.gate_schedules import Fault, main, play


def test_no_schedule_exceeds_the_quota() -> None:
    assert play(range(60)) == []


@pytest.mark.parametrize(
    ("fault", "seed"),
    [
        (Fault.REMOVAL_WITHOUT_HOLDER, 14),
        (Fault.PROMISED_IS_FORGOTTEN, 9),
        (Fault.NO_SETTLING, 86),
        (Fault.SAME_IDENTITY, 1959),
    ],
)
def test_a_planted_fault_is_found_and_its_seed_is_a_schedule(fault: Fault, seed: int) -> None:
    """`make chaos` looks for it; a change of the decision moves them."""
    (text,) = play(range(seed, seed + 1), fault)

    assert text.startswith(f"seed {seed}: ")
    assert "allowed" in text
    assert main(["--first", str(seed), "--seeds", "1", "--fault", fault.value]) == 0
    assert main(["--first", str(seed), "--seeds", "1"]) == 0
