"""Rounds of the removal of gates: a tenant with many pods that wait delays no other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

import msgspec

from admission.quota_gates import gate_documents
from allocator.model.feature_gates import Features
from controllers.model.settings import ControllerSettings
from controllers.quotas.driver_owners import DriverOwners
from controllers.quotas.feed import QuotaFeed
from controllers.quotas.gates import RESOURCES, QuotaGateController
from kube.api.urls import (
    DEVICE_CLASSES,
    DEVICE_QUOTAS,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from kube.names import NAMESPACE, QUOTA_GATE
from process.model.durations import PositiveDuration
from quotas.gates.admission_order import unknown_accounts
from quotas.gates.tenants import waiting_by_tenant
from testing.allocation.builders import claim, classes, device, request, slice_of
from testing.counting import counted_calls
from testing.device_quotas import device_limit, quota
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, quick_recorder, running, until

FAST: Final = ControllerSettings(
    quota_gate_timeout=PositiveDuration(0.05),
    quota_gate_check_period=PositiveDuration(0.05),
    initial_backoff=PositiveDuration(0.02),
    max_backoff=PositiveDuration(0.05),
)
ROUND_S: Final = 100.0
"""The time that each decision about the slow tenant takes, by the clock of the controller."""


@asynccontextmanager
async def controlled(server: FakeApiServer) -> AsyncIterator[None]:
    """Run a controller with slow decisions about namespace `slow`, by its clock."""
    async with server.client() as client:
        informers, recorder = quick_informers(client), quick_recorder(client)
        feed = QuotaFeed(informers, Features(), backoff=FAST.backoff())

        def clock() -> float:
            pods = feed.usage.pods.items()
            return ROUND_S * sum(
                not feed.usage.waits(pod) for (namespace, _), pod in pods if namespace == "slow"
            )

        controller = QuotaGateController(
            client,
            feed,
            recorder,
            FAST,
            namespace=NAMESPACE,
            identity="leader-1",
            owners=DriverOwners(informers),
            now=lambda: datetime(2026, 11, 24, 13, 1, tzinfo=UTC),
            clock=clock,
        )
        loops: list[Callable[[], Awaitable[None]]] = [
            entry.run for entry in (*feed.controllers, *controller.controllers)
        ]
        async with running(informers.run, recorder.run, *loops):
            yield


def document(value: object) -> Document:
    return msgspec.to_builtins(value, enc_hook=str)  # type: ignore[no-any-return]


def put_pod(server: FakeApiServer, namespace: str, name: str) -> None:
    server.put(RESOURCE_CLAIMS, document(claim(request(), name=name, namespace=namespace)))
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"}
    metadata["creationTimestamp"] = "2026-11-24T13:00:00Z"
    spec = {
        "schedulingGates": [{"name": QUOTA_GATE}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }
    server.put(PODS, {"metadata": metadata, "spec": spec})


def is_free(server: FakeApiServer, namespace: str, name: str) -> bool:
    stored = server.find(PODS, name, namespace) or {}
    return not stored["spec"]["schedulingGates"]


def put_tenants(server: FakeApiServer, *namespaces: str) -> None:
    """Put namespaces, each with a quota of its own and a pod that waits."""
    for namespace in namespaces:
        server.put(NAMESPACES, {"metadata": {"name": namespace, "labels": {"t": namespace}}})
        of_tenant = quota(device_limit(4), name=namespace, labels={"t": namespace})
        server.put(DEVICE_QUOTAS, document(of_tenant))
    for device_class in classes().values():
        server.put(DEVICE_CLASSES, document(device_class))
    server.put(RESOURCE_SLICES, document(slice_of(*map(device, "abcdefgh"))))
    for policy in gate_documents():
        server.put(RESOURCES[policy["kind"]], policy)
    for namespace in namespaces:
        put_pod(server, namespace, "first")


async def test_a_tenant_whose_round_takes_long_rests_alone() -> None:
    async with FakeApiServer() as server:
        put_tenants(server, "quick", "slow")

        async with controlled(server):
            await until(
                lambda: is_free(server, "quick", "first") and is_free(server, "slow", "first")
            )
            put_pod(server, "slow", "second")
            put_pod(server, "quick", "second")
            await until(lambda: is_free(server, "quick", "second"), timeout_s=10)
            await asyncio.sleep(0.1)

            assert not is_free(server, "slow", "second")


async def test_a_round_looks_at_outstanding_claims_once_for_all_tenants() -> None:
    """With many tenants, and many claims with selectors to evaluate, it looked at each claim for each tenant."""
    tenants = [f"team-{number}" for number in range(8)]
    async with FakeApiServer() as server:
        put_tenants(server, *tenants)
        with counted_calls() as calls:
            async with controlled(server):
                await until(lambda: all(is_free(server, name, "first") for name in tenants))

    assert 0 < calls[unknown_accounts.__code__] <= calls[waiting_by_tenant.__code__]
