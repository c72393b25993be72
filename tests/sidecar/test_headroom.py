"""The resources left on nodes: as the scheduler says it, kept, and used for the nodes of an answer."""

from pathlib import Path

import pytest

from allocator.cluster.preference import RoomFirst
from allocator.cluster.ranking import RankedNodes
from allocator.nodes.node_changes import NodeChanges
from allocator.strategies.fragmentation_aware import FRAGMENTATION_AWARE
from kube.names import STRATEGY_ANNOTATION
from sidecar.model.protocol import MAX_NODES
from sidecar.model.settings import SidecarSettings, UsualPod
from sidecar.plan.room import LeastLossFirst, LossOrders, with_ranks
from testing.allocation.builders import DRIVER
from testing.documents import Document
from testing.fake_api_server import FakeApiServer
from testing.sidecar.scenes import GIB, changes, left, scene
from testing.sidecar.scheduler import (
    FakeScheduler,
    publish,
    put_claim,
    put_pod,
    sidecar_beside,
)
from testing.sidecar.snapshots import snapshot


def names(answer: Document) -> list[str]:
    assert answer["verdict"] == "fits", answer
    return [node["name"] for node in answer["nodes"]]


async def test_nodes_with_room_come_first_and_the_others_are_not_left_out(tmp_path: Path) -> None:
    nodes = {"no-cpu": 1, "no-memory": 1, "no-place": 1, "room": 1, "unknown": 1}
    async with scene(tmp_path, nodes) as cluster:
        headroom = changes(
            1,
            left("no-cpu", 3),
            left("no-memory", 8, memory=GIB - 1),
            left("no-place", 8, pods=0),
            left("room", 4, memory=GIB, pods=1),
        )

        answer = await cluster.ask(headroom=headroom)

        assert names(answer) == ["room", "unknown", "no-cpu", "no-memory", "no-place"]
        assert (answer["complete"], answer["headroom"]) == (True, 1)


async def test_a_resource_that_a_pod_does_not_request_does_not_count(tmp_path: Path) -> None:
    async with scene(tmp_path, {"a": 1, "b": 1}) as cluster:
        headroom = changes(1, left("a", 0, memory=0), left("b", 64))
        requests = {"cpuMilli": 0, "memory": 0}
        answer = await cluster.ask(cores=None, requests=requests, headroom=headroom)
        assert names(answer) == ["a", "b"]


async def test_what_nodes_have_left_does_not_count_in_a_what_if(tmp_path: Path) -> None:
    """The scheduler does not say the pod's requests if nodes are not those that there are."""
    async with scene(tmp_path, {"a": 1, "b": 1}) as cluster:
        await cluster.ask(headroom=changes(1, left("a", 0), left("b", 64)))
        assert names(await cluster.ask(cores=None)) == ["a", "b"]


async def test_the_hundred_nodes_of_an_answer_are_those_with_room(tmp_path: Path) -> None:
    short = [f"a-{number:03}" for number in range(MAX_NODES + 20)]
    async with scene(tmp_path, dict.fromkeys((*short, "z-1", "z-2"), 1)) as cluster:
        headroom = changes(1, *(left(name, 1) for name in short), left("z-1", 8), left("z-2", 8))
        answer: Document = {}
        for _ in range(10):  # What a first answer has no time for is known to a later one.
            answer = await cluster.ask(headroom=headroom)

        assert names(answer)[:2] == ["z-1", "z-2"]
        assert len(names(answer)) == MAX_NODES
        assert answer["complete"], "no further node has room, so that all nodes are no better"
        assert len(names(await cluster.ask(all=True))) == len(short) + 2


