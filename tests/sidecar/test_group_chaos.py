"""The commits of groups in a world of late, doubled and lost writes: a gang has all its devices, or none."""

import pytest

from testing.sidecar.group_chaos import Fault, main, play


def test_no_schedule_leaves_a_gang_with_a_part_of_its_devices() -> None:
    played = play(range(40))

    assert played.broken == {}
    assert played.commits
    assert played.windows_s


def test_a_second_attempt_takes_back_the_devices_of_the_first() -> None:
    """Pods of the first had left while those of the second used its claim, and then gave up, too."""
    assert play(range(9701, 9702)).broken == {}


@pytest.mark.parametrize(
    ("fault", "seed", "broken_promise"),
    [
        (Fault.NO_COMMIT, 0, "have devices"),
        (Fault.NO_TAKE_BACK, 0, "have devices"),
        (Fault.NO_LOOK_BACK, 0, "have devices"),
        (Fault.HASTY_TAKE_BACK, 1, "have devices"),
        (Fault.NO_PARKING, 1, "has lost its devices between the two Reserves"),
        (Fault.WHAT_IF_HOLDS, 29, "belongs to"),
        (Fault.FIRST_TAKES_ALL, 23, "was taken from it"),
        (Fault.OLD_MINIMUM, 57, "3 need them"),
        (Fault.DELETED_COUNTS, 91, "3 need them"),
        (Fault.LOST_NODE, 4, "which is gone"),
        (Fault.HASTY_GIVE_UP, 6, "may be bound yet"),
    ],
)
def test_a_planted_fault_is_found_and_its_seed_is_a_schedule(
    fault: Fault, seed: int, broken_promise: str
) -> None:
    """`make chaos` looks for it in 500 seeds; a change of the protocol moves them."""
    broken = play(range(seed, seed + 1), fault).broken

    assert broken_promise in broken[seed]
    assert broken == play(range(seed, seed + 1), fault).broken


def test_the_command_fails_where_a_fault_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2"]) == 0
    assert main(["--seeds", "1", "--fault", "no-commit"]) == 0
    assert main(["--seeds", "0", "--fault", "no-commit"]) == 1
    assert "need them" in capsys.readouterr().out
