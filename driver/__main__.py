"""`python -m driver`: the DRA driver of one node.

`python -m driver state` prints what is prepared on the node. `python -m driver slices FILE` checks a
declared inventory and prints the slices that it would publish.

It publishes the devices of a declared inventory, and prepares them for containers through CDI. It needs
root on the node: its sockets, its checkpoint and the folder of CDI specs are root's.
"""

import sys
from collections.abc import Sequence
from typing import Final

from driver.commands.driver import drive
from driver.commands.slices import print_slices
from driver.commands.state import print_state
from driver.model.settings import VARIABLES, Settings
from process.running.command import Command, run_command

COMMAND: Final = Command(
    package="driver",
    description=__doc__,
    kind=Settings,
    section="driver",
    variables=VARIABLES,
    start=drive,
)
STATE: Final = Command(
    package="driver state",
    description="Print which claims are prepared on this node, and what the API server says of them.",
    kind=Settings,
    section="driver",
    variables=VARIABLES,
    start=print_state,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] == "state":
        return run_command(STATE, words[1:])
    if words and words[0] == "slices":
        return print_slices(words[1:])
    return run_command(COMMAND, words)


if __name__ == "__main__":
    sys.exit(main())
