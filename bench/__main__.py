"""`python -m bench [--out FILE]`: measure, print a table, write JSON lines."""

import sys
from pathlib import Path

import click

from bench import (
    allocator,
    cluster,
    command,
    driver,
    endpoint,
    expressions,
    judge,
    observer,
    policies,
    processes,
    ranking,
)
from bench.report import Result, show, write_lines

SUITES = {
    "allocator": allocator.measure,
    "command": command.measure,
    "ranking": ranking.measure,
    "endpoint": endpoint.measure,
    "cluster": cluster.measure,
    "observer": observer.measure,
    "judge": judge.measure,
    "expressions": expressions.measure,
    "policies": policies.measure,
    "processes": processes.measure,
    "driver": driver.measure,
}


@click.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="JSON lines, too.")
@click.option("--only", type=click.Choice(sorted(SUITES)), multiple=True, help="Some suites only.")
def main(out: Path | None, only: tuple[str, ...]) -> None:
    """Measure side by side with the anchors. Exits 0 whether or not the goals are met."""
    results: list[Result] = []
    for name in only or SUITES:
        print(f"measuring: {name}", file=sys.stderr)
        results.extend(SUITES[name]())
    if out is not None:
        with out.open("w", encoding="utf-8") as lines:
            write_lines(results, lines)
    show(results)


if __name__ == "__main__":
    main()
