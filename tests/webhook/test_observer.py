"""The observer against an API server: soon, once, quietly, and no matter what fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kube.informer import InformerSettings
from tests.allocator.builders import (
    allocated,
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
from tests.builders import Document
from tests.fake_api_server import FakeApiServer, running, until
from webhook.metrics import ObserverMetrics
from webhook.observer import Observer
from webhook.resources import (
    DEVICE_CLASSES,
    DEVICE_COMPATIBILITY_POLICIES,
    EVENTS,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from webhook.settings import ObserveSettings

FAST: Final = ObserveSettings(
    settle_seconds=0.01,
    look_again_seconds=0.01,
    tell_again_seconds=0.01,
    tell_again_most_seconds=0.01,
    core_share=0.99,
    first_core_share=0.99,
    events_per_second=1000,
)
UNSCHEDULABLE: Final = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


class Observed:
    """An observer, the server that it follows, and what it counted."""

    def __init__(
        self, server: FakeApiServer, observer: Observer, registry: CollectorRegistry
    ) -> None:
        self.server = server
        self.observer = observer
        self._registry = registry

    @property
    def notes(self) -> list[str]:
        return [each["note"] for each in self.server.objects(EVENTS)]

    @property
    def metrics(self) -> str:
        return generate_latest(self._registry).decode()

    def counted(self, outcome: str, times: int = 1) -> bool:
        """Whether so many answers had an outcome."""
        line = f'drawbridge_observer_events_total{{result="{outcome}"}} {float(times)}'
        return line in self.metrics

    async def settled(self) -> None:
        """Wait long enough for several looks."""
        await asyncio.sleep(0.5)


@asynccontextmanager
async def observing(
    server: FakeApiServer, settings: ObserveSettings = FAST
) -> AsyncIterator[Observed]:
    registry = CollectorRegistry()
    async with server.client() as client:
        observer = Observer(
            client,
            settings,
            ObserverMetrics(registry),
            identity="test",
            now=lambda: datetime(2026, 11, 20, tzinfo=UTC),
            informer_settings=InformerSettings(backoff_s=0.01),
        )
        async with running(observer.run):
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
    server.put(RESOURCE_CLAIMS, document(allocated(result(name), name="held")))


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    """A node with two devices, of which one is held."""
    async with FakeApiServer() as made:
        made.put(NODES, document(node("node-1")))
        made.put(DEVICE_CLASSES, document(device_class()))
        made.put(RESOURCE_SLICES, document(slice_of(*devices("gpu-0", "gpu-1"))))
        hold(made)
        yield made


async def test_a_pod_is_told_what_is_missing(server: FakeApiServer) -> None:
    async with observing(server) as observed:
        wait_for_two(server)
        await until(lambda: bool(observed.notes))

        (event,) = server.objects(EVENTS)

    assert event["note"].startswith("1 node: 1 of 2 devices: taken; 1 would do, 2 are needed.")
    assert "uid-trainer" == event["regarding"]["uid"]
    assert observed.counted("sent")
    assert 'drawbridge_observer_pods{reason="taken"} 1.0' in observed.metrics


async def test_the_same_is_told_once(server: FakeApiServer) -> None:
    async with observing(server) as observed:
        wait_for_two(server)
        await until(lambda: bool(observed.notes))
        for number in range(5):
            server.put(NODES, document(node("node-1", churn=str(number))))
            await asyncio.sleep(0.1)

        assert len(observed.notes) == 1


async def test_a_restart_tells_nothing_again(server: FakeApiServer) -> None:
    wait_for_two(server)
    for outcome in ("sent", "suppressed"):
        async with observing(server) as observed:
            await until(partial(observed.counted, outcome))

    assert len(server.objects(EVENTS)) == 1


async def test_a_change_is_told(server: FakeApiServer) -> None:
    async with observing(server) as observed:
        wait_for_two(server)
        await until(lambda: bool(observed.notes))
        server.put(NODES, document(node("node-1")) | {"spec": {"unschedulable": True}})

        await until(lambda: len(observed.notes) == 2)

    assert any("the node is unschedulable" in note for note in observed.notes)


async def test_equal_pods_are_explained_once(server: FakeApiServer) -> None:
    for number in range(20):
        name = f"replica-{number}"
        server.put(PODS, pod(name) | {"spec": {"resourceClaims": [_entry(name)]}})
        made = claim(request(count=2), name=f"{name}-gpu")
        owned = document(made)
        owned["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}
        ]
        server.put(RESOURCE_CLAIMS, owned)
    async with observing(server) as observed:
        await until(lambda: len(observed.notes) == 20)

    assert len(set(observed.notes)) == 1
    assert "drawbridge_observer_explanation_seconds_count 1.0" in observed.metrics


def _entry(name: str) -> Document:
    return {"name": "gpu", "resourceClaimTemplateName": f"template-{name}"}


async def test_who_waits_on_is_reminded_in_the_same_event(server: FakeApiServer) -> None:
    settings = msgspec.structs.replace(FAST, remind_seconds=0.05)
    async with observing(server, settings) as observed:
        wait_for_two(server)
        await until(lambda: "series" in str(server.objects(EVENTS)))
        server.remove(EVENTS, server.objects(EVENTS)[0]["metadata"]["name"], "default")
        await until(lambda: observed.counted("sent", 2))

        assert len(observed.notes) == 1


async def test_a_kind_that_the_cluster_lacks_keeps_nobody_waiting(server: FakeApiServer) -> None:
    server.fail(404, times=1000, matches=lambda call: "devicetaintrules" in call.path)
    async with observing(server) as observed:
        wait_for_two(server)
        await until(lambda: bool(observed.notes))


async def test_who_has_a_place_is_told_nothing(server: FakeApiServer) -> None:
    server.remove(RESOURCE_CLAIMS, "held", "default")
    async with observing(server) as observed:
        wait_for_two(server)
        await observed.settled()

    assert [] == observed.notes
    assert "drawbridge_observer_pods_waiting 1.0" in observed.metrics


async def test_who_has_devices_and_no_node_yet_is_told_nothing(server: FakeApiServer) -> None:
    """Not even that they are taken: the scheduler writes the claim before it binds the pod."""
    async with observing(server) as observed:
        server.put(RESOURCE_CLAIMS, document(allocated(result("gpu-1"), name="trainer-gpu")))
        server.put(PODS, pod())
        await observed.settled()

    assert [] == observed.notes


async def test_who_gets_a_node_is_looked_at_no_more(server: FakeApiServer) -> None:
    async with observing(server) as observed:
        wait_for_two(server)
        await until(lambda: bool(observed.notes))
        # That is what a watch of pods without a node is sent.
        server.remove(PODS, "trainer", "default")

        await until(lambda: len(observed.observer.ledger) == 0)


async def test_what_could_not_be_told_is_told_later(server: FakeApiServer) -> None:
    server.fail(500, times=2, matches=lambda call: call.method == "POST")
    async with observing(server) as observed:
        wait_for_two(server)
        await until(lambda: bool(observed.notes))

        assert observed.counted("failed", 2)


async def test_a_missing_claim_is_told_although_the_scheduler_says_nothing(
    server: FakeApiServer,
) -> None:
    async with observing(server) as observed:
        server.put(PODS, pod(conditions=[]))
        await until(lambda: bool(observed.notes))

    assert ["there is no claim default/trainer-gpu"] == observed.notes


@pytest.mark.parametrize("is_enforced", [False, True])
async def test_policies_count_where_a_scheduler_keeps_them(
    server: FakeApiServer, is_enforced: bool
) -> None:
    apart = policy(rule("alone", only="false"), scope="Pool")
    server.put(DEVICE_COMPATIBILITY_POLICIES, document(apart))
    server.put(RESOURCE_CLAIMS, document(claim(request(), name="trainer-gpu")))
    settings = msgspec.structs.replace(FAST, policies_enforced=is_enforced)
    async with observing(server, settings) as observed:
        server.put(PODS, pod())
        if is_enforced:
            await until(lambda: bool(observed.notes))
        else:
            await observed.settled()

        assert is_enforced is bool(observed.notes)
