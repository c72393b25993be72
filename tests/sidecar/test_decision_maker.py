"""Quick decisions are made on the event loop, all others on a thread."""

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from prometheus_client import CollectorRegistry

from clusterstate.kinds import Kind
from kube.api.core import Pod
from kube.api.meta import convert
from kube.cel.scope import STEPS_PER_LOOK, current_scope
from sidecar.answers import decision_maker
from sidecar.answers.decision_maker import (
    FIND_NODES,
    MAX_PLACED,
    NEW,
    NO_TIME,
    QUICK_AGAIN,
    QUICK_S,
    DecisionMaker,
)
from sidecar.answers.promises import Promises, ReservedPod
from sidecar.groups.memory import GroupMemory
from sidecar.model.protocol import PreFilterRequest, Reservation
from sidecar.model.reservations import Reservations
from sidecar.plan.decisions import NoDevicesNeeded
from sidecar.plan.placement import Placement
from sidecar.reports.metrics import SidecarMetrics
from sidecar.state.pod_room import PodRoom
from testing.allocation.builders import node
from testing.fake_api_server import FakeApiServer
from testing.sidecar.scheduler import (
    Sidecar,
    pod_with,
    publish,
    put_claim,
    sidecar_beside,
)

LOOP: Final = "on the event loop"
THREAD: Final = "on a thread"


def pod(name: str) -> Pod:
    return convert(pod_with(name, f"gpu-{name}"), Pod)


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Decisions(NamedTuple):
    """Decisions about pods `a`, `b` and `c`; the first two have claims for one device, `c` for two."""

    server: FakeApiServer
    sidecar: Sidecar
    maker: DecisionMaker
    promises: Promises
    clock: Clock
    registry: CollectorRegistry

    async def decide(
        self, name: str = "", *, reserved: Sequence[ReservedPod] = (), seconds: float = 0.0
    ) -> str:
        """Return the thread that finds the nodes, or all nodes, of a pod; it takes so long."""
        places: list[str] = []

        def find_nodes(*_: object, **__: object) -> NoDevicesNeeded:
            self.clock.now_s += seconds
            is_here = threading.current_thread() is threading.main_thread()
            places.append(LOOP if is_here else THREAD)
            return NoDevicesNeeded()

        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(decision_maker, "find_nodes", find_nodes)
            request = PreFilterRequest(pod=pod(name or "a"), all=not name)
            await self.maker.find_nodes(request, reserved, self.maker.attempt())
        (place,) = places
        return place

    def counted(self, kind: str) -> float:
        """Return the number of measured decisions of a kind."""
        name = "drawbridge_sidecar_decision_duration_seconds_count"
        return self.registry.get_sample_value(name, {"kind": kind}) or 0


@asynccontextmanager
async def decisions(tmp_path: Path) -> AsyncIterator[Decisions]:
    async with FakeApiServer() as server:
        publish(server, "node-1")
        for name, count in (("a", 1), ("b", 1), ("c", 2)):
            put_claim(server, f"gpu-{name}", f"request-{name}", count=count)
        async with sidecar_beside(server, tmp_path) as sidecar:
            registry, clock = CollectorRegistry(), Clock()
            assert sidecar.service is not None
            promises = Promises(sidecar.state, lambda _uid: None, sidecar.service.commits)
            maker = DecisionMaker(
                sidecar.state,
                SidecarMetrics(registry),
                None,
                promises,
                PodRoom(),
                groups=GroupMemory(),
                clock=clock,
            )
            yield Decisions(server, sidecar, maker, promises, clock, registry)


async def test_a_decision_is_made_on_the_loop_if_one_about_equal_requests_was_quick(
    tmp_path: Path,
) -> None:
    async with decisions(tmp_path) as made:
        assert await made.decide("a") == THREAD, "nothing is known about the requests yet"
        assert await made.decide("b") == LOOP, "its requests are those of a, by another name"
        assert await made.decide("c") == THREAD, "it requests other devices"
        assert await made.decide() == THREAD, "the requests do not tell how long it takes"


async def test_decisions_about_new_requests_are_measured_by_themselves(tmp_path: Path) -> None:
    async with decisions(tmp_path) as made:
        for name in ("a", "b", "c", "c", ""):
            await made.decide(name)

        assert (2, 3) == (made.counted(FIND_NODES + NEW), made.counted(FIND_NODES))


async def test_a_decision_after_a_long_one_is_made_on_a_thread(tmp_path: Path) -> None:
    async with decisions(tmp_path) as made:
        await made.decide("a")

        assert await made.decide("a", seconds=2 * QUICK_S) == LOOP
        assert [await made.decide("b") for _ in range(QUICK_AGAIN)] == [THREAD] * QUICK_AGAIN
        assert await made.decide("a") == LOOP


async def test_changes_of_the_inventory_are_applied_on_a_thread(tmp_path: Path) -> None:
    async with decisions(tmp_path) as made:
        await made.decide("a")
        # As an informer does, and before anybody else has a turn.
        made.sidecar.state._note(Kind.NODE, ("", "node-2"), node("node-2"))

        assert await made.decide("a") == THREAD
        assert await made.decide("a") == LOOP


async def test_many_reserved_pods_are_placed_on_a_thread(tmp_path: Path) -> None:
    async with decisions(tmp_path) as made:
        await made.decide("a")
        reservation = Reservation(number=1, pod_uid="uid-b", node="node-2")
        reserved = [ReservedPod(reservation, pod("b"))] * MAX_PLACED

        assert await made.decide("a", reserved=reserved) == LOOP
        assert await made.decide("a", reserved=[*reserved, *reserved]) == THREAD


async def test_the_choice_of_devices_ends_with_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reserved pod may take half a second, and the plugin gives the sidecar up after three."""
    async with decisions(tmp_path) as made:

        def search(*_: object) -> Placement:
            made.clock.now_s += 1.0
            current_scope().meter.charge(STEPS_PER_LOOK)
            return Placement(allocations=())

        monkeypatch.setattr(decision_maker, "place_beside_rivals", search)
        uids = [f"uid-{number}" for number in range(4)]
        reservations = [
            Reservation(number=number, pod_uid=uid, node="node-1")
            for number, uid in enumerate(uids, start=1)
        ]
        made.promises.reservations = Reservations(by_pod=dict(zip(uids, reservations, strict=True)))

        await made.maker.place(
            [ReservedPod(reservation, pod("b")) for reservation in reservations], deadline_s=2.5
        )

        assert [made.promises.rejection(uid) for uid in uids] == [None, None, NO_TIME, NO_TIME]


async def test_a_short_search_goes_on_after_the_call(tmp_path: Path) -> None:
    """Another decision may have had the turn for all of the call's time."""
    async with decisions(tmp_path) as made:
        reservation = Reservation(number=1, pod_uid="uid-b", node="node-1")
        made.promises.reservations = Reservations(by_pod={"uid-b": reservation})

        await made.maker.place([ReservedPod(reservation, pod("b"))], deadline_s=-1.0)

        assert made.promises.rejection("uid-b") is None
        assert [hold.name[1] for hold in made.sidecar.state.holds.values()] == ["gpu-b"]
