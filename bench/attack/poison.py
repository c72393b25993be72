"""Pods that an editor has the bridge decide about, beside honest pods that are bound.

Honest pods are stored, one after the other at a steady rate, and bound by the bridge; a watch tells when.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from http.client import ACCEPTED, CREATED, OK
from random import Random
from statistics import median
from typing import Final, NamedTuple

from bench.attack.honest import percentiles
from bench.attack.stage import HONEST, LONG_TEMPLATE, TEMPLATE, Stage, Used, Watch
from e2e.access import Object
from e2e.attackers.poison import Poison, pod_of, thirty_lists, two_pods
from e2e.attackers.target import Caller, Target
from e2e.bridge import bridged
from e2e.objects import pod
from e2e.users import EDITOR

PERIOD_S: Final = 0.3
"""The pause between two honest pods."""
SETTLE_S: Final = 2.0
"""The pause after the deletion of the hostile pods."""
BOUND_WITHIN_S: Final = 60.0
"""A pod that is not bound by then counts with this time, and as failed."""
DURING_S: Final = 1.0
"""The p95 of honest pods may be so much above that before."""
AFTER_S: Final = 0.5
"""The same from `SETTLE_S` after the deletion on."""
HEAD_START_S: Final = 1.0
"""The time from the creation of hostile pods to the first honest one."""


class Attack(NamedTuple):
    """One attack on the bridge.

    Attributes:
        poison: Returns its claims.
        template: The template of the claims of honest pods.
    """

    name: str
    poison: Poison
    template: str


ATTACKS: Final = (
    Attack("editor: two pods with six selectors", two_pods, TEMPLATE),
    Attack("editor: thirty pods with long lists", thirty_lists, LONG_TEMPLATE),
)


class Bound(NamedTuple):
    """The time until honest pods were bound, in seconds; failed ones were not."""

    p50_s: float
    p95_s: float
    pods: int
    failed: int


class Poisoned(NamedTuple):
    """One run."""

    before: Bound
    during: Bound
    after: Bound
    used: Used


class Row(NamedTuple):
    """The median of several runs of one attack; seconds until honest pods were bound.

    Attributes:
        faults: The bounds that are broken, in words.
    """

    attack: str
    honest: int
    before_p50: float
    before_p95: float
    during_p50: float
    during_p95: float
    after_p50: float
    after_p95: float
    failed: int
    cpu: float
    memory_mib: float
    faults: tuple[str, ...]


def measure(
    stage: Stage, attacks: Sequence[Attack], devices: int, honest: int, runs: int
) -> Iterator[Row]:
    """Yield a row for each attack.

    Args:
        devices: The number of devices of one driver.
        honest: Pods in a phase.
    """
    for attack in attacks:
        yield row(
            attack.name,
            [
                _poison(stage, attack, stage.target(devices), honest, Random(f"{run}/poison"))
                for run in range(runs)
            ],
        )


def _poison(stage: Stage, attack: Attack, target: Target, honest: int, chance: Random) -> Poisoned:
    with stage.cluster.watching("pods") as (_, events), target.caller(HONEST) as caller:
        pods = _HonestPods(caller, events, attack.template)
        try:
            before = pods.bound(honest)
            with target.caller(EDITOR) as editor, Watch(stage.cluster) as watch:
                names = _create(
                    editor, target, attack.poison(target.device_class, target.driver, chance)
                )
                time.sleep(HEAD_START_S)
                during = pods.bound(honest)
                _delete(editor, target, names)
            time.sleep(SETTLE_S)
            after = pods.bound(honest)
        finally:
            pods.delete()
    stage.cluster.wait_until(
        lambda: not stage.cluster.objects("pods") and not stage.cluster.objects("resourceclaims"),
        "pods and their claims are gone",
        timeout_s=300.0,
    )
    figures = (f"{part.p95_s:.2f} s" for part in (before, during, after))
    print(f"{attack.name}: p95 {', '.join(figures)}", file=sys.stderr, flush=True)
    return Poisoned(before, during, after, watch.used)


def _create(caller: Caller, target: Target, claims: Sequence[Object]) -> list[str]:
    """Create hostile claims and their pods; return their names."""
    names = [document["metadata"]["name"] for document in claims]
    for name, document in zip(names, claims, strict=True):
        for plural, created in (("resourceclaims", document), ("pods", pod_of(document))):
            status, body = caller.request("POST", target.path(plural), created)
            assert status == CREATED, f"{plural} {name}: {status} {body.decode(errors='replace')}"
    return names


def _delete(caller: Caller, target: Target, names: Sequence[str]) -> None:
    for name in names:
        for path in (
            f"{target.path('pods', name)}?gracePeriodSeconds=0",
            target.path("resourceclaims", name),
        ):
            status, body = caller.request("DELETE", path)
            assert status in {OK, ACCEPTED}, f"{path}: {status} {body.decode(errors='replace')}"


class _HonestPods:
    """Creates pods at a steady rate, and tells when they were bound."""

    def __init__(self, caller: Caller, events: Sequence[Object], template: str) -> None:
        self._caller = caller
        self._events = events
        self._template = template
        self._read = 0
        self._bound_s: dict[str, float] = {}
        self._count = 0
        self._path = f"/api/v1/namespaces/{HONEST}/pods"

    def bound(self, count: int) -> Bound:
        """Create so many pods, and return the time of each from its creation on."""
        created_s: dict[str, float] = {}
        failed = 0
        due_s = time.monotonic()
        for _ in range(count):
            self._count += 1
            name = f"honest-{self._count}"
            self._follow_until(due_s)
            created_s[name] = time.monotonic()
            document = bridged(pod(name, claims={"gpu": self._template}))
            status, body = self._caller.request("POST", self._path, document)
            assert status == CREATED, f"{name}: {status} {body.decode(errors='replace')}"
            due_s = max(due_s + PERIOD_S, time.monotonic() - 1)
        deadline_s = time.monotonic() + BOUND_WITHIN_S
        while not created_s.keys() <= self._bound_s.keys() and time.monotonic() < deadline_s:
            self._follow_until(time.monotonic() + 0.1)
        took = []
        for name, at_s in created_s.items():
            bound_s = self._bound_s.get(name)
            failed += bound_s is None
            took.append(BOUND_WITHIN_S if bound_s is None else bound_s - at_s)
        p50, p95 = percentiles(took)
        return Bound(round(p50, 3), round(p95, 3), count, failed)

    def delete(self) -> None:
        """Delete all pods, each in its grace period.

        Without one, the bridge would hold their devices back, as of containers that may still run, and
        the next attack's honest pods would wait for them.
        """
        status, body = self._caller.request("DELETE", self._path)
        assert status == OK, f"{self._path}: {status} {body.decode(errors='replace')}"

    def _follow_until(self, end_s: float) -> None:
        """Read the watch until a time, and take note of when pods were bound."""
        while True:
            while self._read < len(self._events):
                document = self._events[self._read]["object"]
                self._read += 1
                name = document["metadata"]["name"]
                if document["spec"].get("nodeName"):
                    self._bound_s.setdefault(name, time.monotonic())
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, 0.01))


def row(attack: str, runs: Sequence[Poisoned]) -> Row:
    """Return the row of an attack, with the bounds that are broken."""
    figures: dict[str, float] = {}
    for phase in ("before", "during", "after"):
        bound: list[Bound] = [getattr(run, phase) for run in runs]
        figures[f"{phase}_p50"] = round(median(part.p50_s for part in bound), 3)
        figures[f"{phase}_p95"] = round(median(part.p95_s for part in bound), 3)
    failed = sum(run.during.failed + run.after.failed for run in runs)
    faults = []
    for phase, allowed_s in (("during", DURING_S), ("after", AFTER_S)):
        bound_s = figures["before_p95"] + allowed_s
        if figures[f"{phase}_p95"] > bound_s:
            faults.append(f"p95 {phase} {figures[f'{phase}_p95']:.2f} s, at most {bound_s:.2f}")
    if failed:
        faults.append(f"{failed} were not bound within {BOUND_WITHIN_S:.0f} s")
    return Row(
        attack=attack,
        honest=sum(run.during.pods for run in runs),
        **figures,
        failed=failed,
        cpu=round(median(run.used.cpu for run in runs), 2),
        memory_mib=median(run.used.memory_mib for run in runs),
        faults=tuple(faults),
    )
