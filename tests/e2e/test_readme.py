"""The page about stories, beside the modules that it lists."""

import re
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "e2e"


def test_every_shared_module_is_listed() -> None:
    modules = {
        path.name
        for path in FOLDER.glob("*.py")
        if not path.name.startswith(("test_", "__init__", "conftest"))
    }
    rows = re.findall(r"^\| (`\w+\.py`.*?) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+\.py)`", row)]

    assert modules == set(listed)
    assert len(listed) == len(set(listed))
