"""A scenario made as small as it can be while it still shows something: delta debugging on JSON.

`python -m testing.oracle.compare FIRST STOP --shrink` prints what it makes of differences.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final

from testing.oracle.scenarios import Scenario

_KEPT_WORDS: Final = """
allocated allocation allocationMode attributes capacity cel claims classes count counters
counterSet device deviceClassName devices driver effect exactly expression features
firstAvailable generation key metadata name namespace nodes nodeSelectorTerms operator pool
request requests resourceSliceCount results sharedCounters slices spec status taint uid value
values
"""
KEPT: Final = frozenset(_KEPT_WORDS.split())
"""Members without which the objects would not be what they are; everything else may go."""

Path = tuple[str | int, ...]


def shrunk(scenario: Scenario, shows: Callable[[Scenario], bool]) -> Scenario:
    """Return the smallest scenario found that still shows it.


    Args:
        scenario: Is not changed.
        shows: Whether a scenario still shows what it is about; true of `scenario`.
    """
    best = scenario
    while (smaller := _pass(best, shows)) != best:
        best = smaller
    return best


def _pass(scenario: Scenario, shows: Callable[[Scenario], bool]) -> Scenario:
    """Return the scenario without all that can go, each thing tried once, large things first."""
    best = scenario
    for index in reversed(range(len(best["slices"]))):
        smaller = _without_slice(best, index)
        best = smaller if shows(smaller) else best
    # Of a list the last comes first, so that what is left keeps its place.
    paths = [*_removable(best)][::-1]
    for path in sorted(paths, key=len):
        smaller = copy.deepcopy(best)
        if _remove(smaller, path) and shows(smaller):
            best = smaller
    return best


def _remove(scenario: Scenario, path: Path) -> bool:
    """Remove a member; false when it went with another."""
    parent: Any = scenario
    try:
        for step in path[:-1]:
            parent = parent[step]
        del parent[path[-1]]
    except (KeyError, IndexError):
        return False
    return True


def _without_slice(scenario: Scenario, index: int) -> Scenario:
    """Return the scenario without a slice that the others of its pool do not count any more."""
    smaller = copy.deepcopy(scenario)
    removed_spec = smaller["slices"].pop(index)["spec"]
    for slice_ in smaller["slices"]:
        spec = slice_["spec"]
        if (spec["driver"], spec["pool"]["name"]) == (
            removed_spec["driver"],
            removed_spec["pool"]["name"],
        ):
            spec["pool"]["resourceSliceCount"] -= 1
    return smaller


def _removable(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict):
        for key, member in value.items():
            if key not in KEPT or path[-1:] in (("attributes",), ("capacity",), ("features",)):
                yield (*path, key)
            yield from _removable(member, (*path, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield (*path, index)
            yield from _removable(member, (*path, index))
