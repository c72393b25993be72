"""The evaluator of rules: from watches, on one thread, in time, and without losing a change."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from typing import Final

import msgspec
import pytest

from clusterstate.evaluator import MAX_CPU_S, RuleEvaluator
from clusterstate.high_water_config_map import config_map_document
from clusterstate.kinds import Changes
from clusterstate.rule_cache import RuleCache
from clusterstate.settings import ValidationSettings
from kube import names
from kube.api.meta import convert
from kube.api.resource import Device, DeviceAttribute, ResourceClaim, ResourceSlice
from kube.api.urls import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    DEVICE_QUOTAS,
    NAMESPACES,
    NODES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kube.cel.compile import compile_selector
from kube.cel.device import NamedDevice
from kube.cel.engine import SIMPLE_LENGTH
from kube.cel.library import Environment
from kube.cel.scope import STEPS_PER_LOOK, current_scope, require_wanted
from process.selectors.engine import WorkerEngine
from rules.context.context import Context
from rules.engine.engine import Target, validate
from rules.feasibility.high_water_mark import DriverStock, HighWaterMark
from testing.allocation.builders import (
    DRIVER,
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
from testing.documents import Document
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
    return await evaluator.evaluate(lambda context: codes(requested, context), tenant=NAMESPACE)


async def until_codes(
    evaluator: RuleEvaluator, *expected: str, requested: ResourceClaim = THREE
) -> None:
    async with asyncio.timeout(30) as limit:
        while not limit.expired():
            with suppress(TimeoutError):  # Of a review, on a slow machine.
                if await codes_of(evaluator, requested) == list(expected):
                    return
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
        (driver,) = (await evaluator_.query(lambda cache: cache.stocks()))["gpu"]
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
        slow = group.create_task(evaluator_.query(lambda _: busy.wait(60)))
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
        waiting = group.create_task(evaluator_.evaluate(lambda _: busy.wait(60), tenant=NAMESPACE))
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
            timed_out.wait(60)

    async with evaluating(server, timeout=0.05) as evaluator_:
        while not began.is_set():  # A slow machine may not have begun in time.
            with pytest.raises(TimeoutError):
                await evaluator_.evaluate(rules, tenant=NAMESPACE)
        timed_out.set()
        await until_codes(evaluator_, requested=TWO)  # The thread is free again.

    assert devices_evaluated == [0]


async def test_what_waits_in_vain_is_never_evaluated(server: FakeApiServer) -> None:
    busy, event = threading.Event(), threading.Event()
    async with evaluating(server, timeout=0.05) as evaluator_, asyncio.TaskGroup() as group:
        slow = group.create_task(evaluator_.query(lambda _: busy.wait(60)))
        await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            await evaluator_.evaluate(lambda _: event.set(), tenant=NAMESPACE)
        busy.set()
        await slow
        await until_codes(evaluator_, requested=TWO)

    assert not event.is_set()


async def test_a_busy_inventory_leaves_a_thread_for_the_other_rules(server: FakeApiServer) -> None:
    busy = threading.Event()
    invalid = claim(request("gpu", "device.driver =="))
    async with evaluating(server, timeout=60.0) as evaluator_, asyncio.TaskGroup() as group:
        slow = group.create_task(evaluator_.query(lambda _: busy.wait(60)))
        evaluate_without_inventory = await evaluator_.evaluate_without_inventory(
            lambda context: codes(invalid, context), tenant=NAMESPACE
        )
        busy.set()
        await slow

    assert evaluate_without_inventory == ["error invalidSelector"]


async def test_strangers_expressions_are_evaluated_by_the_engine(server: FakeApiServer) -> None:
    """Rules that need a verdict are evaluated again once the worker has answered."""
    never = "device.driver == 'nobody.example.com'".ljust(SIMPLE_LENGTH + 1)
    broken = "device.driver ==".ljust(SIMPLE_LENGTH + 1)
    engine, took_s = WorkerEngine(), list[float]()
    async with server.client() as client:
        informers = quick_informers(client)
        rule_evaluator = RuleEvaluator(
            informers, names.NAMESPACE, ValidationSettings(), engine=engine
        )
        async with running(engine.run, informers.run, rule_evaluator.run):
            await rule_evaluator.wait_ready()
            found = [
                await rule_evaluator.evaluate(
                    partial(codes, claim(request("gpu", expression))),
                    tenant=NAMESPACE,
                    charge=took_s.append,
                    timeout_s=30.0,
                )
                for expression in (never, broken)
            ]

    assert found == [["warning selectorMatchesNothing"], ["error invalidSelector"]]
    assert min(took_s) > 0, "what the worker takes is charged"


async def test_what_the_worker_took_is_charged_though_nobody_waited_for_it(
    server: FakeApiServer,
) -> None:
    slow = "lists.range(100).all(x, lists.range(100).all(y, x * y >= 0))".ljust(SIMPLE_LENGTH + 1)
    devices = [
        NamedDevice(DRIVER, Device(name="", attributes={"a": DeviceAttribute(int_=number)}))
        for number in range(10_000)
    ]
    engine, took_s = WorkerEngine(), list[float]()

    def rules(_: Context) -> None:
        selector = f"device.attributes['{DRIVER}'].a >= 0 && {slow}"
        compile_selector(selector, Environment.STORED).verdicts(devices)

    async with server.client() as client:
        informers = quick_informers(client)
        rule_evaluator = RuleEvaluator(
            informers, names.NAMESPACE, ValidationSettings(), engine=engine
        )
        async with running(engine.run, informers.run, rule_evaluator.run):
            await rule_evaluator.wait_ready()
            while sum(took_s) < 0.1:  # The worker may not have begun.
                with pytest.raises(TimeoutError):
                    await rule_evaluator.evaluate(
                        rules, tenant=NAMESPACE, charge=took_s.append, timeout_s=0.5
                    )


async def test_verdicts_are_asked_again_after_it_was_renewed(server: FakeApiServer) -> None:
    async with evaluating(server) as evaluator_:
        before = await evaluator_.query(lambda cache: cache.context().inventory)
        evaluator_.renew()
        after = await evaluator_.query(lambda cache: cache.context().inventory)

    assert after is not before
    assert [device.id for device in after.devices] == [device.id for device in before.devices]
    assert after.devices


async def test_a_review_that_takes_too_much_of_the_thread_ends(server: FakeApiServer) -> None:
    times = count(step=MAX_CPU_S)

    def rules(_: Context) -> None:
        while True:
            current_scope().meter.charge(STEPS_PER_LOOK)

    async with server.client() as client:
        informers = quick_informers(client)
        rule_evaluator = RuleEvaluator(
            informers, names.NAMESPACE, ValidationSettings(), cpu_clock=lambda: next(times)
        )
        async with running(informers.run, rule_evaluator.run):
            await rule_evaluator.wait_ready()
            with pytest.raises(TimeoutError):
                await rule_evaluator.evaluate(rules, tenant=NAMESPACE)


async def test_tenants_take_turns(server: FakeApiServer) -> None:
    """One that asks for the first time comes before the waiting ones of a tenant with a long turn."""
    busy, order = threading.Event(), list[str]()

    def rules(tenant: str, _: Context) -> None:
        busy.wait(60)
        order.append(tenant)

    async with evaluating(server, timeout=60.0) as evaluator_, asyncio.TaskGroup() as group:
        for tenant in ("loud", "loud", "loud", "quiet"):
            group.create_task(evaluator_.evaluate(partial(rules, tenant), tenant=tenant))
            await asyncio.sleep(0.01)
        busy.set()

    assert order == ["loud", "quiet", "loud", "loud"]


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
            await evaluator_.evaluate(broken, tenant=NAMESPACE)

        assert await codes_of(evaluator_) == ["error exceedsLargestNode"]


async def test_slices_that_the_api_server_has_accepted_are_not_rejected_for_their_layout(
    server: FakeApiServer,
) -> None:
    """1.34 has devices and counters in one slice, and 1.35 rejects that before it asks."""
    mixed = convert(MIXED_LAYOUT, ResourceSlice)

    async with evaluating(server) as evaluator:
        findings = await evaluator.evaluate(
            lambda context: [
                *validate(Target(view=mixed, namespace="", raw=MIXED_LAYOUT), context)
            ],
            tenant="",
        )

    assert ["invalidSlice"] == [finding.code for finding in findings if "1.34" in finding.message]
    assert not any(finding.is_error for finding in findings)


async def test_quotas_and_the_labels_of_namespaces_count(server: FakeApiServer) -> None:
    limits = [{"name": "devices", "driver": DRIVER, "devices": {}, "max": "1"}]
    spec = {"namespaceSelector": {"matchLabels": {"team": "a"}}, "limits": limits}
    server.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    async with evaluating(server) as evaluator_:
        server.put(DEVICE_QUOTAS, {"metadata": {"name": "team"}, "spec": spec})
        await until_codes(evaluator_, requested=TWO)

        server.put(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": {"team": "a"}}})
        await until_codes(evaluator_, "error exceedsDeviceQuota", requested=TWO)

        server.remove(DEVICE_QUOTAS, "team")
        await until_codes(evaluator_, requested=TWO)
