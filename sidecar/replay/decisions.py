"""Decisions made again: is the answer that a sidecar gave the one that its inputs give? Pure.

The log has the order, what nodes had left, the kinds of pods, and the devices in use; the recording has the objects. Each
decision is made by the code that a sidecar runs, and what was recorded counts for the next one, so a
difference does not spread. A decision that comes out otherwise has a cause: what neither of them has.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from allocator.features.consumer_limits import consumer_limits
from allocator.pods.claims import Name, claim_name
from allocator.pods.eligible_nodes import EligibleNodes
from allocator.strategies.by_node_pool import pool_strategies
from allocator.strategies.capacity_weights import driver_weights
from clusterstate.cluster_cache import ClusterCache
from clusterstate.kinds import Kind
from kube.api.core import Pod
from kube.api.ownership import OwnedDriver
from kube.api.resource import DeviceRequestAllocationResult
from sidecar.model.logged_decisions import (
    Beginning,
    ClaimDevices,
    ClaimsChanged,
    Decided,
    Entry,
    HeadroomChanged,
    KindsChanged,
    Placed,
)
from sidecar.model.rejections import Rejection
from sidecar.plan.decisions import Fits, find_nodes
from sidecar.plan.nominations import place_beside_rivals
from sidecar.plan.pod_claims import claim_names
from sidecar.plan.snapshot import Snapshot
from sidecar.replay.objects import RecordedObjects
from sidecar.state.decision_log import describe_outcome
from sidecar.state.pod_room import PodRoom

SAME_MOMENT_S: Final = 2.0
"""Seconds around a change of the inventory in which it is not known whether a decision knew it."""
MAX_ROUNDS: Final = 64
"""Answers until one is settled: the sidecar may have known from before what takes several of them."""

NOT_RECORDED: Final = "notRecorded"
"""The recording does not have the pod."""
GROUP: Final = "group"
"""The pod was placed with its group, which is not done again."""
NOT_SETTLED: Final = "notSettled"
"""Not all nodes were known when the answer was given."""
SAME_MOMENT: Final = "sameMoment"
"""The inventory changed within two seconds."""
OTHER: Final = "other"
"""None of these."""


class DecidedAgain(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The recorded decisions of the bridge beside those that the same inputs give.

    Attributes:
        answers: The number of answers about the nodes of a pod.
        same_answers: Those that come out the same: nodes, scores and order, or the reason for none.
        placements: The number of choices of devices for a pod on its node.
        same_placements: Those that come out the same.
        otherwise: Cause to number of the others, and of those that are not made again.
        examples: Some of them in words.
        beginnings: The number of times that the log began, the first included.
    """

    answers: int = 0
    same_answers: int = 0
    placements: int = 0
    same_placements: int = 0
    otherwise: Mapping[str, int] = {}
    examples: tuple[str, ...] = ()
    beginnings: int = 0


MAX_EXAMPLES: Final = 5


