"""The work queue: no key twice at a time, none lost, and pauses after failures."""

import asyncio

from kube.runtime.work_queue import WorkQueue


def queue(pause_s: float = 0.0) -> WorkQueue[str]:
    return WorkQueue(lambda _failures: pause_s)


async def is_empty(made: WorkQueue[str]) -> bool:
    try:
        async with asyncio.timeout(0.02):
            await made.get()
    except TimeoutError:
        return True
    return False


async def test_a_key_that_waits_is_one_key() -> None:
    made = queue()
    made.add("a")
    made.add("a")

    assert await made.get() == "a"
    made.succeeded("a")
    assert await is_empty(made)


async def test_a_key_that_is_added_while_it_is_processed_is_processed_again() -> None:
    made = queue()
    made.add("a")
    await made.get()
    made.add("a")

    assert await is_empty(made)
    made.succeeded("a")
    assert await made.get() == "a"


async def test_a_key_that_failed_comes_back_after_a_pause() -> None:
    made = queue(0.05)
    made.add("a")
    await made.get()
    made.failed("a")

    assert await is_empty(made)
    assert await made.get() == "a"


async def test_a_key_that_failed_may_be_added_before_that_and_does_not_come_twice() -> None:
    made = queue(0.03)
    made.add("a")
    await made.get()
    made.failed("a")
    made.add("a")

    assert await made.get() == "a"
    made.succeeded("a")
    await asyncio.sleep(0.05)
    assert await is_empty(made)


async def test_failures_in_a_row_are_counted_until_a_success() -> None:
    counted: list[int] = []

    def pause_s(failures: int) -> float:
        counted.append(failures)
        return 0.0

    made: WorkQueue[str] = WorkQueue(pause_s)
    made.add("a")
    for outcome in (made.failed, made.failed, made.succeeded, made.failed):
        outcome(await made.get())
        made.add("a")

    assert counted == [1, 2, 1]


async def test_adds_and_retries_are_counted() -> None:
    made = queue()
    for key in ("a", "b", "a"):
        made.add(key)
    first = await made.get()

    assert (1, 1, 2, 0) == (len(made), made.active, made.added, made.retried)

    made.failed(first)
    await asyncio.sleep(0.01)

    assert (2, 0, 3, 1) == (len(made), made.active, made.added, made.retried)


async def test_a_key_is_added_after_a_delay() -> None:
    made = queue()
    made.add_after("a", 0.05)

    assert await is_empty(made)
    assert await made.get() == "a"


async def test_of_several_delays_the_one_that_ends_first_counts() -> None:
    made = queue()
    for delay_s in (5.0, 0.01, 5.0):
        made.add_after("a", delay_s)

    assert await made.get() == "a"
    made.succeeded("a")
    assert await is_empty(made)


async def test_without_a_delay_a_key_is_added_at_once() -> None:
    made = queue()
    made.add_after("a", 0.0)

    assert 1 == len(made)
