"""Pods without an answer yet: nobody waits for them, and they are tried again by themselves."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from allocator.model.selectors import clear_selector_caches
from kube.api.core import Pod
from kube.api.meta import convert
from kube.api.urls import PODS, RESOURCE_CLAIMS
from kube.cel.engine import SIMPLE_LENGTH
from kube.cel.scope import current_scope
from process.selectors.engine import WorkerEngine
from sidecar.answers import decision_maker
from sidecar.answers import service as services
from sidecar.answers.decision_turns import ABANDONED, AGAIN_S, LATE_S, RESTING, STUCK_S
from sidecar.answers.self_checks import DecisionStuck, watch_decisions
from sidecar.plan.decisions import EVALUATING, find_nodes
from testing.allocation.builders import claim, request
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, until
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    document,
    pod_with,
    publish,
    put_claim,
    put_pod,
    sidecar_beside,
)

LONG = "device.driver == 'gpu.example.com'".ljust(SIMPLE_LENGTH + 1)


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Scene(NamedTuple):
    """A sidecar, its scheduler, and two pods: `a` has a long selector, `b` has none."""

    sidecar: Sidecar
    scheduler: FakeScheduler
    a: Document
    b: Document

    @property
    def service(self) -> services.Service:
        assert self.sidecar.service is not None
        return self.sidecar.service

    async def until_woken(self, name: str) -> None:
        """Wait until the scheduler is told to try a pod again."""
        async with asyncio.timeout(30):
            while name not in (answer := await self.scheduler.wake())["pods"]:
                assert 0 < answer["nextMillis"] <= 2_000
                await asyncio.sleep(0.02)


def _waits(lock: asyncio.Lock) -> bool:
    return bool(lock._waiters)


@asynccontextmanager
async def scene(folder: Path, **options: Any) -> AsyncIterator[Scene]:
    clear_selector_caches()
    async with FakeApiServer() as server:
        publish(server, "node-1")
        requested = document(claim(request("req-0", LONG), name="gpu-a"))
        del requested["metadata"]["uid"]
        server.put(RESOURCE_CLAIMS, requested)
        put_claim(server, "gpu-b")
        a, b = (put_pod(server, name, f"gpu-{name}") for name in "ab")
        async with sidecar_beside(server, folder, **options) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]
            yield Scene(sidecar, scheduler, a, b)


async def test_a_pod_is_tried_again_when_its_selectors_are_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "EVALUATION_WAIT_S", 0.0)
    async with scene(tmp_path, engine=WorkerEngine()) as story:
        verdicts: list[str] = []
        while not verdicts or verdicts[-1] == "unresolvable":
            answer = await story.scheduler.prefilter(story.a)
            verdicts.append(answer["verdict"])
            if answer["verdict"] == "unresolvable":
                assert (answer["code"], answer["unfinished"]) == ("budgetExhausted", True)
                assert answer["message"] == EVALUATING
                await story.until_woken("default/a")

        # Once for what the selector reads, and once for its verdicts.
        assert verdicts == ["unresolvable", "unresolvable", "fits"]
        assert (await story.scheduler.wake())["nextMillis"] == 0


async def test_what_is_evaluated_in_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "EVALUATION_WAIT_S", 30.0)
    async with scene(tmp_path, engine=WorkerEngine()) as story, asyncio.TaskGroup() as group:
        first = group.create_task(story.scheduler.prefilter(story.a, deadlineMillis=60_000))
        # Meanwhile others have their turns.
        assert (await story.scheduler.prefilter(story.b))["verdict"] == "fits"

        assert (await first)["verdict"] == "fits"


async def test_for_a_pod_that_is_gone_nothing_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "EVALUATION_WAIT_S", 0.0)
    async with scene(tmp_path, engine=WorkerEngine()) as story:
        await story.scheduler.prefilter(story.a)
        evaluations = story.service._evaluations
        assert evaluations.has("uid-a")
        story.sidecar.server.remove(PODS, "a", "default")

        await until(lambda: not evaluations.has("uid-a"))


@pytest.mark.parametrize("had_attempt", [False, True], ids=["first attempt", "later attempt"])
async def test_a_pod_that_ends_while_it_is_decided_about_keeps_no_verdicts(
    had_attempt: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "EVALUATION_WAIT_S", 0.0)
    engine = WorkerEngine()
    async with scene(tmp_path, engine=engine) as story, asyncio.TaskGroup() as group:
        evaluations, pods = story.service._evaluations, story.service._pods
        if had_attempt:
            await story.scheduler.prefilter(story.a)
            await until(lambda: not evaluations.is_pending("uid-a"), timeout_s=30)
        async with story.service._intake.turn:
            call = group.create_task(story.scheduler.prefilter(story.a))
            # It is known to the sidecar that waits for its turn.
            await until(lambda: "uid-a" in pods and _waits(story.service._intake.turn))
            story.sidecar.server.remove(PODS, "a", "default")
            await until(lambda: "uid-a" not in pods)
        assert (await call)["unfinished"]

        assert not evaluations.has("uid-a")
        assert not any(entry.pins for entry in engine._store._answers._entries.values())


async def test_a_decision_ends_with_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_end(*_: object, **__: object) -> object:
        while True:
            current_scope().meter.charge(1)

    async with scene(tmp_path) as story:
        monkeypatch.setattr(decision_maker, "find_nodes", without_end)
        answer = await story.scheduler.prefilter(story.a, deadlineMillis=200)
        monkeypatch.setattr(decision_maker, "find_nodes", find_nodes)

        assert (answer["message"], answer["unfinished"]) == (ABANDONED.message, True)
        assert (await story.scheduler.prefilter(story.b))["verdict"] == "fits"


async def test_a_decision_that_does_not_end_makes_another_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No deadline ends a thread that computes in a library."""
    clock, stuck = Clock(), threading.Event()

    def hang(*_: object, **__: object) -> object:
        stuck.wait(30)
        return ABANDONED

    async with scene(tmp_path, clock=clock) as story, asyncio.TaskGroup() as group:
        monkeypatch.setattr(decision_maker, "find_nodes", hang)
        call = group.create_task(story.scheduler.prefilter(story.a, deadlineMillis=1_000))
        await until(lambda: story.service._decisions.under_way is not None)
        assert (await story.scheduler.hello())["ready"]
        assert not story.service.undecided()

        clock.now_s += 1.0 + LATE_S
        # Should this process die now, the next one knows.
        assert story.service.undecided() == {"uid-a": 1}
        clock.now_s += STUCK_S
        greeting = await story.scheduler.hello()
        assert (greeting["ready"], greeting["message"]) == (False, "a decision does not end")
        with pytest.raises(DecisionStuck, match="uid-a"):
            await watch_decisions(story.service)
        assert story.service.undecided() == {"uid-a": 1}
        stuck.set()
        await call


