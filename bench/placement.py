"""The share of GPUs that each strategy allocates on four workloads of a production trace, beside stock and FGD.

The trace is not part of the repository; see `bench.openb`. For each workload and seed the same pods arrive
in the same order at each strategy. FGD is that of `bench.fgd`, and is compared with the published figures first, seed
by seed with the paper's own arrivals: where it differs from these by more than 0.7 points it is not the published one.
The anchor is the better of both, so that a harness in which FGD does badly helps nobody.

Nothing is timed, so other work on the machine changes nothing.
"""

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Final, NamedTuple

from allocator.replay.replay import STRATEGIES, replay
from allocator.replay.scheduler import STOCK, STOCK_MOST_ALLOCATED
from allocator.strategies.fragmentation_aware import FRAGMENTATION_AWARE
from bench import fgd, openb
from bench.report import Result, below, informative, points

WORKLOADS: Final = ("default", "gpushare40", "multigpu50", "cpu200")
SEEDS: Final = (42, 43, 44)
PUBLISHED: Final = "published.csv"
"""The shares of experiments/analysis/expected_results/analysis_allo_discrete.csv, with columns workload, policy and share_at_130 (mean over seeds)."""
PUBLISHED_FGD: Final = "06-FGD"
FGD: Final = "FGD"
PUBLISHED_BY_SEED: Final[Mapping[str, Mapping[int, float]]] = {
    "default": {42: 95.29, 43: 95.32, 44: 95.44},
    "gpushare40": {42: 94.24, 43: 94.14, 44: 94.12},
    "multigpu50": {42: 97.16, 43: 97.14, 44: 97.37},
    "cpu200": {42: 94.99, 43: 95.24, 44: 94.77},
}
"""Workload and seed to the published share of FGD at a demand of 130 %.

Source: experiments/analysis/expected_results/analysis_allo_discrete.csv of the simulator, see `bench.openb`.
"""
OURS: Final = FRAGMENTATION_AWARE.name
ALL: Final = (FGD, *STRATEGIES)

BRIEF_STRATEGIES: Final = (STOCK, OURS, "CompactFirst")

_VALIDATION: Final = 0.7
_ABOVE_STOCK: Final = 1.0
_BELOW_STOCK: Final = -1.0
_BELOW_FGD: Final[Mapping[str, float]] = {"multigpu50": -1.0}
_DEFAULT_BELOW_FGD: Final = -0.5


class Case(NamedTuple):
    """One replay."""

    folder: Path
    workload: str
    seed: int
    strategy: str


Shares = Mapping[str, float]
"""Strategy to the share of GPUs that it allocates, in percent, the mean over seeds."""


def missing_files(folder: Path) -> Sequence[str]:
    """Return the names of files that `measure` reads and that the folder lacks."""
    workloads = (openb.workload_file(folder, workload).name for workload in WORKLOADS)
    names = (openb.NODES, *workloads, PUBLISHED)
    return [name for name in names if not (folder / name).is_file()]


def measure(folder: Path) -> Iterator[Result]:
    """Yield the shares of all strategies on all workloads.

    Args:
        folder: The files of the trace, and the published figures.
    """
    published = published_shares(folder)
    beside_fgd = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for workload in WORKLOADS:
            cases = [Case(folder, workload, seed, name) for name in ALL for seed in SEEDS]
            shares = mean_shares(cases, tuple(pool.map(share_of, cases)))
            paired = pool.map(paper_share_of, [case for case in cases if case.strategy == FGD])
            yield validation(workload, dict(zip(SEEDS, paired, strict=True)))
            beside_fgd.append((shares[OURS], max(shares[FGD], published[workload])))
            yield from results(workload, shares, published)
    name = f"the best of {len(WORKLOADS)} workloads: {OURS}, beside FGD, % of GPUs"
    ours, anchor = max(beside_fgd, key=lambda pair: pair[0] - pair[1])
    yield points(name, ours, anchor, at_least=0.0)


