"""The evaluator of rules: from watches, on one thread, in time, and without losing a change."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import pytest

from clusterstate.evaluator import RuleEvaluator
from clusterstate.high_water_config_map import config_map_document
from clusterstate.kinds import Changes
from clusterstate.rule_cache import RuleCache
from clusterstate.settings import ValidationSettings
from kube import names
from kube.api.meta import convert
from kube.api.resource import ResourceClaim, ResourceSlice
from kube.api.urls import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kube.cel.engine import SIMPLE_LENGTH, Names, require_wanted
from kube.cel.library import Environment
from kube.errors import InvalidSelector
from rules.context import Context
from rules.engine import Target, validate
from rules.feasibility.high_water_mark import DriverStock, HighWaterMark
from testing.allocation.builders import (
    NAMESPACE,
    allocated_claim,
    claim,
    device_class,
    devices,
    node,
    request,
    result,
    slice_of,
)
from testing.builders import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until
from testing.slice_cases import MIXED_LAYOUT

THREE: Final = claim(request(count=3))
TWO: Final = claim(request(count=2))


def document(value: object) -> Document:
    return msgspec.to_builtins(value, enc_hook=str)  # type: ignore[no-any-return]


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    """A node with two devices."""
    async with FakeApiServer() as api_server:
        api_server.put(NODES, document(node("node-1")))
        api_server.put(DEVICE_CLASSES, document(device_class()))
        api_server.put(RESOURCE_SLICES, document(slice_of(*devices("gpu-0", "gpu-1"))))
        yield api_server


@asynccontextmanager
async def evaluating(server: FakeApiServer, **settings: float) -> AsyncIterator[RuleEvaluator]:
    async with server.client() as client:
        informers = quick_informers(client)
        rule_evaluator = RuleEvaluator(
            informers,
            names.NAMESPACE,
            ValidationSettings(**settings),  # type: ignore[arg-type]
        )
        async with running(informers.run, rule_evaluator.run):
            await rule_evaluator.wait_ready()
            yield rule_evaluator


def codes(requested: ResourceClaim, context: Context) -> list[str]:
    target = Target(view=requested, namespace=NAMESPACE)
    return [f"{finding.severity} {finding.code}" for finding in validate(target, context)]


async def codes_of(evaluator: RuleEvaluator, requested: ResourceClaim = THREE) -> list[str]:
    return await evaluator.evaluate(lambda context: codes(requested, context))


async def until_codes(
    evaluator: RuleEvaluator, *expected: str, requested: ResourceClaim = THREE
) -> None:
    async with asyncio.timeout(5):
        while await codes_of(evaluator, requested) != list(expected):  # noqa: ASYNC110 - the answer is what counts
            await asyncio.sleep(0.01)


async def test_the_inventory_counts_once_it_is_synced(server: FakeApiServer) -> None:
    async with server.client() as client:
        rule_evaluator = RuleEvaluator(
            quick_informers(client), names.NAMESPACE, ValidationSettings()
        )
        assert await codes_of(rule_evaluator) == []

    async with evaluating(server) as rule_evaluator:
        assert await codes_of(rule_evaluator) == ["error exceedsLargestNode"]
        assert await codes_of(rule_evaluator, TWO) == []


async def test_changes_count_with_the_next_review(server: FakeApiServer) -> None:
    async with evaluating(server) as evaluator_:
        server.put(RESOURCE_CLAIMS, document(allocated_claim(result("gpu-0"), name="held")))
        await until_codes(evaluator_, "warning doesNotFitNow", requested=TWO)

        server.remove(RESOURCE_CLAIMS, "held", NAMESPACE)
        await until_codes(evaluator_, requested=TWO)


async def test_marks_autoscalers_and_namespaces_count(server: FakeApiServer) -> None:
    async with evaluating(server) as evaluator_:
        (driver,) = (await evaluator_.query(lambda cache: cache.stocks(), timeout_s=None))["gpu"]
        more = HighWaterMark(classes={"gpu": {driver: DriverStock(nodes=2)}})
        high_water_mark = dict(
            config_map_document(more, namespace=names.NAMESPACE, name="drawbridge-inventory")
        )
        server.put(CONFIG_MAPS, high_water_mark)
        await until_codes(evaluator_, "warning exceedsLargestNode")
        assert evaluator_.high_water_marks.seen == more

        server.put(CONFIG_MAPS, {**high_water_mark, "data": {}})
        await until_codes(evaluator_, "error exceedsLargestNode")

        server.put(CONFIG_MAPS, {**high_water_mark, "data": {"declared": "["}})
        await until_codes(evaluator_, "warning exceedsLargestNode")
        server.remove(CONFIG_MAPS, "drawbridge-inventory", names.NAMESPACE)
        await until_codes(evaluator_, "error exceedsLargestNode")

        named = {"name": "cluster-autoscaler-status", "namespace": "kube-system"}
        server.put(CONFIG_MAPS, {"metadata": named})
        await until_codes(evaluator_, "warning exceedsLargestNode")

        labels = {"drawbridge.internal/enforcement": "off"}
        server.put(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": labels}})
        await until_codes(evaluator_)


async def test_a_review_that_waits_for_too_long_times_out(server: FakeApiServer) -> None:
    busy = threading.Event()
    async with evaluating(server, timeout=0.05) as evaluator_, asyncio.TaskGroup() as group:
        slow = group.create_task(evaluator_.query(lambda _: busy.wait(5), timeout_s=None))
        await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            await codes_of(evaluator_)
        # A change that came with a review that timed out is not lost.
        evaluator_.changed.clear()
        server.put(RESOURCE_CLAIMS, document(allocated_claim(result("gpu-0"), name="held")))
        await until(evaluator_.changed.is_set)
        with pytest.raises(TimeoutError):
            await codes_of(evaluator_)
        busy.set()
        assert await slow
        await until_codes(evaluator_, "warning doesNotFitNow", requested=TWO)


async def test_only_so_many_reviews_wait(server: FakeApiServer) -> None:
    busy = threading.Event()
    async with evaluating(server, max_queued=1) as evaluator_, asyncio.TaskGroup() as group:
        waiting = group.create_task(evaluator_.evaluate(lambda _: busy.wait(5)))
        await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            await codes_of(evaluator_)
        busy.set()
        assert await waiting


async def test_an_evaluation_that_nobody_waits_for_ends_before_the_next_device(
    server: FakeApiServer,
) -> None:
    began, timed_out = threading.Event(), threading.Event()
    devices_evaluated: list[int] = []

    def rules(_: Context) -> None:
        for number in range(3):
            require_wanted()
            devices_evaluated.append(number)
            began.set()
            timed_out.wait(5)

    async with evaluating(server, timeout=0.05) as evaluator_:
        with pytest.raises(TimeoutError):
            await evaluator_.evaluate(rules)
        timed_out.set()
        assert await codes_of(evaluator_, TWO) == []  # The thread is free again.

    assert began.is_set()
    assert devices_evaluated == [0]


async def test_what_waits_in_vain_is_never_evaluated(server: FakeApiServer) -> None:
    busy, event = threading.Event(), threading.Event()
    async with evaluating(server, timeout=0.05) as evaluator_, asyncio.TaskGroup() as group:
        slow = group.create_task(evaluator_.query(lambda _: busy.wait(5), timeout_s=None))
        await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            await evaluator_.evaluate(lambda _: event.set())
        busy.set()
        await slow
        assert await codes_of(evaluator_, TWO) == []

    assert not event.is_set()


async def test_a_busy_inventory_leaves_a_thread_for_the_other_rules(server: FakeApiServer) -> None:
    busy = threading.Event()
    invalid = claim(request("gpu", "device.driver =="))
    async with evaluating(server, timeout=5.0) as evaluator_, asyncio.TaskGroup() as group:
        slow = group.create_task(evaluator_.query(lambda _: busy.wait(5), timeout_s=None))
        evaluate_without_inventory = await evaluator_.evaluate_without_inventory(
            lambda context: codes(invalid, context)
        )
        busy.set()
        await slow

    assert evaluate_without_inventory == ["error invalidSelector"]


async def test_strangers_expressions_are_evaluated_by_the_engine(server: FakeApiServer) -> None:
    class Engine:
        def compile(self, expression: str, environment: Environment) -> Names:
            raise InvalidSelector(f"the engine says no to {len(expression)} characters")

        def matches(self, *_: object) -> bool:
            raise AssertionError

    long = claim(request("gpu", "true".ljust(SIMPLE_LENGTH + 1)))
    async with server.client() as client:
        informers = quick_informers(client)
        settings = ValidationSettings()
        rule_evaluator = RuleEvaluator(informers, names.NAMESPACE, settings, engine=Engine())
        async with running(informers.run, rule_evaluator.run):
            await rule_evaluator.wait_ready()
            findings = await rule_evaluator.evaluate(
                lambda context: validate(Target(view=long, namespace=NAMESPACE), context)
            )

    assert "the engine says no to 257 characters" in findings[0].message


async def test_a_bug_in_applying_changes_costs_the_inventory_until_it_is_applied_again(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, faults = RuleCache.apply, iter([ZeroDivisionError])

    def fails_once(self: RuleCache, changes: Changes) -> None:
        for fault in faults:
            raise fault
        apply(self, changes)

    async with evaluating(server) as evaluator_:
        monkeypatch.setattr(RuleCache, "apply", fails_once)
        evaluator_.changed.clear()
        server.put(RESOURCE_CLAIMS, document(allocated_claim(result("gpu-0"), name="held")))
        await until(evaluator_.changed.is_set)
        with pytest.raises(ZeroDivisionError):
            await codes_of(evaluator_, TWO)
        await asyncio.sleep(0)

        assert await codes_of(evaluator_) == []  # Nothing is known, so nothing is refused.
        await until_codes(evaluator_, "warning doesNotFitNow", requested=TWO)
        assert await codes_of(evaluator_) == ["error exceedsLargestNode"]


async def test_a_bug_in_a_rule_fails_one_review_only(server: FakeApiServer) -> None:
    def broken(_: Context) -> None:
        raise ZeroDivisionError

    async with evaluating(server) as evaluator_:
        with pytest.raises(ZeroDivisionError):
            await evaluator_.evaluate(broken)

        assert await codes_of(evaluator_) == ["error exceedsLargestNode"]


async def test_slices_that_the_api_server_has_accepted_are_not_rejected_for_their_layout(
    server: FakeApiServer,
) -> None:
    """1.34 has devices and counters in one slice, and 1.35 rejects that before it asks."""
    mixed = convert(MIXED_LAYOUT, ResourceSlice)

    async with evaluating(server) as evaluator:
        findings = await evaluator.evaluate(
            lambda context: [*validate(Target(view=mixed, namespace="", raw=MIXED_LAYOUT), context)]
        )

    assert ["invalidSlice"] == [finding.code for finding in findings if "1.34" in finding.message]
    assert not any(finding.is_error for finding in findings)
