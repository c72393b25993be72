"""Suites at two commits, alternately."""

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.compare import compare, main
from bench.report import Result, against, below, informative


def test_medians_are_compared_on_their_better_side() -> None:
    def run(cost: float, rate: float, anchor: float) -> list[Result]:
        return [
            below("cost", cost, None),
            against("rate", rate, anchor, at_least=1),
            informative("to know", cost, 1),
        ]

    base = [run(10, 100, 50), run(11, 100, 50), run(99, 100, 50)]
    # The machine is half as fast, and so is the anchor.
    here = [run(12.5, 50, 25), run(12.5, 44, 25), run(1, 44, 25), [below("new", 1, None)]]

    compared = {entry.name: entry for entry in compare(base, here)}

    assert compared.keys() == {"cost", "rate"}
    assert (compared["cost"].base, compared["cost"].here) == (11, 12.5)
    assert compared["cost"].has_regressed
    assert compared["rate"].worse == pytest.approx(100 / 88 - 1)
    assert compared["rate"].has_regressed
    assert not any(entry.has_regressed for entry in compare(base, base))


SUITE = """
import sys
from pathlib import Path
from bench.cost import COST
out = Path(sys.argv[sys.argv.index("--out") + 1])
name = sys.argv[sys.argv.index("--only") + 1]
better = ', "better": "less"' if COST > 10 else ""
out.write_text('{"name": "%s", "ours": %s, "anchor": null, "ratio": null, "goal": "", "met": true%s}' % (name, COST, better))
if name == "strict" or name == "broken":
    sys.exit(3 if name == "strict" else 1)
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a suite that cost 10 at first, before results had a better side, and 12 now."""
    folder = tmp_path / "repository"
    package = folder / "bench"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(SUITE)
    (package / "cost.py").write_text("COST = 10")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for call in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "first")):
        subprocess.run(["git", *call], cwd=folder, check=True)
    (package / "cost.py").write_text("COST = 12")
    monkeypatch.chdir(folder)
    return folder


def test_a_regression_fails_and_leaves_no_checkout(repository: Path) -> None:
    called = CliRunner().invoke(main, ["HEAD", "--rounds", "1", "--only", "suite"])

    assert called.exit_code == 1, called.output
    assert "+20.0%" in called.output
    assert "REGRESSED" in called.output
    worktrees = subprocess.run(
        ["git", "worktree", "list"], cwd=repository, check=True, capture_output=True, text=True
    )
    assert len(worktrees.stdout.splitlines()) == 1


def test_within_a_tenth_it_succeeds(repository: Path) -> None:
    (repository / "bench" / "cost.py").write_text("COST = 10.9")
    called = CliRunner().invoke(main, ["HEAD", "--rounds", "1", "--only", "suite"])
    assert called.exit_code == 0, called.output


def test_missed_goals_of_a_strict_suite_are_no_failure_of_the_run(repository: Path) -> None:
    (repository / "bench" / "cost.py").write_text("COST = 10.9")
    called = CliRunner().invoke(main, ["HEAD", "--rounds", "1", "--only", "strict"])
    assert called.exit_code == 0, called.output
    called = CliRunner().invoke(main, ["HEAD", "--rounds", "1", "--only", "broken"])
    assert "ended with 1" in called.output


def test_a_commit_that_is_not_there_is_named(repository: Path) -> None:
    called = CliRunner().invoke(main, ["no-such-commit"])
    assert called.exit_code == 1
    assert "no-such-commit cannot be checked out" in called.output
