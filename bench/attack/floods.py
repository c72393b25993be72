"""Floods of reviews beside honest pods, and the same floods beside an API server that does not call us."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from bench.attack.honest import LARGE, SMALL, Latencies, create
from bench.attack.stage import Stage, Used, Watch
from e2e.attackers.flood import Attacker, Flood
from e2e.attackers.target import Target

FACTOR: Final = 2.0
ALLOWANCE_MS: Final = 250.0
"""The p95 of honest pods is at most so many times that of the control, and so many milliseconds."""
SIZES: Final = (SMALL, LARGE)


class Flooded(NamedTuple):
    """Honest pods beside one flood.

    Attributes:
        before: The latencies before it by size of the pods.
        during: Likewise.
        after: Likewise.
        used: The resources that our processes took during the flood.
        statuses: The statuses of the answers that the attacker got.
    """

    before: Mapping[str, Latencies]
    during: Mapping[str, Latencies]
    after: Mapping[str, Latencies]
    used: Used
    statuses: Mapping[int, int]


class Control(NamedTuple):
    """The same flood without our webhooks."""

    during: Mapping[str, Latencies]
    statuses: Mapping[int, int]


class Row(NamedTuple):
    """The median of several runs of one attack, for pods of one size; latencies in milliseconds.

    Attributes:
        honest: Pods during the flood, in all runs.
        failed: Likewise, with those after it.
        control_failed: The number of failures in the control.
        cpu: CPU seconds of our processes in a second of the flood.
        memory_mib: The most that they had together.
        statuses: The statuses of the answers that the attacker got, in all runs.
        control_statuses: The same in the control.
        reason: The reason that an honest pod failed.
        faults: The bounds that are broken, in words.
    """

    attack: str
    size: str
    honest: int
    before_p50: float
    before_p95: float
    during_p50: float
    during_p95: float
    after_p50: float
    after_p95: float
    control_p50: float
    control_p95: float
    failed: int
    control_failed: int
    cpu: float
    memory_mib: float
    statuses: Mapping[int, int]
    control_statuses: Mapping[int, int]
    reason: str
    faults: tuple[str, ...]


class Options(NamedTuple):
    """The extent of the measurement.

    Attributes:
        honest: Pods of each size in a phase.
        runs: The number of runs of everything.
        per_second: Requests of a flood, at most.
    """

    honest: int
    runs: int
    per_second: float


def measure(
    stage: Stage, attackers: Sequence[Attacker], devices: int, options: Options
) -> Iterator[Row]:
    """Yield a row for each attacker and size, after all runs of all attackers."""
    if not attackers:
        return
    flooded: dict[Attacker, list[Flooded]] = {attacker: [] for attacker in attackers}
    controls: dict[Attacker, list[Control]] = {attacker: [] for attacker in attackers}
    for run in range(options.runs):
        for attacker in attackers:
            target = stage.target(devices)
            flooded[attacker].append(_flood(stage, attacker, target, run, options))
            _say(run, attacker.name, flooded[attacker][-1].during)
        target = stage.target(devices)
        with stage.without_webhooks():
            for attacker in attackers:
                controls[attacker].append(_control(attacker, target, run, options))
                _say(run, f"{attacker.name}, control", controls[attacker][-1].during)
    for attacker in attackers:
        for size in SIZES:
            yield row(attacker.name, size, flooded[attacker], controls[attacker])


def _flood(stage: Stage, attacker: Attacker, target: Target, run: int, options: Options) -> Flooded:
    before = create(target, options.honest, is_translated=True)
    flood = Flood(attacker, target, per_second=options.per_second, seed=2 * run)
    with flood, Watch(stage.cluster) as watch:
        during = create(target, options.honest, is_translated=True)
    after = create(target, options.honest, is_translated=True)
    return Flooded(before, during, after, watch.used, flood.statuses)


def _say(run: int, what: str, during: Mapping[str, Latencies]) -> None:
    figures = (
        f"{size} p95 {part.p95_ms:.0f} ms, {part.failed} failed" for size, part in during.items()
    )
    print(f"run {run + 1}: {what}: {'; '.join(figures)}", file=sys.stderr, flush=True)


def _control(attacker: Attacker, target: Target, run: int, options: Options) -> Control:
    flood = Flood(attacker, target, per_second=options.per_second, seed=2 * run + 1)
    with flood:
        during = create(target, options.honest, is_translated=False)
    return Control(during, flood.statuses)


def row(attack: str, size: str, flooded: Sequence[Flooded], controls: Sequence[Control]) -> Row:
    """Return the row of an attack, with the bounds that are broken."""
    phases = {
        phase: [getattr(run, phase)[size] for run in flooded]
        for phase in ("before", "during", "after")
    }
    control = [run.during[size] for run in controls]
    figures: dict[str, Any] = {}
    for phase, runs in {**phases, "control": control}.items():
        figures[f"{phase}_p50"] = round(median(run.p50_ms for run in runs), 1)
        figures[f"{phase}_p95"] = round(median(run.p95_ms for run in runs), 1)
    failing = [run for phase in ("during", "after") for run in phases[phase] if run.failed]
    failed = sum(run.failed for run in failing)
    control_failed = sum(run.failed for run in control)
    statuses = sum((Counter(run.statuses) for run in flooded), Counter[int]())
    bound_ms = FACTOR * figures["control_p95"] + ALLOWANCE_MS
    faults = []
    if figures["during_p95"] > bound_ms:
        faults.append(f"p95 {figures['during_p95']:.0f} ms, at most {bound_ms:.0f}")
    if failed > control_failed:
        faults.append(f"{failed} failed, {control_failed} in the control")
    if not statuses.total():
        faults.append("the attacker got no answer")
    return Row(
        attack=attack,
        size=size,
        honest=sum(run.pods for run in phases["during"]),
        **figures,
        failed=failed,
        control_failed=control_failed,
        cpu=round(median(run.used.cpu for run in flooded), 2),
        memory_mib=median(run.used.memory_mib for run in flooded),
        statuses=dict(statuses),
        control_statuses=sum((Counter(run.statuses) for run in controls), Counter()),
        reason=failing[0].reason if failing else "",
        faults=tuple(faults),
    )
