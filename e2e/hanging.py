"""A sidecar with decisions about some pods that never end: `python -m e2e.hanging`.

It is the sidecar in everything else. It stands for a fault in the search that nobody has found yet: such a
decision waits for nothing, looks at no deadline, and takes a thread as long as its process lives.
"""

import sys
import time
from typing import Any, Final

import sidecar.answers.decision_maker
from process.running.command import run_command
from sidecar.__main__ import COMMAND
from sidecar.plan.decisions import Outcome, find_nodes

POISON: Final = "poison"
"""The name of the pod that it hangs with. The plugin sends no annotation that the sidecar does not read."""
LOOK_S: Final = 1.0


def hang_with_poison(pod: Any, *arguments: Any, **keywords: Any) -> Outcome:
    """Find the nodes of a pod, but of one with that name."""
    while pod.metadata.name == POISON:
        time.sleep(LOOK_S)
    return find_nodes(pod, *arguments, **keywords)


def main() -> int:
    """Run the sidecar and return its exit status."""
    vars(sidecar.answers.decision_maker)["find_nodes"] = hang_with_poison
    return run_command(COMMAND, [])


if __name__ == "__main__":
    sys.exit(main())
