"""The controller of DeviceQuotas against an API server: soon, once, and not for every claim."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from operator import contains
from typing import Any, Final

import msgspec
import pytest

from allocator.model.feature_gates import Features
from controllers.model.settings import ControllerSettings
from controllers.quotas.controller import QuotaStatusController
from controllers.quotas.driver_owners import DriverOwners
from controllers.quotas.feed import QuotaFeed
from controllers.quotas.metrics import QuotaCollector
from kube.api.ownership import OWNERSHIP
from kube.api.urls import (
    ALLOCATOR_OWNERSHIPS,
    DEVICE_CLASSES,
    DEVICE_QUOTAS,
    NAMESPACES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from process.model.durations import PositiveDuration
from process.selectors.deferring import DeferringEngine, Demand
from process.selectors.engine import Answered, WorkerEngine
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    claim,
    classes,
    device,
    request,
    result,
    slice_of,
)
from testing.device_quotas import device_limit, quota
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until

FAST: Final = ControllerSettings(
    quota_status_period=PositiveDuration(0.05),
    initial_backoff=PositiveDuration(0.02),
    max_backoff=PositiveDuration(0.05),
)
SLOW_AMOUNTS: Final = msgspec.structs.replace(FAST, quota_status_period=PositiveDuration(600.0))
LONG_SELECTOR: Final = " && ".join([f'device.driver == "{DRIVER}"'] * 20)


WATCHES: Final = 13
"""Quotas, namespaces, classes, slices, claims, pods, owners, the fence, and PodGroups of five schedulers."""


@asynccontextmanager
async def controlled(
    server: FakeApiServer, settings: ControllerSettings = FAST, engine: WorkerEngine | None = None
) -> AsyncIterator[tuple[QuotaFeed, DriverOwners]]:
    async with server.client() as client:
        informers = quick_informers(client)
        feed = QuotaFeed(informers, Features(), backoff=settings.backoff(), engine=engine)
        owners = DriverOwners(informers)
        controller = QuotaStatusController(
            client,
            feed,
            settings,
            owners=owners,
            gate_fault=lambda: "nothing holds pods back",
            now=lambda: datetime(2026, 11, 24, tzinfo=UTC),
        )
        every = (*feed.controllers, *controller.controllers)
        loops = [entry.run for entry in every]
        if engine is not None:
            loops.append(engine.run)
        async with running(informers.run, *loops):
            await until(lambda: server.watching == WATCHES)
            yield feed, owners


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api_server:
        api_server.put(NAMESPACES, {"metadata": {"name": "default"}})
        for device_class in classes().values():
            api_server.put(DEVICE_CLASSES, document(device_class))
        api_server.put(RESOURCE_SLICES, document(slice_of(device("a"), device("b"))))
        yield api_server


def document(value: object) -> Document:
    return msgspec.to_builtins(value, enc_hook=str)  # type: ignore[no-any-return]


def stored_quota(most: int = 4, **spec: Any) -> Document:
    return document(quota(device_limit(most), **spec))


def claim_document(name: str, *has: str, where: str = "") -> Document:
    if has:
        return document(allocated_claim(*map(result, has), name=name))
    return document(claim(request("req-0", where) if where else request(), name=name))


def status(server: FakeApiServer) -> Document:
    return (server.find(DEVICE_QUOTAS, "team") or {}).get("status") or {}


def summary(server: FakeApiServer) -> str:
    return str(status(server).get("summary", ""))


def writes(server: FakeApiServer) -> int:
    return server.counts["PATCH"]


async def test_a_quota_has_a_status_at_once(server: FakeApiServer) -> None:
    async with controlled(server):
        server.put(DEVICE_QUOTAS, stored_quota())

        await until(lambda: summary(server) == "4 of 4 devices left")

    conditions = {
        condition["type"]: f"{condition['status']} {condition['reason']}"
        for condition in status(server)["conditions"]
    }
    assert conditions == {
        "Accepted": "True Accepted",
        "Enforced": "False NoGates",
        "AlertThresholdReached": "False BelowThreshold",
        "UsageIncomplete": "False Complete",
    }


async def test_a_write_of_a_status_is_repaired_and_counts_nothing_anew(
    server: FakeApiServer,
) -> None:
    """With a thousand quotas each of their first statuses had all pods decided about again."""
    async with controlled(server) as (feed, _):
        server.put(DEVICE_QUOTAS, stored_quota())
        await until(lambda: summary(server) == "4 of 4 devices left")
        rounds: list[None] = []
        feed.listeners.append(lambda: rounds.append(None))

        server.put(DEVICE_QUOTAS, {**stored_quota(), "status": {"summary": "somebody else's"}})

        await until(lambda: summary(server) == "4 of 4 devices left")
        assert rounds == []


async def test_usage_before_the_quota_counts(server: FakeApiServer) -> None:
    server.put(RESOURCE_CLAIMS, claim_document("c", "a"))
    async with controlled(server):
        server.put(DEVICE_QUOTAS, stored_quota())

        await until(lambda: summary(server) == "3 of 4 devices left")


async def test_claims_that_come_and_go(server: FakeApiServer) -> None:
    server.put(DEVICE_QUOTAS, stored_quota())
    async with controlled(server):
        server.put(RESOURCE_CLAIMS, claim_document("c", "a"))
        await until(lambda: summary(server) == "3 of 4 devices left")

        server.remove(RESOURCE_CLAIMS, "c", "default")
        await until(lambda: summary(server) == "4 of 4 devices left")


async def test_nothing_is_written_without_news(server: FakeApiServer) -> None:
    server.put(DEVICE_QUOTAS, stored_quota())
    async with controlled(server):
        await until(lambda: summary(server) == "4 of 4 devices left")
        before = writes(server)

        server.put(NAMESPACES, {"metadata": {"name": "default", "annotations": {"a": "b"}}})
        server.put(RESOURCE_CLAIMS, claim_document("c", "a") | {"spec": {"devices": {}}})
        await until(lambda: summary(server) == "3 of 4 devices left")
        server.put(RESOURCE_SLICES, document(slice_of(device("a"), device("b"), generation=2)))
        await asyncio.sleep(0.2)

        assert writes(server) == before + 1


async def test_amounts_are_written_at_intervals(server: FakeApiServer) -> None:
    server.put(DEVICE_QUOTAS, stored_quota())
    async with controlled(server, SLOW_AMOUNTS):
        await until(lambda: summary(server) == "4 of 4 devices left")
        server.put(RESOURCE_CLAIMS, claim_document("c", "a"))
        await asyncio.sleep(0.2)
        assert summary(server) == "4 of 4 devices left"

        # The threshold is news.
        for number in range(3):
            server.put(RESOURCE_CLAIMS, claim_document(f"c{number}", "a"))

        await until(lambda: summary(server) == "0 of 4 devices left")


async def test_a_driver_that_the_bridge_takes_over(server: FakeApiServer) -> None:
    server.put(DEVICE_QUOTAS, stored_quota())
    serving = {"type": "Serving", "status": "True", "reason": "Leading", "message": ""}

    def reasons() -> str:
        conditions = status(server).get("conditions", ())
        return next((entry["reason"] for entry in conditions if entry["type"] == "Enforced"), "")

    async with controlled(server):
        await until(lambda: reasons() == "NoGates")
        ownership: Document = {
            "metadata": {"name": OWNERSHIP, "generation": 1},
            "spec": {"drivers": [{"name": DRIVER}]},
        }
        server.put(ALLOCATOR_OWNERSHIPS, ownership)
        await until(lambda: reasons() == "BridgeNotServing")

        server.put(ALLOCATOR_OWNERSHIPS, ownership | {"status": {"conditions": [serving]}})
        await until(lambda: reasons() == "Enforced")


async def test_a_relabelled_namespace_takes_its_usage_along(server: FakeApiServer) -> None:
    server.put(DEVICE_QUOTAS, stored_quota(labels={"team": "a"}))
    server.put(RESOURCE_CLAIMS, claim_document("c", "a"))
    async with controlled(server):
        await until(lambda: summary(server) == "4 of 4 devices left")

        server.put(NAMESPACES, {"metadata": {"name": "default", "labels": {"team": "a"}}})

        await until(lambda: summary(server) == "3 of 4 devices left")
        assert status(server)["namespaceCount"] == 1


async def test_a_failed_write_is_made_again(server: FakeApiServer) -> None:
    server.put(DEVICE_QUOTAS, stored_quota())
    server.fail(500, times=2, matches=lambda call: call.method == "PATCH")
    async with controlled(server):
        await until(lambda: summary(server) == "4 of 4 devices left")


async def test_a_quota_that_is_gone_is_forgotten(server: FakeApiServer) -> None:
    server.put(DEVICE_QUOTAS, stored_quota())
    async with controlled(server) as (feed, _):
        await until(lambda: summary(server) == "4 of 4 devices left")
        collector = QuotaCollector(feed.usage)
        assert sum(len(family.samples) for family in collector.collect()) == 5

        server.remove(DEVICE_QUOTAS, "team")

        await until(lambda: not feed.usage.book.tenants.quotas)
        assert not sum(len(family.samples) for family in collector.collect())


async def test_a_long_selector_is_evaluated_by_the_worker(server: FakeApiServer) -> None:
    server.put(DEVICE_QUOTAS, stored_quota())
    async with controlled(server, engine=WorkerEngine()) as (feed, _):
        server.put(RESOURCE_CLAIMS, claim_document("c", where=LONG_SELECTOR))

        await until(lambda: bool(feed.usage.book.ledger.entries), timeout_s=20)
        assert not feed.usage.book.outstanding


class SlowEngine(WorkerEngine):
    """Counts the attempts at claims, and answers nothing before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts = 0
        self.may_answer = asyncio.Event()

    def deferring(self, *, charges_demand: bool = False) -> DeferringEngine:
        self.attempts += 1
        return super().deferring(charges_demand=charges_demand)

    async def answer(self, demand: Demand, *, tenant: str, **options: Any) -> Answered:
        await self.may_answer.wait()
        return await super().answer(demand, tenant=tenant, **options)