async def test_changes_add_up_and_come_in_any_order(tmp_path: Path) -> None:
    async with scene(tmp_path, {"a": 1, "b": 1, "c": 1}) as cluster:
        whole = changes(3, left("a", 1), left("b", 8), left("c", 1))
        assert names(await cluster.ask(headroom=whole)) == ["b", "a", "c"]

        later = changes(5, left("a", 8), since=3, removed=("b",))
        assert names(await cluster.ask(headroom=later)) == ["a", "b", "c"]

        # A request whose answer was not waited for arrives after the one that repeats its changes.
        late = changes(4, left("a", 1), left("b", 1), since=3)
        answer = await cluster.ask(headroom=late)
        assert (names(answer), answer["headroom"]) == (["a", "b", "c"], 5)

        fresh = await cluster.ask(headroom=changes(6, left("c", 8), left("a", 1)))
        assert (names(fresh), fresh["headroom"]) == (["b", "c", "a"], 6)


async def test_changes_to_nodes_that_are_not_known_have_all_of_them_sent(tmp_path: Path) -> None:
    async with scene(tmp_path, {"a": 1, "b": 1}) as cluster:
        answer = await cluster.ask(headroom=changes(8, left("a", 0), since=7))
        assert (names(answer), answer["headroom"]) == (["a", "b"], 0)


async def test_another_scheduler_begins_anew(tmp_path: Path) -> None:
    async with scene(tmp_path, {"a": 1, "b": 1}) as cluster:
        await cluster.ask(headroom=changes(9, left("a", 0), left("b", 8)))
        other = FakeScheduler(cluster.sidecar.socket, "scheduler-1")
        await other.hello()

        requests = {"cpuMilli": 1000, "memory": 0}
        answer = await other.prefilter(cluster.pod, requests=requests)
        assert (names(answer), answer["headroom"]) == (["a", "b"], 0)

        headroom = changes(1, left("a", 0), left("b", 8))
        answer = await other.prefilter(cluster.pod, requests=requests, headroom=headroom)
        assert (names(answer), answer["headroom"]) == (["b", "a"], 1)


@pytest.mark.parametrize(
    "headroom",
    [
        pytest.param({**changes(2), "nodes": [left("a", 8), left("b", -1)]}, id="below 0"),
        pytest.param(changes(2, left("a", 8), left("b", 1 << 60)), id="more than 64 bits"),
        pytest.param(changes(2, left("a", 8), left("a", 7)), id="a node twice"),
        pytest.param(changes(2, left("a", 8), removed=("a",)), id="there and gone"),
        pytest.param(changes(2, left("a", 8), removed=("b", "b")), id="gone twice"),
        pytest.param(changes(2, left("a", 8), left("", 8)), id="no name"),
        pytest.param(changes(2, left("a", 8), left("x" * 254, 8)), id="a name that no node has"),
        pytest.param(changes(2, left("a", 8), since=3), id="since what is to come"),
        pytest.param({**changes(2), "nodes": [left("a", 8), {"name": "b"}]}, id="torn"),
        pytest.param({**changes(2), "nodes": {"a": 8}}, id="another shape"),
        pytest.param(changes(-1, left("a", 8)), id="a negative number"),
    ],
)
async def test_malformed_changes_are_rejected_as_a_whole(
    headroom: Document, tmp_path: Path
) -> None:
    async with scene(tmp_path, {"a": 1, "b": 1}) as cluster:
        await cluster.ask(headroom=changes(1, left("a", 0), left("b", 8)))

        status, answer = await cluster.scheduler.call(
            "prefilter", pod=cluster.pod, headroom=headroom
        )

        assert (status, "headroom" in answer["message"]) == (400, True), answer
        answer = await cluster.ask()
        assert (names(answer), answer["headroom"]) == (["b", "a"], 1)


# --- FragmentationAware ---------------------------------------------------------------------------


def fragmentation_aware(server: FakeApiServer, name: str) -> Document:
    """A pod with a claim for a device that wants this strategy."""
    put_claim(server, f"gpu-{name}")
    pod = put_pod(server, name, f"gpu-{name}")
    pod["metadata"]["annotations"] = {STRATEGY_ANNOTATION: "FragmentationAware"}
    return pod


def ranks(answer: Document) -> dict[str, int]:
    return {node["name"]: node["score"] for node in answer["nodes"]}


