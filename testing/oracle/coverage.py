"""The coverage of a sample of scenarios, as a table: `python -m testing.oracle.coverage [COUNT]`.

A scenario counts for a feature when the feature is in its objects, whatever it was meant to be about.
Fit and fatal are of the verdicts, one per node; steps are upstream's on all nodes of a scenario.
"""

import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any, Final

from testing.oracle.draft import BARE_SELECTORS, BROKEN_SELECTORS, Json
from testing.oracle.go import Oracle
from testing.oracle.scenarios import Scenario, seeded_document

Answer = Mapping[str, Any]

CHUNK: Final = 200
"""Scenarios in memory at once."""


class Row:
    """The verdicts on the scenarios that have a feature."""

    def __init__(self) -> None:
        self.scenarios = 0
        self.steps: list[int] = []
        self.ends: Counter[str] = Counter()

    def add(self, answer: Answer) -> None:
        """Count one scenario."""
        self.scenarios += 1
        self.steps.append(sum(verdict["steps"] for verdict in answer["nodes"].values()))
        for verdict in answer["nodes"].values():
            fits = verdict["results"] is not None
            self.ends["fit" if fits else verdict["error"] or "unfit"] += 1

    @property
    def median_steps(self) -> float:
        """Half of the scenarios take at least so many; 0 of no scenarios."""
        return statistics.median(self.steps or [0])

    def share(self, end: str) -> float:
        """The share of the verdicts that end so, between 0 and 1."""
        return self.ends[end] / max(1, self.ends.total())


class Coverage:
    """A growing count over scenarios."""

    def __init__(self) -> None:
        self.total = Row()
        self.features = {feature: Row() for feature in FEATURES}
        self.pairs: Counter[tuple[str, str]] = Counter(dict.fromkeys(combinations(FEATURES, 2), 0))

    def add(self, scenario: Scenario, answer: Answer) -> None:
        """Count a scenario with upstream's answer."""
        present = [feature for feature, has in FEATURES.items() if has(scenario)]
        self.total.add(answer)
        for feature in present:
            self.features[feature].add(answer)
        self.pairs.update(combinations(present, 2))

    def present(self, feature: str) -> float:
        """The share of the scenarios that have it, between 0 and 1."""
        return self.features[feature].scenarios / max(1, self.total.scenarios)

    def table(self) -> Iterator[str]:
        """Yield lines for people."""
        yield f"{'feature':<32}{'present':>9}{'fit':>8}{'fatal':>8}{'median steps':>14}"
        for feature, row in {"all": self.total, **self.features}.items():
            present = row.scenarios / max(1, self.total.scenarios)
            yield (
                f"{feature:<32}{present:>9.1%}{row.share('fit'):>8.0%}{row.share('fatal'):>8.0%}"
                f"{row.median_steps:>14.0f}"
            )
        rare = sorted(self.pairs.items(), key=lambda pair: (pair[1], pair[0]))
        yield ""
        yield f"{sum(count > 0 for _, count in rare)} of {len(rare)} pairs of features are met; the rarest:"
        for (first, second), count in rare[:5]:
            yield f"{count:>6}  {first} + {second}"
        yield f"{self.total.ends.total()} verdicts: {dict(self.total.ends.most_common())}"


# --- looking into a scenario ----------------------------------------------------------------------


def slices(scenario: Scenario) -> Iterator[Json]:
    """The specs of its slices."""
    return (slice_["spec"] for slice_ in scenario["slices"])


def devices(scenario: Scenario) -> Iterator[Json]:
    """Its devices."""
    return (device for spec in slices(scenario) for device in spec.get("devices", ()))


def requests(scenario: Scenario) -> Iterator[Json]:
    """The requests of all its claims."""
    return (r for c in scenario["claims"] for r in c["spec"]["devices"].get("requests", ()))


