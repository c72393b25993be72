"""The observer against an API server: soon, once, quietly, and in spite of failures."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kube.api.core import Pod, PodStatus, is_unschedulable
from kube.api.urls import (
    DEVICE_CLASSES,
    DEVICE_COMPATIBILITY_POLICIES,
    EVENTS,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kube.names import SCHEDULER_NAME
from observer.device_states import DeviceState
from observer.metrics import ObserverMetrics
from observer.observer import MAX_ROUND_S, Observer
from observer.settings import ObserverSettings
from process.model.durations import PositiveDuration
from process.profiles.profile_files import load_profiles
from process.serving.metrics import event_counter
from testing.allocation.builders import (
    DRIVER,
    allocated_claim,
    applied_configuration,
    claim,
    device_class,
    devices,
    node,
    policy,
    request,
    result,
    rule,
    slice_of,
)
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, quick_recorder, running, until
from testing.too_large_pod import LARGE_FIT, put_large_pod

FAST: Final = ObserverSettings(
    initial_delay=PositiveDuration(0.01),
    reevaluation_period=PositiveDuration(0.01),
    initial_event_interval=PositiveDuration(0.01),
    max_event_interval=PositiveDuration(0.01),
    cpu_fraction=0.99,
    new_pod_cpu_fraction=0.99,
    events_per_second=1000,
)
NVIDIA: Final = "gpu.nvidia.com"
UNSCHEDULABLE: Final = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


class Observed:
    """An observer, the server that it follows, and its counts."""

    def __init__(
        self, server: FakeApiServer, observer: Observer, registry: CollectorRegistry
    ) -> None:
        self.server = server
        self.observer = observer
        self._registry = registry

    @property
    def notes(self) -> list[str]:
        return [object_["note"] for object_ in self.server.objects(EVENTS)]

    @property
    def metrics(self) -> str:
        return generate_latest(self._registry).decode()

    def counted(self, outcome: str, times: int = 1) -> bool:
        """Return True if so many answers had an outcome."""
        line = f'drawbridge_events_total{{result="{outcome}"}} {float(times)}'
        return line in self.metrics

    async def settled(self) -> None:
        """Wait long enough for several looks."""
        await asyncio.sleep(0.5)


@asynccontextmanager
async def observing(
    server: FakeApiServer,
    settings: ObserverSettings = FAST,
    metrics: type[ObserverMetrics] = ObserverMetrics,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Observed]:
    registry = CollectorRegistry()
    async with server.client() as client:
        informers = quick_informers(client)
        recorder = quick_recorder(
            client, count=event_counter(registry), per_second=settings.events_per_second
        )
        observer = Observer(
            informers,
            recorder,
            settings,
            metrics(registry),
            profiles=load_profiles(),
            clock=clock,
        )
        async with running(informers.run, recorder.run, observer.run):
            await until(lambda: not observer.check())
            yield Observed(server, observer, registry)


def document(value: object) -> Document:
    return msgspec.to_builtins(value, enc_hook=str)  # type: ignore[no-any-return]


def pod(name: str = "trainer", **status: Any) -> Document:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]},
        "status": {"phase": "Pending", "conditions": [UNSCHEDULABLE], **status},
    }


def wait_for_two(server: FakeApiServer, name: str = "trainer") -> None:
    server.put(RESOURCE_CLAIMS, document(claim(request(count=2), name=f"{name}-gpu")))
    server.put(PODS, pod(name))


def hold(server: FakeApiServer, name: str = "gpu-0") -> None:
    server.put(RESOURCE_CLAIMS, document(allocated_claim(result(name), name="held")))


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    """A node with two devices, one of them held."""
    async with FakeApiServer() as api_server:
        api_server.put(NODES, document(node("node-1")))
        api_server.put(DEVICE_CLASSES, document(device_class()))
        api_server.put(RESOURCE_SLICES, document(slice_of(*devices("gpu-0", "gpu-1"))))
        hold(api_server)
        yield api_server


async def test_a_pod_gets_an_event_that_says_what_is_missing(server: FakeApiServer) -> None:
    async with observing(server) as observation:
        wait_for_two(server)
        await until(lambda: observation.counted("created"))
        # The event may be there before the look that recorded it has ended.
        blocked = 'drawbridge_observer_blocked_pods{reason="allocated"} 1.0'
        lines = [
            f'drawbridge_devices{{driver="{DRIVER}",state="{state}"}} 1.0'
            for state in ("allocated", "free")
        ]
        await until(lambda: all(line in observation.metrics for line in lines))
        await until(lambda: blocked in observation.metrics)

        (event,) = server.objects(EVENTS)

    assert "1 node: 1/2 devices in use; only 1 suitable device, 2 requested." in event["note"]
    assert "uid-trainer" == event["regarding"]["uid"]


async def test_the_event_of_a_translated_pod_names_what_to_write_into_its_keys(
    server: FakeApiServer,
) -> None:
    put_large_pod(server)
    async with observing(server) as observation:
        await until(lambda: observation.counted("created"))

        (note,) = observation.notes

    assert LARGE_FIT in note


class MetricsWithABug(ObserverMetrics):
    """Fails while the first pods are evaluated."""

    has_failed = False

    def observe_explanation(self, took_s: float) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("a bug")
        super().observe_explanation(took_s)


async def test_after_a_bug_everything_is_evaluated_again(server: FakeApiServer) -> None:
    async with observing(server, metrics=MetricsWithABug) as observation:
        wait_for_two(server)
        await until(lambda: observation.counted("created"))

    (event,) = server.objects(EVENTS)
    assert "1 node: 1/2 devices in use" in event["note"]


async def test_the_same_answer_is_one_event(server: FakeApiServer) -> None:
    async with observing(server) as observation:
        wait_for_two(server)
        await until(lambda: bool(observation.notes))
        for number in range(5):
            server.put(NODES, document(node("node-1", churn=str(number))))
            await asyncio.sleep(0.1)

        assert len(observation.notes) == 1


async def test_a_pod_that_comes_later_does_not_wait_for_all_of_another_namespace(
    server: FakeApiServer,
) -> None:
    """A namespace with hundreds of pods that all differ had others wait for hours for their events."""
    put_differing(server, "default", range(2, 12))
    clock = itertools.count(step=MAX_ROUND_S)
    async with observing(server, clock=lambda: float(next(clock))) as observation:
        await until(lambda: bool(observation.notes))
        put_differing(server, "other", [2])
        await until(lambda: len(observation.notes) == 11)

    namespaces = [
        call.body["metadata"]["namespace"]
        for call in server.calls
        if call.method == "POST" and call.path.endswith("/events")
    ]
    assert "other" in namespaces[:8]


async def test_a_round_that_prepares_for_long_still_explains_many_pods(
    server: FakeApiServer,
) -> None:
    """Reading thousands of pods took longer than a round may, so each round explained one of them."""
    put_differing(server, "default", range(2, 12))
    now, explained = [0.0], list[int]()

    class SlowPreparation(ObserverMetrics):
        def show_devices(self, counts: Mapping[tuple[str, DeviceState], int]) -> None:
            super().show_devices(counts)
            now[0] += 2 * MAX_ROUND_S

        def show(self, pending: int, blocked_counts: Mapping[str, int]) -> None:
            super().show(pending, blocked_counts)
            explained.append(max(blocked_counts.values(), default=0))

    async with observing(server, metrics=SlowPreparation, clock=lambda: now[0]):
        await until(lambda: any(explained))

    assert next(filter(None, explained)) == 10


def put_differing(server: FakeApiServer, namespace: str, counts: Iterable[int]) -> None:
    """Store pods with different numbers of devices, all of them too many."""
    for count in counts:
        name = f"needs-{count}"
        request_ = claim(request(count=count), name=f"{name}-gpu", namespace=namespace)
        server.put(RESOURCE_CLAIMS, document(request_))
        waiting = pod(name)
        waiting["metadata"]["namespace"] = namespace
        server.put(PODS, waiting)


async def test_a_restart_writes_no_event_again(server: FakeApiServer) -> None:
    wait_for_two(server)
    for outcome in ("created", "existing"):
        async with observing(server) as observation:
            await until(partial(observation.counted, outcome))

    assert len(server.objects(EVENTS)) == 1


async def test_another_answer_is_another_event(server: FakeApiServer) -> None:
    async with observing(server) as observation:
        wait_for_two(server)
        await until(lambda: bool(observation.notes))
        server.put(NODES, document(node("node-1")) | {"spec": {"unschedulable": True}})

        await until(lambda: len(observation.notes) == 2)

    assert any("node is unschedulable" in note for note in observation.notes)


async def test_equal_pods_are_explained_once(server: FakeApiServer) -> None:
    for number in range(20):
        name = f"replica-{number}"
        server.put(PODS, pod(name) | {"spec": {"resourceClaims": [_entry(name)]}})
        claim_ = claim(request(count=2), name=f"{name}-gpu")
        document_ = document(claim_)
        document_["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}
        ]
        server.put(RESOURCE_CLAIMS, document_)
    async with observing(server) as observation:
        await until(lambda: len(observation.notes) == 20)

    assert len(set(observation.notes)) == 1
    assert "drawbridge_observer_explanation_duration_seconds_count 1.0" in observation.metrics


def _entry(name: str) -> Document:
    return {"name": "gpu", "resourceClaimTemplateName": f"template-{name}"}


async def test_an_event_of_a_pod_that_still_waits_is_repeated(server: FakeApiServer) -> None:
    settings = msgspec.structs.replace(FAST, reminder_interval=PositiveDuration(0.05))
    async with observing(server, settings) as observation:
        wait_for_two(server)
        await until(lambda: "series" in str(server.objects(EVENTS)))
        server.remove(EVENTS, server.objects(EVENTS)[0]["metadata"]["name"], "default")
        await until(lambda: observation.counted("created", 2))

        assert len(observation.notes) == 1


async def test_a_kind_that_the_cluster_does_not_serve_delays_nothing(server: FakeApiServer) -> None:
    server.fail(404, times=1000, matches=lambda call: "devicetaintrules" in call.path)
    async with observing(server) as observation:
        wait_for_two(server)
        await until(lambda: bool(observation.notes))


async def test_a_pod_for_which_there_are_devices_gets_no_event(server: FakeApiServer) -> None:
    server.remove(RESOURCE_CLAIMS, "held", "default")
    async with observing(server) as observation:
        wait_for_two(server)
        await observation.settled()

    assert [] == observation.notes
    assert "drawbridge_observer_pending_pods 1.0" in observation.metrics


async def test_pods_of_the_bridge_are_left_to_the_bridge(server: FakeApiServer) -> None:
    """Its sidecar explains them itself; two pods that wait for the same would be evaluated together."""
    wait_for_two(server, "bridged")
    server.put(PODS, _of_the_bridge("bridged"))
    wait_for_two(server)
    async with observing(server) as observation:
        await until(lambda: observation.counted("created"))
        await until(lambda: "drawbridge_observer_pending_pods 1.0" in observation.metrics)

        (event,) = server.objects(EVENTS)

    assert "uid-trainer" == event["regarding"]["uid"]


async def test_pods_of_the_bridge_are_explained_where_the_settings_say_so(
    server: FakeApiServer,
) -> None:
    wait_for_two(server, "bridged")
    server.put(PODS, _of_the_bridge("bridged"))
    settings = msgspec.structs.replace(FAST, silent_for_schedulers=())
    async with observing(server, settings) as observation:
        await until(lambda: observation.counted("created"))

        (event,) = server.objects(EVENTS)

    assert "uid-bridged" == event["regarding"]["uid"]


def _of_the_bridge(name: str) -> Document:
    waiting = pod(name)
    waiting["spec"]["schedulerName"] = SCHEDULER_NAME
    return waiting


async def test_a_pod_with_devices_and_without_a_node_gets_no_event(server: FakeApiServer) -> None:
    """The scheduler writes the claim before it binds the pod."""
    async with observing(server) as observation:
        server.put(RESOURCE_CLAIMS, document(allocated_claim(result("gpu-1"), name="trainer-gpu")))
        server.put(PODS, pod())
        await observation.settled()

    assert [] == observation.notes


async def test_a_pod_that_the_scheduler_turns_away_during_a_pass_is_explained(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = msgspec.structs.replace(FAST, initial_delay=PositiveDuration(0.0001))
    trainer = ("default", "trainer")
    paused, goes_on = asyncio.Event(), asyncio.Event()
    async with observing(server, settings) as observation:
        history = observation.observer.history

        async def pause(_took_s: float, _fraction: float) -> None:
            if history.pod(trainer) is not None:
                paused.set()
                await goes_on.wait()

        monkeypatch.setattr(observation.observer, "_pause", pause)
        server.put(RESOURCE_CLAIMS, document(claim(request(count=2), name="trainer-gpu")))
        server.put(PODS, pod(conditions=[]))
        await until(paused.is_set)
        server.put(PODS, pod())
        await until(lambda: is_unschedulable(history.pod(trainer) or Pod()))
        goes_on.set()

        await until(lambda: bool(observation.notes))


async def test_a_pod_gets_no_event_about_another_of_its_name(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod of a StatefulSet may be created anew while the one before is explained."""
    async with observing(server) as observation:
        observer = observation.observer
        evaluate = observer._evaluate

        def evaluate_late(key: bytes, pods: Mapping[Any, Pod], changes: Any) -> Any:
            evaluation = evaluate(key, pods, changes)
            for name, old in pods.items():
                metadata = msgspec.structs.replace(old.metadata, uid="uid-of-another")
                another = msgspec.structs.replace(old, metadata=metadata, status=PodStatus())
                observer.history.replace(name, another, 0.0)
            return evaluation

        monkeypatch.setattr(observer, "_evaluate", evaluate_late)
        wait_for_two(server)
        await observation.settled()

    assert [] == observation.notes


