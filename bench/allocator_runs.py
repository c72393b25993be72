"""Timed runs of our allocator on the scenarios of testing/oracle/workloads.py."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, islice
from statistics import median
from time import perf_counter
from typing import Final

from allocator.cluster.cluster import Cluster
from allocator.model import pools, requests, slice_index, usage
from allocator.model.outcome import AttemptFailed, BudgetExhausted, DoesNotFit
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import allocate
from kube.api.meta import decode, encode
from kube.api.resource import ResourceClaim
from testing.allocation.caches import clear_caches
from testing.oracle import ours, workloads
from testing.oracle.draft import Json
from testing.oracle.ours import Objects
from testing.oracle.scenarios import Scenario

REQUESTS: Final = 5
"""Requests in a round, of which the median counts."""
ALLOCATIONS: Final = 500
_AMOUNT: Final = "40Gi"
_LESS_MI: Final = 40_000
"""Less than all devices of the workloads have, so that the verdict stays the same."""


class ClusterRun:
    """A cluster that has evaluated a scenario's claims before."""

    def __init__(self, scenario: Scenario) -> None:
        self._claims = scenario["claims"]
        self._numbers = count()
        self._objects = ours.objects(scenario)
        self.cluster = build_cluster(self._objects)
        self._changes = self._change_usage()
        self.cluster.verdicts(self._new_claims())

    def new_request(self) -> float:
        """Return the seconds for claims without cached verdicts, but with cached selectors."""
        return median(seconds(self.cluster.verdicts, self._new_claims()) for _ in range(REQUESTS))

    def after_a_change(self) -> float:
        """Return the seconds for a cached request after the usage of one node changed.

        All changes are undone at the end, so that the next round is about the same objects as upstream's:
        each node that stays changed is a class of its own, which a new request has to search.
        """
        times, undo = [], []
        for change, revert in islice(self._changes, REQUESTS):
            pending = self._new_claims()
            self.cluster.verdicts(pending)
            change()
            undo.append(revert)
            times.append(seconds(self.cluster.verdicts, pending))
        for revert in undo:
            revert()
        return median(times)

    def cold_selectors(self) -> float:
        """Return the seconds for a new selector; it has to be compiled and evaluated."""
        return seconds(
            self.cluster.verdicts, self._new_claims(f"{_LESS_MI + next(self._numbers)}Mi")
        )

    def allocation(self) -> float:
        """Return the seconds to add or remove the usage of one claim."""
        claims = self._objects.allocated_claims[:ALLOCATIONS]
        times = [seconds(self.cluster.release, claim) for claim in claims]
        times += [seconds(self.cluster.allocate, claim) for claim in claims]
        return median(times)

    def _new_claims(self, amount: str = _AMOUNT) -> PendingClaims:
        """Return the claims with a new toleration, so that no verdict is cached for them.

        No device has the taint, so the verdict stays the same, and names do not make a claim new.
        """
        claims = json.loads(json.dumps(self._claims).replace(_AMOUNT, amount))
        for claim in claims:
            for request in claim["spec"]["devices"]["requests"]:
                key = f"example.com/unused-{next(self._numbers)}"
                request["exactly"]["tolerations"] = [{"key": key, "operator": "Exists"}]
        return self.cluster.resolve([_claim(claim) for claim in claims])

    def _change_usage(self) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
        """Yield changes of usage, each with its inverse: a claim is released, or one allocated on another node."""
        cluster = self.cluster
        for claim in self._objects.allocated_claims:
            yield partial(cluster.release, claim), partial(cluster.allocate, claim)
        for number, node in enumerate(self._objects.nodes):
            device = number % workloads.DEVICES_PER_NODE
            claim = _claim(workloads.holder(node.metadata.name, device))
            yield partial(cluster.allocate, claim), partial(cluster.release, claim)


class NodeRun:
    """Repeated searches of the first node of a scenario, with cached selectors."""

    def __init__(self, scenario: Scenario) -> None:
        objects = ours.objects(scenario)
        self._cluster = build_cluster(objects)
        self._claims = objects.claims
        self._node = objects.nodes[0].metadata.name
        self.run()

    def run(self) -> Plan | DoesNotFit | BudgetExhausted | AttemptFailed:
        """Return the outcome or the error."""
        try:
            return self._cluster.verdict(self._cluster.resolve(self._claims), self._node)
        except AttemptFailed as error:
            return error


def cold_node(scenario: Scenario, *, rounds: int = 1) -> float:
    """Return the seconds of the last of some first searches of a node, each with empty caches.

    Only compiled selectors stay cached. As in upstream's time, decoding does not count, but the
    construction of an allocator does. Upstream's time is that of the last of `rounds`, too, in a
    process that has run the same code before.
    """
    searched = 0.0
    for _ in range(rounds):
        objects = ours.objects(scenario)
        clear_caches()
        searched = seconds(_search_first_node, objects)
    return searched


def with_new_selectors(scenario: Scenario, number: int) -> Scenario:
    """Return the scenario with new selector texts, and the same verdict."""
    text = json.dumps(scenario["claims"]).replace(_AMOUNT, f"{_LESS_MI - number}Mi")
    return {**scenario, "claims": json.loads(text)}


def _search_first_node(objects: Objects) -> object:
    options = AllocatorOptions(features=objects.features)
    pending = requests.resolve_requests(objects.claims, objects.classes, objects.features)
    in_use = usage.gather_usage(objects.allocated_claims, objects.features)
    index = slice_index.build_index(objects.slices, objects.features)
    return allocate(pools.node_devices(index, objects.nodes[0]), pending, in_use, options)


def build_cluster(objects: Objects) -> Cluster:
    """Return a cluster with all objects of a scenario."""
    return Cluster(
        slices=objects.slices,
        nodes=objects.nodes,
        claims=objects.allocated_claims,
        classes=objects.classes,
        options=AllocatorOptions(features=objects.features),
    )


def seconds(call: Callable[..., object], *arguments: object) -> float:
    """Return the duration of a call."""
    began = perf_counter()
    call(*arguments)
    return perf_counter() - began


def medians(*sides: Callable[[], float], rounds: int) -> Sequence[float]:
    """Return the median of each side, run alternately so that conditions are the same."""
    rows = [[side() for side in sides] for _ in range(rounds)]
    return [median(times) for times in zip(*rows, strict=True)]


def _claim(document: Json) -> ResourceClaim:
    return decode(encode(document), ResourceClaim)