def alternatives_of(scenario: Scenario) -> Iterator[Json]:
    """The requests of a scenario, alternatives included."""
    for request in requests(scenario):
        yield from [request["exactly"]] if "exactly" in request else request["firstAvailable"]


def constraints(scenario: Scenario) -> Iterator[Json]:
    """The constraints of all its claims."""
    return (
        c for claim in scenario["claims"] for c in claim["spec"]["devices"].get("constraints", ())
    )


def results(scenario: Scenario) -> Iterator[Json]:
    """The results that are allocated already."""
    for allocated_claim in scenario["allocated"]:
        yield from allocated_claim["status"]["allocation"]["devices"]["results"]


def policies(scenario: Scenario) -> Iterator[Json]:
    """The request policies of its devices' capacities."""
    for device in devices(scenario):
        for amount in device["capacity"].values():
            if "requestPolicy" in amount:
                yield amount["requestPolicy"]


def expressions(scenario: Scenario) -> Iterator[str]:
    """The selectors of its requests."""
    return (
        s["cel"]["expression"] for a in alternatives_of(scenario) for s in a.get("selectors", ())
    )


def _gate(name: str) -> Callable[[Scenario], bool]:
    return lambda scenario: scenario["features"].get(name, False)


def _slice_with(key: str) -> Callable[[Scenario], bool]:
    return lambda scenario: any(spec.get(key) for spec in slices(scenario))


def _device_with(key: str) -> Callable[[Scenario], bool]:
    return lambda scenario: any(device.get(key) for device in devices(scenario))


def _request_with(key: str) -> Callable[[Scenario], bool]:
    return lambda scenario: any(request.get(key) for request in alternatives_of(scenario))


def _policy_with(key: str) -> Callable[[Scenario], bool]:
    return lambda scenario: any(key in policy for policy in policies(scenario))


def _several_generations(scenario: Scenario) -> bool:
    pools = {(s["driver"], s["pool"]["name"], s["pool"]["generation"]) for s in slices(scenario)}
    return len(pools) > len({pool[:2] for pool in pools})


def _several_hosts(scenario: Scenario) -> bool:
    hosts = {
        (s["driver"], s["pool"]["name"], s["nodeName"]) for s in slices(scenario) if "nodeName" in s
    }
    return len(hosts) > len({host[:2] for host in hosts})


def _wrong_count(scenario: Scenario) -> bool:
    counts = Counter(
        (s["driver"], s["pool"]["name"], s["pool"]["generation"]) for s in slices(scenario)
    )
    return any(
        counts[s["driver"], s["pool"]["name"], s["pool"]["generation"]]
        != s["pool"]["resourceSliceCount"]
        for s in slices(scenario)
    )


def _broken_pool(scenario: Scenario) -> bool:
    names = Counter(
        (s["driver"], s["pool"]["name"], d["name"])
        for s in slices(scenario)
        for d in s.get("devices", ())
    )
    return max(names.values(), default=0) > 1 or any(
        "nothing" in (used["counterSet"], *used["counters"])
        for device in devices(scenario)
        for used in device.get("consumesCounters", ())
    )


def _fraction(scenario: Scenario) -> bool:
    return any("share" in device["capacity"] for device in devices(scenario))


def _largest_count(scenario: Scenario) -> int:
    return max((request.get("count", 0) for request in alternatives_of(scenario)), default=0)