def measure_briefly(folder: Path) -> Iterator[Result]:
    """Yield the shares of three strategies on one workload with one seed."""
    workload = WORKLOADS[0]
    cases = [Case(folder, workload, SEEDS[0], name) for name in BRIEF_STRATEGIES]
    shares = mean_shares(cases, [share_of(case) for case in cases])
    for name in BRIEF_STRATEGIES[1:]:
        yield against_stock(workload, name, shares)


def results(workload: str, shares: Shares, published: Shares) -> Iterator[Result]:
    """Yield the results of a workload.

    Args:
        workload: The workload.
        shares: The measured shares.
        published: The published share of FGD by workload.
    """
    yield informative(f"{workload}: FGD, % of GPUs", shares[FGD], published[workload])
    at_least = _BELOW_FGD.get(workload, _DEFAULT_BELOW_FGD)
    name = f"{workload}: {OURS}, beside FGD, % of GPUs"
    yield points(name, shares[OURS], max(shares[FGD], published[workload]), at_least=at_least)
    for strategy in ALL:
        if strategy not in {FGD, STOCK}:
            yield against_stock(workload, strategy, shares)


def validation(workload: str, paired: Mapping[int, float]) -> Result:
    """Return the difference of FGD here to the published one with the same arrivals, the mean over seeds.

    Args:
        workload: The workload.
        paired: Seed to the share with the paper's arrivals.
    """
    published = PUBLISHED_BY_SEED[workload]
    differences = [share - published[seed] for seed, share in paired.items()]
    name = f"{workload}: FGD of this harness beside the published one, same arrivals, difference in points"
    return below(name, abs(mean(differences)), _VALIDATION)


def against_stock(workload: str, strategy: str, shares: Shares) -> Result:
    """Return a strategy's share beside that of the stock scheduler."""
    name = f"{workload}: {strategy}, beside stock, % of GPUs"
    ours, stock = shares[strategy], shares[STOCK]
    if strategy == STOCK_MOST_ALLOCATED:
        return informative(name, round(ours, 2), round(stock, 2))
    at_least = _ABOVE_STOCK if strategy == OURS else _BELOW_STOCK
    return points(name, ours, stock, at_least=at_least)


def share_of(case: Case) -> float:
    """Return the share of GPUs that a replay allocates, in percent."""
    folder, workload, seed, strategy = case
    nodes = openb.read_rows(folder / openb.NODES)
    pods = openb.read_rows(openb.workload_file(folder, workload))
    arriving = openb.arrivals(pods, openb.total_milli(nodes), seed)
    if strategy == FGD:
        return fgd.allocated_share(nodes, pods, arriving)
    replayed = openb.pods_of(openb.pods_csv(arriving))
    inventory = openb.inventory_of(openb.snapshot(nodes))
    return replay(strategy, replayed, inventory, seed=seed).capacities[0].percent


def paper_share_of(case: Case) -> float:
    """Return the share of GPUs, in percent, that FGD allocates with the paper's arrivals of a seed."""
    nodes = openb.read_rows(case.folder / openb.NODES)
    pods = openb.read_rows(openb.workload_file(case.folder, case.workload))
    arriving = openb.paper_arrivals(pods, openb.total_milli(nodes), case.seed)
    return fgd.allocated_share(nodes, pods, arriving)


def mean_shares(cases: Sequence[Case], shares: Sequence[float]) -> Shares:
    """Return the mean share of each strategy over seeds."""
    by_strategy: dict[str, list[float]] = {}
    for case, share in zip(cases, shares, strict=True):
        by_strategy.setdefault(case.strategy, []).append(share)
    return {strategy: mean(values) for strategy, values in by_strategy.items()}


def published_shares(folder: Path) -> Shares:
    """Return the published share of FGD at a demand of 130 %, by workload."""
    with (folder / PUBLISHED).open(encoding="utf-8", newline="") as text:
        return {
            row["workload"]: float(row["share_at_130"])
            for row in csv.DictReader(text)
            if row["policy"] == PUBLISHED_FGD
        }
