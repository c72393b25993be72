"""`python -m bench.attack`: each attacker's cost for honest users, as a table; exits 1 if it is too much.

Honest pods are created before, during and after each flood, and during the same flood while the API server
does not call us, since on a small machine the API server itself costs as much. Then an editor has the
bridge decide about pods that cost much, while honest ones are bound.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from bench.attack import floods, poison, table
from bench.attack.stage import staged
from e2e.attackers.flood import ATTACKERS

EVERYBODY: Final = tuple(dict.fromkeys(attacker.who for attacker in ATTACKERS))
BRIDGE: Final = "bridge"
"""The choice in `--only` of decisions by the bridge that an editor causes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if a bound is broken."""
    parser = argparse.ArgumentParser(prog="python -m bench.attack", description=__doc__)
    parser.add_argument("--honest", type=int, default=200, help="pods of each size in a phase")
    parser.add_argument("--runs", type=int, default=3, help="of which the median counts")
    parser.add_argument("--devices", type=int, default=5120, help="of each of the two drivers")
    parser.add_argument("--only", action="append", choices=(*EVERYBODY, BRIDGE), help="some only")
    parser.add_argument(
        "--per-second", type=float, default=100.0, help="requests of a flood, at most"
    )
    parser.add_argument("--out", type=Path, help="JSON lines, too")
    options = parser.parse_args(arguments)
    only = options.only or (*EVERYBODY, BRIDGE)
    attackers = [attacker for attacker in ATTACKERS if attacker.who in only]
    rows: list[floods.Row | poison.Row] = []
    began_load = os.getloadavg()[0]
    with (
        options.out.open("w", encoding="utf-8") if options.out else nullcontext() as lines,
        staged(options.devices) as stage,
    ):
        flood_options = floods.Options(options.honest, options.runs, options.per_second)
        measured_rows: list[Iterator[floods.Row] | Iterator[poison.Row]] = [
            floods.measure(stage, attackers, options.devices, flood_options)
        ]
        if BRIDGE in only:
            attacks, runs = poison.ATTACKS, options.runs
            measured_rows.append(
                poison.measure(stage, attacks, options.devices, options.honest, runs)
            )
        for suite in measured_rows:
            for row in suite:
                rows.append(row)
                print(f"{row.attack}: {'; '.join(row.faults) or 'within bounds'}", file=sys.stderr)
                if lines is not None:
                    lines.write(json.dumps(row._asdict()) + "\n")
                    lines.flush()
    print(table.render(rows))
    words = f"{options.devices} devices of each driver, {options.honest} honest pods, {options.runs} runs"
    print(f"\n{words}, {os.cpu_count()} cores, load {began_load:.1f} before it began.")
    return int(any(row.faults for row in rows))


if __name__ == "__main__":
    sys.exit(main())