async def test_fragmentation_aware_counts_what_nodes_have_left(tmp_path: Path) -> None:
    """On `full` one of two devices is idle anyway: its CPU is enough for one of the usual pods."""
    async with scene(tmp_path, {"even": 1, "full": 2, "short": 2}) as cluster:
        large = fragmentation_aware(cluster.server, "large")
        small = fragmentation_aware(cluster.server, "small")
        headroom = changes(1, left("even", 64), left("full", 10), left("short", 1))
        await cluster.ask(cores=8, pod=large, headroom=headroom)

        answer = await cluster.ask(cores=2, pod=small)
        assert ranks(answer) == {"full": 100, "even": 99, "short": 0}
        assert names(answer)[-1] == "short"

        # With a core less it costs a usual pod there as well, and equal losses have equal ranks.
        more = changes(2, left("full", 9), since=1)
        answer = await cluster.ask(cores=2, pod=small, headroom=more)
        assert ranks(answer) == {"full": 100, "even": 100, "short": 0}

        # Where nothing of that is known devices alone count.
        answer = await cluster.ask(cores=None, pod=small)
        assert len(set(ranks(answer).values())) == 1


def test_ranks_are_those_of_the_nodes_of_an_answer() -> None:
    """Nodes that a pod may not use have none, so that a hundred better ones leave a rank for it."""
    cluster = snapshot().cluster
    orders = LossOrders(FRAGMENTATION_AWARE, cluster, {}, NodeChanges())
    preference = LeastLossFirst(0, 0, {}, orders)
    nodes = (("a", -700), ("b", -700), ("c", -900), ("short", -901))
    answer = RankedNodes(
        nodes=nodes, preferred=3, complete=True, is_known=True, rejected=120, cut_off=False
    )
    expected = (("a", 100), ("b", 100), ("c", 99), ("short", 0))
    assert with_ranks(answer, preference).nodes == expected
    assert with_ranks(answer, RoomFirst(0, 0, {})).nodes == nodes


async def test_a_process_that_begins_to_lead_learns_the_kinds_from_the_pods_that_run(
    tmp_path: Path,
) -> None:
    async with FakeApiServer() as server:
        publish(server, "even", per_node=1)
        publish(server, "full", per_node=2)
        for number in range(9):
            put_claim(server, f"gpu-{number}")
            amounts = {"requests": {"cpu": "8", "memory": "1Gi"}}
            containers = [{"name": "main", "resources": amounts}]
            put_pod(server, f"p-{number}", f"gpu-{number}", containers=containers)
        small = fragmentation_aware(server, "small")
        headroom = changes(1, left("even", 64), left("full", 10))
        async with sidecar_beside(server, tmp_path) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            await scheduler.hello()

            requests = {"cpuMilli": 2000, "memory": GIB}
            answer = await scheduler.prefilter(small, requests=requests, headroom=headroom)

            assert ranks(answer) == {"full": 100, "even": 99}


@pytest.mark.parametrize(
    ("usual_pods", "scores"),
    [
        pytest.param((), {"node-a": 100, "node-b": 100}, id="learnt: both lose a pod of 4 cores"),
        pytest.param(
            (UsualPod(device_class="gpu", cpu="8"),),
            {"node-b": 100, "node-a": 99},
            id="pinned: only where 8 cores are left they are lost",
        ),
    ],
)
async def test_the_usual_pods_of_the_settings_decide(
    tmp_path: Path, usual_pods: tuple[UsualPod, ...], scores: dict[str, int]
) -> None:
    settings = SidecarSettings(drivers=(DRIVER,), usual_pods=usual_pods)
    async with scene(tmp_path, {"node-a": 3, "node-b": 3}, settings) as cluster:
        metadata = cluster.pod["metadata"] | {
            "annotations": {STRATEGY_ANNOTATION: "FragmentationAware"}
        }
        headroom = changes(1, left("node-a", 8), left("node-b", 12))
        await cluster.ask(pod=cluster.pod | {"metadata": metadata}, headroom=headroom)
        answer = await cluster.ask(pod=cluster.pod | {"metadata": metadata})
        assert {node["name"]: node["score"] for node in answer["nodes"]} == scores
