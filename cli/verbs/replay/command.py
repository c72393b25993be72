"""`drawbridge replay`: pods that arrive one by one, placed with each strategy."""

import math
import sys
import time
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from allocator.model.feature_gates import Features
from allocator.replay.csv_pods import MAX_FAULTS, CsvFault, read_pods
from allocator.replay.replay import STRATEGIES
from allocator.replay.results import StrategyResult
from allocator.replay.workload import Order, ReplayPod
from answers.model.cluster_state import build_state
from answers.model.inputs import ClusterObjects
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from cli.flags.completion import FILE_NAME, complete_list_from
from cli.output.formats import Output, Report, format_document, text_or_document
from cli.output.help import CLUSTER_STATE, Command
from cli.output.progress import INTERRUPTED, LongRun
from cli.output.standard_error import print_line
from cli.reading.options import with_state
from cli.verbs.replay.answer import (
    Job,
    Question,
    ReplayAnswer,
    build_question,
    has_capacities,
    list_jobs,
    results_below,
    run_job,
)
from cli.verbs.replay.text import format_percent, format_results

MAX_SEEDS: Final = 1000

EXAMPLES: Final = """\
drawbridge replay --snapshot cluster.json.gz --pods pods.csv
drawbridge replay --live --pods pods.csv --strategy stock,CompactFirst --order shuffle --seeds 5
# in CI
drawbridge replay --snapshot cluster.json.gz --pods pods.csv --strategy stock --check-below 90
"""


class StrategyNames(click.ParamType[tuple[str, ...]]):
    """Names of strategies, with commas between them."""

    name = "strategies"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names; click reports one that is not known."""
        names = tuple(filter(None, map(str.strip, str(value).split(","))))
        for name in names:
            if name not in STRATEGIES:
                self.fail(
                    f"unknown strategy {name!r}; known are: {', '.join(STRATEGIES)}", param, ctx
                )
        if not names:
            self.fail(f"names no strategy; known are: {', '.join(STRATEGIES)}", param, ctx)
        return names


def _check_number(
    _context: click.Context, _parameter: click.Parameter, value: float | None
) -> float | None:
    """Return a number; no comparison with NaN is true, so a check against it would always pass."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("write a number from 0 to 100")
    return value


@click.command("replay", cls=Command, epilog=CLUSTER_STATE + EXAMPLES)
@click.option(
    "--pods",
    "pods_file",
    required=True,
    type=FILE_NAME,
    metavar="FILE.csv",
    help="The pods that arrive, one a line, as CSV; the first line names the columns. - is standard input.",
)
@with_state
@click.option(
    "--strategy",
    "strategy_lists",
    type=StrategyNames(),
    multiple=True,
    metavar="NAME,...",
    shell_complete=complete_list_from(lambda: STRATEGIES),
    help=f"Strategies to compare: {', '.join(STRATEGIES)}. All by default. Repeatable.",
)
@click.option(
    "--order",
    type=click.Choice([order.value for order in Order]),
    default=Order.FILE.value,
    show_default=True,
    help="file: as the lines stand, each pod tried once. shuffle: the same in the order of the seed. "
    "arrival: pods come and leave in their seconds, and those that wait are tried again.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, MAX_SEEDS),
    metavar="N",
    default=1,
    show_default=True,
    help="Replay with each of the seeds 0 to N-1, which decide between equal nodes and shuffle.",
)
@click.option(
    "--check-below",
    type=click.FloatRange(0, 100),
    callback=_check_number,
    metavar="PERCENT",
    help="Exit with 1 if a replay ends with less of its first capacity allocated.",
)
@text_or_document("a table, and why pods failed")
def replay(
    cluster_objects: ClusterObjects,
    *,
    pods_file: str,
    strategy_lists: tuple[tuple[str, ...], ...],
    order: str,
    seeds: int,
    check_below: float | None,
    output: str,
) -> None:
    """Place pods one by one on a cluster with each strategy, and compare what is allocated.

    The snapshot is the cluster before the first pod, with the CPU and memory that its pods leave. A
    strategy places as the bridge does with it; stock and stock-most-allocated place as kube-scheduler
    does alone, without policies. FragmentationAware knows here what nodes have left of CPU and
    memory, which the bridge does not tell it yet. The first capacity is the first that a pod
    requests. Read-only.

    Exit status: 0 when replayed, 1 below --check-below, 2 when the call or the CSV is wrong, 130 when
    ^C ended it before all replays were done; those that were done are printed.
    """
    if pods_file == "-" and "-" in click.get_current_context().params["snapshots"]:
        raise click.UsageError("- is standard input, which can be read only once.")
    pods = _read_pods(pods_file)
    objects, faults = decode_objects(
        cluster_objects.objects, STATE_KINDS, cluster_objects.namespace
    )
    for fault in faults:
        print_line(fault.line())
    question = build_question(pods, Order(order), build_state(objects), Features())
    if check_below is not None and not has_capacities(question):
        raise click.UsageError("--check-below needs devices with a capacity, and there are none.")
    names = [name for names in strategy_lists for name in names] or STRATEGIES
    jobs = list_jobs(dict.fromkeys(names), seeds)
    with LongRun("replayed", len(jobs)) as run:
        results = [_timed(job, question) for job in run.track(jobs)]
    if output == Output.TEXT:
        click.echo(format_results(results, question.order, len(pods)))
    else:
        answer = ReplayAnswer(strategies=tuple(results))
        click.echo(format_document(output, msgspec.json.encode(answer), Report.REPLAY))
    below = [] if check_below is None else list(results_below(results, check_below))
    for result, capacity in below:
        print_line(
            f"{result.name}, seed {result.seed}: {format_percent(capacity.percent)} of {capacity.name} "
            f"of {capacity.driver} is allocated, below {check_below:g} %"
        )
    if run.is_interrupted and len(results) < len(jobs):
        sys.exit(INTERRUPTED)
    sys.exit(1 if below else 0)


def _timed(job: Job, question: Question) -> StrategyResult:
    """Return the result of a replay with its CPU time."""
    before = time.process_time()
    result = run_job(job, question)
    return msgspec.structs.replace(result, cpu_seconds=round(time.process_time() - before, 3))


def _read_pods(name: str) -> tuple[ReplayPod, ...]:
    """Return the pods of a file; end with its faults, each on a line, if it has any."""
    read = read_pods(_read_text(name))
    pods = tuple(entry for entry in read if isinstance(entry, ReplayPod))
    faults = [entry for entry in read if isinstance(entry, CsvFault)]
    for fault in faults:
        print_line(f"{_place(name)}: {fault}")
    if len(faults) == MAX_FAULTS:
        print_line(f"{_place(name)}: there may be more faults; the first {MAX_FAULTS} are named")
    if faults:
        sys.exit(2)
    return pods


def _read_text(name: str) -> str:
    content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        print_line(f"{_place(name)}: line {line}: not UTF-8")
        sys.exit(2)


def _place(name: str) -> str:
    return "standard input" if name == "-" else name
