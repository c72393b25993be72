"""The skeleton of controllers: keys are reconciled once synced, again when asked, and past failures."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from kube.api import meta
from kube.api.core import Pod
from kube.api.urls import PODS
from kube.collections.backoff import Backoff
from kube.errors import KubeError
from kube.runtime.controller import Controller
from testing.fake_api_server import FakeApiServer, quick_informers, running, until

FAST: Final = Backoff(initial_s=0.01, max_s=0.02)


class Reconciler:
    """Notes the keys, and raises or returns as it is told."""

    def __init__(self, *outcomes: Exception | float | None) -> None:
        self.keys: list[str] = []
        self.outcomes = list(outcomes)

    async def reconcile(self, key: str) -> float | None:
        self.keys.append(key)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@asynccontextmanager
async def controlling(
    reconciler: Reconciler, *keys: str, workers: int = 1
) -> AsyncIterator[Controller[str]]:
    controller = Controller("test", reconciler.reconcile, backoff=FAST, workers=workers)
    for key in keys:
        controller.queue.add(key)
    async with running(controller.run):
        yield controller


async def test_each_key_is_reconciled() -> None:
    reconciler = Reconciler()
    async with controlling(reconciler, "a", "b", "a"):
        await until(lambda: len(reconciler.keys) == 2)

    assert ["a", "b"] == reconciler.keys


@pytest.mark.parametrize(
    "failure", [KubeError("refused"), ZeroDivisionError()], ids=["expected", "a bug"]
)
async def test_a_failure_costs_its_key_a_pause_and_the_others_nothing(failure: Exception) -> None:
    reconciler = Reconciler(failure)
    async with controlling(reconciler, "a", "b") as controller:
        await until(lambda: len(reconciler.keys) == 3)

    assert ["a", "b", "a"] == reconciler.keys
    assert 1 == controller.queue.retried


async def test_a_key_comes_again_after_the_time_that_it_asks_for() -> None:
    reconciler = Reconciler(0.02, None)
    async with controlling(reconciler, "a"):
        await until(lambda: len(reconciler.keys) == 2)
        await asyncio.sleep(0.05)

    assert ["a", "a"] == reconciler.keys


async def test_several_workers_reconcile_at_a_time() -> None:
    both, running_now = asyncio.Event(), set[str]()

    async def reconcile(key: str) -> None:
        running_now.add(key)
        if len(running_now) == 2:
            both.set()
        await both.wait()

    controller: Controller[str] = Controller("test", reconcile, backoff=FAST, workers=2)
    for key in ("a", "b"):
        controller.queue.add(key)
    async with running(controller.run):
        await until(both.is_set)


async def test_nothing_is_reconciled_before_the_first_lists_are_complete() -> None:
    async with FakeApiServer() as server, server.client() as client:
        server.put(PODS, {"metadata": {"name": "a", "namespace": "team"}})
        server.hang()
        informers, reconciler = quick_informers(client), Reconciler()

        def pod_changed(key: tuple[str, str], _old: str | None, _new: str | None) -> None:
            controller.queue.add("/".join(key))

        pods = informers.subscribe(
            PODS, lambda raw: meta.decode(raw, Pod).metadata.name, handlers=[pod_changed]
        )
        controller: Controller[str] = Controller(
            "test", reconciler.reconcile, subscriptions=[pods], backoff=FAST
        )
        controller.queue.add("other")
        async with running(informers.run, controller.run):
            await asyncio.sleep(0.05)
            assert ([], "waiting for pods") == (reconciler.keys, controller.check())
            server.resume()
            await until(lambda: len(reconciler.keys) == 2)

            assert "" == controller.check()