async def test_many_slow_claims_of_a_namespace_are_left_to_its_turn(server: FakeApiServer) -> None:
    """Each was attempted with every change of any claim, before anybody else's."""
    server.put(DEVICE_QUOTAS, stored_quota())
    server.put(NAMESPACES, {"metadata": {"name": "many"}})
    for number in range(50):
        slow = claim_document(f"c{number}", where=f"{LONG_SELECTOR} && {number} < 100")
        slow["metadata"]["namespace"] = "many"
        server.put(RESOURCE_CLAIMS, slow)
    engine = SlowEngine()
    async with controlled(server, engine=engine) as (feed, _):
        for number in range(5):
            server.put(RESOURCE_CLAIMS, claim_document(f"quick-{number}"))
            key = ("default", f"quick-{number}")
            await until(partial(contains, feed.usage.book.ledger.entries, key))
        attempts = engine.attempts

        engine.may_answer.set()
        await until(lambda: len(feed.usage.book.ledger.entries) == 55, timeout_s=20)

    assert attempts <= 5 + 2


class UnansweringEngine(SlowEngine):
    """Has no time for any expression."""

    async def answer(self, demand: Demand, *, tenant: str, **options: Any) -> Answered:
        return Answered(is_complete=False)


async def test_claims_that_cannot_be_evaluated_are_left_alone_for_a_while(
    server: FakeApiServer,
) -> None:
    """They were tried again fifty times a second, with all others of their namespace, and a line in the log each time."""
    server.put(DEVICE_QUOTAS, stored_quota())
    server.put(RESOURCE_CLAIMS, claim_document("slow", where=LONG_SELECTOR))
    engine = UnansweringEngine()
    async with controlled(server, engine=engine):
        await until(lambda: engine.attempts > 0)
        await asyncio.sleep(0.5)

        assert engine.attempts <= 3
