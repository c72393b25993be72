"""Our allocator compared with upstream's, on the same objects, alternately.

Upstream's time is that of `Allocate` on every node, as for a pod that fits nowhere, with as many
workers as kube-scheduler has. Ours is that of one request to a `Cluster`, in one thread. Our cluster
always has some caches, so each row says which:

* new request: no verdict about these claims is cached, but their selectors are;
* after a change: the verdict is cached, and since then the usage of one node changed;
* cold selectors: a new expression is compiled and evaluated on all devices.

Upstream caches only compiled selectors between two attempts, and has them here. Where it does not
finish within the deadline, it has no figure.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from bench.allocator_runs import (
    ClusterRun,
    NodeRun,
    cold_node,
    medians,
    seconds,
    with_new_selectors,
)
from bench.inventory_memory import write
from bench.report import Result, below, informative, times, within
from bench.upstream import Upstream
from process.running.garbage import exempt_caches
from testing.oracle import workloads
from testing.oracle.go import Oracle
from testing.oracle.scenarios import Scenario
from testing.oracle.workloads import STABLE

NODES: Final = 5_000
ROUNDS: Final = 3
ROUNDS_IN_A_ROW: Final = 2
"""Rounds of which the last counts, on both sides: just before the first, the process of the other side had all
cores and caches."""
SHORT_ROUNDS: Final = 9
COLD_PAIRS: Final = 25
"""First searches of a cold node on each side: each takes under a millisecond, so few of them tell little."""
COLD_ROUNDS: Final = 2
"""First searches of a cold node, of which the last is timed, in both processes."""
DEADLINE_S: Final = 5.0
MILLISECONDS: Final = 1000.0
MICROSECONDS: Final = 1e6

CLUSTERS: Final = (
    ("free", "all devices free", 400.0, 1_500.0),
    ("full", "one device free on each node", 400.0, 300.0),
    ("varied", "a random half of each node allocated", 60.0, 400.0),
    ("different", "the same, each node with other amounts", 60.0, 350.0),
)
"""Workload, description, and the goals for a new request and after a change, as multiples of upstream's speed."""


class Case(NamedTuple):
    """A node and claims that are hard to place, or to reject.

    Attributes:
        bound_ms: The goal; None for a case without one.
    """

    name: str
    scenario: Scenario
    bound_ms: float | None = None


CASES: Final = (
    Case("U(8)", workloads.one_too_many(8), 50.0),
    Case("U(8), upstream's oldest allocator", workloads.one_too_many(8) | STABLE, 50.0),
    Case("U(10)", workloads.one_too_many(10), 50.0),
    Case("U(10), upstream's oldest allocator", workloads.one_too_many(10) | STABLE, 50.0),
    Case("U(31), as many as one claim may ask", workloads.one_too_many(31), 50.0),
    Case("U(32), beyond what one claim may ask", workloads.one_too_many(32), 50.0),
    Case("U(32), by claims of up to 32", workloads.one_too_many_by_claims(32), 50.0),
    Case("U(128), beyond what one claim may ask", workloads.one_too_many(128), 50.0),
    Case("U(128), by claims of up to 32", workloads.one_too_many_by_claims(128), 50.0),
    Case("MIG: 7 profiles on 8 GPUs with shared counters, no solution", workloads.mig(8)),
    Case("MIG: the same on 4 GPUs", workloads.mig(4)),
    Case("matchAttribute over 32 devices, no solution", workloads.unmatched_document(32)),
    Case("firstAvailable 8 deep, 4 requests, no solution", workloads.alternatives(8)),
    Case("200 claims on 200 devices", workloads.batch(200)),
    Case("200 claims on 199 devices", workloads.batch(200, spare=-1)),
    Case("a selector near the cost limit, 64 devices", workloads.costly(3)),
)


def measure() -> Iterator[Result]:
    """Yield the results; the Go program is built if it does not exist."""
    with tempfile.TemporaryDirectory() as folder, Oracle() as oracle:
        upstream = Upstream(oracle, Path(folder))
        for name, description, new_goal, change_goal in CLUSTERS:
            yield from _cluster(upstream, name, description, new_goal, change_goal)
        yield from _cold_node(upstream)
        for case in CASES:
            yield from _node(upstream, case)
        yield below(
            f"peak memory in MB with {NODES * workloads.DEVICES_PER_NODE:,} devices",
            _memory_mb(Path(folder)),
            500.0,
        )