async def test_a_pod_that_gets_a_node_is_forgotten(server: FakeApiServer) -> None:
    async with observing(server) as observation:
        wait_for_two(server)
        await until(lambda: bool(observation.notes))
        # A watch of pods without a node sends a deletion.
        server.remove(PODS, "trainer", "default")

        await until(lambda: len(observation.observer.history) == 0)


async def test_an_event_that_was_not_written_is_written_later(server: FakeApiServer) -> None:
    server.fail(403, matches=lambda call: call.method == "POST")
    async with observing(server) as observation:
        wait_for_two(server)
        await until(lambda: observation.counted("failed") and observation.counted("created"))


async def test_a_missing_claim_is_an_event_although_the_scheduler_says_nothing(
    server: FakeApiServer,
) -> None:
    async with observing(server) as observation:
        server.put(PODS, pod(conditions=[]))
        await until(lambda: bool(observation.notes))

    assert ["ResourceClaim default/trainer-gpu not found."] == observation.notes


@pytest.mark.parametrize("scheduler", ["default-scheduler", "aware"])
async def test_a_policy_is_a_reason_for_pods_of_schedulers_that_evaluate_policies(
    server: FakeApiServer, scheduler: str
) -> None:
    apart = policy(rule("alone", only="false"), scope="Pool")
    server.put(DEVICE_COMPATIBILITY_POLICIES, document(apart))
    server.put(RESOURCE_CLAIMS, document(claim(request(), name="trainer-gpu")))
    settings = msgspec.structs.replace(FAST, policy_aware_schedulers=("aware",))
    is_aware = scheduler == "aware"
    async with observing(server, settings) as observation:
        waiting = pod()
        waiting["spec"]["schedulerName"] = scheduler
        server.put(PODS, waiting)
        if is_aware:
            await until(lambda: bool(observation.notes))
        else:
            await observation.settled()

        assert is_aware is bool(observation.notes)


