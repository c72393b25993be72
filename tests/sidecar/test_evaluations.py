"""Bounds of the demands that wait for evaluations."""

from collections.abc import Callable

import pytest

from kube.cel.library import Environment
from process.selectors.deferring import Demand
from process.selectors.engine import WorkerEngine
from sidecar.answers import evaluations as module
from sidecar.answers.evaluations import Evaluations

UIDS = frozenset(f"{namespace}-{number}" for namespace in "abcd" for number in range(10))


def demand() -> Demand:
    """Return a demand of about a kilobyte and a half."""
    demand = Demand()
    demand.add("true", Environment.STORED, [bytes(500)])
    return demand


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Evaluations]:
    """Return a maker of evaluations with an idle engine, as if its worker was busy."""
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 3 * demand().size)
    monkeypatch.setattr(module, "MAX_ALL_WAITING_BYTES", 5 * demand().size)
    return lambda: Evaluations(WorkerEngine(), UIDS)


async def waiting(evaluations: Evaluations, namespace: str, count: int) -> list[bool]:
    """Ask for a number of pods of a namespace; return True for each that has a demand."""
    for number in range(count):
        await evaluations.ask(f"{namespace}-{number}", namespace, demand(), 0.0)
    return [evaluations.has(f"{namespace}-{number}") for number in range(count)]


async def test_a_namespace_has_so_many_demands_wait(
    evaluations: Callable[[], Evaluations],
) -> None:
    asked = evaluations()

    assert await waiting(asked, "a", 5) == [True, True, True, False, False]
    assert await waiting(asked, "b", 3) == [True, True, False], "all together are too many"
    assert await waiting(asked, "c", 2) == [True, False], "everybody has one"


async def test_a_pod_without_room_is_tried_again_when_there_is_some(
    evaluations: Callable[[], Evaluations],
) -> None:
    asked = evaluations()
    await waiting(asked, "a", 4)
    assert asked.is_pending("a-3"), "it is not tried again at once"

    asked.forget("a-0")
    # The same pod again replaces what waits for it.
    await asked.ask("a-1", "a", demand(), 0.0)
    assert not asked.is_pending("a-3")
    await asked.ask("a-3", "a", demand(), 0.0)

    assert asked.has("a-3")
    assert len(asked._engine._queue._waiting["a"]) == 3  # type: ignore[union-attr]


async def test_a_pod_that_is_gone_is_not_waited_for(
    evaluations: Callable[[], Evaluations],
) -> None:
    asked = evaluations()
    await waiting(asked, "a", 4)
    asked.forget("a-3")

    assert not asked.is_pending("a-3")
