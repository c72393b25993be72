"""The controller of mode Shadow against an API server: one event per workload, with any stored objects."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from clusterstate.snapshot_cache import SnapshotCache
from controllers.model.settings import ControllerSettings
from controllers.shadow.controller import ShadowController
from kube.api.urls import EVENTS, NAMESPACES, PODS, WORKLOADS
from process.model.durations import PositiveDuration
from testing.builders import gpus, pod, profiles
from testing.builders import workload as make_workload
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, quick_recorder, running, until
from translation.cluster.snapshot import ClaimUnawareComponent, Mode, TranslationOptions
from translation.reading.arbiter import VOCABULARIES

FAST: Final = ControllerSettings(audit_period=PositiveDuration(0.02))
DEPLOYMENTS: Final = next(resource for resource in WORKLOADS if resource.plural == "deployments")
NAMESPACE: Final = "team"


def workload(name: str, template: Document) -> Document:
    return make_workload(template, name=name, namespace=NAMESPACE, uid=f"u-{name}")


@asynccontextmanager
async def shadowing(server: FakeApiServer) -> AsyncIterator[None]:
    async with server.client() as client:
        informers, recorder = quick_informers(client), quick_recorder(client)
        snapshots = SnapshotCache(
            informers, profiles(), claim_aware=frozenset(ClaimUnawareComponent)
        )
        shadow = ShadowController(
            client,
            recorder,
            snapshots,
            FAST,
            options=TranslationOptions(mode=Mode.SHADOW),
            vocabularies=lambda: VOCABULARIES,
        )
        (controller,) = shadow.controllers
        async with running(informers.run, recorder.run, controller.run):
            yield


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server_:
        server_.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        server_.put(DEPLOYMENTS, workload("good", pod(gpus(1))))
        yield server_


def reasons(server: FakeApiServer) -> dict[str, str]:
    events: list[Any] = server.objects(EVENTS)
    return {event["regarding"]["name"]: event["reason"] for event in events}


async def test_each_workload_has_one_event(server: FakeApiServer) -> None:
    server.put(DEPLOYMENTS, workload("bad", pod(gpus("500m"))))
    server.put(PODS, pod(gpus(1)))

    async with shadowing(server):
        await until(lambda: len(server.objects(EVENTS)) == 3)
        # What comes later is evaluated with everything else, which is not told again.
        server.put(DEPLOYMENTS, workload("late", pod(gpus(1))))
        await until(lambda: "late" in reasons(server))

    assert len(server.objects(EVENTS)) == 4
    assert reasons(server) == {
        "good": "WouldBeTranslated",
        "bad": "WouldBeRejected",
        "train": "WouldBeTranslated",
        "late": "WouldBeTranslated",
    }


async def test_an_object_that_nobody_can_read_costs_the_others_nothing(
    server: FakeApiServer,
) -> None:
    odd: Any = workload("odd", pod({"name": "a", "resources": {"limits": {"nvidia.com/gpu": []}}}))
    server.put(DEPLOYMENTS, odd)

    async with shadowing(server):
        await until(lambda: "good" in reasons(server))

    assert set(reasons(server)) == {"good"}
