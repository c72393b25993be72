"""The audit against an API server: the mark only rises, and what is stored is told once."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest
from prometheus_client import CollectorRegistry

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
from tests.fake_api_server import Call, FakeApiServer, running, until
from webhook.audit import Audit
from webhook.audited import MAX_NOTE_BYTES, Told, event_of, tally
from webhook.findings import Code, error
from webhook.judging import Judging
from webhook.metrics import AuditMetrics
from webhook.resources import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    EVENTS,
    NODES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from webhook.settings import ControlSettings, Settings

MARK: Final = "drawbridge-inventory"
FAST: Final = ControlSettings(mark_seconds=0.01, audit_seconds=0.02)


def document(value: object) -> Document:
    return msgspec.to_builtins(value, enc_hook=str)  # type: ignore[no-any-return]


class Audited:
    """An audit, the server that it looks at, and what it counted."""

    def __init__(self, server: FakeApiServer, registry: CollectorRegistry) -> None:
        self.server = server
        self._registry = registry

    @property
    def seen(self) -> Document:
        """What the mark says of the class: driver to devices."""
        found: Any = self.server.find(CONFIG_MAPS, MARK, Settings().namespace)
        text = (found or {}).get("data", {}).get("seen", "{}")
        seen: Document = json.loads(text).get("classes", {}).get("gpu", {})
        return seen

    @property
    def events(self) -> list[Any]:
        return self.server.objects(EVENTS)

    def counted(self, **labels: str) -> float:
        return self._registry.get_sample_value("drawbridge_audit_findings", labels) or 0.0


@asynccontextmanager
async def auditing(
    server: FakeApiServer, settings: ControlSettings = FAST
) -> AsyncIterator[Audited]:
    registry = CollectorRegistry()
    async with server.client() as client:
        whole = Settings(control=settings)
        judging = Judging(client, whole, informer_settings=InformerSettings(backoff_s=0.01))
        audit = Audit(
            client,
            whole,
            judging,
            AuditMetrics(registry),
            identity="test",
            now=lambda: datetime(2026, 11, 20, tzinfo=UTC),
        )
        async with running(audit.run):
            yield Audited(server, registry)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    """A node with two devices."""
    async with FakeApiServer() as made:
        made.put(NODES, document(node("node-1")))
        made.put(DEVICE_CLASSES, document(device_class()))
        publish(made, "gpu-0", "gpu-1")
        yield made


def publish(server: FakeApiServer, *names: str) -> None:
    server.put(RESOURCE_SLICES, document(slice_of(*devices(*names))))


def numbers(found: Document) -> list[int]:
    return [each["devices"] for each in found.values()]


# --- the mark -------------------------------------------------------------------------------------


async def test_the_mark_rises_and_never_falls(server: FakeApiServer) -> None:
    async with auditing(server) as made:
        await until(lambda: numbers(made.seen) == [2])

        publish(server, "gpu-0", "gpu-1", "gpu-2")
        await until(lambda: numbers(made.seen) == [3])

        publish(server, "gpu-0")
        server.put(NODES, document(node("node-2")))
        await until(lambda: server.watching >= 9)
        assert numbers(made.seen) == [3]

    async with auditing(server) as again:
        await until(lambda: server.watching >= 9)
        assert numbers(again.seen) == [3]


async def test_whoever_deletes_the_mark_gets_one_of_what_there_is(server: FakeApiServer) -> None:
    async with auditing(server) as made:
        await until(lambda: numbers(made.seen) == [2])
        publish(server, "gpu-0")
        server.remove(CONFIG_MAPS, MARK, Settings().namespace)

        await until(lambda: numbers(made.seen) == [1])


async def test_what_people_declare_is_left_to_them(server: FakeApiServer) -> None:
    declared = "classes: {gpu: {gpu.example.com: {devices: 99}}}"
    metadata = {"name": MARK, "namespace": Settings().namespace}
    server.put(CONFIG_MAPS, {"metadata": metadata, "data": {"declared": declared}})

    async with auditing(server) as made:
        await until(lambda: numbers(made.seen) == [2])

    found: Any = server.find(CONFIG_MAPS, MARK, Settings().namespace)
    assert found["data"]["declared"] == declared


async def test_a_mark_that_cannot_be_written_is_written_later(server: FakeApiServer) -> None:
    def writes(call: Call) -> bool:
        return call.method == "PATCH" and "/configmaps" in call.path

    server.fail(503, times=2, matches=writes)

    async with auditing(server) as made:
        await until(lambda: numbers(made.seen) == [2])


# --- what is stored -------------------------------------------------------------------------------


async def test_a_claim_that_can_never_fit_is_told_once(server: FakeApiServer) -> None:
    server.put(RESOURCE_CLAIMS, document(claim(request(count=3), name="large")))

    async with auditing(server) as made:
        await until(lambda: len(made.events) == 1)
        await until(
            lambda: (
                made.counted(kind="ResourceClaim", severity="error", code="moreThanAnyNode") == 1
            )
        )
    async with auditing(server) as again:
        await until(
            lambda: (
                again.counted(kind="ResourceClaim", severity="error", code="moreThanAnyNode") == 1
            )
        )
        (event,) = again.events

    assert event["reason"] == "MoreThanAnyNode"
    assert event["regarding"]["name"] == "large"
    assert event["metadata"]["namespace"] == NAMESPACE
    assert event["note"].startswith("spec.devices.requests[0].exactly.count: count 3")
    assert "count 2 instead of 3 would fit" in event["note"]


async def test_what_was_mended_is_not_counted_any_more(server: FakeApiServer) -> None:
    server.put(RESOURCE_CLAIMS, document(claim(request(count=3), name="large")))
    labels = {"kind": "ResourceClaim", "severity": "error", "code": "moreThanAnyNode"}
    async with auditing(server) as made:
        await until(lambda: made.counted(**labels) == 1)

        server.put(RESOURCE_CLAIMS, document(allocated(result("gpu-0"), name="large")))

        await until(lambda: made.counted(**labels) == 0)


async def test_events_are_bounded_and_the_rest_follows(server: FakeApiServer) -> None:
    for number in range(5):
        server.put(RESOURCE_CLAIMS, document(claim(request(count=3), name=f"large-{number}")))

    async with auditing(server, msgspec.structs.replace(FAST, audit_events=2)) as made:
        await until(lambda: 2 <= len(made.events) < 5)
        await until(lambda: len(made.events) == 5)


async def test_the_audit_writes_events_and_the_mark_and_nothing_else(
    server: FakeApiServer,
) -> None:
    server.put(RESOURCE_CLAIMS, document(claim(request(count=3), name="large")))

    async with auditing(server) as made:
        await until(lambda: bool(made.events) and numbers(made.seen) == [2])

    written = {
        call.path.rpartition("?")[0] or call.path for call in server.calls if call.method != "GET"
    }
    assert {path.split("/")[-1] for path in written} <= {"events", "configmaps", MARK}


# --- in words -------------------------------------------------------------------------------------


def test_an_event_keeps_within_the_limits_of_the_api() -> None:
    found = claim(request(), name="n" * 253)
    findings = tuple(
        error(Code.MORE_THAN_ANY_NODE, f"path[{number}]", "ä" * 400) for number in range(9)
    )
    told = Told(kind="ResourceClaim", metadata=found.metadata, findings=findings)

    event = event_of(told, instance="i" * 200, time="2026-11-20T00:00:00.000000Z")

    assert len(event["note"].encode()) <= MAX_NOTE_BYTES
    assert len(event["metadata"]["name"]) == 253
    assert len(event["reportingInstance"]) == 128


def test_numbers_in_messages_do_not_make_another_event() -> None:
    def told(message: str, code: Code = Code.MORE_THAN_ANY_NODE) -> str:
        findings = (error(code, "spec", message),)
        return Told(kind="ResourceClaim", metadata=claim().metadata, findings=findings).digest

    assert told("8 devices") == told("9 devices")
    assert told("8 devices") != told("8 devices", Code.NEVER_TOGETHER)


def test_objects_and_findings_are_counted_by_kind() -> None:
    wrong = error(Code.MORE_THAN_ANY_NODE, "spec", "no")

    found = tally([("ResourceClaim", (wrong, wrong)), ("ResourceClaim", ()), ("DeviceClass", ())])

    assert found.objects == {"ResourceClaim": 2, "DeviceClass": 1}
    assert found.findings == {("ResourceClaim", "error", "moreThanAnyNode"): 2}
