"""Honest users: pods that are created in dry runs, small ones and ones of 9 KB by turns."""

import http.client
import itertools
import json
import threading
import time
from collections.abc import Sequence
from statistics import quantiles
from typing import Final, NamedTuple

from bench.attack.stage import HONEST
from e2e.attackers.target import DRY_RUN, Target
from e2e.objects import Object, pod
from e2e.translated import legacy_keys

CALLERS: Final = 6
"""Creations at a time, at most."""
PER_SECOND: Final = 20.0
SMALL, LARGE = "small", "9 KB"
LIMITS: Final = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}
PHASE_S: Final = 150.0
"""The longest duration of a phase, with any number of pods."""


class Latencies(NamedTuple):
    """The durations of creations.

    Attributes:
        p50_ms: The median.
        p95_ms: The latency at the 95th percentile.
        pods: The number of pods, failed ones included.
        failed: The number of pods that were answered with an error, or left with their keys.
        reason: The reason of one failure; empty without.
    """

    p50_ms: float
    p95_ms: float
    pods: int
    failed: int
    reason: str = ""


class Created(NamedTuple):
    """One creation."""

    took_s: float
    fault: str


def documents() -> dict[str, Object]:
    """Return honest pods, by their size."""
    large = pod("large", limits=LIMITS)
    (container,) = large["spec"]["containers"]
    container["env"] = [{"name": f"NAME_{n}", "value": f"{n:050}"} for n in range(100)]
    return {SMALL: pod("small", limits=LIMITS), LARGE: large}


def create(
    target: Target, count: int, *, is_translated: bool, per_second: float = PER_SECOND
) -> dict[str, Latencies]:
    """Create so many pods of each size; return their durations, by size.

    Args:
        is_translated: Whether pods that are created with their keys count as failed.
    """
    pods = documents()
    turns = itertools.cycle(pods.items())
    numbers = iter(range(count * len(pods)))
    taking = threading.Lock()
    created: dict[str, list[Created]] = {size: [] for size in pods}
    began_s = time.monotonic()
    path = f"/api/v1/namespaces/{HONEST}/pods{DRY_RUN}"

    def run() -> None:
        with target.caller(HONEST) as caller:
            while True:
                with taking:
                    number = next(numbers, None)
                    size, document = next(turns)
                due_s = began_s + (number or 0) / per_second
                if number is None or time.monotonic() > began_s + PHASE_S:
                    return
                time.sleep(max(0.0, due_s - time.monotonic()))
                sent_s = time.monotonic()
                status, body = caller.request("POST", path, document)
                took_s = time.monotonic() - sent_s
                fault = _fault(status, body, is_translated=is_translated)
                created[size].append(Created(took_s, fault))

    threads = [threading.Thread(target=run) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {size: summary(creations) for size, creations in created.items()}


def summary(created: Sequence[Created]) -> Latencies:
    """Return percentiles and faults of creations."""
    took_ms = [creation.took_s * 1e3 for creation in created]
    faults = [creation.fault for creation in created if creation.fault]
    p50, p95 = percentiles(took_ms)
    return Latencies(p50, p95, len(created), len(faults), faults[0] if faults else "")


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the 50th and the 95th percentile; infinity if there are too few values."""
    if len(values) < 2:
        return float("inf"), float("inf")
    cuts = quantiles(values, n=20, method="inclusive")
    return cuts[9], cuts[18]


def _fault(status: int, body: bytes, *, is_translated: bool) -> str:
    if status != http.client.CREATED:
        return f"{status} {body.decode(errors='replace')[:300]}"
    if is_translated and (keys := legacy_keys(json.loads(body))):
        return f"created with {', '.join(sorted(keys))}"
    return ""
