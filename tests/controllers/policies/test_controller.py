"""The controller of policies against an API server: soon, once, and not for every event."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest

from clusterstate.projections import project_claim
from controllers.model.settings import ControllerSettings
from controllers.policies.controller import PolicyController, pools_of_claim
from kube.api.urls import (
    DEVICE_COMPATIBILITY_POLICIES,
    EVENTS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from process.model.durations import PositiveDuration
from testing.allocation.builders import allocated_claim, result, slice_of
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, quick_recorder, running, until
from testing.policy_status import APART, SETS, gpu

FAST: Final = ControllerSettings(
    policy_sync_period=PositiveDuration(0.02),
    policy_counts_period=PositiveDuration(0.05),
    initial_backoff=PositiveDuration(0.02),
    max_backoff=PositiveDuration(0.05),
)
SLOW_COUNTS: Final = msgspec.structs.replace(FAST, policy_counts_period=PositiveDuration(600.0))


@asynccontextmanager
async def controlled(
    server: FakeApiServer, settings: ControllerSettings = FAST
) -> AsyncIterator[PolicyController]:
    async with server.client() as client:
        informers, recorder = quick_informers(client), quick_recorder(client)
        controller = PolicyController(
            client,
            informers,
            recorder,
            settings,
            now=lambda: datetime(2026, 11, 20, tzinfo=UTC),
        )
        async with running(
            informers.run, recorder.run, *(entry.run for entry in controller.controllers)
        ):
            await until(lambda: server.watching == 4)
            yield controller


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api_server:
        yield api_server


def document(value: object) -> Document:
    return msgspec.to_builtins(value, enc_hook=str)  # type: ignore[no-any-return]


def policy(name: str = "modes", *, day: int = 1, generation: int = 1, **spec: Any) -> Document:
    document_ = document(APART)
    created = f"2026-11-{day:02d}T00:00:00Z"
    metadata = {"name": name, "generation": generation, "creationTimestamp": created}
    return {"metadata": metadata, "spec": {**document_["spec"], **spec}}


def node(name: str = "node-1", **changed: Any) -> Document:
    devices = (gpu("g0-a", "mig"), gpu("g0-b", "mps"), gpu("g1-a", "mig"))
    document_ = document(slice_of(*devices, pool=name, count=2))
    document_["spec"] |= changed
    return document_


def counters(name: str = "node-1") -> Document:
    return document(slice_of(counters=SETS, pool=name, name=f"{name}-counters", count=2))


def publish(server: FakeApiServer, *names: str) -> None:
    for name in names:
        server.put(RESOURCE_SLICES, counters(name))
        server.put(RESOURCE_SLICES, node(name))


def allocated_document(name: str, device: str, namespace: str = "default") -> Document:
    return document(allocated_claim(result(device), name=name, namespace=namespace))


def conditions(server: FakeApiServer, name: str = "modes") -> dict[str, str]:
    stored_object = server.find(DEVICE_COMPATIBILITY_POLICIES, name) or {}
    value = (stored_object.get("status") or {}).get("conditions", ())
    return {
        condition["type"]: f"{condition['status']} {condition['reason']}" for condition in value
    }


def summary(server: FakeApiServer) -> str:
    stored_object = server.find(DEVICE_COMPATIBILITY_POLICIES, "modes") or {}
    return str((stored_object.get("status") or {}).get("summary", ""))


def writes(server: FakeApiServer) -> int:
    return server.counts["PATCH"]


def reasons(server: FakeApiServer) -> list[str]:
    return sorted(
        f"{object_['reason']} {object_['regarding']['name']}" for object_ in server.objects(EVENTS)
    )


async def settled() -> None:
    """Give loops the time for actions that they should not take."""
    await asyncio.sleep(0.2)


VALID: Final = {
    "Valid": "True Valid",
    "Symmetric": "True Symmetric",
    "Accepted": "True Accepted",
    "Enforced": "False NoPolicyAwareScheduler",
}
TWO_KINDS: Final = "2 kinds, 2 of 4 pairs compatible"


async def test_what_is_published_after_a_policy_is_in_its_status(server: FakeApiServer) -> None:
    async with controlled(server):
        server.put(DEVICE_COMPATIBILITY_POLICIES, policy())
        await until(lambda: conditions(server).get("Symmetric") == "Unknown NoDevices")
        publish(server, "node-1")

        await until(lambda: conditions(server) == VALID and summary(server) == TWO_KINDS)


async def test_a_policy_that_comes_after_devices_is_evaluated_at_once(
    server: FakeApiServer,
) -> None:
    publish(server, "node-1", "node-2")
    async with controlled(
        server, msgspec.structs.replace(FAST, policy_sync_period=PositiveDuration(600.0))
    ):
        await settled()
        server.put(DEVICE_COMPATIBILITY_POLICIES, policy())

        await until(lambda: conditions(server) == VALID)


async def test_a_status_that_is_already_there_is_not_written(server: FakeApiServer) -> None:
    publish(server, "node-1")
    server.put(DEVICE_COMPATIBILITY_POLICIES, policy())
    async with controlled(server):
        await until(lambda: conditions(server) == VALID)
    first = writes(server)

    async with controlled(server):
        await settled()
        server.put(RESOURCE_SLICES, node(pool={"name": "node-1", "generation": 2,
                                               "resourceSliceCount": 1}))  # fmt: skip
        server.put(RESOURCE_SLICES, node())
        await settled()

    assert 1 == first == writes(server)


async def test_a_crowd_of_slices_is_looked_at_together(server: FakeApiServer) -> None:
    server.put(DEVICE_COMPATIBILITY_POLICIES, policy())
    settings = msgspec.structs.replace(SLOW_COUNTS, policy_sync_period=PositiveDuration(0.1))
    async with controlled(server, settings) as controller:
        await until(lambda: writes(server) == 1)
        for generation in range(100):
            publish(server, *(f"node-{number}" for number in range(3)))
            server.put(RESOURCE_SLICES, node("node-0", allNodes=generation % 2 == 0))
        await until(lambda: conditions(server) == VALID)
        await settled()

    assert writes(server) <= 3
    assert controller.inspected < 30


async def test_numbers_alone_wait(server: FakeApiServer) -> None:
    publish(server, "node-1")
    server.put(DEVICE_COMPATIBILITY_POLICIES, policy())
    async with controlled(server, SLOW_COUNTS):
        await until(lambda: conditions(server) == VALID)
        publish(server, "node-2")
        await settled()

        assert 1 == writes(server)

    async with controlled(server, FAST):
        await until(lambda: writes(server) == 2)


async def test_slices_of_other_drivers_cost_nothing(server: FakeApiServer) -> None:
    server.put(DEVICE_COMPATIBILITY_POLICIES, policy())
    async with controlled(server) as controller:
        server.put(RESOURCE_SLICES, node(driver="other.example.com"))
        await settled()

    assert 0 == controller.inspected


async def test_a_new_text_is_evaluated_anew(server: FakeApiServer) -> None:
    publish(server, "node-1")
    server.put(DEVICE_COMPATIBILITY_POLICIES, policy())
    async with controlled(server):
        await until(lambda: conditions(server) == VALID)
        status = (server.find(DEVICE_COMPATIBILITY_POLICIES, "modes") or {})["status"]
        rules = [{"name": "a", "compatibleOnlyWith": {"cel": {"expression": "device."}}}]
        broken = policy(generation=2, rules=rules)
        server.put(DEVICE_COMPATIBILITY_POLICIES, {**broken, "status": status})

        await until(lambda: conditions(server).get("Valid") == "False RuleInvalid")
        await until(lambda: "PolicyInvalid modes" in reasons(server))


async def test_the_oldest_of_a_driver_counts_until_it_goes(server: FakeApiServer) -> None:
    publish(server, "node-1")
    server.put(DEVICE_COMPATIBILITY_POLICIES, policy("young", day=2))
    async with controlled(server):
        await until(lambda: conditions(server, "young").get("Accepted") == "True Accepted")
        server.put(DEVICE_COMPATIBILITY_POLICIES, policy("old", day=1))
        await until(
            lambda: conditions(server, "young").get("Accepted") == "False DuplicatePolicyForDriver"
        )
        await until(lambda: conditions(server, "old").get("Accepted") == "True Accepted")
        server.remove(DEVICE_COMPATIBILITY_POLICIES, "old")

        await until(lambda: conditions(server, "young").get("Accepted") == "True Accepted")


async def test_claims_and_pods_that_violate_a_policy_are_counted_and_get_one_event_each(
    server: FakeApiServer,
) -> None:
    publish(server, "node-1")
    server.put(DEVICE_COMPATIBILITY_POLICIES, policy(enforcement="Audit"))
    async with controlled(server):
        server.put(RESOURCE_CLAIMS, allocated_document("one", "g0-a"))
        server.put(RESOURCE_CLAIMS, allocated_document("two", "g0-b", "other"))
        await until(lambda: len(reasons(server)) == 2)

        status = (server.find(DEVICE_COMPATIBILITY_POLICIES, "modes") or {})["status"]
        assert (1, 2, 2) == tuple(
            status["conflicts"][key] for key in ("count", "claims", "namespaces")
        )
        assert ["DeviceIncompatible one", "DeviceIncompatible two"] == reasons(server)
        claim = allocated_document("one", "g0-a")
        claim["status"]["reservedFor"] = [{"resource": "pods", "name": "trainer", "uid": "u-1"}]
        server.put(RESOURCE_CLAIMS, claim)
        await until(lambda: "DeviceIncompatible trainer" in reasons(server))
        server.remove(RESOURCE_CLAIMS, "two", "other")
        await until(
            lambda: (
                "conflicts"
                not in (server.find(DEVICE_COMPATIBILITY_POLICIES, "modes") or {})["status"]
            )
        )

    async with controlled(server):
        await settled()

    assert 3 == len(reasons(server))


async def test_what_the_server_refuses_is_tried_again(server: FakeApiServer) -> None:
    server.fail(500, times=2, matches=lambda call: call.method == "PATCH")
    server.put(DEVICE_COMPATIBILITY_POLICIES, policy())
    async with controlled(server):
        await until(lambda: bool(conditions(server)))

    assert 3 == writes(server)


async def test_a_status_that_somebody_overwrites_comes_back(server: FakeApiServer) -> None:
    publish(server, "node-1")
    server.put(DEVICE_COMPATIBILITY_POLICIES, policy())
    async with controlled(server):
        await until(lambda: conditions(server) == VALID)
        server.put(DEVICE_COMPATIBILITY_POLICIES, {**policy(), "status": {"summary": "fine"}})

        await until(lambda: conditions(server) == VALID and summary(server) == TWO_KINDS)


async def test_a_slice_that_nobody_can_read_costs_its_pool_only(server: FakeApiServer) -> None:
    publish(server, "node-1", "node-2")
    server.put(RESOURCE_SLICES, node("node-2", devices="none"))
    server.put(RESOURCE_SLICES, node("node-3", devices="none"))
    server.put(DEVICE_COMPATIBILITY_POLICIES, policy())
    async with controlled(server):
        await until(lambda: conditions(server) == VALID and summary(server) == TWO_KINDS)


async def test_a_pool_that_goes_is_forgotten(server: FakeApiServer) -> None:
    publish(server, "node-1")
    server.put(DEVICE_COMPATIBILITY_POLICIES, policy())
    async with controlled(server):
        await until(lambda: conditions(server) == VALID)
        for object_ in server.objects(RESOURCE_SLICES):
            server.remove(RESOURCE_SLICES, object_["metadata"]["name"])

        await until(lambda: conditions(server)["Symmetric"] == "Unknown NoDevices")


# --- pools ----------------------------------------------------------------------------------------


def test_a_claim_is_about_the_pools_of_its_devices() -> None:
    claims = (
        allocated_document("one", "g0-a"),
        {"metadata": {"name": "a"}, "status": {"allocation": {}}},
    )
    projected = [project_claim(msgspec.json.encode(claim)) for claim in claims]

    assert [["node-1"], []] == [
        [pool.pool for pool in pools_of_claim(entry)] for entry in projected
    ]


async def test_a_claim_that_changes_nothing_in_use_is_not_looked_at(server: FakeApiServer) -> None:
    publish(server, "node-1")
    server.put(DEVICE_COMPATIBILITY_POLICIES, policy())
    server.put(RESOURCE_CLAIMS, allocated_document("one", "g0-a"))
    async with controlled(server) as controller:
        await until(lambda: conditions(server) == VALID)
        before = controller.inspected
        claim_ = allocated_document("one", "g0-a")
        claim_["status"]["devices"] = [{"driver": "d", "pool": "p", "device": "x"}]
        claim_["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "u"}]
        server.put(RESOURCE_CLAIMS, claim_)
        await settled()

    assert before == controller.inspected
