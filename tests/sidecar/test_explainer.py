"""The events of pods that wait: one for each, with all that there is to say, and none too many."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clusterstate.event_history import HistorySettings
from kube.api.core import Pod
from kube.api.events import Event
from kube.api.meta import convert
from kube.api.urls import ALLOCATOR_OWNERSHIPS, EVENTS
from process.profiles.profile_files import load_profiles
from sidecar.model.rejections import Code, failed_rejection, unresolvable, unschedulable
from sidecar.model.settings import SidecarSettings
from sidecar.reports.explainer import ACTION, Explainer
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, until
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    publish,
    put_claim,
    put_fence,
    put_pod,
    sidecar_beside,
)
from testing.too_large_pod import LARGE_FIT, put_large_pod

DRIVER = "gpu.example.com"
NO_DEVICES = unresolvable(Code.NO_DEVICES, "no node has free devices for the pod's ResourceClaims")
FEW = "Closest fit: request 1 device (node-1). 1 node: only 1 suitable device, 2 requested."


class Recorder:
    """Keeps the events that are recorded."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(
        self, event: Event, *, is_current: Callable[[], bool], on_result: Callable[..., None]
    ) -> None:
        assert is_current()
        self.events.append(event)

    def notes(self) -> Sequence[tuple[str, str]]:
        return sorted((event.regarding.name, event.note) for event in self.events)


async def greeted(sidecar: Sidecar) -> FakeScheduler:
    scheduler = FakeScheduler(sidecar.socket)
    assert (await scheduler.hello())["ready"]
    return scheduler


def put_waiting(server: FakeApiServer, *names: str, count: int = 2) -> list[Document]:
    """Store pods that need more devices than a node has."""
    for name in names:
        put_claim(server, f"gpu-{name}", count=count)
    return [put_pod(server, name, f"gpu-{name}") for name in names]


def event_notes(server: FakeApiServer) -> Sequence[tuple[str, str]]:
    """The pods that events are about, and the events' notes."""
    return sorted((event["regarding"]["name"], event["note"]) for event in server.objects(EVENTS))


def explainer_of(sidecar: Sidecar, recorder: Any) -> Explainer:
    """An explainer that explains when it is told to."""
    settings = HistorySettings(action=ACTION, initial_delay=0.0, reevaluation_period=0.0)
    return Explainer(sidecar.state, recorder, profiles=load_profiles(), settings=settings)


async def test_equal_pods_get_an_event_each(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        pods = put_waiting(server, "a", "b")
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = await greeted(sidecar)
            for pod in pods:
                await scheduler.prefilter(pod)

            await until(lambda: len(event_notes(server)) == 2)

            assert event_notes(server) == [("a", FEW), ("b", FEW)]


async def test_the_event_of_a_translated_pod_names_what_to_write_into_its_keys(
    tmp_path: Path,
) -> None:
    async with FakeApiServer() as server:
        pod = convert(put_large_pod(server), Pod)
        async with sidecar_beside(server, tmp_path) as sidecar:
            explainer = explainer_of(sidecar, recorder := Recorder())
            explainer.take_answer(pod, NO_DEVICES)

            await explainer.explain_due_pods()

            ((_, note),) = recorder.notes()
            assert LARGE_FIT in note


async def test_where_the_condition_says_all_the_event_says_the_same(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        (pod,) = put_waiting(server, "a", count=1)
        async with sidecar_beside(server, tmp_path, SidecarSettings()) as sidecar:
            answer = await (await greeted(sidecar)).prefilter(pod)
            assert answer["code"] == "driverNotOwned"

            await until(lambda: bool(event_notes(server)))

            assert event_notes(server) == [("a", answer["message"])]


async def test_pods_that_do_not_wait_for_devices_any_more_get_no_event(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1", per_node=1)
        names = ("waits", "fits", "gone", "tried-again")
        pods = [convert(document, Pod) for document in put_waiting(server, *names)]
        async with sidecar_beside(server, tmp_path) as sidecar:
            explainer = explainer_of(sidecar, recorder := Recorder())
            waits, fits, gone, tried_again = pods
            for pod in (waits, fits, gone):
                explainer.take_answer(pod, NO_DEVICES)
            explainer.take_answer(fits, None)
            explainer.forget(gone.metadata.uid)
            explainer.take_answer(tried_again, failed_rejection(Code.CLAIMS_BEHIND, "behind"))

            await explainer.explain_due_pods()
            await explainer.explain_due_pods()

            assert recorder.notes() == [("waits", FEW)]


async def test_limits_of_the_owner_are_named_once_they_are_in_force(tmp_path: Path) -> None:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        (document,) = put_waiting(server, "a")
        put_fence(server, DRIVER)
        async with sidecar_beside(server, tmp_path, SidecarSettings()) as sidecar:
            scheduler, pod = await greeted(sidecar), convert(document, Pod)
            explainer = explainer_of(sidecar, recorder := Recorder())
            rejection = unschedulable(Code.NO_DEVICES, "in short")
            explainer.take_answer(pod, rejection)
            await explainer.explain_due_pods()
            assert recorder.notes() == [("a", "in short")], "a node has devices for it"

            drivers = [{"name": DRIVER, "maxConsumersPerNode": 1}]
            ownership = {"metadata": {"name": "default"}, "spec": {"drivers": drivers}}
            server.put(ALLOCATOR_OWNERSHIPS, ownership)
            await until(lambda: bool(sidecar.state.drivers))
            await scheduler.prefilter(document)
            assert sidecar.state.applied_settings
            recorder.events.clear()
            explainer = explainer_of(sidecar, recorder)
            explainer.take_answer(pod, rejection)
            await explainer.explain_due_pods()

            ((_, note),) = recorder.notes()
            assert f"the limit of {DRIVER} per node" in note
