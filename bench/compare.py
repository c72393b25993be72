"""`python -m bench.compare COMMIT --only SUITE`: suites at another commit and here, alternately; fails beyond 10 %.

A machine drifts by more than a change costs, so both are measured in turn and the medians compared: of a figure with an
anchor the ratio to it, which was taken in the same run. Figures that are no goal's and have no better side are
not compared, nor are those that one commit alone has.

The other commit is checked out beside this one, and runs with the packages that are installed here.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import click
import msgspec
from rich.console import Console
from rich.table import Table

from bench.report import GOALS_MISSED, Better, Result

TOLERANCE: Final = 0.10
"""The share by which a figure may be worse."""
ROUNDS: Final = 3

Runs = Sequence[Sequence[Result]]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One figure at both commits.

    Attributes:
        name: The name of the measure, with its unit.
        base: The median at the other commit.
        here: The median here.
        worse: The share by which it is worse here; below 0 if it is better.
    """

    name: str
    base: float
    here: float
    worse: float

    @property
    def has_regressed(self) -> bool:
        """True if it is worse by more than the tolerance."""
        return self.worse > TOLERANCE


def compare(base: Runs, here: Runs) -> Iterator[Comparison]:
    """Yield the figures that both commits have and that have a better side, by the order of this commit.

    Args:
        base: The results of each run at the other commit, which may not know better sides.
        here: Those of this commit.
    """
    base_figures, here_figures = _figures(base), _figures(here)
    sides = {result.name: result.better for run in here for result in run}
    for name, values in here_figures.items():
        side, base_values = sides[name], base_figures.get(name)
        if side is Better.NEITHER or base_values is None:
            continue
        before, after = median(base_values), median(values)
        if not before or not after:
            continue
        factor = after / before if side is Better.LESS else before / after
        yield Comparison(name=name, base=before, here=after, worse=factor - 1)


def _figures(runs: Runs) -> Mapping[str, Sequence[float]]:
    figures: dict[str, list[float]] = {}
    for run in runs:
        for result in run:
            figure = result.ours if result.ratio is None else result.ratio
            figures.setdefault(result.name, []).append(figure)
    return figures


def run_suites(folder: Path, arguments: Sequence[str]) -> Sequence[Result]:
    """Run suites in a checkout, and return their results.

    Raises:
        click.ClickException: The run failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        lines = Path(scratch, "results.jsonl")
        process = subprocess.run(
            [sys.executable, "-m", "bench", "--out", str(lines), *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        # Goals that are missed at one commit are not, for that alone, a regression.
        if process.returncode not in {0, GOALS_MISSED}:
            raise click.ClickException(f"bench in {folder} ended with {process.returncode}")
        return [msgspec.json.decode(line, type=Result) for line in lines.read_bytes().splitlines()]


@contextmanager
def checkout(repository: Path, commit: str) -> Iterator[Path]:
    """Check a commit out into a folder that is gone at the end.

    Raises:
        click.ClickException: There is no such commit.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "base")
        git = ["git", "-C", str(repository), "worktree"]
        added = subprocess.run(
            [*git, "add", "--detach", str(folder), commit],
            capture_output=True,
            text=True,
            check=False,
        )
        if added.returncode:
            raise click.ClickException(f"{commit} cannot be checked out: {added.stderr.strip()}")
        try:
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=False)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("base")
@click.option("--rounds", type=click.IntRange(1), default=ROUNDS, help="Runs of each commit.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(base: str, rounds: int, arguments: Sequence[str]) -> None:
    """Run suites at the commit BASE and here, alternately; ARGUMENTS are those of `python -m bench`.

    Exits 1 if a figure is worse here by more than 10 %.
    """
    here = Path.cwd()
    base_runs: list[Sequence[Result]] = []
    here_runs: list[Sequence[Result]] = []
    with checkout(here, base) as folder:
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}: {base}", file=sys.stderr)
            base_runs.append(run_suites(folder, arguments))
            print(f"round {number + 1} of {rounds}: here", file=sys.stderr)
            here_runs.append(run_suites(here, arguments))
    comparisons = list(compare(base_runs, here_runs))
    if not comparisons:
        raise click.ClickException(
            f"there is nothing to compare: no figure is of both {base} and here"
        )
    _show(comparisons, base)
    sys.exit(any(comparison.has_regressed for comparison in comparisons))


def _show(comparisons: Sequence[Comparison], base: str) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("measurement", base[:12], "here", "worse by", ""):
        table.add_column(column, justify="left" if column in {"measurement", ""} else "right")
    for comparison in comparisons:
        table.add_row(
            comparison.name,
            f"{comparison.base:,.3f}",
            f"{comparison.here:,.3f}",
            f"{comparison.worse:+.1%}",
            "REGRESSED" if comparison.has_regressed else "",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
