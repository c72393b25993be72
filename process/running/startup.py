"""Shorten the start of a process. Imported by the package of a process before anything else.

Imports make no garbage, but the collector looks for it all the while, which takes a tenth of their
time. So it begins with `start_collecting`, and does not look at what was imported.
"""

import gc
import sys


def start_collecting() -> None:
    """Collect garbage from now on, among objects created from now on."""
    gc.freeze()
    gc.enable()


if sys.argv[:1] == ["-m"]:  # So it is while `python -m` looks for the module that it will run.
    gc.disable()
