"""The driver with room for few records of claims: `python -m e2e.node.small_records`.

It is the driver in everything else, so that a story reaches with three claims what takes a node's users
thousands of records.
"""

import sys
from typing import Final

from driver.__main__ import COMMAND
from driver.plan import namespace_share
from process.running.command import run_command

SMALLER: Final = 1024
"""The share of the usual sizes that is left: KiB in place of MiB."""


def main() -> int:
    """Return the exit status, if it comes to that."""
    for name in ("OPEN_BYTES", "NAMESPACE_BYTES"):
        setattr(namespace_share, name, getattr(namespace_share, name) // SMALLER)
    return run_command(COMMAND, [])


if __name__ == "__main__":
    sys.exit(main())