# --- devices that are offered twice ---------------------------------------------------------------


def with_plugin(number: str) -> Document:
    """The node, with a device plugin that offers the devices of its slices as well."""
    document_: Any = document(node())
    document_["status"] = {"allocatable": {"cpu": "8", "example.com/gpu": number}}
    return document_  # type: ignore[no-any-return]


def mapped_class() -> Document:
    document_: Any = document(device_class())
    document_["spec"]["extendedResourceName"] = "example.com/gpu"
    return document_  # type: ignore[no-any-return]


async def test_a_node_that_offers_a_resource_twice_gets_one_event(server: FakeApiServer) -> None:
    server.put(NODES, with_plugin("2"))

    async with observing(server) as observation:
        await observation.settled()
        assert [] == observation.notes

        server.put(DEVICE_CLASSES, mapped_class())
        await until(lambda: len(observation.notes) == 1)
        server.put(NODES, with_plugin("1"))
        await observation.settled()

    (event,) = server.objects(EVENTS)
    assert ("Node", "DuplicateResource") == (event["regarding"]["kind"], event["reason"])
    assert event["note"].startswith("example.com/gpu is offered twice: 2 by a device plugin, and 2")
    assert "through DeviceClass gpu" in event["note"]


# --- shared devices -------------------------------------------------------------------------------


