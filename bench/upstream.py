"""Upstream's allocator, timed by the Go program of the oracle (tests/oracle/bench.go)."""

import json
from pathlib import Path
from typing import Final

import msgspec

from tests.oracle.go import Oracle
from tests.oracle.scenarios import Scenario
from tests.oracle.workloads import WORKERS

NO_END: Final = frozenset({"steps", "timeout"})


class Timing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What upstream took, per round.

    Attributes:
        setup_seconds: To take in what is held, and for NewAllocator.
        seconds: To try every node. The first round also compiles selectors.
        steps: Of the last round.
        ends: How many nodes came to which end.
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
    """The Go program, and the files through which it is given scenarios."""

    def __init__(self, oracle: Oracle, folder: Path) -> None:
        self._oracle = oracle
        self._folder = folder

    def written(self, name: str, scenario: Scenario) -> Path:
        """Return the file of a scenario."""
        file = self._folder / f"{name}.json"
        file.write_text(json.dumps(scenario))
        return file

    def timed(self, file: Path, *, workers: int = WORKERS, rounds: int = 2) -> Timing:
        """Try every node of a scenario, round by round.

        Raises:
            ValueError: It cannot be asked like that.
        """
        bench = {"file": str(file), "workers": workers, "rounds": rounds}
        (answer,) = self._oracle.ask([{"bench": bench}])
        if "error" in answer:
            raise ValueError(answer["error"])
        return msgspec.convert(answer, Timing)
