"""The sidecar's library on clusters of up to 50,000 nodes of 8 devices: memory, start, questions and decisions.

A cluster is measured in a process of its own (`bench/scale_run.py`). All times are CPU time, so that a busy machine
changes them little; on a core that does nothing else it is the time that a scheduler waits. The goals are those for
the largest cluster, and hold for smaller ones, too. The anchor of a cold node is upstream's allocator in Go, with one
worker and the same objects, decoded: `NewAllocator` and one `Allocate` (testing/oracle/bench.go).
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import msgspec

from bench.allocator import measure_cold_node
from bench.report import Result, below
from bench.scale_run import STRATEGY, Figures

NODES: Final = (5_000, 20_000, 50_000)
START_GOAL_S: Final = 60.0
MEMORY_GOAL_MB: Final = 3_000.0
DECISION_GOAL_MS: Final = 10.0
NEW_GOAL_MS: Final = 250.0


def measure() -> Iterator[Result]:
    """Yield the figures of each cluster, and those of a node that nothing is known about."""
    for nodes in NODES:
        yield from results(figures_of(nodes))
    yield from measure_cold_node()


def figures_of(nodes: int, arguments: Sequence[str] = ()) -> Figures:
    """Measure a cluster in a process of its own.

    Args:
        nodes: The number of nodes.
        arguments: Options of `python -m bench.scale_run`.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "figures.json")
        call = [sys.executable, "-m", "bench.scale_run", str(nodes), str(file), *arguments]
        subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
        return msgspec.json.decode(file.read_bytes(), type=Figures)


def results(figures: Figures) -> Iterator[Result]:
    """Yield the figures of a cluster beside their goals."""
    title = f"{figures.nodes:,} nodes of 8 devices"
    start_s = figures.decode_s + figures.view_s
    yield below(f"{title}: start (objects decoded, first view), in s", start_s, START_GOAL_S)
    yield below(f"{title}: memory of objects and view, in MB", figures.view_mb, None)
    yield below(f"{title}: the same, a node in kB", figures.view_mb * 1000 / figures.nodes, None)
    yield below(f"{title}: largest memory of the process, in MB", figures.peak_mb, MEMORY_GOAL_MB)
    for name, seconds, goal_ms in (
        (f"F({figures.nodes:,}), a new question", figures.all_s, NEW_GOAL_MS),
        (f"F({figures.nodes:,}), new selectors", (figures.first_all_s,), None),
        ("the first decision of all", (figures.first_decision_s,), NEW_GOAL_MS),
        ("a decision about a new request", figures.new_s, NEW_GOAL_MS),
        ("a decision about new selectors", figures.new_selector_s, NEW_GOAL_MS),
        ("the changed slice of a node", figures.slice_s, DECISION_GOAL_MS),
    ):
        yield below(f"{title}: {name}, in ms", median(seconds) * 1000, goal_ms)
    for name, seconds in (
        ("decisions until all nodes are known", figures.learning_s),
        (f"the same, {STRATEGY}", figures.strategy_learning_s),
    ):
        yield below(f"{title}: {name}, the longest in ms", max(seconds) * 1000, NEW_GOAL_MS)
        yield below(f"{title}: {name}, p50 in ms", median(seconds) * 1000, None)
    for name, seconds in (
        ("a decision", figures.decision_s),
        ("a decision after a changed slice", figures.after_slice_s),
        (f"a decision about {figures.requests:,} requests in turn", figures.requests_s),
        (f"a decision, {STRATEGY}", figures.strategy_s),
    ):
        yield from _percentiles(f"{title}: {name}", seconds)


def _percentiles(name: str, seconds: Sequence[float]) -> Iterator[Result]:
    p50_ms, p99_ms = (quantiles(seconds, n=100)[at] * 1000 for at in (49, 98))
    yield below(f"{name}: p50 in ms", p50_ms, None)
    yield below(f"{name}: p99 in ms", p99_ms, DECISION_GOAL_MS)
