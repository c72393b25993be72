"""The protocol in a world of late, doubled and lost writes: no device is ever given twice."""

import pytest

from testing.sidecar.chaos import Fault, main, play


def test_no_schedule_gives_a_device_twice() -> None:
    assert play(range(60)) == {}


@pytest.mark.parametrize(
    ("fault", "seed"),
    [
        (Fault.NO_FENCE, 10),
        (Fault.NO_WAIT, 33),
        (Fault.SETTLED_BY_READING, 91),
        (Fault.SAME_IDENTITY, 202),
        (Fault.NO_DRAIN, 105),
        (Fault.NO_WAIT_BEFORE, 11619),
    ],
)
def test_a_planted_fault_is_found_and_its_seed_is_a_schedule(fault: Fault, seed: int) -> None:
    """`make chaos` looks for it in 500 seeds, for the last in 12,000; a change of the protocol moves them."""
    broken = play(range(seed, seed + 1), fault)

    assert "belongs to" in broken[seed]
    assert broken == play(range(seed, seed + 1), fault)


def test_the_command_fails_where_a_fault_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2"]) == 0
    assert main(["--first", "10", "--seeds", "1", "--fault", "no-fence"]) == 0
    assert main(["--seeds", "0", "--fault", "no-fence"]) == 1
    assert "belongs to" in capsys.readouterr().out
