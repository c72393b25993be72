"""`drawbridge replay`: pods that arrive one by one, placed with each strategy."""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

import click
import msgspec

from allocator.model.feature_gates import Features
from allocator.nodes.scoring import ScoringProfile
from allocator.replay.profiles import SchedulerProfiles, choose_profiles
from allocator.replay.recorded import Course as RecordedCourse
from allocator.replay.replay import STRATEGIES
from allocator.replay.results import StrategyResult
from allocator.replay.timeline import Recorder
from allocator.replay.workload import Order
from answers.manifests.replay_pods import ArrivingPods
from answers.manifests.replay_quotas import GivenQuotas
from answers.model.inputs import ClusterObjects, Inputs
from answers.recording.course import RecordedCluster
from cli.flags.completion import FILE_NAME, complete_list_from
from cli.flags.scheduler_config import scheduler_config
from cli.output.formats import Output, Report, format_document, text_or_document
from cli.output.help import CLUSTER_STATE, Command
from cli.output.progress import INTERRUPTED, LongRun
from cli.output.standard_error import print_line
from cli.verbs.replay.answer import (
    Job,
    Question,
    ReplayAnswer,
    UnknownNode,
    build_question,
    compare_recorded,
    describe_unused,
    has_capacities,
    headline_percent,
    list_jobs,
    measure_demand,
    results_below,
    run_job,
    with_gain,
)
from cli.verbs.replay.arriving import DEFAULT_DEMAND, FROM_SNAPSHOT, read_arriving
from cli.verbs.replay.moved import MomentType
from cli.verbs.replay.page import Course, cells_of_a_map, format_replay_page
from cli.verbs.replay.parameters import AddedNodes, Percentage, StrategyNames
from cli.verbs.replay.quotas import read_quotas
from cli.verbs.replay.recorded import (
    RECORDED_PODS,
    recorded_order,
    recorded_pods,
    with_recording,
)
from cli.verbs.replay.replay_input import AddedNodesLike, ReplayInput, describe_input
from cli.verbs.replay.text import format_percent, format_results
from sidecar.replay.decisions import DecidedAgain

MAX_SEEDS: Final = 1000
MAX_DRAW_SEED: Final = 1_000_000
HTML: Final = "html"

