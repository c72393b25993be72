"""The work queue: no key twice at a time, none lost, and pauses after failures."""

import asyncio

import uvloop

from kube.runtime.work_queue import WorkQueue


def queue(pause_s: float = 0.0) -> WorkQueue[str]:
    return WorkQueue(lambda _failures: pause_s)


async def is_empty(work_queue: WorkQueue[str]) -> bool:
    try:
        async with asyncio.timeout(0.02):
            await work_queue.get()
    except TimeoutError:
        return True
    return False


async def test_a_key_that_waits_is_one_key() -> None:
    queue_ = queue()
    queue_.add("a")
    queue_.add("a")

    assert await queue_.get() == "a"
    queue_.forget("a")
    assert await is_empty(queue_)


async def test_a_key_that_is_added_while_it_is_processed_is_processed_again() -> None:
    queue_ = queue()
    queue_.add("a")
    await queue_.get()
    queue_.add("a")

    assert await is_empty(queue_)
    assert len(queue_) == 0  # It does not wait for others.
    queue_.forget("a")
    assert len(queue_) == 1
    assert await queue_.get() == "a"


async def test_a_key_that_failed_comes_back_after_a_pause() -> None:
    queue_ = queue(1.0)
    queue_.add("a")
    await queue_.get()
    queue_.retry_later("a")

    assert await is_empty(queue_)
    assert await queue_.get() == "a"


async def test_a_key_that_failed_may_be_added_before_that_and_does_not_come_twice() -> None:
    queue_ = queue(0.03)
    queue_.add("a")
    await queue_.get()
    queue_.retry_later("a")
    queue_.add("a")

    assert await queue_.get() == "a"
    queue_.forget("a")
    await asyncio.sleep(0.05)
    assert await is_empty(queue_)


async def test_failures_in_a_row_are_counted_until_a_success() -> None:
    counted: list[int] = []

    def pause_s(failures: int) -> float:
        counted.append(failures)
        return 0.0

    work_queue: WorkQueue[str] = WorkQueue(pause_s)
    work_queue.add("a")
    for outcome in (
        work_queue.retry_later,
        work_queue.retry_later,
        work_queue.forget,
        work_queue.retry_later,
    ):
        outcome(await work_queue.get())
        work_queue.add("a")

    assert counted == [1, 2, 1]


async def test_adds_and_retries_are_counted() -> None:
    queue_ = queue()
    for key in ("a", "b", "a"):
        queue_.add(key)
    first = await queue_.get()

    assert (1, 1, 2, 0) == (len(queue_), queue_.active, queue_.added, queue_.retried)

    queue_.retry_later(first)
    await asyncio.sleep(0.01)

    assert (2, 0, 3, 1) == (len(queue_), queue_.active, queue_.added, queue_.retried)


async def test_a_key_is_added_after_a_delay() -> None:
    queue_ = queue()
    queue_.add_after("a", 1.0)

    assert await is_empty(queue_)
    assert await queue_.get() == "a"


async def test_of_several_delays_the_one_that_ends_first_counts() -> None:
    queue_ = queue()
    for delay_s in (5.0, 0.01, 5.0):
        queue_.add_after("a", delay_s)

    assert await queue_.get() == "a"
    queue_.forget("a")
    assert await is_empty(queue_)


async def test_without_a_delay_a_key_is_added_at_once() -> None:
    queue_ = queue()
    queue_.add_after("a", 0.0)

    assert 1 == len(queue_)


def test_a_delay_of_less_than_a_millisecond_is_a_delay_in_uvloop() -> None:
    """Such a timer of uvloop cannot be asked when it is due."""

    async def twice() -> str:
        queue_ = queue()
        queue_.add_after("a", 0.0004)
        queue_.add_after("a", 5.0)
        return await queue_.get()

    assert uvloop.run(twice()) == "a"


async def test_namespaces_take_turns() -> None:
    """One with thousands of pods had those of all others wait until all of its own were done."""
    keys: WorkQueue[tuple[str, str]] = WorkQueue(lambda _failures: 0.0)
    for key in (("a", "1"), ("a", "2"), ("a", "3"), ("b", "1")):
        keys.add(key)

    assert [("a", "1"), ("b", "1"), ("a", "2"), ("a", "3")] == [await keys.get() for _ in range(4)]


async def test_the_namespace_of_a_key_of_any_kind_is_before_its_name() -> None:
    keys: WorkQueue[tuple[str, str, str]] = WorkQueue(lambda _failures: 0.0)
    for key in (("jobs", "a", "1"), ("jobs", "a", "2"), ("jobs", "b", "1")):
        keys.add(key)

    assert ["1", "1", "2"] == [(await keys.get())[-1] for _ in range(3)]
