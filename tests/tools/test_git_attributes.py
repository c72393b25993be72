"""A review folds generated files, and shows those that a person wrote."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tools.generate import GENERATED
from tools.git_attributes import PATH, REVIEWED, attributes

ROOT = Path(__file__).parents[2]


def _folded(paths: Iterable[str]) -> set[str]:
    """Return the paths that git has the attribute for."""
    completed = subprocess.run(
        ["git", "check-attr", "-z", "--stdin", "linguist-generated"],
        cwd=ROOT,
        input="\0".join(paths),
        capture_output=True,
        text=True,
        check=True,
    )
    fields = completed.stdout.split("\0")
    return {path for path, value in zip(fields[::3], fields[2::3], strict=False) if value == "set"}


def test_every_generated_file_is_folded() -> None:
    generated = {path for path, _ in GENERATED} - REVIEWED - {PATH}

    assert generated == _folded(generated)


def test_what_other_tools_write_is_folded() -> None:
    written = {"bridge/go.sum", "requirements/dev.txt", "testing/oracle/data/cel.json"}

    assert written == _folded(written)


def test_what_a_person_wrote_is_shown() -> None:
    assert _folded({*REVIEWED, PATH, "README.md", "bridge/go.mod", "tools/generate.py"}) == set()


def test_files_that_a_review_shows_are_generated() -> None:
    assert REVIEWED <= {path for path, _ in GENERATED}


def test_changes_are_merged_line_by_line() -> None:
    assert "changes/*.md merge=union\n" in attributes([])
