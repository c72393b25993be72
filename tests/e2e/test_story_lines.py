"""A run names the story that begins, and ends with pytest's own line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing.story_lines import FIRST

ROOT = Path(__file__).parents[2]
STORIES = {
    "e2e/test_bridge_pods.py": "def test_one() -> None: ...\n\n\ndef test_two() -> None: ...\n",
    "e2e/test_node_late.py": "def test_three() -> None: ...\n",
    "tests/test_image.py": "def test_four() -> None: ...\n",
}


def _run(folder: Path, *options: str) -> list[str]:
    """Return the lines that a run of the stories prints."""
    for name, text in STORIES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    completed = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--rootdir", ".", "-p", "testing.story_lines"),
            *("-p", "no:cacheprovider", *options, *STORIES),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout.splitlines()


@pytest.mark.parametrize("options", [(), ("--numprocesses", "2")], ids=["alone", "with xdist"])
def test_each_file_of_stories_has_one_line(options: tuple[str, ...], tmp_path: Path) -> None:
    lines = _run(tmp_path, *options)

    stories = sorted(line for line in lines if line.startswith("story: "))
    assert ["story: e2e/test_bridge_pods.py", "story: e2e/test_node_late.py"] == stories
    assert lines.count(FIRST) == 1
    assert lines.index(FIRST) < min(lines.index(story) for story in stories)
    assert lines[-1].startswith("4 passed in ")
