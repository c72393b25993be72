"""`python -m bench [--out FILE]`: measure, print a table, write JSON lines.

`--only bridge` compares schedulers on control planes of its own; it is not among the suites that run
without `--only`, since it needs the machine for itself for a quarter of an hour. `--only hami-dra`
needs a checkout of HAMi-DRA's source, and `--only placement` the files of a trace, `--traces`; with these
the suites that run without `--only` have a short form of it.
"""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import click

from bench import (
    allocator,
    cluster,
    command,
    driver,
    endpoint,
    expressions,
    groups,
    hami_dra,
    node,
    observer,
    placement,
    policies,
    processes,
    quota_gates,
    quotas,
    ranking,
    scale,
    validation,
    views,
)
from bench.bridge import failover, group_throughput, plain_pods, sidecar_alone
from bench.bridge.measure import Anchor, Options
from bench.bridge.measure import measure as measure_bridge
from bench.bridge.scenarios import SCENARIOS
from bench.report import GOALS_MISSED, Result, show, write_lines

SUITES = {
    "allocator": allocator.measure,
    "command": command.measure,
    "ranking": ranking.measure,
    "groups": groups.measure,
    "views": views.measure,
    "endpoint": endpoint.measure,
    "cluster": cluster.measure,
    "observer": observer.measure,
    "validation": validation.measure,
    "expressions": expressions.measure,
    "policies": policies.measure,
    "processes": processes.measure,
    "driver": driver.measure,
    "node": node.measure,
}


BRIDGE = "bridge"
HAMI_DRA = "hami-dra"
PLACEMENT = "placement"
OWN_SUITES = {
    "sidecar": sidecar_alone.measure,
    "failover": failover.measure,
    "group-throughput": group_throughput.measure,
    "plain-pods": plain_pods.measure,
    "quota-gates": quota_gates.measure,
    "quotas": quotas.measure,
    "scale": scale.measure,
}
"""Suites that run with `--only` alone."""
STRICT_SUITES: Final = frozenset({"scale"})
"""Suites whose missed goals are a failure."""


def _with_all_files(
    context: click.Context, parameter: click.Parameter, folder: Path | None
) -> Path | None:
    """Return the folder of the trace; raises BadParameter if it lacks files."""
    missing = placement.missing_files(folder) if folder is not None else ()
    if missing:
        message = f"{folder} lacks {', '.join(missing)}; see bench/openb.py and bench/placement.py"
        raise click.BadParameter(message, context, parameter)
    return folder


@click.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="JSON lines, too.")
@click.option(
    "--only",
    type=click.Choice(sorted((*SUITES, *OWN_SUITES, BRIDGE, HAMI_DRA, PLACEMENT))),
    multiple=True,
    help="Some suites only.",
)
@click.option("--nodes", type=int, multiple=True, help="bridge: sizes of the cluster.")
@click.option("--pods", type=int, default=Options().pods, help="bridge: pods in a turn.")
@click.option("--rounds", type=int, default=Options().rounds, help="bridge: turns of each side.")
@click.option(
    "--scenario", type=click.Choice(sorted(SCENARIOS)), multiple=True, help="bridge: some only."
)
@click.option(
    "--against",
    type=click.Choice([anchor.value for anchor in Anchor]),
    default=Anchor.IN_TREE.value,
    help="bridge: in-tree, or the bridge with claims that are written in PreBind.",
)
@click.option(
    "--default-limits",
    is_flag=True,
    help="bridge: clients are limited as Kubernetes does it by default.",
)
@click.option(
    "--checkout",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="hami-dra: the folder of its source.",
)
@click.option(
    "--traces",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    callback=_with_all_files,
    help="placement: the folder with the files of the openb trace, see bench/openb.py.",
)
def main(  # noqa: PLR0917 - one for each option.
    out: Path | None,
    only: tuple[str, ...],
    nodes: tuple[int, ...],
    pods: int,
    rounds: int,
    scenario: tuple[str, ...],
    against: str,
    default_limits: bool,  # noqa: FBT001 - click's.
    checkout: Path | None,
    traces: Path | None,
) -> None:
    """Measure side by side with the anchors. Exits 3 if a goal of `scale` is missed; others are shown only."""
    if HAMI_DRA in only and checkout is None:
        raise click.UsageError(
            f"--only {HAMI_DRA} needs --checkout, the folder of its source, as"
            " `git clone https://github.com/Project-HAMi/HAMi-DRA` makes it"
        )
    if PLACEMENT in only and traces is None:
        raise click.UsageError(
            f"--only {PLACEMENT} needs --traces, a folder with the files of the openb trace, which"
            " github.com/hkust-adsl/kubernetes-scheduler-simulator has"
        )
    results: list[Result] = []
    has_failed = False
    with out.open("w", encoding="utf-8") if out is not None else nullcontext() as lines:
        for name in only or (*SUITES, *((PLACEMENT,) if traces is not None else ())):
            print(f"measuring: {name}", file=sys.stderr)
            if name == BRIDGE:
                sizes = nodes or Options().nodes
                suite = measure_bridge(
                    Options(sizes, pods, scenario, rounds, Anchor(against), default_limits)
                )
            elif name == HAMI_DRA:
                assert checkout is not None
                suite = hami_dra.measure(checkout)
            elif name == PLACEMENT:
                assert traces is not None
                suite = placement.measure(traces) if only else placement.measure_briefly(traces)
            else:
                suite = (SUITES | OWN_SUITES)[name]()
            for result in suite:  # Written at once: a suite may take an hour.
                results.append(result)
                has_failed |= name in STRICT_SUITES and not result.met
                if lines is not None:
                    write_lines([result], lines)
                    lines.flush()
    show(results)
    if has_failed:
        sys.exit(GOALS_MISSED)


if __name__ == "__main__":
    main()