FEATURES: Final[Mapping[str, Callable[[Scenario], bool]]] = {
    "node-local slices": _slice_with("nodeName"),
    "node-selected slices": _slice_with("nodeSelector"),
    "slices for all nodes": _slice_with("allNodes"),
    "per-device node selection": _slice_with("perDeviceNodeSelection"),
    "several slices in a pool": lambda scenario: any(
        s["pool"]["resourceSliceCount"] > 1 for s in slices(scenario)
    ),
    "pools over several nodes": _several_hosts,
    "several drivers": lambda scenario: len({s["driver"] for s in slices(scenario)}) > 1,
    "several nodes": lambda scenario: len(scenario["nodes"]) > 1,
    "several claims": lambda scenario: len(scenario["claims"]) > 1,
    "several generations": _several_generations,
    "incomplete pools": _wrong_count,
    "invalid pools": _broken_pool,
    "devices held": lambda scenario: any("shareID" not in result for result in results(scenario)),
    "request selectors": _request_with("selectors"),
    "careless selectors": lambda scenario: any(
        text in BARE_SELECTORS for text in expressions(scenario)
    ),
    "broken selectors": lambda scenario: any(
        text in BROKEN_SELECTORS for text in expressions(scenario)
    ),
    "mode All": lambda scenario: any(
        request["allocationMode"] == "All" for request in alternatives_of(scenario)
    ),
    "several devices per request": lambda scenario: _largest_count(scenario) > 1,
    "firstAvailable": lambda scenario: any("firstAvailable" in r for r in requests(scenario)),
    "matchAttribute": lambda scenario: any("matchAttribute" in c for c in constraints(scenario)),
    "distinctAttribute": lambda scenario: any(
        "distinctAttribute" in c for c in constraints(scenario)
    ),
    "constraints on some requests": lambda scenario: any(
        "requests" in c for c in constraints(scenario)
    ),
    "list attributes": _gate("DRAListTypeAttributes"),
    "derived attributes": _request_with("derivedAttributes"),
    "admin access": _request_with("adminAccess"),
    "shared counters": _slice_with("sharedCounters"),
    "compatibility groups": lambda scenario: any(
        "compatibilityGroups" in used
        for d in devices(scenario)
        for used in d.get("consumesCounters", ())
    ),
    "multiple allocations": _device_with("allowMultipleAllocations"),
    "capacity requests": _request_with("capacity"),
    "capacity: only a default": lambda scenario: any(
        policy.keys() == {"default"} for policy in policies(scenario)
    ),
    "capacity: valid values": _policy_with("validValues"),
    "capacity: ranges": _policy_with("validRange"),
    "capacity: fractions": _fraction,
    "capacity: gate for fractions": _gate("DRAFractionalCapacityRange"),
    "shares held": lambda scenario: any("shareID" in result for result in results(scenario)),
    "taints": _device_with("taints"),
    "taint rules": lambda scenario: bool(scenario.get("taintRules")),
    "tolerations": _request_with("tolerations"),
    "binding conditions": _device_with("bindingConditions"),
    "bindsToNode": _device_with("bindsToNode"),
    "class configuration": lambda scenario: any("config" in c["spec"] for c in scenario["classes"]),
    "claim configuration": lambda scenario: any(
        "config" in c["spec"]["devices"] for c in scenario["claims"]
    ),
    "skipped node operations": _slice_with("skipNodeOperations"),
    "16 devices asked or more": lambda scenario: _largest_count(scenario) >= 16,
    "gates off": lambda scenario: any(not on for on in scenario["features"].values()),
    "experimental forced": lambda scenario: scenario.get("implementation") == "experimental",
}
"""Each feature and how to see it in a scenario."""


# --- asking --------------------------------------------------------------------------------------


def answered_scenarios(oracle: Oracle, seeds: range) -> Iterator[tuple[int, Scenario, Answer]]:
    """Yield each scenario of the numbers with upstream's answer."""
    for start in range(seeds.start, seeds.stop, CHUNK):
        numbers = range(start, min(start + CHUNK, seeds.stop))
        scenarios = [seeded_document(number) for number in numbers]
        yield from zip(
            numbers,
            scenarios,
            oracle.ask({"allocate": scenario} for scenario in scenarios),
            strict=True,
        )


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    coverage = Coverage()
    with Oracle() as oracle:
        for _, scenario, answer in answered_scenarios(oracle, range(count)):
            coverage.add(scenario, answer)
    print("\n".join(coverage.table()))


if __name__ == "__main__":
    main()
