"""The queue with turns for namespaces: in order, within its size, and for those that wait."""

import asyncio

import pytest

from kube.runtime.turn_queue import TurnQueue

Item = tuple[str, int]


def queue(*items: Item, max_size: int = 0) -> TurnQueue[Item]:
    turns: TurnQueue[Item] = TurnQueue(lambda item: item[0], max_size)
    for item in items:
        assert turns.put_or_displace(item) is None
    return turns


def drain(turns: TurnQueue[Item]) -> list[Item]:
    return [turns.get_nowait() for _ in range(turns.qsize())]


async def test_each_namespace_has_its_first_item_before_another_has_its_second() -> None:
    turns = queue(("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1), ("c", 2))

    assert [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("c", 2), ("a", 3)] == drain(turns)
    assert turns.empty()


async def test_whoever_waits_gets_the_next_item() -> None:
    turns = queue()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(turns.get())
        await asyncio.sleep(0)
        turns.put_nowait(("a", 1))

    assert ("a", 1) == waiting.result()
    with pytest.raises(asyncio.QueueEmpty):
        turns.get_nowait()


@pytest.mark.parametrize(
    ("new", "displaced"),
    [(("b", 1), ("a", 3)), (("a", 4), ("a", 4)), (("c", 1), ("a", 3))],
    ids=["of a namespace without items", "of the namespace with most", "of one with fewer"],
)
async def test_the_namespace_with_most_items_loses_the_last_when_the_queue_is_full(
    new: Item, displaced: Item
) -> None:
    turns = queue(("a", 1), ("a", 2), ("c", 9), ("a", 3), max_size=4)

    assert displaced == turns.put_or_displace(new)

    left = drain(turns)
    assert displaced not in left
    assert 4 == len(left)


async def test_no_namespace_loses_its_only_item() -> None:
    turns = queue(("a", 1), max_size=1)

    assert ("b", 1) == turns.put_or_displace(("b", 1))
    assert [("a", 1)] == drain(turns)
