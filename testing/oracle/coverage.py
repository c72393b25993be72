"""What a sample of scenarios reaches, as a table: `python -m testing.oracle.coverage [COUNT]`.

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
from testing.oracle.scenarios import Scenario, seeded

Answer = Mapping[str, Any]

CHUNK: Final = 200
"""Scenarios in memory at once."""


class Row:
    """What becomes of the scenarios that have a feature."""

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
        """How many of the verdicts end so, between 0 and 1."""
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
        """How many of the scenarios have it, between 0 and 1."""
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


def slices(one: Scenario) -> Iterator[Json]:
    """The specs of its slices."""
    return (slice_["spec"] for slice_ in one["slices"])


def devices(one: Scenario) -> Iterator[Json]:
    """Its devices."""
    return (device for spec in slices(one) for device in spec.get("devices", ()))


def requests(one: Scenario) -> Iterator[Json]:
    """The requests of all its claims."""
    return (r for c in one["claims"] for r in c["spec"]["devices"].get("requests", ()))


def asked(one: Scenario) -> Iterator[Json]:
    """What is asked, alternatives included."""
    for request in requests(one):
        yield from [request["exactly"]] if "exactly" in request else request["firstAvailable"]


def constraints(one: Scenario) -> Iterator[Json]:
    """The constraints of all its claims."""
    return (c for claim in one["claims"] for c in claim["spec"]["devices"].get("constraints", ()))


def results(one: Scenario) -> Iterator[Json]:
    """What is allocated already."""
    for holder in one["allocated"]:
        yield from holder["status"]["allocation"]["devices"]["results"]


def policies(one: Scenario) -> Iterator[Json]:
    """The request policies of its devices' capacities."""
    for device in devices(one):
        for amount in device["capacity"].values():
            if "requestPolicy" in amount:
                yield amount["requestPolicy"]


def expressions(one: Scenario) -> Iterator[str]:
    """The selectors of its requests."""
    return (s["cel"]["expression"] for a in asked(one) for s in a.get("selectors", ()))


def _gate(name: str) -> Callable[[Scenario], bool]:
    return lambda one: one["features"].get(name, False)


def _slice_with(key: str) -> Callable[[Scenario], bool]:
    return lambda one: any(spec.get(key) for spec in slices(one))


def _device_with(key: str) -> Callable[[Scenario], bool]:
    return lambda one: any(device.get(key) for device in devices(one))


def _asked_with(key: str) -> Callable[[Scenario], bool]:
    return lambda one: any(each.get(key) for each in asked(one))


def _policy_with(key: str) -> Callable[[Scenario], bool]:
    return lambda one: any(key in policy for policy in policies(one))


def _several_generations(one: Scenario) -> bool:
    seen = {(s["driver"], s["pool"]["name"], s["pool"]["generation"]) for s in slices(one)}
    return len(seen) > len({pool[:2] for pool in seen})


def _several_hosts(one: Scenario) -> bool:
    hosts = {
        (s["driver"], s["pool"]["name"], s["nodeName"]) for s in slices(one) if "nodeName" in s
    }
    return len(hosts) > len({host[:2] for host in hosts})


def _wrong_count(one: Scenario) -> bool:
    found = Counter((s["driver"], s["pool"]["name"], s["pool"]["generation"]) for s in slices(one))
    return any(
        found[s["driver"], s["pool"]["name"], s["pool"]["generation"]]
        != s["pool"]["resourceSliceCount"]
        for s in slices(one)
    )


def _broken_pool(one: Scenario) -> bool:
    names = Counter(
        (s["driver"], s["pool"]["name"], d["name"])
        for s in slices(one)
        for d in s.get("devices", ())
    )
    return max(names.values(), default=0) > 1 or any(
        "nothing" in (used["counterSet"], *used["counters"])
        for device in devices(one)
        for used in device.get("consumesCounters", ())
    )


def _fraction(one: Scenario) -> bool:
    return any("share" in device["capacity"] for device in devices(one))


def _most_asked(one: Scenario) -> int:
    return max((each.get("count", 0) for each in asked(one)), default=0)


