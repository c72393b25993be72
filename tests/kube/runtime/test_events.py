"""The recorder against an API server: each event once, none in a hurry, and none in the way."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from msgspec.structs import replace

from kube.api.events import Event, ObjectReference
from kube.api.urls import EVENTS
from kube.collections.backoff import Backoff
from kube.runtime.events import EventRecorder, EventRecorderSettings, EventResult
from testing.fake_api_server import FakeApiServer, running, until

POD: Final = ObjectReference(api_version="v1", kind="Pod", namespace="team", name="a", uid="1")
EVENT: Final = Event(regarding=POD, reason="Missing", action="Observe", note="No device.")
FAST: Final = EventRecorderSettings(
    per_second=1000.0, max_queued=2, attempts=3, backoff=Backoff(initial_s=0.01, max_s=0.02)
)


class Recorded:
    """A recorder, and the results of its inputs."""

    def __init__(self, server: FakeApiServer, recorder: EventRecorder) -> None:
        self.server = server
        self.recorder = recorder
        self.results: list[EventResult] = []

    def record(self, event: Event = EVENT, **options: Any) -> None:
        self.recorder.record(event, on_result=self.results.append, **options)

    async def result(self, event: Event = EVENT, **options: Any) -> EventResult:
        before = len(self.results)
        self.record(event, **options)
        await until(lambda: len(self.results) > before)
        return self.results[-1]

    @property
    def notes(self) -> list[str]:
        return sorted(event["note"] for event in self.server.objects(EVENTS))


@asynccontextmanager
async def recording(server: FakeApiServer) -> AsyncIterator[Recorded]:
    async with server.client() as client:
        recorder = EventRecorder(
            client,
            controller="drawbridge.test",
            instance="test",
            now=lambda: datetime(2026, 11, 20, tzinfo=UTC),
            settings=FAST,
        )
        async with running(recorder.run):
            yield Recorded(server, recorder)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api_server:
        yield api_server


async def test_an_event_is_created(server: FakeApiServer) -> None:
    async with recording(server) as recording_context:
        assert EventResult.CREATED == await recording_context.result()

    assert ["No device."] == recording_context.notes


async def test_an_event_that_another_process_wrote_stays_as_it_is(server: FakeApiServer) -> None:
    async with recording(server) as recording_context:
        await recording_context.result()
    async with recording(server) as recording_context:
        assert EventResult.EXISTING == await recording_context.result()

    assert 0 == server.counts["PATCH"]


async def test_a_repetition_updates_the_series(server: FakeApiServer) -> None:
    async with recording(server) as recording_context:
        await recording_context.result()
        assert EventResult.UPDATED == await recording_context.result(replace(EVENT, series_count=2))

    (event,) = server.objects(EVENTS)
    assert 2 == event["series"]["count"]
    assert 1 == server.counts["POST"], "what was written before is not created again"


async def test_a_repetition_updates_what_another_process_wrote(server: FakeApiServer) -> None:
    async with recording(server) as recording_context:
        await recording_context.result()
    async with recording(server) as recording_context:
        assert EventResult.UPDATED == await recording_context.result(replace(EVENT, series_count=4))


async def test_a_repetition_of_an_event_that_has_expired_is_created(server: FakeApiServer) -> None:
    async with recording(server) as recording_context:
        await recording_context.result()
        server.remove(EVENTS, EVENT.name, "team")
        assert EventResult.CREATED == await recording_context.result(replace(EVENT, series_count=2))


async def test_an_event_that_is_no_longer_true_is_not_written(server: FakeApiServer) -> None:
    async with recording(server) as recording_context:
        assert EventResult.OBSOLETE == await recording_context.result(is_current=lambda: False)

    assert [] == recording_context.notes


@pytest.mark.parametrize("status", [429, 500, 503, None])
async def test_a_server_in_trouble_is_tried_again(
    server: FakeApiServer, status: int | None
) -> None:
    server.fail(status, times=2)
    async with recording(server) as recording_context:
        assert EventResult.CREATED == await recording_context.result()


async def test_a_server_in_lasting_trouble_costs_the_event(server: FakeApiServer) -> None:
    server.fail(503, times=3)
    async with recording(server) as recording_context:
        assert EventResult.FAILED == await recording_context.result()
        assert EventResult.CREATED == await recording_context.result()

    assert 4 == server.counts["POST"]


async def test_a_rejected_event_is_not_tried_again(server: FakeApiServer) -> None:
    server.fail(403)
    async with recording(server) as recording_context:
        assert EventResult.FAILED == await recording_context.result()

    assert 1 == server.counts["POST"]


async def test_an_event_in_a_namespace_that_is_being_deleted_is_no_failure(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.fail(403, cause="NamespaceTerminating")
    async with recording(server) as recording_context:
        assert EventResult.OBSOLETE == await recording_context.result()

    assert 1 == server.counts["POST"]
    assert "event.failed" not in capsys.readouterr().out


async def test_events_beyond_the_queue_are_dropped(server: FakeApiServer) -> None:
    server.hang()
    async with recording(server) as recording_context:
        recording_context.record()
        await until(lambda: bool(server.calls))
        for note in ("b", "c", "d"):
            recording_context.record(replace(EVENT, note=note))
        assert [EventResult.DROPPED] == recording_context.results
        server.resume()
        await until(lambda: len(recording_context.results) == 4)

    assert ["No device.", "b", "c"] == recording_context.notes


async def test_a_namespace_with_many_events_has_none_of_another_dropped(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.hang()
    async with recording(server) as recording_context:
        recording_context.record()
        await until(lambda: bool(server.calls))
        for note in ("b", "c", "d", "e"):
            recording_context.record(replace(EVENT, note=note))
        other = replace(EVENT, regarding=replace(POD, namespace="other"), note="of another")
        recording_context.record(other)
        assert [EventResult.DROPPED] * 3 == recording_context.results
        server.resume()
        await until(lambda: len(recording_context.results) == 6)

    assert ["No device.", "b", "of another"] == recording_context.notes
    assert 1 == capsys.readouterr().out.count("event.dropped"), "one line between two writes"


async def test_events_are_written_no_faster_than_the_rate(server: FakeApiServer) -> None:
    sleeps: list[float] = []

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)

    async with server.client() as client:
        recorder = EventRecorder(
            client,
            controller="drawbridge.test",
            instance="test",
            now=lambda: datetime(2026, 11, 20, tzinfo=UTC),
            settings=replace(FAST, per_second=4.0),
            clock=lambda: 0.0,
            sleep=sleep,
        )
        async with running(recorder.run):
            recorder.record(EVENT)
            await until(lambda: bool(sleeps))

    assert [0.25] == sleeps


async def test_results_are_counted(server: FakeApiServer) -> None:
    counted_event_results: list[EventResult] = []
    async with server.client() as client:
        recorder = EventRecorder(
            client,
            controller="drawbridge.test",
            instance="test",
            now=lambda: datetime(2026, 11, 20, tzinfo=UTC),
            settings=FAST,
            count=counted_event_results.append,
        )
        async with running(recorder.run):
            recorder.record(EVENT)
            recorder.record(EVENT)
            await until(lambda: len(counted_event_results) == 2)

    assert [EventResult.CREATED, EventResult.EXISTING] == counted_event_results
