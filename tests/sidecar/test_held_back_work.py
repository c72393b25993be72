"""The work for a change of devices that are held back: no more with many pods of one claim than with few."""

from pathlib import Path
from typing import Any

from allocator.pods.claims import allocation_of
from kube.api.urls import PODS, RESOURCE_CLAIMS
from sidecar.state import effective_claims
from sidecar.state.state import ClusterState
from testing.allocation.builders import DRIVER
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
