"""Upstream's allocator, timed by the Go program of the oracle (testing/oracle/bench.go)."""

import json
from pathlib import Path
from typing import Final

import msgspec

from testing.oracle.go import Oracle
from testing.oracle.scenarios import Scenario
from testing.oracle.workloads import WORKERS

NO_END: Final = frozenset({"steps", "timeout"})


class Timing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Upstream's times, per round.

    Attributes:
        setup_seconds: The seconds for the allocated claims and NewAllocator.
        seconds: The seconds for Allocate on every node. The first round also compiles selectors.
        steps: Steps of the last round.
        ends: Outcome to the number of nodes.
    """

    setup_seconds: tuple[float, ...]
    seconds: tuple[float, ...]
    steps: int
    ends: dict[str, int]

    @property
    def has_ended(self) -> bool:
        """No node was cut off at the deadline."""
        return NO_END.isdisjoint(self.ends)


class Upstream:
    """The Go program, with the files that give it scenarios."""

    def __init__(self, oracle: Oracle, folder: Path) -> None:
        self._oracle = oracle
        self._folder = folder

    def write(self, name: str, scenario: Scenario) -> Path:
        """Write a scenario and return its file."""
        file = self._folder / f"{name}.json"
        file.write_text(json.dumps(scenario))
        return file

    def measure(self, file: Path, *, workers: int = WORKERS, rounds: int = 2) -> Timing:
        """Run Allocate on every node of a scenario, in rounds.

        Raises:
            ValueError: The Go program rejects the call.
        """
        bench = {"file": str(file), "workers": workers, "rounds": rounds}
        (answer,) = self._oracle.ask([{"bench": bench}])
        if "error" in answer:
            raise ValueError(answer["error"])
        return msgspec.convert(answer, Timing)