EXAMPLES: Final = """\
drawbridge replay --snapshot cluster.json.gz --pods pods.csv
drawbridge replay --live --pods pods.csv --strategy stock,CompactFirst --order shuffle --seeds 5
# what would ten more nodes bring to pods like those that run now?
drawbridge replay --snapshot cluster.json.gz --pods from-snapshot --demand 130% --add-nodes 10=node-a
# with the pods of a recording of drawbridge record
drawbridge replay --snapshot day.json.gz --strategy stock,FragmentationAware
# the same with a quota: who would have waited?
drawbridge replay --snapshot day.json.gz --strategy stock --quota quota.yaml
# had we moved on Tuesday, what would have been placed?
drawbridge replay --snapshot day.json.gz --strategy CompactFirst --migrated-at 2026-11-17T08:30:00Z
# in CI
drawbridge replay --snapshot cluster.json.gz --pods pods.csv --strategy stock --check-below 90
"""


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
    type=FILE_NAME,
    metavar="FILE.csv|from-snapshot|recorded",
    help="The pods that arrive, one a line, as CSV; the first line names the columns. - is standard input. "
    "from-snapshot draws them from those that run in the cluster, which is emptied first. recorded are those of "
    "a recording that --snapshot names, and its default.",
)
@click.option(
    "--demand",
    type=Percentage(),
    metavar="PERCENT",
    help="With --pods from-snapshot, the devices that the pods request together, in percent of all: "
    f"{DEFAULT_DEMAND:.0%} by default.",
)
@click.option(
    "--draw-seed",
    type=click.IntRange(0, MAX_DRAW_SEED),
    metavar="N",
    help="With --pods from-snapshot, the number of the draw: each draws other pods. 0 by default.",
)
@click.option(
    "--add-nodes",
    "added",
    type=AddedNodes(),
    multiple=True,
    metavar="N=NODE",
    help="Add N nodes like NODE, with devices of their own, and tell what they bring. Repeatable.",
)
@click.option(
    "--quota",
    "quota_files",
    type=FILE_NAME,
    multiple=True,
    metavar="PATH",
    help="DeviceQuotas and ResourceQuotas that hold pods back, with Namespaces for the labels that they select. "
    "Without it no quota counts. Repeatable.",
)
@click.option(
    "--migrated-at",
    type=MomentType(),
    metavar="TIME",
    help="With a recording, the moment of a migration: from then on nodes offer their devices by DRA drivers, pods that "
    "run with device keys start anew with claims, and those that come are translated. A time in RFC 3339, or one since "
    "the beginning, such as 90m. Another --profile alone: from the beginning.",
)
@scheduler_config("The stock scheduler and the bridge score nodes by its profiles.")
@with_recording
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
    help="Exit with 1 if a replay ends with less of its first capacity allocated; with --order arrival, "
    "if less is in the mean over time.",
)
@click.option(
    "--placements",
    "keeps_places",
    is_flag=True,
    help="With -o json or yaml, also the node of each pod, or the reason that it failed.",
)
@text_or_document(
    "a table, and why pods failed",
    **{HTML: "a page for a browser, in one file, with curves and maps of the devices over time"},
)
def replay(
    cluster_objects: ClusterObjects,
    *,
    inputs: Inputs | None,
    recorded: RecordedCluster | None,
    happened: RecordedCluster | None,
    decided: DecidedAgain | None,
    pods_file: str | None,
    demand: float | None,
    draw_seed: int | None,
    added: tuple[tuple[int, str], ...],
    quota_files: tuple[str, ...],
    scoring_profiles: Mapping[str, ScoringProfile],
    strategy_lists: tuple[tuple[str, ...], ...],
    order: str,
    seeds: int,
    check_below: float | None,
    keeps_places: bool,
    output: str,
) -> None:
    """Place pods one by one on a cluster with each strategy, and compare the allocations.

    The snapshot is the cluster before the first pod, with the CPU and memory that its pods leave. A
    strategy places as the bridge does with it; stock and stock-most-allocated place as kube-scheduler
    does alone, without policies. All strategies of the bridge but FirstFit rank nodes for
    pods without devices, too. The first capacity is the first that a pod requests. With the file
    of drawbridge record, its pods come and leave as they did, and what happened is compared with the
    scores of stock. Recorded decisions of the bridge are made again, and compared. Read-only.

    Exit status: 0 when replayed, 1 below --check-below, 2 when the call or the CSV is wrong, 130 when
    ^C ended it before all replays were done; those that were done are printed.
    """
    if keeps_places and output in {HTML, Output.TEXT}:
        raise click.UsageError("--placements needs -o json or -o yaml.")
    quotas = read_quotas(quota_files)
    if recorded is not None:
        arriving = recorded_pods(recorded, has_quotas=quotas is not None)
        order = recorded_order(order)
    else:
        arriving = read_arriving(cluster_objects, inputs, pods_file, demand, draw_seed)
    pods = arriving.pods
    question = _build_question(
        arriving,
        Order(order),
        choose_profiles(scoring_profiles),
        added=added,
        course=None if recorded is None else recorded.course,
        quotas=quotas,
        happened=happened,
    )
    quota_notes = () if quotas is None else quotas.notes(arriving.state)
    for note in (*arriving.notes, *quota_notes, *describe_unused(question, added)):
        print_line(f"note: {note}")
    if check_below is not None and not has_capacities(question):
        raise click.UsageError("--check-below needs devices with a capacity, and there are none.")
    names = [name for names in strategy_lists for name in names] or STRATEGIES
    jobs = list_jobs(dict.fromkeys(names), seeds)
    courses: list[Course] = []
    with LongRun("replayed", len(jobs)) as run:
        results = []
        for job in run.track(jobs):
            # Curves of every seed would cover each other.
            recorder = None
            if output == HTML and job.seed == 0:
                recorder = Recorder(pods, cells_of_a_map(len(jobs) // seeds))
            results.append(
                with_gain(_timed(job, question, recorder, keeps_places=keeps_places), job, question)
            )
            if recorder is not None:
                courses.append(
                    Course(result=results[-1], samples=recorder.course, maps=recorder.maps)
                )
    answer = ReplayAnswer(
        strategies=tuple(results),
        input=_input(question, seeds, demand, RECORDED_PODS if recorded is not None else pods_file),
        demand=measure_demand(question),
        recorded=compare_recorded(question),
        decisions=decided,
    )
    _print_answer(output, answer, question, courses)
    below = 0 if check_below is None else _print_below(results, check_below)
    if run.is_interrupted and len(results) < len(jobs):
        sys.exit(INTERRUPTED)
    sys.exit(1 if below else 0)


def _input(
    question: Question, seeds: int, demand: float | None, pods_file: str | None
) -> ReplayInput:
    """Return the question as the flags put it."""
    flags = click.get_current_context().params
    percent = None
    if pods_file == FROM_SNAPSHOT:
        percent = round(100 * (DEFAULT_DEMAND if demand is None else demand), 3)
    return ReplayInput(
        snapshots=flags["snapshots"],
        files=flags["files"],
        pods=pods_file or "",
        arriving=len(question.pods),
        order=question.order,
        seeds=seeds,
        demand=percent,
        added_nodes=tuple(AddedNodesLike(count=count, like=name) for count, name in flags["added"]),
        quotas=flags["quota_files"],
    )


def _print_answer(
    output: str, answer: ReplayAnswer, question: Question, courses: Sequence[Course]
) -> None:
    """Print the document, or the text or page of it."""
    results, pods = answer.strategies, len(question.pods)
    if output == HTML:
        page = format_replay_page(
            results,
            courses,
            question.order,
            pods,
            heading=describe_input(answer.input),
            agreement=answer.recorded,
            demand=answer.demand,
        )
        click.echo(page, nl=False)
    elif output == Output.TEXT:
        click.echo(describe_input(answer.input))
        text = format_results(
            results,
            question.order,
            pods,
            answer.demand,
            agreement=answer.recorded,
            decided=answer.decisions,
        )
        click.echo(text)
    else:
        click.echo(format_document(output, msgspec.json.encode(answer), Report.REPLAY))


def _build_question(
    arriving: ArrivingPods,
    order: Order,
    profiles: SchedulerProfiles,
    *,
    added: Sequence[tuple[int, str]],
    course: RecordedCourse | None,
    quotas: GivenQuotas | None,
    happened: RecordedCluster | None,
) -> Question:
    """Return the input common to all replays; a wrong name of a node ends the program."""
    try:
        return build_question(
            arriving.pods,
            order,
            arriving.state,
            Features(),
            profiles=profiles,
            added=added,
            course=course,
            quotas=quotas,
            happened=happened,
        )
    except UnknownNode as error:
        raise click.BadParameter(str(error), param_hint="'--add-nodes'") from None


def _print_below(results: Sequence[StrategyResult], percent: float) -> int:
    """Print the results below a share of the first capacity, and return their number."""
    below = list(results_below(results, percent))
    for result, capacity in below:
        share = format_percent(headline_percent(result) or 0.0)
        mean = " in the mean over time" if result.over_time else ""
        print_line(
            f"{result.name}, seed {result.seed}: {share} of {capacity.name} "
            f"of {capacity.driver} is allocated{mean}, below {percent:g} %"
        )
    return len(below)


def _timed(
    job: Job, question: Question, recorder: Recorder | None, *, keeps_places: bool
) -> StrategyResult:
    """Return the result of a replay with its CPU time."""
    before = time.process_time()
    result = run_job(job, question, recorder, keeps_places=keeps_places)
    return msgspec.structs.replace(result, cpu_seconds=round(time.process_time() - before, 3))
