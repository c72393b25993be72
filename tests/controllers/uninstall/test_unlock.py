"""Pods that are unlocked before an uninstall: policies first, then gates, until none comes any more."""

import time
from collections.abc import AsyncIterator

import pytest

from admission.quota_gates import HOLDER_POLICY, gate_documents
from controllers.quotas.gates import RESOURCES
from controllers.uninstall.unlock import Pace, PodsStayGatedError, unlock_pods
from kube.api.urls import PODS
from kube.names import QUOTA_GATE
from testing.fake_api_server import Call, FakeApiServer

PACE = Pace(quiet_s=0.05, period_s=0.01, timeout_s=60)
OTHER = "example.com/other"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as api_server:
        for policy in gate_documents():
            api_server.put(RESOURCES[policy["kind"]], policy)
        yield api_server


def put_pod(server: FakeApiServer, name: str, *gates: str) -> None:
    metadata = {"name": name, "namespace": "default", "uid": name}
    entries = [{"name": gate} for gate in gates]
    server.put(PODS, {"metadata": metadata, "spec": {"schedulingGates": entries}})


def gates(server: FakeApiServer, name: str) -> list[str]:
    pod = server.find(PODS, name, "default")
    assert pod is not None
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]


async def unlock(server: FakeApiServer, pace: Pace = PACE) -> int:
    async with server.client() as client:
        return await unlock_pods(client, time.monotonic, pace)


def is_removal(call: Call) -> bool:
    return call.method == "PATCH"


async def test_our_gate_is_removed_and_no_other(server: FakeApiServer) -> None:
    put_pod(server, "ours", QUOTA_GATE)
    put_pod(server, "both", OTHER, QUOTA_GATE)
    put_pod(server, "other", OTHER)

    assert await unlock(server) == 2

    assert [gates(server, name) for name in ("ours", "both", "other")] == [[], [OTHER], [OTHER]]


async def test_bindings_go_before_policies_and_policies_before_gates(server: FakeApiServer) -> None:
    put_pod(server, "pod", QUOTA_GATE)

    await unlock(server)

    writes = [call for call in server.calls if call.method in {"DELETE", "PATCH"}]
    kinds = ["gate" if is_removal(call) else call.path.split("/")[-2] for call in writes]
    bindings = [kind for kind in kinds if kind.endswith("bindings")]
    policies = [kind for kind in kinds if kind.endswith("policies")]
    assert kinds == [*bindings, *policies, "gate"]
    assert bindings
    assert policies


async def test_every_policy_is_deleted_but_the_one_that_reads_the_lease(
    server: FakeApiServer,
) -> None:
    await unlock(server)

    left = {
        document["metadata"]["name"]
        for resource in RESOURCES.values()
        for document in server.objects(resource)
    }
    assert left == {HOLDER_POLICY}


async def test_nothing_to_do_is_done(server: FakeApiServer) -> None:
    await unlock(server)

    assert await unlock(server) == 0


async def test_a_removal_that_is_still_denied_is_tried_again(server: FakeApiServer) -> None:
    put_pod(server, "pod", QUOTA_GATE)
    server.fail(403, times=3, matches=is_removal)

    assert await unlock(server) == 1

    assert gates(server, "pod") == []


async def test_pods_that_are_made_meanwhile_are_waited_for(server: FakeApiServer) -> None:
    """An API server that has not seen the deletion yet adds gates."""
    made: list[str] = []

    def makes_one(call: Call) -> bool:
        if is_removal(call) and len(made) < 3:
            made.append(f"late-{len(made)}")
            put_pod(server, made[-1], QUOTA_GATE)
        return False

    put_pod(server, "pod", QUOTA_GATE)
    server.fail(500, matches=makes_one)

    assert await unlock(server) == 4

    assert [gates(server, name) for name in ("pod", *made)] == [[]] * 4


async def test_it_gives_up_with_a_reason(server: FakeApiServer) -> None:
    put_pod(server, "pod", QUOTA_GATE)
    server.fail(403, times=1000, matches=is_removal)

    with pytest.raises(
        PodsStayGatedError, match=r"1 pods still have the scheduling gate: told to answer 403"
    ):
        await unlock(server, PACE._replace(timeout_s=0.05))
