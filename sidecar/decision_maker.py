"""Makes decisions, one after the other: quick ones on the event loop, all others on a thread.

During a decision on a thread the event loop goes on renewing the Lease and reading watches. A hop to a
thread and back costs more than most decisions, so a decision is made on the event loop where those
about the same requests were quick before. One that takes long there after all delays the event loop once.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

from allocator.cluster.canonical_requests import encode_requests
from allocator.cluster.verdict_cache import SearchCosts
from allocator.pods.claims import claim_name
from clusterstate.kinds import Kind
from kube.api.core import Pod
from kube.cel.engine import SelectorEngine, evaluating_with
from kube.least_recently_used import LeastRecentlyUsed
from sidecar.metrics import SidecarMetrics
from sidecar.plan.nominations import place_beside_rivals
from sidecar.plan.placement import Placement, with_allocation
from sidecar.plan.pod_claims import claim_names
from sidecar.plan.rejections import Rejection
from sidecar.plan.snapshot import Snapshot
from sidecar.protocol import Reservation
from sidecar.state import ClusterState

PLACE: Final = "place"
NEW: Final = "_new"
"""After the kind of a decision about requests that are not among the remembered ones, which takes longer."""
QUICK_S: Final = 0.005
"""Time of a quick decision, with the changes that are applied for it."""
QUICK_AGAIN: Final = 16
"""Quick decisions after a long one about the same requests, until they are made on the event loop again:
whoever writes pods chooses which decisions are long."""
MAX_PLACED: Final = 8
"""Reserved pods whose devices are chosen with a quick decision."""
MAX_REMEMBERED: Final = 4096
"""Requests of which is known whether decisions about them are quick."""

T = TypeVar("T")


class ReservedPod(NamedTuple):
    """A pod and the node that the scheduler reserved for it."""

    reservation: Reservation
    pod: Pod


class DecisionMaker:
    """Makes decisions on the cluster as it is; the caller sees to it that it is one at a time."""

    def __init__(
        self,
        state: ClusterState,
        metrics: SidecarMetrics,
        engine: SelectorEngine | None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Begin without a decision.

        Args:
            engine: Evaluates selectors; None evaluates them in place.
            clock: Monotonic seconds.
        """
        self._state = state
        self._metrics = metrics
        self._engine = engine
        self._clock = clock
        # How many quick decisions are missing, by hash of the requests; a collision costs time, and
        # changes no decision.
        self._missing_quick = LeastRecentlyUsed[int, int](MAX_REMEMBERED)

    async def decide(self, kind: str, decide: Callable[[Snapshot], T]) -> T:
        """Make a decision on a thread.

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
            await self.place_and_decide(
                reserved_pods,
                on_placement,
                "",
                lambda _snapshot: None,
                about=reserved_pods[0].pod,
            )

    async def place_and_decide(
        self,
        reserved_pods: Sequence[ReservedPod],
        on_placement: Callable[[ReservedPod, Placement | Rejection], None],
        kind: str,
        decide: Callable[[Snapshot], T],
        *,
        about: Pod | None,
    ) -> T:
        """Choose the devices of reserved pods, then make a decision on what they leave.

        Args:
            on_placement: Called with each pod, on the event loop, also if the decision fails.
            kind: As in metrics, where it has `NEW` behind it if the requests are new.
            about: The pod whose requests tell how long the decision takes; None if they do not.
        """
        placements: list[tuple[ReservedPod, Placement | Rejection]] = []
        requests: set[int] = set()
        if about is not None:
            about_requests = self._requests(about)
            if kind and self._missing_quick.get(about_requests) is None:
                kind += NEW
            if len(reserved_pods) <= MAX_PLACED:
                requests = {about_requests, *(self._requests(pod) for _, pod in reserved_pods)}

        def place_then_decide(snapshot: Snapshot) -> T:
            for reserved_pod in reserved_pods:
                with self._measured(PLACE):
                    node = reserved_pod.reservation.node
                    placement = place_beside_rivals(reserved_pod.pod, node, snapshot)
                placements.append((reserved_pod, placement))
                if isinstance(placement, Placement) and placement.allocations:
                    snapshot = self._with_placement(placement)
            with self._measured(kind):
                return decide(snapshot)

        try:
            return await self._run(place_then_decide, requests)
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

    def _requests(self, pod: Pod) -> int:
        """Return a hash of what the claims of a pod request, whatever the names of requests."""
        claims = map(self._state.claims.store.get, claim_names(pod))
        known_claims = [claim for claim in claims if claim is not None]
        return hash(encode_requests(known_claims, self._state.allocator_options))

    async def _run(
        self, decide: Callable[[Snapshot], T], requests: Collection[int] = frozenset()
    ) -> T:
        changes = self._state.take_changes()

        def run() -> T:
            began = self._clock()
            try:
                with evaluating_with(self._engine):
                    snapshot = self._state.snapshot(changes)
                    with self._counted(snapshot.cluster.costs):
                        return decide(snapshot)
            finally:
                was_quick = self._clock() - began <= QUICK_S
                for key in requests:
                    missing = self._missing_quick.get(key) or 1
                    self._missing_quick[key] = max(missing - 1, 0) if was_quick else QUICK_AGAIN

        try:
            is_quick = bool(requests) and all(self._missing_quick.get(key) == 0 for key in requests)
            if is_quick and self._state.is_cheap(changes):
                return run()
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
        began = self._clock()
        try:
            yield
        finally:
            if kind:
                self._metrics.observe_decision(kind, self._clock() - began)
