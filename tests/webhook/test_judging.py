"""Who asks the rules: from watches, on one thread, in time, and without losing a change."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import pytest

from kube.api.resource import ResourceClaim
from kube.informer import InformerSettings
from tests.allocator.builders import (
    NAMESPACE,
    allocated,
    claim,
    device_class,
    devices,
    node,
    request,
    result,
    slice_of,
)
from tests.builders import Document
from tests.fake_api_server import FakeApiServer, running, until
from webhook.high_water import object_of
from webhook.judging import Judging
from webhook.knowledge import Knowledge
from webhook.picture import Changes
from webhook.resources import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from webhook.rules.context import Context
from webhook.rules.judge import Judged, judge
from webhook.rules.mark import Mark, Seen
from webhook.settings import JudgeSettings, Settings

THREE: Final = claim(request(count=3))
TWO: Final = claim(request(count=2))


def document(value: object) -> Document:
    return msgspec.to_builtins(value, enc_hook=str)  # type: ignore[no-any-return]


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    """A node with two devices."""
    async with FakeApiServer() as made:
        made.put(NODES, document(node("node-1")))
        made.put(DEVICE_CLASSES, document(device_class()))
        made.put(RESOURCE_SLICES, document(slice_of(*devices("gpu-0", "gpu-1"))))
        yield made


@asynccontextmanager
async def judging(server: FakeApiServer, **settings: float) -> AsyncIterator[Judging]:
    async with server.client() as client:
        made = Judging(
            client,
            Settings(judge=JudgeSettings(**settings)),  # type: ignore[arg-type]
            informer_settings=InformerSettings(backoff_s=0.01),
        )
        async with running(made.run):
            await made.wait_ready()
            yield made


def codes(wanted: ResourceClaim, context: Context) -> list[str]:
    judged = Judged(view=wanted, namespace=NAMESPACE)
    return [f"{one.severity} {one.code}" for one in judge(judged, context)]


async def said(made: Judging, wanted: ResourceClaim = THREE) -> list[str]:
    return await made.answered(lambda context: codes(wanted, context))


async def until_said(made: Judging, *expected: str, wanted: ResourceClaim = THREE) -> None:
    async with asyncio.timeout(5):
        while await said(made, wanted) != list(expected):  # noqa: ASYNC110 - the answer is what counts
            await asyncio.sleep(0.01)


async def test_the_inventory_is_asked_as_soon_as_it_is_known(server: FakeApiServer) -> None:
    async with server.client() as client:
        made = Judging(client, Settings())
        assert await said(made) == []

    async with judging(server) as made:
        assert await said(made) == ["error moreThanAnyNode"]
        assert await said(made, TWO) == []


async def test_changes_count_with_the_next_review(server: FakeApiServer) -> None:
    async with judging(server) as made:
        server.put(RESOURCE_CLAIMS, document(allocated(result("gpu-0"), name="held")))
        await until_said(made, "warning doesNotFitNow", wanted=TWO)

        server.remove(RESOURCE_CLAIMS, "held", NAMESPACE)
        await until_said(made, wanted=TWO)


async def test_what_surrounds_the_inventory_counts(server: FakeApiServer) -> None:
    async with judging(server) as made:
        (driver,) = (await made.asked(lambda knows: knows.stocks(), within_s=None))["gpu"]
        more = Mark(classes={"gpu": {driver: Seen(nodes=2)}})
        mark = dict(object_of(more, namespace=Settings().namespace, name="drawbridge-inventory"))
        server.put(CONFIG_MAPS, mark)
        await until_said(made, "warning moreThanAnyNode")
        assert made.marked.seen == more

        server.put(CONFIG_MAPS, {**mark, "data": {}})
        await until_said(made, "error moreThanAnyNode")

        server.put(CONFIG_MAPS, {**mark, "data": {"declared": "["}})
        await until_said(made, "warning moreThanAnyNode")
        server.remove(CONFIG_MAPS, "drawbridge-inventory", Settings().namespace)
        await until_said(made, "error moreThanAnyNode")

        named = {"name": "cluster-autoscaler-status", "namespace": "kube-system"}
        server.put(CONFIG_MAPS, {"metadata": named})
        await until_said(made, "warning moreThanAnyNode")

        labels = {"drawbridge.internal/enforcement": "off"}
        server.put(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": labels}})
        await until_said(made)


async def test_who_waits_for_too_long_is_answered_without(server: FakeApiServer) -> None:
    busy = threading.Event()
    async with judging(server, wait_seconds=0.05) as made, asyncio.TaskGroup() as group:
        slow = group.create_task(made.asked(lambda _: busy.wait(5), within_s=None))
        await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            await said(made)
        # What came while nobody was answered is not lost with who gave up.
        made.changed.clear()
        server.put(RESOURCE_CLAIMS, document(allocated(result("gpu-0"), name="held")))
        await until(made.changed.is_set)
        with pytest.raises(TimeoutError):
            await said(made)
        busy.set()
        assert await slow
        await until_said(made, "warning doesNotFitNow", wanted=TWO)


async def test_no_crowd_waits(server: FakeApiServer) -> None:
    busy = threading.Event()
    async with judging(server, max_waiting=1) as made, asyncio.TaskGroup() as group:
        waiting = group.create_task(made.answered(lambda _: busy.wait(5)))
        await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            await said(made)
        busy.set()
        assert await waiting


async def test_a_bug_in_taking_in_costs_the_inventory_until_it_is_taken_in_again(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, faults = Knowledge.apply, iter([ZeroDivisionError])

    def fails_once(self: Knowledge, changes: Changes) -> None:
        for fault in faults:
            raise fault
        apply(self, changes)

    async with judging(server) as made:
        monkeypatch.setattr(Knowledge, "apply", fails_once)
        made.changed.clear()
        server.put(RESOURCE_CLAIMS, document(allocated(result("gpu-0"), name="held")))
        await until(made.changed.is_set)
        with pytest.raises(ZeroDivisionError):
            await said(made, TWO)
        await asyncio.sleep(0)

        assert await said(made) == []  # Nothing is known, so nothing is refused.
        await until_said(made, "warning doesNotFitNow", wanted=TWO)
        assert await said(made) == ["error moreThanAnyNode"]


async def test_a_bug_in_a_rule_ends_one_review_and_no_more(server: FakeApiServer) -> None:
    def broken(_: Context) -> None:
        raise ZeroDivisionError

    async with judging(server) as made:
        with pytest.raises(ZeroDivisionError):
            await made.answered(broken)

        assert await said(made) == ["error moreThanAnyNode"]
