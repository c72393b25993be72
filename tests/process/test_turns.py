"""Turns of tenants at a thing that only one may use at a time."""

import asyncio

import pytest

from process.fairness.turns import REST, FairQueue, Rests, Turns


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_tenant_rests_for_what_its_turns_took() -> None:
    rests = Rests()
    rests.add("a", 1.0, now_s=10.0)
    rests.add("a", 0.5, now_s=11.0)

    assert rests.left_s("a", now_s=11.0) == REST * 1.5 - 1.0
    assert rests.left_s("a", now_s=20.0) == 0.0
    assert rests.left_s("b", now_s=11.0) == 0.0


def test_whoever_was_alone_rests_for_one_turn_when_others_come() -> None:
    rests = Rests()
    for second in range(600):
        rests.skip("alone", now_s=second)
        rests.add("alone", 0.5, now_s=second + 0.5)

    assert rests.left_s("alone", now_s=600.0) == REST * 0.5 - 0.5


def test_a_skipped_rest_leaves_the_differences_between_tenants() -> None:
    rests = Rests()
    rests.add("much", 3.0, now_s=10.0)
    rests.add("less", 1.0, now_s=10.0)
    rests.skip("less", now_s=11.0)

    assert rests.left_s("less", now_s=11.0) == 0.0
    assert rests.left_s("much", now_s=11.0) == REST * 2.0


def served(queue: FairQueue[str], clock: Clock, *took_s: float) -> str:
    """Return the items that are taken, in order; each takes so long."""
    order = ""
    for seconds in took_s:
        found = queue.take()
        assert found is not None
        tenant, item = found
        clock.now_s += seconds
        queue.charge(tenant, seconds)
        order += item
    return order


def test_a_tenant_whose_turns_are_long_has_a_fifth_of_the_time() -> None:
    clock = Clock()
    queue = FairQueue[str](clock=clock)
    for _ in range(40):
        queue.put("loud", "L")
        queue.put("quiet", "q")

    order = served(queue, clock, *([1.0] * 10))

    # Both have long turns, so both rest, and have half of the time each.
    assert order.count("L") == order.count("q") == 5


def test_who_asks_now_and_then_waits_for_one_turn_at_most() -> None:
    clock = Clock()
    queue = FairQueue[str](clock=clock)
    for _ in range(5):
        queue.put("loud", "L")
    order = served(queue, clock, 1.0, 1.0)
    queue.put("quiet", "q")
    order += served(queue, clock, 0.01, 1.0, 1.0)

    assert order == "LLqLL"


def test_whoever_was_alone_for_long_gets_turns_beside_one_that_comes() -> None:
    clock = Clock()
    queue = FairQueue[str](clock=clock)
    for _ in range(200):
        queue.put("first", "1")
    served(queue, clock, *([1.0] * 100))
    for _ in range(100):
        queue.put("second", "2")

    assert served(queue, clock, *([1.0] * 10)) == "1212121212"[::-1]


def test_an_item_that_is_not_finished_comes_first_of_its_tenant() -> None:
    queue = FairQueue[str](clock=Clock())
    queue.put("a", "2")
    queue.put_first("a", "1")

    assert [queue.take(), queue.take(), queue.take()] == [("a", "1"), ("a", "2"), None]


async def test_who_is_cancelled_keeps_nobody_waiting() -> None:
    turns, order = Turns(), list[str]()

    async def turn(name: str) -> None:
        async with turns.take(name):
            order.append(name)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        async with turns.take("first"):
            cancelled = [group.create_task(turn(name)) for name in ("b", "c")]
            kept = group.create_task(turn("d"))
            await asyncio.sleep(0)
            cancelled[1].cancel()
            await asyncio.sleep(0)
        cancelled[0].cancel()  # The turn has just been passed on to it.
        await asyncio.wait({kept})

    assert order == ["d"]
    async with asyncio.timeout(30), turns.take("again"):
        pass


async def test_a_turn_is_not_given_to_who_was_cancelled_a_moment_ago() -> None:
    turns, order = Turns(), list[str]()

    async def turn(name: str) -> None:
        async with turns.take(name):
            order.append(name)

    async with asyncio.TaskGroup() as group:
        async with turns.take("first"):
            cancelled, kept = (group.create_task(turn(name)) for name in "bc")
            await asyncio.sleep(0)
            cancelled.cancel()
        await asyncio.wait({kept}, timeout=30)

    assert order == ["c"]


async def test_one_turn_at_a_time() -> None:
    turns, inside = Turns(), 0

    async def turn(name: str) -> None:
        nonlocal inside
        async with turns.take(name):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1

    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(turn(f"team-{number % 7}"))


async def test_a_turn_that_fails_is_passed_on() -> None:
    turns = Turns()
    with pytest.raises(ZeroDivisionError):
        async with turns.take("a"):
            raise ZeroDivisionError
    async with asyncio.timeout(30), turns.take("b"):
        pass


async def test_a_tenant_has_its_part_of_the_places_at_most() -> None:
    turns, order = Turns(2, per_tenant=1), list[str]()
    is_over = asyncio.Event()

    async def work(tenant: str) -> None:
        async with turns.take(tenant):
            order.append(tenant)
            await is_over.wait()

    async with asyncio.TaskGroup() as group:
        for tenant in ("loud", "loud", "loud", "quiet"):
            group.create_task(work(tenant))
        await asyncio.sleep(0)
        assert order == ["loud", "quiet"], "the second place is not for those who have one"
        is_over.set()

    assert order == ["loud", "quiet", "loud", "loud"]


async def test_places_go_to_tenants_in_turns() -> None:
    clock, order = Clock(), list[str]()
    turns, is_over = Turns(2, clock=clock), asyncio.Event()

    async def work(tenant: str) -> None:
        async with turns.take(tenant):
            order.append(tenant)
            await is_over.wait()

    async with asyncio.TaskGroup() as group:
        for tenant in ("loud", "loud", "loud", "loud", "quiet"):
            group.create_task(work(tenant))
        await asyncio.sleep(0)
        assert order == ["loud", "loud"]
        clock.now_s += 1.0
        is_over.set()

    assert order == ["loud", "loud", "quiet", "loud", "loud"]


async def test_whoever_took_free_places_for_long_gets_turns_beside_one_that_comes() -> None:
    clock, order = Clock(), list[str]()
    turns = Turns(clock=clock)

    async def work(tenant: str) -> None:
        async with turns.take(tenant):
            order.append(tenant)
            clock.now_s += 1.0

    for _ in range(100):
        await work("first")
    order.clear()
    async with asyncio.TaskGroup() as group, turns.take("other"):
        for tenant in ("first", "first", "second", "second", "second", "second"):
            group.create_task(work(tenant))
        await asyncio.sleep(0)

    assert order == ["second", "first", "second", "first", "second", "second"]


async def test_who_is_cancelled_leaves_the_place_to_others() -> None:
    turns = Turns(2, per_tenant=1)
    async with turns.take("loud"), asyncio.TaskGroup() as group:
        waiting = group.create_task(turns.take("loud").__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
    async with asyncio.timeout(30), turns.take("loud"), turns.take("quiet"):
        pass
