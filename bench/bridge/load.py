"""Creates pods, and measures the time of a scheduler for all of them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final

import msgspec

from bench.bridge.scenarios import NOWHERE_EVERY, Object, Scenario
from e2e.objects import pod
from kube.api.core import Pod
from kube.api.meta import ObjectMeta, decode
from kube.api.urls import (
    PODS,
    RESOURCE_CLAIMS,
    Resource,
)
from kube.client.client import Client, PatchType
from kube.errors import AlreadyExists, KubeError, NotFound
from testing.documents import api_object

IN_FLIGHT: Final = 16
"""Requests of the load, at once."""
NAMESPACE: Final = "default"
NOWHERE_TEMPLATE: Final = "nowhere"
PAUSE_S: Final = 0.25
_PATIENCE_S: Final = 180.0


class Outcome:
    """The times of pods' binding or rejection, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.bound: dict[str, float] = {}
        self.turned_away: set[str] = set()
        self._changed = asyncio.Event()

    def observe(self, observed: Pod, now: float) -> None:
        """Take a pod as the API has it."""
        name = observed.metadata.name
        if observed.spec.node_name:
            self.bound.setdefault(name, now)
        elif _is_turned_away(observed):
            self.turned_away.add(name)
        self._changed.set()

    async def wait(self, condition: Callable[["Outcome"], bool]) -> None:
        """Wait until a condition is met."""
        while not condition(self):
            self._changed.clear()
            await self._changed.wait()


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


def pods_of(scenario: Scenario, count: int, scheduler: str, prefix: str) -> list[Object]:
    """Return pods for a scheduler, made from templates in turn.

    Args:
        prefix: The prefix of their names. A name that a pod had before is not used again: kwok deletes by name, and
            may do so when the pod has long been gone.
    """
    templates = list(scenario.requests)
    documents = []
    for number in range(count):
        if not templates:
            name = f"{prefix}-{number:05d}"
            documents.append(pod(name, requests=scenario.amounts, schedulerName=scheduler))
            continue
        template = templates[number % len(templates)]
        if scenario.has_nowhere and number % NOWHERE_EVERY == 0:
            template = NOWHERE_TEMPLATE
        documents.append(
            pod(f"{prefix}-{number:05d}", claims={"devices": template}, schedulerName=scheduler)
        )
    return documents


class UnfinishedError(TimeoutError):
    """Not all pods were bound or turned away in time; `decided` is the number of those that were."""

    def __init__(self, decided: int, count: int) -> None:
        """Tell the number of pods that were decided."""
        super().__init__(f"{decided} of {count} pods are bound or turned away")
        self.decided = decided


async def schedule(client: Client, pods: Sequence[Object], *, timeout_s: float) -> float:
    """Create pods and return the seconds until each was bound, or turned away if it fits nowhere.

    Raises:
        UnfinishedError: The scheduler took longer.
    """
    nowhere = {
        document["metadata"]["name"]
        for document in pods
        for entry in document["spec"].get("resourceClaims", ())
        if entry["resourceClaimTemplateName"] == NOWHERE_TEMPLATE
    }
    count = len(pods) - len(nowhere)
    async with following(client) as outcome:
        began = time.perf_counter()
        await in_parallel(
            lambda document: client.create(PODS, document, msgspec.Raw, namespace=NAMESPACE), pods
        )
        try:
            async with asyncio.timeout(timeout_s):
                await outcome.wait(
                    lambda outcome: len(outcome.bound) >= count and nowhere <= outcome.turned_away
                )
        except TimeoutError as error:
            decided = len(outcome.bound) + len(nowhere & outcome.turned_away)
            raise UnfinishedError(decided, len(pods)) from error
        return time.perf_counter() - began


@asynccontextmanager
async def following(client: Client) -> AsyncIterator[Outcome]:
    """Follow the pods while the block runs."""
    outcome = Outcome()
    synced = asyncio.Event()

    async def follow() -> None:
        while True:  # The API server ends watches that it cannot serve in time, or is restarted.
            with suppress(KubeError):
                listing = await client.list(PODS, Pod, namespace=NAMESPACE)
                for listed in listing.items:
                    outcome.observe(listed, time.perf_counter())
                synced.set()
                events = client.watch(
                    PODS, resource_version=listing.resource_version, namespace=NAMESPACE
                )
                async with aclosing(events):
                    async for event in events:
                        if event.type == "MODIFIED":
                            observed = decode(bytes(event.object), Pod)
                            outcome.observe(observed, time.perf_counter())
            await asyncio.sleep(PAUSE_S)

    task = asyncio.create_task(follow())  # A group would wrap what the block raises.
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await synced.wait()
        yield outcome
    finally:
        task.cancel()


async def in_parallel(
    call: Callable[[Object], Awaitable[object]], objects: Iterable[Object]
) -> None:
    """Make a call for each object, some at a time."""
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def call_in_slot(document: Object) -> None:
        async with slots:
            await call(document)

    async with asyncio.TaskGroup() as group:
        for document in objects:
            group.create_task(call_in_slot(document))


async def store(client: Client, resource: Resource, documents: Iterable[Object]) -> None:
    """Create objects, those that exist left as they are; with their status, if they have one."""

    async def create(document: Mapping[str, Any]) -> None:
        namespace = NAMESPACE if resource.namespaced else ""
        name = document["metadata"]["name"]
        try:
            await client.create(resource, document, msgspec.Raw, namespace=namespace)
        except AlreadyExists:
            return
        if "status" in document:
            await client.patch(
                resource,
                name,
                {"status": document["status"]},
                PatchType.MERGE,
                msgspec.Raw,
                namespace=namespace,
                subresource="status",
            )

    await in_parallel(create, documents)


async def remove_all(client: Client, resource: Resource) -> None:
    """Delete all objects of a resource."""
    namespace = NAMESPACE if resource.namespaced else ""
    listing = await client.list(resource, _Named, namespace=namespace)

    async def delete(document: Object) -> None:
        with suppress(NotFound):
            await client.delete(resource, document["name"], namespace=namespace)

    await in_parallel(delete, [{"name": item.metadata.name} for item in listing.items])


async def drain(client: Client) -> None:
    """Delete all pods and wait until they are gone and their devices are released."""
    await remove_all(client, PODS)
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            claims = await client.list(RESOURCE_CLAIMS, _Named, namespace=NAMESPACE)
            pods = await client.list(PODS, _Named, namespace=NAMESPACE)
            is_released = all(claim.metadata.name.startswith("filling-") for claim in claims.items)
            if is_released and not pods.items:
                return
            await asyncio.sleep(PAUSE_S)


def templates_of(scenario: Scenario, nowhere: Object) -> list[Object]:
    """Return the ResourceClaimTemplates that the scenario's pods name."""
    requests = {**scenario.requests, NOWHERE_TEMPLATE: nowhere}
    return [
        api_object("ResourceClaimTemplate", name, spec={"spec": {"devices": devices}})
        for name, devices in requests.items()
    ]


def _is_turned_away(pod: Pod) -> bool:
    conditions = (pod.status.conditions if pod.status is not None else None) or ()
    return any(
        condition.type == "PodScheduled" and condition.reason == "Unschedulable"
        for condition in conditions
    )
