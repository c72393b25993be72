"""`python -m bench.scale_run NODES FILE`: measure the sidecar's library on one cluster; the figures are JSON.

A process of its own has the memory of one cluster. Times are CPU time, so that a busy machine changes them little.
"""

import os
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.inventory_memory import peak_mb
from bench.scale_cluster import ScaledCluster, two_gpus
from kube.api.resource import DeviceRequest
from process.running.garbage import exempt_caches
from sidecar.plan.decisions import ANSWER_LIMITS
from testing.allocation.builders import tolerates

ROUNDS: Final = 10
"""Decisions about each of the different requests; the first is not counted."""
NEW_QUESTIONS: Final = 20
SPARE_DECISIONS: Final = 10
"""Decisions beyond those after which all nodes are known."""
STRATEGY: Final = "FragmentationAware"
_BASE_MI: Final = 40_000
"""Memory of a request, below that of all devices."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """The extent of the measurement.

    Attributes:
        pods: Pods that come one after the other, for each strategy.
        requests: Different requests that are asked about in turn.
        slices: Slices that change one after the other.
    """

    pods: int = 2_000
    requests: int = 200
    slices: int = 50


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of a cluster; times are seconds of CPU.

    Attributes:
        nodes: The number of nodes.
        requests: The number of different requests.
        decode_s: Decoding and projecting all objects.
        view_s: Building the first view.
        view_mb: Memory that the objects and the view take.
        first_all_s: A question about all nodes whose selector no device was compared with.
        all_s: New questions about all nodes, with the same selector.
        first_decision_s: The first decision of all.
        learning_s: Decisions about equal pods until all nodes are known; each looks at some more of them.
        decision_s: Decisions in a row about equal pods, after that.
        new_s: Decisions about requests that nobody asked about before, with the same selector.
        new_selector_s: The same with a selector that no device was compared with.
        slice_s: Taking in the changed slice of a node.
        after_slice_s: The decisions after that.
        requests_s: Decisions in a row about different requests.
        strategy_learning_s: The value of `learning_s` with FragmentationAware.
        strategy_s: The value of `decision_s` with FragmentationAware.
        peak_mb: The largest memory of the process.
    """

    nodes: int
    requests: int
    decode_s: float
    view_s: float
    view_mb: float
    first_all_s: float
    all_s: tuple[float, ...]
    first_decision_s: float
    learning_s: tuple[float, ...]
    decision_s: tuple[float, ...]
    new_s: tuple[float, ...]
    new_selector_s: tuple[float, ...]
    slice_s: tuple[float, ...]
    after_slice_s: tuple[float, ...]
    requests_s: tuple[float, ...]
    strategy_learning_s: tuple[float, ...]
    strategy_s: tuple[float, ...]
    peak_mb: float


def run(cluster: ScaledCluster, sizes: Sizes) -> Figures:
    """Measure a cluster that has no objects yet."""
    base_mb = resident_mb()
    decode_s = cluster.decode()
    view_s = cluster.build_view()
    exempt_caches()  # As the sidecar does, once it is in sync.
    view_mb = resident_mb() - base_mb
    first_decision_s = cluster.decide(two_gpus())
    learning = cluster.nodes // ANSWER_LIMITS.nodes + SPARE_DECISIONS
    learning_s = [cluster.decide(two_gpus()) for _ in range(learning)]
    decision_s = [cluster.decide(two_gpus()) for _ in range(sizes.pods)]
    first_all_s = cluster.ask_all(two_gpus())
    all_s = [cluster.ask_all(_new_request("all", number)) for number in range(NEW_QUESTIONS)]
    new_s = [cluster.decide(_new_request("decision", number)) for number in range(NEW_QUESTIONS)]
    new_selector_s = [
        cluster.decide(two_gpus(f"{_BASE_MI - 1 - number}Mi")) for number in range(NEW_QUESTIONS)
    ]
    slice_s, after_slice_s = [], []
    for number in range(1, sizes.slices + 1):
        slice_s.append(cluster.change_slice(number))
        after_slice_s.append(cluster.decide(two_gpus()))
    different_requests = [two_gpus(f"{_BASE_MI + number}Mi") for number in range(sizes.requests)]
    for request_ in different_requests:
        cluster.decide(request_)
    requests_s = [
        cluster.decide(request_) for _ in range(1, ROUNDS) for request_ in different_requests
    ]
    cluster.strategy = STRATEGY
    strategy_learning_s = [cluster.decide(two_gpus()) for _ in range(learning)]
    strategy_s = [cluster.decide(two_gpus()) for _ in range(sizes.pods)]
    return Figures(
        nodes=cluster.nodes,
        requests=sizes.requests,
        decode_s=decode_s,
        view_s=view_s,
        view_mb=view_mb,
        first_all_s=first_all_s,
        all_s=tuple(all_s),
        first_decision_s=first_decision_s,
        learning_s=tuple(learning_s),
        decision_s=tuple(decision_s),
        new_s=tuple(new_s),
        new_selector_s=tuple(new_selector_s),
        slice_s=tuple(slice_s),
        after_slice_s=tuple(after_slice_s),
        requests_s=tuple(requests_s),
        strategy_learning_s=tuple(strategy_learning_s),
        strategy_s=tuple(strategy_s),
        peak_mb=peak_mb(),
    )


def resident_mb() -> float:
    """Return the memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _new_request(place: str, number: int) -> DeviceRequest:
    """Return a request that nobody asked about: no device has the taint that it tolerates."""
    return two_gpus(tolerations=[tolerates(f"example.com/{place}-{number}", operator="Exists")])


@click.command()
@click.argument("nodes", type=click.IntRange(1))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--pods", type=click.IntRange(2), default=Sizes().pods)
@click.option("--requests", type=click.IntRange(1), default=Sizes().requests)
@click.option("--slices", type=click.IntRange(1), default=Sizes().slices)
def main(nodes: int, out: Path, pods: int, requests: int, slices: int) -> None:
    """Measure a cluster of NODES nodes, and write the figures to OUT."""
    figures = run(ScaledCluster(nodes), Sizes(pods=pods, requests=requests, slices=slices))
    out.write_bytes(msgspec.json.encode(figures))


if __name__ == "__main__":
    main()
