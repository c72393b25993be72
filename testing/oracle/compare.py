"""Our verdicts beside upstream's: `python -m testing.oracle.compare [FIRST] STOP [--shrink]`.

Prints each scenario of these numbers on which the two differ, made small with `--shrink`.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from testing.oracle.coverage import Coverage, answered_scenarios
from testing.oracle.go import Oracle
from testing.oracle.ours import verdicts
from testing.oracle.scenarios import MAX_STEPS, Scenario
from testing.oracle.shrink import shrunk
from testing.oracle.skips import SKIPS, Case, Skip
from testing.oracle.verdicts import BUDGET_EXHAUSTED, Verdict, upstream


class Difference(NamedTuple):
    """A node with a disagreement between us and upstream."""

    seed: int
    scenario: Scenario
    node: str
    ours: Verdict
    theirs: Verdict

    def skip(self, oracle: Oracle) -> Skip | None:
        """Return the entry that explains it; None when it is a bug."""
        alone = self.scenario | {"node": self.node, "maxSteps": MAX_STEPS * 100}
        (answer,) = oracle.ask([{"allocate": alone}])
        case = Case(self.scenario, self.ours, self.theirs, upstream(answer)[self.node])
        return next((skip for skip in SKIPS if skip.applies(case)), None)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}, node {self.node}\n"
            f"  upstream: {self.theirs.words}\n  ours:     {self.ours.words}"
        )


class Comparison:
    """A growing comparison over scenarios."""

    def __init__(self) -> None:
        self.coverage = Coverage()
        self.unexplained: list[Difference] = []
        self.used: Counter[str] = Counter()
        self.not_proved: Counter[str] = Counter()

    def add(self, oracle: Oracle, seeds: range) -> None:
        """Compare on the scenarios of these numbers."""
        for seed, scenario, answer in answered_scenarios(oracle, seeds):
            self.coverage.add(scenario, answer)
            theirs, ours = upstream(answer), verdicts(scenario)
            self.not_proved["upstream"] += sum(
                verdict.end == BUDGET_EXHAUSTED for verdict in theirs.values()
            )
            self.not_proved["ours"] += sum(
                verdict.end == BUDGET_EXHAUSTED for verdict in ours.values()
            )
            for difference in differing(seed, scenario, ours, theirs):
                skip = difference.skip(oracle)
                if skip is None:
                    self.unexplained.append(difference)
                else:
                    self.used[skip.reason] += 1

    def summary(self) -> Iterator[str]:
        """Yield lines for people."""
        yield f"{len(self.unexplained)} differences unexplained"
        for reason, count in self.used.items():
            yield f"{count} explained: {reason}"
        yield f"not compared, because one side exhausted its budget: {dict(self.not_proved)}"


def differing(
    seed: int, scenario: Scenario, ours: dict[str, Verdict], theirs: dict[str, Verdict]
) -> Iterator[Difference]:
    """Yield the nodes with different verdicts; if one side exhausted its budget nothing is known."""
    for node, verdict in sorted(theirs.items()):
        if (
            BUDGET_EXHAUSTED not in (verdict.end, ours[node].end)
            and ours[node].compared != verdict.compared
        ):
            yield Difference(seed, scenario, node, ours[node], verdict)


def smallest(oracle: Oracle, difference: Difference) -> Difference:
    """Return a difference of the same two ends on the smallest scenario that shows one."""
    ends = difference.ours.end, difference.theirs.end

    def find_difference(scenario: Scenario) -> Difference | None:
        (answer,) = oracle.ask([{"allocate": scenario}])
        if "error" in answer:
            return None
        try:
            ours = verdicts(scenario)
        except msgspec.ValidationError:
            return None
        pairs = differing(difference.seed, scenario, ours, upstream(answer))
        return next((pair for pair in pairs if (pair.ours.end, pair.theirs.end) == ends), None)

    small = shrunk(difference.scenario, lambda scenario: find_difference(scenario) is not None)
    return find_difference(small) or difference


def main() -> None:
    """Print the differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="+", type=int, metavar="SEED")
    parser.add_argument("--shrink", action="store_true")
    options = parser.parse_args()
    comparison = Comparison()
    with Oracle() as oracle:
        comparison.add(oracle, range(*options.seeds))
        for difference in comparison.unexplained:
            if options.shrink:
                small = smallest(oracle, difference)
                print(f"{small}\n{json.dumps(small.scenario, indent=1)}")
            else:
                print(difference)
    print("\n".join(comparison.summary()))


if __name__ == "__main__":
    main()