FEATURES: Final[Mapping[str, Callable[[Scenario], bool]]] = {
    "node-local slices": _slice_with("nodeName"),
    "node-selected slices": _slice_with("nodeSelector"),
    "slices for all nodes": _slice_with("allNodes"),
    "per-device node selection": _slice_with("perDeviceNodeSelection"),
    "several slices in a pool": lambda one: any(
        s["pool"]["resourceSliceCount"] > 1 for s in slices(one)
    ),
    "pools over several nodes": _several_hosts,
    "several drivers": lambda one: len({s["driver"] for s in slices(one)}) > 1,
    "several nodes": lambda one: len(one["nodes"]) > 1,
    "several claims": lambda one: len(one["claims"]) > 1,
    "several generations": _several_generations,
    "incomplete pools": _wrong_count,
    "invalid pools": _broken_pool,
    "devices held": lambda one: any("shareID" not in result for result in results(one)),
    "request selectors": _asked_with("selectors"),
    "careless selectors": lambda one: any(text in BARE_SELECTORS for text in expressions(one)),
    "broken selectors": lambda one: any(text in BROKEN_SELECTORS for text in expressions(one)),
    "mode All": lambda one: any(each["allocationMode"] == "All" for each in asked(one)),
    "several devices per request": lambda one: _most_asked(one) > 1,
    "firstAvailable": lambda one: any("firstAvailable" in r for r in requests(one)),
    "matchAttribute": lambda one: any("matchAttribute" in c for c in constraints(one)),
    "distinctAttribute": lambda one: any("distinctAttribute" in c for c in constraints(one)),
    "constraints on some requests": lambda one: any("requests" in c for c in constraints(one)),
    "list attributes": _gate("DRAListTypeAttributes"),
    "derived attributes": _asked_with("derivedAttributes"),
    "admin access": _asked_with("adminAccess"),
    "shared counters": _slice_with("sharedCounters"),
    "compatibility groups": lambda one: any(
        "compatibilityGroups" in used
        for d in devices(one)
        for used in d.get("consumesCounters", ())
    ),
    "multiple allocations": _device_with("allowMultipleAllocations"),
    "capacity requests": _asked_with("capacity"),
    "capacity: only a default": lambda one: any(
        policy.keys() == {"default"} for policy in policies(one)
    ),
    "capacity: valid values": _policy_with("validValues"),
    "capacity: ranges": _policy_with("validRange"),
    "capacity: fractions": _fraction,
    "capacity: gate for fractions": _gate("DRAFractionalCapacityRange"),
    "shares held": lambda one: any("shareID" in result for result in results(one)),
    "taints": _device_with("taints"),
    "taint rules": lambda one: bool(one.get("taintRules")),
    "tolerations": _asked_with("tolerations"),
    "binding conditions": _device_with("bindingConditions"),
    "bindsToNode": _device_with("bindsToNode"),
    "class configuration": lambda one: any("config" in c["spec"] for c in one["classes"]),
    "claim configuration": lambda one: any("config" in c["spec"]["devices"] for c in one["claims"]),
    "skipped node operations": _slice_with("skipNodeOperations"),
    "16 devices asked or more": lambda one: _most_asked(one) >= 16,
    "gates off": lambda one: any(not on for on in one["features"].values()),
    "experimental forced": lambda one: one.get("implementation") == "experimental",
}
"""Each feature and how to see it in a scenario."""


# --- asking --------------------------------------------------------------------------------------


def answered(oracle: Oracle, seeds: range) -> Iterator[tuple[int, Scenario, Answer]]:
    """Yield each scenario of the numbers with upstream's answer."""
    for start in range(seeds.start, seeds.stop, CHUNK):
        numbers = range(start, min(start + CHUNK, seeds.stop))
        made = [seeded(number) for number in numbers]
        yield from zip(numbers, made, oracle.ask({"allocate": one} for one in made), strict=True)


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    coverage = Coverage()
    with Oracle() as oracle:
        for _, scenario, answer in answered(oracle, range(count)):
            coverage.add(scenario, answer)
    print("\n".join(coverage.table()))


if __name__ == "__main__":
    main()
