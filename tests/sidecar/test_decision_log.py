"""The log of decisions: its beginning, its bounds, and its decisions made again."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import pytest
from msgspec.structs import replace

from kube.api.core import Node, Pod
from kube.api.meta import convert, decode
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kube.api.urls import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from kube.names import STRATEGY_ANNOTATION
from sidecar.model.logged_decisions import (
    Beginning,
    ClaimsChanged,
    Decided,
    DecisionsView,
    Entry,
    HeadroomChanged,
    KindsChanged,
    LoggedEntry,
    Placed,
)
from sidecar.model.settings import SidecarSettings
from sidecar.replay.decisions import NOT_RECORDED, OTHER, SAME_MOMENT, DecidedAgain, DecisionReplay
from sidecar.replay.objects import RecordedObjects
from sidecar.state import decision_log
from testing.allocation.builders import DRIVER
from testing.documents import Document
from testing.fake_api_server import FakeApiServer
from testing.sidecar.scheduler import (
    FakeScheduler,
    Sidecar,
    publish,
    put_claim,
    put_pod,
    sidecar_beside,
)

GIB: Final = 1 << 30
NODES_: Final = ("node-a", "node-b", "node-c")
LATER_S: Final = 100.0
_VIEWS: Final[dict[Resource, type[Any]]] = {
    NODES: Node,
    RESOURCE_SLICES: ResourceSlice,
    DEVICE_CLASSES: DeviceClass,
    PODS: Pod,
    RESOURCE_CLAIMS: ResourceClaim,
}


async def get(
    sidecar: Sidecar, *, number: int | str = 0, instance: str = "instance-0"
) -> tuple[int, bytes]:
    """Return status and text of the debug endpoint."""
    connector = aiohttp.UnixConnector(path=str(sidecar.socket))
    params = {"instance": instance, "number": str(number)}
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get("http://sidecar/v1/debug/decisions", params=params) as response,
    ):
        return response.status, await response.read()


async def read(sidecar: Sidecar, number: int = 0) -> Sequence[LoggedEntry]:
    """Return all entries after a number."""
    entries: list[LoggedEntry] = []
    while True:
        status, text = await get(sidecar, number=number)
        assert status == 200, text
        view = decode(text, DecisionsView)
        entries += view.entries
        if not view.more:
            return entries
        number = entries[-1].number


class Scene(NamedTuple):
    """A sidecar and its scheduler."""

    server: FakeApiServer
    sidecar: Sidecar
    scheduler: FakeScheduler

    async def run(
        self, name: str, strategy: str = "FirstFit", *, cores: int = 4, **fields: Any
    ) -> Document:
        """Have a pod with a claim for one device placed on the first node of its answer."""
        put_claim(self.server, name)
        pod = put_pod(self.server, name, name)
        pod["metadata"]["annotations"] = {STRATEGY_ANNOTATION: strategy}
        pod = self.server.put(PODS, pod)
        requests = {"cpuMilli": 1000 * cores, "memory": GIB}
        answer = await self.scheduler.prefilter(pod, requests=requests, **fields)
        assert answer["verdict"] == "fits", answer
        self.scheduler.reserve(pod, answer["nodes"][0]["name"])
        return pod

    def objects(self) -> RecordedObjects:
        """Return the objects of the API server as a recording has them."""
        recorded = RecordedObjects()
        for resource, kind in _VIEWS.items():
            for stored in self.server.objects(resource):
                view = convert(stored, kind)
                name = (view.metadata.namespace, view.metadata.name)
                recorded.put(0.0, name, None, view)
        return recorded


@asynccontextmanager
async def scene(
    tmp_path: Path, strategy: str = "FirstFit", nodes: Sequence[str] = NODES_
) -> AsyncIterator[Scene]:
    async with FakeApiServer() as server:
        publish(server, *nodes)
        settings = SidecarSettings(drivers=(DRIVER,), default_strategy=strategy)
        async with sidecar_beside(server, tmp_path, settings) as sidecar:
            scheduler = FakeScheduler(sidecar.socket)
            assert (await scheduler.hello())["ready"]
            yield Scene(server, sidecar, scheduler)


def headroom(number: int, **cores: int) -> Document:
    """Return that nodes have so many cores left, as changes of all that there was."""
    nodes = [
        {"name": name.replace("_", "-"), "cpuMilli": 1000 * count, "memory": 64 * GIB, "pods": 10}
        for name, count in cores.items()
    ]
    return {"number": number, "since": 0, "nodes": nodes, "removed": []}


def again(
    objects: RecordedObjects, entries: Sequence[Entry], second: float = LATER_S
) -> DecidedAgain:
    replay = DecisionReplay(objects)
    for entry in entries:
        replay.take(entry, second)
    return replay.result()


def of_type(entries: Sequence[LoggedEntry], kind: type[Any]) -> Iterator[Any]:
    return (logged.entry for logged in entries if isinstance(logged.entry, kind))


async def test_nothing_is_logged_until_the_log_is_read(tmp_path: Path) -> None:
    async with scene(tmp_path) as cluster:
        await cluster.run("before", headroom=headroom(1, node_a=8, node_b=8))

        entries = await read(cluster.sidecar)
        (beginning,) = of_type(entries, Beginning)
        assert beginning.drivers == (DRIVER,)
        assert beginning.default_strategy == "FirstFit"
        nodes = [
            node.name for entry in of_type(entries, HeadroomChanged) for node in entry.changes.nodes
        ]
        assert nodes == ["node-a", "node-b"]
        assert list(of_type(entries, Decided)) == []
        assert len(list(of_type(entries, KindsChanged))) == 1

        pod = await cluster.run("after")
        later = await read(cluster.sidecar, entries[-1].number)

        assert [entry.number for entry in later] == list(
            range(entries[-1].number + 1, later[-1].number + 1)
        )
        (placed,) = of_type(later, Placed)  # The devices of the pod before.
        (decided,) = of_type(later, Decided)
        assert placed.claims[0].devices[0].driver == DRIVER
        assert decided.pod == pod["metadata"]["uid"]
        assert decided.nodes == len(NODES_)


async def test_devices_that_are_promised_are_among_those_that_it_begins_with(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as cluster:
        await cluster.run("promised")
        await cluster.run("after")  # It brings the reservation of the one before.

        entries = await read(cluster.sidecar)

        (changed,) = of_type(entries, ClaimsChanged)
        assert [claim.name for claim in changed.claims] == ["promised"]
        (beginning,) = of_type(entries, Beginning)
        assert beginning.claims == 1


async def test_a_claim_that_is_written_as_promised_is_no_change(tmp_path: Path) -> None:
    async with scene(tmp_path) as cluster:
        entries = await read(cluster.sidecar)
        pod = await cluster.run("a")
        assert (await cluster.scheduler.prebind(pod))["verdict"] == "ok"
        await cluster.run("b")

        later = await read(cluster.sidecar, entries[-1].number)

        assert [entry.pod for entry in of_type(later, Placed)] == ["uid-a"]
        assert list(of_type(later, ClaimsChanged)) == []


@pytest.mark.parametrize("strategy", ["FirstFit", "CompactFirst", "FragmentationAware"])
async def test_decisions_made_again_are_the_same(strategy: str, tmp_path: Path) -> None:
    async with scene(tmp_path, strategy) as cluster:
        await cluster.run("before", strategy, headroom=headroom(1, node_a=9, node_b=8, node_c=4))
        entries = [*await read(cluster.sidecar)]
        for number in range(4):
            await cluster.run(f"pod-{number}", strategy)
        left = headroom(2, node_a=0, node_b=8, node_c=4)
        await cluster.run("last", strategy, headroom=left)
        entries += await read(cluster.sidecar, entries[-1].number)
        log = [logged.entry for logged in entries]

        result = again(cluster.objects(), log)

        assert (result.answers, result.same_answers) == (5, 5), result
        assert (result.placements, result.same_placements) == (5, 5), result
        assert result.otherwise == {}
        assert result.beginnings == 1


async def test_what_a_decision_depended_on_makes_a_difference(tmp_path: Path) -> None:
    """Without the headroom, the kinds, or the claims in use decisions come out otherwise, so these count.

    A small pod costs usual pods of 4 cores nothing on a node with a core that none of them could use.
    """
    strategy = "FragmentationAware"
    async with scene(tmp_path, strategy) as cluster:
        await cluster.run("before", strategy, headroom=headroom(1, node_a=8, node_b=8, node_c=8))
        entries = [*await read(cluster.sidecar)]
        await cluster.run("usual", strategy)
        left = headroom(2, node_a=8, node_b=8, node_c=5)
        await cluster.run("small", strategy, cores=1, headroom=left)
        await cluster.run("last", strategy)
        entries += await read(cluster.sidecar, entries[-1].number)
        log = [logged.entry for logged in entries]
        objects = cluster.objects()

        for kind in (HeadroomChanged, KindsChanged):
            without = [entry for entry in log if not isinstance(entry, kind)]
            result = again(objects, without)
            assert result.same_answers < result.answers, kind
            assert OTHER in result.otherwise
            assert result.examples
        without = [
            replace(entry, claims=()) if isinstance(entry, Placed) else entry for entry in log
        ]
        result = again(objects, without)
        assert result.same_placements < result.placements


async def test_a_difference_beside_a_change_of_the_inventory_is_named_so(tmp_path: Path) -> None:
    async with scene(tmp_path) as cluster:
        entries = [*await read(cluster.sidecar)]
        await cluster.run("a")
        entries += await read(cluster.sidecar, entries[-1].number)
        log = [logged.entry for logged in entries]
        objects = cluster.objects()
        taint = {"key": "story", "effect": "NoSchedule"}
        tainted = convert(
            {"metadata": {"name": "node-a"}, "spec": {"taints": [taint]}, "status": {}}, Node
        )
        objects.put(LATER_S - 1, ("", "node-a"), None, tainted)

        result = again(objects, log)

        assert result.otherwise == {SAME_MOMENT: 1}


async def test_a_pod_that_is_not_recorded_is_named_so(tmp_path: Path) -> None:
    async with scene(tmp_path) as cluster:
        entries = [*await read(cluster.sidecar)]
        await cluster.run("a")
        await cluster.run("b")
        entries += await read(cluster.sidecar, entries[-1].number)

        result = again(RecordedObjects(), [logged.entry for logged in entries])

        assert result.otherwise == {NOT_RECORDED: 3}
        assert (result.answers, result.placements) == (2, 1)


async def test_entries_before_a_beginning_are_none_to_make_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as cluster:
        await read(cluster.sidecar)
        await cluster.run("a")
        log = [logged.entry for logged in await read(cluster.sidecar)]
        decided = Decided(pod="uid-a", nodes=3)
        assert again(cluster.objects(), [decided, *log]).answers == 0


async def test_the_log_ends_when_it_is_full_and_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_log, "MAX_WEIGHT", 6)
    async with scene(tmp_path) as cluster:
        entries = await read(cluster.sidecar)
        for number in range(6):
            await cluster.run(f"pod-{number}")

        later = await read(cluster.sidecar, entries[-1].number)

        assert isinstance(later[0].entry, Beginning)
        assert later[0].number > entries[-1].number, "numbers are never given again"
        assert later[0].entry.claims == 5
        assert list(of_type(later, Decided)) == []


async def test_an_answer_is_a_part_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_log, "READ_WEIGHT", 2)
    async with scene(tmp_path) as cluster:
        _, text = await get(cluster.sidecar)
        view = decode(text, DecisionsView)
        assert view.more
        assert len(view.entries) == 2
        rest = await read(cluster.sidecar, view.entries[-1].number)
        assert isinstance(rest[-1].entry, KindsChanged)


async def test_numbers_of_another_instance_are_none(tmp_path: Path) -> None:
    async with scene(tmp_path) as cluster:
        entries = await read(cluster.sidecar)

        _, text = await get(cluster.sidecar, number=entries[-1].number, instance="another")

        view = decode(text, DecisionsView)
        assert view.instance == "instance-0"
        assert isinstance(view.entries[0].entry, Beginning)


@pytest.mark.parametrize("number", ["", "-1", "1.5", "9" * 30, "x"])
async def test_a_number_that_is_none_is_rejected(number: str, tmp_path: Path) -> None:
    async with scene(tmp_path) as cluster:
        status, text = await get(cluster.sidecar, number=number)
        assert status == 400
        assert b"write a whole number" in text


async def test_a_sidecar_that_does_not_lead_logs_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as cluster:
        service, cluster.sidecar.service = cluster.sidecar.service, None
        status, _ = await get(cluster.sidecar)
        cluster.sidecar.service = service
        assert status == 503