def _cluster(
    upstream: Upstream, name: str, description: str, new_goal: float, change_goal: float
) -> Iterator[Result]:
    """Yield the number of possible verdicts about all nodes of a cluster per second."""
    scenario = workloads.WORKLOADS[name][0](NODES)
    file = upstream.write(name, scenario)
    run = ClusterRun(scenario)
    sixteen_workers, new, changed_cluster, cold = medians(
        lambda: upstream.measure(file, rounds=ROUNDS_IN_A_ROW).seconds[-1],
        lambda: [run.new_request() for _ in range(ROUNDS_IN_A_ROW)][-1],
        run.after_a_change,
        run.cold_selectors,
        rounds=ROUNDS,
    )
    title = f"F({NODES:,}) evaluated per s, {description}"
    yield times(f"{title}: new request", 1 / new, 1 / sixteen_workers, at_least=new_goal)
    yield times(
        f"{title}: after a change", 1 / changed_cluster, 1 / sixteen_workers, at_least=change_goal
    )
    yield informative(f"{title}: cold selectors", 1 / cold, 1 / sixteen_workers)
    if name == "free":
        one_worker_s = upstream.measure(file, workers=1).seconds[-1]
        yield informative(
            f"{title}: new request, upstream with 1 worker", 1 / new, 1 / one_worker_s
        )
    if name == "varied":
        applied_us = run.allocation() * MICROSECONDS
        yield below(f"one allocation applied in us, {NODES:,} nodes", applied_us, 100.0)


def measure_cold_node() -> Iterator[Result]:
    """Yield the time of the first search of one node; the Go program is built if it does not exist."""
    with tempfile.TemporaryDirectory() as folder, Oracle() as oracle:
        yield from _cold_node(Upstream(oracle, Path(folder)))


def _cold_node(upstream: Upstream) -> Iterator[Result]:
    """Yield the time of the first search of one node of 8 devices."""
    exempt_caches()  # The clusters measured before, which no process would hold.
    scenario = workloads.free(1)
    file = upstream.write("one-node", scenario)

    def upstream_seconds() -> float:
        timing = upstream.measure(file, workers=1, rounds=COLD_ROUNDS)
        return timing.setup_seconds[-1] + timing.seconds[-1]

    known_cluster, anchor = medians(
        lambda: cold_node(scenario, rounds=COLD_ROUNDS), upstream_seconds, rounds=COLD_PAIRS
    )
    yield within(
        "one cold node in us: nothing known but compiled selectors",
        known_cluster * MICROSECONDS,
        anchor * MICROSECONDS,
        at_most=3.0,
    )
    ours, first = [], []
    for number in range(SHORT_ROUNDS):
        new_scenario = with_new_selectors(scenario, number)
        timing = upstream.measure(upstream.write("unseen", new_scenario), workers=1, rounds=1)
        first.append(timing.setup_seconds[0] + timing.seconds[0])
        ours.append(cold_node(new_scenario))
    yield informative(
        "one cold node in us: selectors to be compiled, too",
        median(ours) * MICROSECONDS,
        median(first) * MICROSECONDS,
    )


def _node(upstream: Upstream, case: Case) -> Iterator[Result]:
    """Yield time and steps of an attempt on one node."""
    file = upstream.write("case", case.scenario | {"timeoutSeconds": DEADLINE_S})
    run = NodeRun(case.scenario)
    timing = upstream.measure(file, rounds=1)
    if timing.has_ended:
        ours, anchor = medians(
            lambda: seconds(run.run),
            lambda: upstream.measure(file).seconds[-1],
            rounds=SHORT_ROUNDS if timing.seconds[0] < DEADLINE_S / 100 else ROUNDS,
        )
        theirs = anchor * MILLISECONDS
    else:
        (ours,), theirs = medians(lambda: seconds(run.run), rounds=SHORT_ROUNDS), None
    yield below(f"{case.name}, ms", ours * MILLISECONDS, case.bound_ms, anchor=theirs)
    steps = timing.steps if timing.has_ended else None
    yield below(f"{case.name}, steps", getattr(run.run(), "steps", 0), None, anchor=steps)


def _memory_mb(folder: Path) -> float:
    file = folder / "inventory.lines"
    write(workloads.different(NODES), file)
    process = subprocess.run(
        [sys.executable, "-m", "bench.inventory_memory", str(file)],
        stdout=subprocess.PIPE,
        check=True,
    )
    return float(process.stdout)
