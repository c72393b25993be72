"""Our allocator, asked about the scenarios of tests/oracle/workloads.py, and timed."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from statistics import median
from time import perf_counter
from typing import Final

from allocator.cluster import Cluster
from allocator.core import pools, requests, usage
from allocator.core.model import Asked, Plan
from allocator.core.outcome import AttemptFailed, GaveUp, Unfit
from allocator.core.problem import Rules
from allocator.core.search import allocate
from kube.api.meta import decode, encode
from kube.api.resource import ResourceClaim
from tests.oracle import ours, workloads
from tests.oracle.draft import Json
from tests.oracle.ours import Objects
from tests.oracle.scenarios import Scenario

ASKED: Final = 5
"""Questions in a round, of which the median counts."""
APPLIED: Final = 500
_AMOUNT: Final = "40Gi"
_LESS_MI: Final = 40_000
"""Less than all devices of the workloads have, so that the answer stays the same."""


class Asking:
    """A cluster of ours that has been asked about a scenario's claims before."""

    def __init__(self, scenario: Scenario) -> None:
        self._claims = scenario["claims"]
        self._fresh = count()
        self._found = ours.objects(scenario)
        self._changes = self._holders()
        self.cluster = cluster_of(self._found)
        self.cluster.verdicts(self._asked())

    def new_question(self) -> float:
        """Return the seconds of claims that were never asked about; we know their selectors."""
        return median(seconds(self.cluster.verdicts, self._asked()) for _ in range(ASKED))

    def after_a_change(self) -> float:
        """Return the seconds of a known question after devices of one node changed hands."""
        took = []
        for _ in range(ASKED):
            asked = self._asked()
            self.cluster.verdicts(asked)
            next(self._changes)
            took.append(seconds(self.cluster.verdicts, asked))
        return median(took)

    def cold_selectors(self) -> float:
        """Return the seconds of a selector that was never seen, to be compiled and judged."""
        return seconds(self.cluster.verdicts, self._asked(f"{_LESS_MI + next(self._fresh)}Mi"))

    def applied(self) -> float:
        """Return the seconds that one claim's devices take to be counted, or let go."""
        held = self._found.allocated[:APPLIED]
        took = [seconds(self.cluster.release, claim) for claim in held]
        took += [seconds(self.cluster.allocate, claim) for claim in held]
        return median(took)

    def _asked(self, amount: str = _AMOUNT) -> Asked:
        """Return the claims with requests that have names of their own."""
        claims = json.loads(json.dumps(self._claims).replace(_AMOUNT, amount))
        for claim in claims:
            for request in claim["spec"]["devices"]["requests"]:
                request["name"] += f"-{next(self._fresh)}"
        return self.cluster.ask([_claim(each) for each in claims])

    def _holders(self) -> Iterator[None]:
        """Let one holder go with each step or, when there is none, put one on another node."""
        for held in self._found.allocated:
            self.cluster.release(held)
            yield
        for number, node in enumerate(self._found.nodes):
            device = number % workloads.DEVICES_PER_NODE
            self.cluster.allocate(_claim(workloads.holder(node.metadata.name, device)))
            yield


class Attempt:
    """Claims on the first node of a scenario, asked again and again with selectors known."""

    def __init__(self, scenario: Scenario) -> None:
        found = ours.objects(scenario)
        self._cluster = cluster_of(found)
        self._claims = found.claims
        self._node = found.nodes[0].metadata.name
        self.run()

    def run(self) -> Plan | Unfit | GaveUp | AttemptFailed:
        """Return the outcome; an error of the attempt is one, too."""
        try:
            return self._cluster.verdict(self._cluster.ask(self._claims), self._node)
        except AttemptFailed as error:
            return error


def cold_node(scenario: Scenario) -> float:
    """Return the seconds of the first question about objects that were just decoded.

    Whatever we remember is forgotten, apart from compiled selectors. As in upstream's time,
    decoding does not count, but making an allocator of slices and held devices does.
    """
    found = ours.objects(scenario)
    _forget()
    return seconds(_attempted, found)


def recompiled(scenario: Scenario, number: int) -> Scenario:
    """Return a scenario whose selectors have a text that was never seen; the answer is the same."""
    text = json.dumps(scenario["claims"]).replace(_AMOUNT, f"{_LESS_MI - number}Mi")
    return {**scenario, "claims": json.loads(text)}


def _attempted(found: Objects) -> object:
    rules = Rules(features=found.features)
    asked = requests.asked(found.claims, found.classes, found.features)
    held = usage.gathered(found.allocated, found.features)
    index = pools.index(found.slices, found.features)
    return allocate(pools.node_devices(index, found.nodes[0]), asked, held, rules)


def _forget() -> None:
    """Empty every cache of the allocator."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith("allocator."):
            for each in vars(module).values():
                # Not those that are only imported: kube.cel keeps compiled selectors.
                if getattr(each, "__module__", None) == name and hasattr(each, "cache_clear"):
                    each.cache_clear()


def cluster_of(found: Objects) -> Cluster:
    """Return a cluster that has taken in all objects of a scenario."""
    return Cluster(
        slices=found.slices,
        nodes=found.nodes,
        claims=found.allocated,
        classes=found.classes,
        rules=Rules(features=found.features),
    )


def seconds(call: Callable[..., object], *arguments: object) -> float:
    """Return how long a call takes."""
    began = perf_counter()
    call(*arguments)
    return perf_counter() - began


def medians(*sides: Callable[[], float], rounds: int) -> Sequence[float]:
    """Return the median of each side, asked in turn so that all meet the same weather."""
    took = [[side() for side in sides] for _ in range(rounds)]
    return [median(times) for times in zip(*took, strict=True)]


def _claim(document: Json) -> ResourceClaim:
    return decode(encode(document), ResourceClaim)
