"""Places for the reviews in flight."""

import asyncio
import math
from typing import Final

import pytest

from webhook.endpoint import answer_within_s
from webhook.places import Places

NEVER: Final = math.inf
LONG_AGO: Final = 0.0


async def test_who_finds_no_place_waits_for_one() -> None:
    places = Places(1)
    assert await places.take(1, until_s=NEVER)
    waiting = asyncio.ensure_future(places.take(1, until_s=NEVER))
    await asyncio.sleep(0)
    assert not waiting.done()

    places.leave(1)

    assert await waiting
    assert places.taken == 1


async def test_nobody_waits_for_long() -> None:
    places = Places(1)
    assert await places.take(1, until_s=NEVER)
    assert not await places.take(1, until_s=LONG_AGO)
    places.leave(1)

    assert await places.take(1, until_s=NEVER)
    assert places.taken == 1


@pytest.mark.parametrize("turns", range(6))
async def test_a_place_that_is_given_as_the_wait_ends_is_taken_or_free(turns: int) -> None:
    """The wait is over from its beginning, and the place is given some turns of the loop later."""
    places = Places(1)
    assert await places.take(1, until_s=NEVER)
    waiting = asyncio.ensure_future(places.take(1, until_s=LONG_AGO))
    for _ in range(turns):
        await asyncio.sleep(0)
    places.leave(1)

    has_place = await waiting
    assert places.taken == has_place


async def test_places_are_given_in_order() -> None:
    places, order = Places(100), list[int]()

    async def review(size: int) -> None:
        assert await places.take(size, until_s=NEVER)
        order.append(size)

    assert await places.take(90, until_s=NEVER)
    async with asyncio.TaskGroup() as group:
        for size in (50, 5, 60):
            group.create_task(review(size))
        await asyncio.sleep(0)
        assert places.taken == 90
        places.leave(90)
        assert places.taken == 50 + 5
        places.leave(50)

    assert order == [50, 5, 60]


async def test_who_needs_no_place_waits_for_nobody() -> None:
    places = Places(100)
    assert await places.take(90, until_s=NEVER)
    first = asyncio.ensure_future(places.take(50, until_s=NEVER))
    await asyncio.sleep(0)

    assert not await places.take(5, until_s=LONG_AGO)
    assert await places.take(0, until_s=LONG_AGO)

    places.leave(90)
    assert await first


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_who_gives_up_lets_those_behind_go_on(is_cancelled: bool) -> None:
    places = Places(100)
    assert await places.take(90, until_s=NEVER)
    first = asyncio.ensure_future(places.take(50, until_s=NEVER if is_cancelled else LONG_AGO))
    behind = asyncio.ensure_future(places.take(10, until_s=NEVER))
    await asyncio.sleep(0)
    if is_cancelled:
        first.cancel()

    async with asyncio.timeout(30):
        assert await behind
    assert places.taken == 90 + 10


async def test_who_is_cancelled_leaves_its_place_to_others() -> None:
    places = Places(1)
    assert await places.take(1, until_s=NEVER)
    given, waiting = (asyncio.ensure_future(places.take(1, until_s=NEVER)) for _ in range(2))
    await asyncio.sleep(0)
    places.leave(1)
    given.cancel()  # Its place has just been given to it.
    await asyncio.wait({given})
    async with asyncio.timeout(30):
        assert await waiting

    assert places.taken == 1


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("timeout=5s", 3.0),
        ("timeout=3s", 1.0),
        ("timeout=2s", 0.01),
        ("timeout=1s", 0.01),
        ("timeout=2500ms", 0.5),
        ("timeout=30s", 3.0),
        ("timeout=1m", 3.0),
        ("timeout=-5s", 3.0),
        ("a=b&timeout=4s", 2.0),
        ("xtimeout=2s", 3.0),
        ("timeout=99999999s", 3.0),
        ("", 3.0),
    ],
)
def test_an_answer_comes_a_second_before_the_caller_can_give_up(query: str, seconds: float) -> None:
    """The API server rounds the seconds that it waits up, so the last of them may not be there."""
    assert answer_within_s(query) == seconds