async def test_the_next_leader_decides_last_about_a_pod_whose_decision_did_not_end(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with scene(tmp_path, clock=clock, undecided={"uid-a": 1, "uid-gone": 2}) as story:
        assert (await story.scheduler.prefilter(story.b))["verdict"] == "fits"
        answer = await story.scheduler.prefilter(story.a)
        assert (answer["verdict"], answer["unfinished"]) == ("unresolvable", True)
        assert (await story.scheduler.wake())["pods"] == []
        assert story.service.undecided() == {"uid-a": 1}, "one that is gone is forgotten"

        clock.now_s += AGAIN_S
        assert (await story.scheduler.wake())["pods"] == ["default/a"]
        assert (await story.scheduler.prefilter(story.a))["verdict"] == "fits"
        assert not story.service.undecided()


async def test_a_reserved_pod_without_devices_in_time_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call carries the reservation, and ends when its plugin has waited long enough."""

    def without_end(*_: object) -> object:
        while True:
            current_scope().meter.charge(1)

    async with scene(tmp_path) as story:
        assert (await story.scheduler.prefilter(story.b))["verdict"] == "fits"
        story.scheduler.reserve(story.b, "node-1")
        with monkeypatch.context() as patches:
            patches.setattr(decision_maker, "place_beside_rivals", without_end)
            answer = await story.scheduler.prefilter(story.a, deadlineMillis=200)
        assert (answer["message"], answer["unfinished"]) == (ABANDONED.message, True)

        answer = await story.scheduler.prebind(story.b)

        assert (answer["verdict"], answer["code"]) == ("error", "budgetExhausted")
        await story.scheduler.unreserve(story.b)
        assert (await story.scheduler.prefilter(story.b))["verdict"] == "fits"


async def test_a_namespace_rests_as_soon_as_a_pod_of_another_appears(tmp_path: Path) -> None:
    """The scheduler asks about it when it has asked about those before it in its queue."""
    clock = Clock()
    costly = convert(pod_with("c") | {"metadata": {"name": "c", "namespace": "x", "uid": "c"}}, Pod)
    async with FakeApiServer() as server:
        publish(server, "node-1")
        async with sidecar_beside(server, tmp_path, clock=clock) as sidecar:
            assert (await FakeScheduler(sidecar.socket).hello())["ready"]
            assert sidecar.service is not None
            turns = sidecar.service.turns

            def is_turned_away() -> bool:
                if turns.turn_away(costly) is RESTING:
                    return True
                turns.end(costly, 60.0)
                return False

            assert not is_turned_away()
            assert not is_turned_away()
            put_pod(server, "b", "gpu-b")

            await until(is_turned_away)