class DecisionReplay:
    """The log of a sidecar so far, and the state that it makes."""

    def __init__(self, objects: RecordedObjects) -> None:
        """Begin before the log.

        Args:
            objects: The recorded objects; they go on while the log does.
        """
        self._objects = objects
        self._beginning: Beginning | None = None
        self._cache: ClusterCache | None = None
        self._settings: tuple[OwnedDriver, ...] = ()
        self._room = PodRoom()
        self._in_use: dict[Name, ClaimDevices] = {}
        self._eligible_nodes = EligibleNodes()
        self._counts: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()
        self._examples: list[str] = []

    def take(self, entry: Entry, second: float) -> None:
        """Take an entry of the log.

        Args:
            entry: The entry.
            second: Its second in the recording.
        """
        match entry:
            case Beginning():
                self._begin(entry)
            case _ if self._beginning is None:
                return
            case ClaimsChanged(claims=claims):
                self._use(claims)
            case HeadroomChanged(changes=changes):
                number = self._room.number
                since = number if changes.since else 0
                self._room.take(replace(changes, number=number + 1, since=since))
            case KindsChanged(kinds=kinds):
                self._room.use_kinds(kinds)
            case Placed():
                self._place(entry, second)
            case Decided():
                self._decide(entry, second)

    def result(self) -> DecidedAgain:
        """Return the comparison of the decisions so far."""
        return DecidedAgain(
            answers=self._counts["answers"],
            same_answers=self._counts["same_answers"],
            placements=self._counts["placements"],
            same_placements=self._counts["same_placements"],
            otherwise=dict(sorted(self._causes.items())),
            examples=tuple(self._examples),
            beginnings=self._counts["beginnings"],
        )

    # --- the state --------------------------------------------------------------------------------

    def _begin(self, beginning: Beginning) -> None:
        self._counts["beginnings"] += 1
        self._beginning, self._cache = beginning, None
        self._room, self._in_use = PodRoom(), {}

    def _use(self, claims: Sequence[ClaimDevices]) -> None:
        for claim in claims:
            name = (claim.namespace, claim.name)
            if claim.devices:
                self._in_use[name] = claim
            else:
                self._in_use.pop(name, None)
        if self._cache is not None:
            self._apply_claims({(claim.namespace, claim.name) for claim in claims})

    def _apply_claims(self, names: set[Name]) -> None:
        claims = {name: self._objects.claim(name, self._in_use.get(name)) for name in names}
        if self._cache is not None:
            self._cache.apply({Kind.CLAIM: claims})

    def _snapshot(self, beginning: Beginning, pod: Pod, second: float) -> Snapshot:
        """Return the state of a decision about a pod."""
        changes, settings = self._objects.take_inventory(second), self._objects.settings
        cache = self._cache
        if cache is None or settings != self._settings:
            cache = self._new_cache(beginning, settings)
        elif changes:
            cache.apply(changes)
        self._apply_claims(set(claim_names(pod)))
        weights = driver_weights(settings)
        return Snapshot(
            cluster=cache.cluster,
            claims=cache.claims,
            classes=cache.classes,
            extended_resources=cache.extended_resources,
            pods={},
            drivers=frozenset(beginning.drivers),
            eligible_nodes=self._eligible_nodes,
            default_strategy=beginning.default_strategy,
            pool_strategies=pool_strategies(settings),
            weights=weights,
            room=self._room.view(cache.cluster, weights),
        )

    def _new_cache(self, beginning: Beginning, settings: tuple[OwnedDriver, ...]) -> ClusterCache:
        cache = ClusterCache(
            beginning.features,
            frozenset(beginning.uniform_config_drivers),
            consumer_limits(settings),
        )
        claims = {
            name: self._objects.claim(name, devices) for name, devices in self._in_use.items()
        }
        cache.apply({**self._objects.inventory(), Kind.CLAIM: claims})
        self._cache, self._settings = cache, settings
        return cache

    # --- decisions --------------------------------------------------------------------------------

    def _decide(self, decided: Decided, second: float) -> None:
        self._counts["answers"] += 1
        pod = self._objects.pod(decided.pod)
        if pod is None or self._beginning is None:
            self._causes[NOT_RECORDED] += 1
            return
        snapshot = self._snapshot(self._beginning, pod, second)
        again = self._answer_again(pod, decided, snapshot)
        if replace(again, settled=decided.settled) == decided:
            self._counts["same_answers"] += 1
        else:
            cause = self._cause(decided.beside, second, is_settled=decided.settled)
            self._count(cause, f"{_label(pod)}: {_words(decided)}; again: {_words(again)}")

    def _answer_again(self, pod: Pod, decided: Decided, snapshot: Snapshot) -> Decided:
        """Return the entry that the answer gives now."""
        blank = Decided(
            pod=decided.pod,
            every=decided.every,
            requests=decided.requests,
            beside=decided.beside,
        )
        rounds = 0
        while True:
            rounds += 1
            outcome = find_nodes(pod, snapshot, all_nodes=decided.every, requests=decided.requests)
            is_partial = isinstance(outcome, Fits) and not outcome.is_settled
            is_unfinished = isinstance(outcome, Rejection) and outcome.is_unfinished
            goes_on = is_unfinished or (is_partial and decided.settled)
            if not goes_on or rounds == MAX_ROUNDS:
                return describe_outcome(blank, outcome)

    def _place(self, placed: Placed, second: float) -> None:
        self._counts["placements"] += 1
        pod = self._objects.pod(placed.pod)
        if GROUP in placed.beside:
            self._causes[GROUP] += 1
        elif pod is None or self._beginning is None:
            self._causes[NOT_RECORDED] += 1
        else:
            snapshot = self._snapshot(self._beginning, pod, second)
            outcome = place_beside_rivals(pod, placed.node, snapshot)
            code = outcome.code if isinstance(outcome, Rejection) else ""
            again = {
                claim_name(claim): _devices(allocation.devices.results or ())
                for claim, allocation in (
                    () if isinstance(outcome, Rejection) else outcome.allocations
                )
            }
            recorded = {
                (claim.namespace, claim.name): _devices(claim.devices) for claim in placed.claims
            }
            if (code, again) == (placed.code, recorded):
                self._counts["same_placements"] += 1
            else:
                was = placed.code or _devices_text(recorded)
                now = code or _devices_text(again)
                cause = self._cause(placed.beside, second)
                self._count(cause, f"{_label(pod)} on {placed.node}: {was}; again: {now}")
        self._use(placed.claims)

    def _cause(self, beside: Sequence[str], second: float, *, is_settled: bool = True) -> str:
        """Return the cause for a decision that comes out otherwise."""
        if beside:
            return beside[0]
        if not is_settled:
            return NOT_SETTLED
        next_s = self._objects.next_change_s()
        near = [*self._objects.changed_s[-1:], *(() if next_s is None else (next_s,))]
        if any(abs(changed_s - second) <= SAME_MOMENT_S for changed_s in near):
            return SAME_MOMENT
        return OTHER

    def _count(self, cause: str, example: str) -> None:
        self._causes[cause] += 1
        if len(self._examples) < MAX_EXAMPLES:
            self._examples.append(f"{cause}: {example}")


def _devices(results: Sequence[DeviceRequestAllocationResult]) -> list[tuple[object, ...]]:
    """Return the choice in results; IDs of shares are random, and left out."""
    return [
        (
            *(result.request, result.driver, result.pool, result.device),
            bool(result.admin_access),
            dict(result.consumed_capacity or {}),
        )
        for result in results
    ]


def _devices_text(claims: Mapping[Name, Sequence[tuple[object, ...]]]) -> str:
    names = [
        f"{pool}/{device}" for devices in claims.values() for _, _, pool, device, *_ in devices
    ]
    return ", ".join(names) or "no devices"


def _label(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _words(decided: Decided) -> str:
    if decided.code or not decided.nodes:
        return decided.code or "no devices needed"
    return f"{decided.nodes} nodes from {decided.first} on ({decided.digest})"
