"""The flag that leaves files out of directories."""

from collections.abc import Callable
from typing import Any, Final

import click

EXCLUDE: Final[Callable[[Callable[..., Any]], Callable[..., Any]]] = click.option(
    "--exclude",
    multiple=True,
    metavar="GLOB",
    help="With -R, leave out files and directories whose name, or path below the directory that -f "
    "names, matches; * matches / as well. Repeatable.",
)
