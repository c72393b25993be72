"""Requests travel through counted files, and never further than docs/architecture.md says."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tools.walk import WALKS, product_path

ROOT = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "architecture.md").read_text()
SLACK: Final = 5
"""The number of files that a walk may lack before the page is to be corrected."""


@pytest.fixture(scope="module")
def counted_files() -> dict[str, int]:
    """The files of each walk, counted in a process of its own with caches that no other test has filled."""
    completed = subprocess.run(
        [sys.executable, "-m", "tools.walk"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    rows = [line.split() for line in completed.stdout.splitlines()[1:]]
    return {row[0]: int(row[1]) for row in rows}


def _documented_files(walk: str) -> int:
    """Return the figure of a walk in the last column of its row on the page."""
    row = re.search(rf"^\| `{walk}` \|.*\| (\d+) \|$", PAGE, re.MULTILINE)
    assert row is not None, f"docs/architecture.md has no row for `{walk}`"
    return int(row[1])


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_is_as_long_as_the_page_says(walk: str, counted_files: dict[str, int]) -> None:
    documented = _documented_files(walk)
    files = counted_files[walk]

    assert files <= documented, (
        f"the walk of {walk} passes {files} files, {documented} before; `make walk WALK={walk}` "
        "lists them: find a way without the new ones"
    )
    assert files >= documented - SLACK, f"the walk fell: write {files} into docs/architecture.md"


def test_only_files_of_the_product_count() -> None:
    assert product_path(ROOT / "admission" / "pods.py") == "admission/pods.py"
    assert product_path(ROOT / "testing" / "builders.py") == ""
    assert product_path(ROOT / "conftest.py") == ""
    assert product_path(Path(sys.executable)) == ""