def sliced(name: str, interval: str, namespace: str = "default") -> Document:
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}
    claim_ = allocated_claim(
        result(driver=NVIDIA, share=f"share-of-{name}"),
        name=name,
        namespace=namespace,
        config=[
            applied_configuration(
                driver=NVIDIA,
                apiVersion="resource.nvidia.com/v1beta1",
                kind="GpuConfig",
                sharing=sharing,
            )
        ],
    )
    return document(claim_)


async def test_contradicting_configurations_of_one_device_are_reported_once_per_claim(
    server: FakeApiServer,
) -> None:
    server.put(RESOURCE_CLAIMS, sliced("short", "Short"))
    server.put(RESOURCE_CLAIMS, sliced("agreeing", "Short", "team-b"))

    async with observing(server) as observation:
        await observation.settled()
        assert [] == observation.notes

        server.put(RESOURCE_CLAIMS, sliced("long", "Long"))
        await until(lambda: len(observation.notes) == 3)
        server.put(NODES, document(node("another")))
        await observation.settled()

    assert 3 == len(observation.notes)
    assert (
        "Device gpu-0 of pool node-1 is shared with claim long, a claim in another namespace under "
        "contradicting GpuConfigs. Driver gpu.nvidia.com rejects a pod whose configuration differs "
        "from the first that it prepared."
    ) in observation.notes


async def test_the_pods_of_a_claim_get_its_event_too(server: FakeApiServer) -> None:
    short = sliced("short", "Short")
    short["status"]["reservedFor"] = [{"resource": "pods", "name": "trainer", "uid": "u-1"}]
    server.put(RESOURCE_CLAIMS, short)
    server.put(RESOURCE_CLAIMS, sliced("long", "Long"))

    async with observing(server) as observation:
        await until(lambda: len(observation.notes) == 3)

    regarding = [event["regarding"] for event in server.objects(EVENTS)]
    assert {("ResourceClaim", "short"), ("ResourceClaim", "long"), ("Pod", "trainer")} == {
        (reference["kind"], reference["name"]) for reference in regarding
    }


async def test_configurations_are_not_compared_for_drivers_that_accept_them(
    server: FakeApiServer,
) -> None:
    server.put(RESOURCE_CLAIMS, sliced("short", "Short"))
    server.put(RESOURCE_CLAIMS, sliced("long", "Long"))

    settings = msgspec.structs.replace(FAST, uniform_config_drivers=())
    async with observing(server, settings) as observation:
        await observation.settled()

    assert [] == observation.notes
