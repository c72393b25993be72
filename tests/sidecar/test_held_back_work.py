"""The work and the memory for devices that are held back: no more with many pods of one claim than with few."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from allocator.pods.claims import allocation_of
from kube.api.core import Pod, PodSpec
from kube.api.meta import ObjectMeta
from kube.api.urls import PODS, RESOURCE_CLAIMS
from sidecar.state import effective_claims
from sidecar.state.held_back import MAX_ALIKE, HeldBackDevices, HeldBackLimits
from sidecar.state.state import ClusterState
from testing.allocation.builders import DRIVER, allocated_claim, result
from testing.counting import counted_calls
from testing.documents import Document
from testing.fake_api_server import FakeApiServer, quick_informers, running, until
from testing.sidecar.scenes import state_with
from testing.sidecar.scheduler import publish, put_claim, put_pod

ROOMS = (
    Path(effective_claims.__file__).parent,
    Path(effective_claims.__file__).parent.parent / "ownership",
)
STATUS: Document = {
    "allocation": {
        "devices": {
            "results": [{"request": "req-0", "driver": DRIVER, "pool": "node-1", "device": "gpu-0"}]
        }
    }
}


async def calls_of_changes(pods: int) -> dict[str, int]:
    """Return the calls in the rooms of held devices for each change, with so many pods that run without their claim."""
    async with FakeApiServer() as server, server.client() as client:
        publish(server, "node-1", per_node=1)
        claim = put_claim(server, "gpu-a")
        users = []
        for number in range(pods):
            pod = put_pod(server, f"a-{number}", "gpu-a", nodeName="node-1")
            users.append(server.put(PODS, pod | {"status": {"phase": "Running"}}))
        consumers = [
            {"resource": "pods", "name": user["metadata"]["name"], "uid": user["metadata"]["uid"]}
            for user in users
        ]
        server.put(RESOURCE_CLAIMS, {**claim, "status": STATUS | {"reservedFor": consumers}})
        informers = quick_informers(client)
        state = state_with(informers, held_back_timeout_s=300.0)
        calls = {}
        async with running(informers.run):
            await state.wait_complete()
            server.put(RESOURCE_CLAIMS, {**claim, "status": {}})
            await until(lambda: len(state.held_back.claims) == pods)
            assert devices_in_use(state) == 1

            for name, status in (("allocated", STATUS), ("deallocated", {})):
                with counted_calls() as counted:
                    server.put(RESOURCE_CLAIMS, {**claim, "status": status})
                    await until(lambda: is_allocated(state) == bool(status))  # noqa: B023
                calls[name] = of_rooms(counted)
                assert devices_in_use(state) == 1
            with counted_calls() as counted:
                server.put(PODS, users[0] | {"status": {"phase": "Succeeded"}})
                await until(lambda: len(state.held_back.claims) == pods - 1)
            calls["ended"] = of_rooms(counted)
            with counted_calls() as counted:
                server.remove(PODS, "a-1", "default")
                await until(lambda: users[1]["metadata"]["uid"] not in state.consumers.pods)
            calls["deleted by force"] = of_rooms(counted)
            assert devices_in_use(state) == 1
    return calls


def is_allocated(state: ClusterState) -> bool:
    return any(allocation_of(claim) is not None for claim in state.claims.store.values())


def devices_in_use(state: ClusterState) -> int:
    return sum(allocation_of(claim) is not None for claim in state.claims_in_use())


def of_rooms(counted: Any) -> int:
    return sum(calls for code, calls in counted.items() if Path(code.co_filename).parent in ROOMS)


async def test_a_change_of_a_claim_costs_as_much_however_many_pods_hold_it() -> None:
    few, many = await calls_of_changes(4), await calls_of_changes(64)

    assert few == many


class Scene:
    """Devices held back of pods that share one claim, a second between the deletions of two."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, tzinfo=UTC)
        self.pods: dict[str, Pod] = {}
        self.claim = allocated_claim(result("gpu-0"), name="shared")
        limits = HeldBackLimits(300.0, most_per_namespace=8)
        self.devices = HeldBackDevices(
            self.pods, now=lambda: self.now, limits=limits, on_change=lambda _: None
        )

    def begin(self, name: str, node: str = "node-1") -> Pod:
        metadata = ObjectMeta(namespace="default", name=name, uid=f"uid-{name}")
        self.pods[metadata.uid] = Pod(metadata=metadata, spec=PodSpec(node_name=node))
        return self.pods[metadata.uid]

    def delete_by_force(self, pod: Pod) -> None:
        self.now += timedelta(seconds=1)
        self.devices.pod_gone(pod, [self.claim], ())
        del self.pods[pod.metadata.uid]

    @property
    def parts(self) -> list[str]:
        return [part.pod for part in self.devices.claims.values()]


def test_pods_without_end_that_share_a_claim_are_remembered_as_a_few() -> None:
    scene = Scene()
    for number in range(100):
        scene.delete_by_force(scene.begin(f"{number}"))
    for number in range(3):
        scene.delete_by_force(scene.begin(f"other-{number}", node="node-2"))

    assert scene.parts == ["96", "97", "98", "99", "other-0", "other-1", "other-2"]
    assert MAX_ALIKE == 4
    scene.now += timedelta(seconds=296)
    scene.devices.expire()
    assert scene.parts == ["99", "other-0", "other-1", "other-2"], "until the latest end"
    scene.now += timedelta(seconds=4)
    scene.devices.expire()
    assert not scene.parts


def test_each_pod_that_runs_without_its_claim_is_remembered() -> None:
    """Its devices are held back until it has gone, long after those of the others."""
    scene = Scene()
    running_pods = [scene.begin(f"running-{number}") for number in range(10)]
    for pod in running_pods:
        scene.devices.hold(pod, scene.claim, ())
    for number in range(20):
        scene.delete_by_force(scene.begin(f"{number}"))

    assert scene.parts == [pod.metadata.name for pod in running_pods] + ["16", "17", "18", "19"]
    for pod in running_pods:
        scene.delete_by_force(pod)
    assert scene.parts == [f"running-{number}" for number in range(6, 10)]


def test_the_end_of_a_pod_ends_nothing_that_stands_for_others() -> None:
    """An API server that is behind has a pod that is gone come back for a moment, and end."""
    scene = Scene()
    for number in range(MAX_ALIKE + 1):
        scene.delete_by_force(scene.begin(f"{number}"))
    for number in range(MAX_ALIKE + 1):
        scene.devices.pod_ended(f"uid-{number}")

    assert scene.parts == [f"{MAX_ALIKE}"]
    scene.now += timedelta(seconds=300)
    scene.devices.expire()
    assert not scene.parts
