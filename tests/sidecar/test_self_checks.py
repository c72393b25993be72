"""A sidecar with a scheduler that does not call gives its Lease back."""

from collections.abc import Iterable

import pytest

from kube.runtime.leader import LeaseLost
from sidecar.answers.self_checks import FIRST_CALL, SILENCE_PERIOD_S, watch_scheduler

TIMEOUT_S = 5 * SILENCE_PERIOD_S


async def seconds_until_the_end(greeted_at: Iterable[float]) -> float:
    """Return the time that a scheduler is listened to that says hello at these seconds."""
    moments, now_s = sorted(greeted_at), 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    with pytest.raises(LeaseLost, match="has not said hello for schedulerTimeout"):
        await watch_scheduler(
            lambda: sum(moment <= now_s for moment in moments), TIMEOUT_S, sleep=sleep
        )
    return now_s


@pytest.mark.parametrize(
    ("greeted_at", "expected_s"),
    [
        pytest.param([], FIRST_CALL * TIMEOUT_S, id="it is never heard"),
        pytest.param([0.0], FIRST_CALL * TIMEOUT_S, id="it was heard by the one before"),
        pytest.param([2.0], 2.0 + TIMEOUT_S, id="it hangs after its first call"),
        pytest.param(range(1, 100, 2), 99 + TIMEOUT_S, id="it hangs after many"),
        pytest.param([1.0, 1.0 + TIMEOUT_S], 1 + 2 * TIMEOUT_S, id="it is late once"),
    ],
)
async def test_a_silent_scheduler_ends_the_term(
    greeted_at: Iterable[float], expected_s: float
) -> None:
    assert await seconds_until_the_end(greeted_at) == expected_s
