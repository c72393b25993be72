"""Another version of Drawbridge: this one, with another number of its translation."""

import re
import shutil
from pathlib import Path
from typing import Final

from e2e.drawbridge import ROOT

_DECLARATION: Final = re.compile(r"^TRANSLATION_VERSION: Final = (\d+)$", re.MULTILINE)
_LEFT_OUT: Final = frozenset({"bench", "docs", "e2e", "examples", "manifests", "tests", "tools"})


def copy_next_version(folder: Path) -> Path:
    """Copy the programs into a folder, as their next version; return the folder."""
    for package in sorted(ROOT.iterdir()):
        if (package / "__init__.py").is_file() and package.name not in _LEFT_OUT:
            # With times, so that what Python compiled is good for the copy.
            shutil.copytree(package, folder / package.name)
    module = folder / "translation" / "compiling" / "claims.py"
    text, count = _DECLARATION.subn(
        lambda line: f"TRANSLATION_VERSION: Final = {int(line[1]) + 1}", module.read_text()
    )
    assert count == 1, "translation/compiling/claims.py declares no TRANSLATION_VERSION"
    module.write_text(text)
    return folder


def environment_of(folder: Path) -> dict[str, str]:
    """Variables that make `python -m` run the programs of a folder, from any directory."""
    return {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
