"""The protocol in a world of late, doubled and lost writes: no device is ever given twice,
nor taken from a pod that runs."""

import pytest

from testing.sidecar.chaos import ONE_DEVICE, main, play
from testing.sidecar.world import Fault


def test_no_schedule_breaks_a_promise() -> None:
    assert play(range(60)) == {}


def test_no_schedule_gives_a_tenant_more_than_its_quota() -> None:
    assert play(range(40), limit=ONE_DEVICE) == {}


def test_a_promise_that_is_not_charged_is_found() -> None:
    broken = play(range(3), Fault.PROMISED_IS_FORGOTTEN, ONE_DEVICE)

    assert any("allowed by the quota" in story for story in broken.values())


@pytest.mark.parametrize(
    ("fault", "seed"),
    [
        (Fault.NO_FENCE, 57),
        (Fault.UNFENCED_CONSUMERS, 158),
        (Fault.NO_WAIT, 5),
        (Fault.SETTLED_BY_READING, 60),
        (Fault.SAME_IDENTITY, 57),
        (Fault.NO_DRAIN, 67),
        (Fault.NO_WAIT_BEFORE, 11628),
        (Fault.UNSETTLED_RELEASE, 459),
        (Fault.STALE_LIST, 36),
    ],
)
def test_a_planted_fault_is_found_and_its_seed_is_a_schedule(fault: Fault, seed: int) -> None:
    """`make chaos` looks for it in 1,000 seeds, for one in 12,000; a change of the protocol moves them."""
    broken = play(range(seed, seed + 1), fault)

    assert "belongs to" in broken[seed] or "was taken from it" in broken[seed]
    assert broken == play(range(seed, seed + 1), fault)


def test_the_command_fails_where_a_fault_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2"]) == 0
    assert main(["--first", "57", "--seeds", "1", "--fault", "no-fence"]) == 0
    assert main(["--seeds", "0", "--fault", "no-fence"]) == 1
    assert "belongs to" in capsys.readouterr().out
