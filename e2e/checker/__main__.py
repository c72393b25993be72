"""`python -m e2e.checker FILE`: the broken rules of a recorded history; exit status 1 if there are any."""

import argparse
import json
import sys
from pathlib import Path

from e2e.checker.check import check, report
from e2e.checker.history import read_history
from e2e.checker.rules import Allowance


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.checker", description=__doc__)
    parser.add_argument("file", type=Path, help="JSON lines of watch events")
    parser.add_argument("--may-kill", action="append", default=[], metavar="NAMESPACE/POD")
    parser.add_argument("--dead-node", action="append", default=[], metavar="NODE")
    parser.add_argument("--head-room", type=int, default=0, help="devices that may be idle")
    parser.add_argument("--json", action="store_true", help="a JSON list instead of lines")
    arguments = parser.parse_args()
    allowance = Allowance(
        kills=tuple(arguments.may_kill),
        dead_nodes=tuple(arguments.dead_node),
        head_room=arguments.head_room,
    )
    try:
        with arguments.file.open(encoding="utf-8") as lines:
            events = read_history(lines)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    findings = check(events, allowance)
    if arguments.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
    elif findings:
        print(report(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
