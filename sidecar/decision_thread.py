"""The thread that decisions are made on, one after the other.

The event loop goes on renewing the Lease and reading watches meanwhile. A hop to the thread costs more
than most decisions, so what a call has to decide is decided with one.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

from allocator.cluster.verdict_cache import SearchCosts
from allocator.pods.claims import claim_name
from clusterstate.kinds import Kind
from kube.api.core import Pod
from kube.cel.engine import SelectorEngine, use_engine
from sidecar.metrics import SidecarMetrics
from sidecar.plan.decisions import Placement, place, with_allocation
from sidecar.plan.rejections import Rejection
from sidecar.plan.snapshot import Snapshot
from sidecar.protocol import Reservation
from sidecar.state import ClusterState

PLACE: Final = "place"

T = TypeVar("T")


class ReservedPod(NamedTuple):
    """A pod and the node that the scheduler reserved for it."""

    reservation: Reservation
    pod: Pod


class DecisionThread:
    """Makes decisions on the cluster as it is; the caller sees to it that it is one at a time."""

    def __init__(
        self, state: ClusterState, metrics: SidecarMetrics, engine: SelectorEngine | None
    ) -> None:
        """Begin without a decision.

        Args:
            engine: Evaluates selectors; None evaluates them on the thread itself.
        """
        self._state = state
        self._metrics = metrics
        self._engine = engine

    async def decide(self, kind: str, decide: Callable[[Snapshot], T]) -> T:
        """Make a decision.

        Args:
            kind: As in metrics; empty for one that is not measured.
        """

        def measured(snapshot: Snapshot) -> T:
            with self._measured(kind):
                return decide(snapshot)

        return await self._run(measured)

    async def place(
        self,
        reserved_pods: Sequence[ReservedPod],
        on_placement: Callable[[ReservedPod, Placement | Rejection], None],
    ) -> None:
        """Choose the devices of reserved pods, each on what those before it leave."""
        if reserved_pods:
            await self.place_and_decide(reserved_pods, on_placement, "", lambda _snapshot: None)

    async def place_and_decide(
        self,
        reserved_pods: Sequence[ReservedPod],
        on_placement: Callable[[ReservedPod, Placement | Rejection], None],
        kind: str,
        decide: Callable[[Snapshot], T],
    ) -> T:
        """Choose the devices of reserved pods, then make a decision on what they leave.

        Args:
            on_placement: Called with each pod, on the event loop, also if the decision fails.
            kind: As in metrics.
        """
        placements: list[tuple[ReservedPod, Placement | Rejection]] = []

        def place_then_decide(snapshot: Snapshot) -> T:
            for reserved_pod in reserved_pods:
                with self._measured(PLACE):
                    placement = place(reserved_pod.pod, reserved_pod.reservation.node, snapshot)
                placements.append((reserved_pod, placement))
                if isinstance(placement, Placement) and placement.allocations:
                    snapshot = self._with_placement(placement)
            with self._measured(kind):
                return decide(snapshot)

        try:
            return await self._run(place_then_decide)
        finally:
            for reserved_pod, placement in placements:
                on_placement(reserved_pod, placement)

    def _with_placement(self, placement: Placement) -> Snapshot:
        """Return the snapshot with what a pod gets; its promise is queued as a change, too."""
        promised_claims = {
            claim_name(claim): with_allocation(claim, allocation)
            for claim, allocation in placement.allocations
        }
        return self._state.snapshot({Kind.CLAIM: promised_claims})

    async def _run(self, decide: Callable[[Snapshot], T]) -> T:
        changes = self._state.take_changes()

        def run() -> T:
            use_engine(self._engine)
            snapshot = self._state.snapshot(changes)
            with self._counted(snapshot.cluster.costs):
                return decide(snapshot)

        try:
            return await asyncio.to_thread(run)
        except Exception:
            self._state.rebuild()  # A change may have been applied in part.
            raise

    @contextmanager
    def _counted(self, costs: SearchCosts) -> Iterator[None]:
        """Count what the searches of a decision cost."""
        cached, searched, steps = costs.cached, costs.searched, costs.steps
        try:
            yield
        finally:
            self._metrics.count_verdicts(
                cached=costs.cached - cached,
                searched=costs.searched - searched,
                steps=costs.steps - steps,
            )

    @contextmanager
    def _measured(self, kind: str) -> Iterator[None]:
        """Measure a decision, if it has a kind."""
        began = time.perf_counter()
        try:
            yield
        finally:
            if kind:
                self._metrics.observe_decision(kind, time.perf_counter() - began)
