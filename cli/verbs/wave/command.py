"""`drawbridge wave`: go through the waves of a plan, take one back, or show the progress of a cluster."""

import getpass
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec

from cli.flags.cluster_flags import with_kubeconfig
from cli.flags.durations import DurationType
from cli.output.formats import Output, Report, format_document, text_or_document
from cli.output.help import Command
from cli.output.standard_error import print_line
from cli.reading.wave_cluster import ClusterRecord, ClusterView, StoredRecord
from cli.runbooks.plan_folder import find_plan, plan_digest, read_plan
from cli.runbooks.plan_scripts import ScriptRunner, locked_plan
from cli.runbooks.wave_course import plan_course
from cli.verbs.wave.run import Operator, WaveRun
from clusterstate.wave_record import WaveRecord, parse_record
from findings.text import printable
from kube.errors import ConfigError
from kube.names import NAMESPACE
from migration.plan.model.plan import Plan
from migration.wave.course import (
    Course,
    Refusal,
    Task,
    back_tasks,
    describe_earlier_wave,
    next_tasks,
)
from migration.wave.guard import find_refusal
from migration.wave.report import WaveReport, report_wave, wave_lines
from process.model.durations import Duration

EXAMPLES: Final = """\
drawbridge wave next
drawbridge wave status
# of another plan, without questions; pods that would lose work are waited for
drawbridge wave next --plan plan-2 --yes --job-timeout 6h
drawbridge wave back
"""
NEXT: Final = "next"
BACK: Final = "back"
STATUS: Final = "status"


class _Refused(click.ClickException):
    """The cluster or the plan is not as the call assumes, so that its usage would explain nothing."""

    exit_code = 2


@click.command("wave", cls=Command, epilog=EXAMPLES)
@click.argument("action", type=click.Choice([NEXT, STATUS, BACK]))
@click.option(
    "--plan",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder of drawbridge plan; by default this one, or plan.",
)
@click.option("--yes", is_flag=True, help="Run every step without a question.")
@click.option(
    "--job-timeout",
    type=DurationType(),
    metavar="DURATION",
    help="Before a drain, wait for so long for pods that would lose work.",
)
@click.option(
    "--evict-jobs",
    metavar="NODES",
    help="Evict pods that would lose work: of the nodes in this list with commas; all for every one.",
)
@click.option("--take-over", is_flag=True, help="Continue in place of another operator.")
@click.option(
    "--replace",
    is_flag=True,
    help="Begin this plan in place of another one, of which no wave is unfinished.",
)
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    default=NAMESPACE,
    show_default=True,
    help="Namespace of Drawbridge, in which a ConfigMap has the position.",
)
@with_kubeconfig
@text_or_document("how far the cluster is, in a few lines")
def wave(
    action: str,
    *,
    folder: Path | None,
    yes: bool,
    job_timeout: Duration | None,
    evict_jobs: str | None,
    take_over: bool,
    replace: bool,
    namespace: str,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> None:
    """Go through the waves of a plan, one call each; take the last one back; or show its progress.

    next runs the scripts of the plan, step by step: before the first wave the preparation, then the checks
    before the wave, its switch and the checks after it. Each step is shown and confirmed. A ConfigMap has
    the digest of the plan and the position, so the next call continues where one was stopped or killed.
    back takes back what the current or the last wave has done.

    Exit status: 0 when done, 1 when a step has failed or was not confirmed, 2 when the call is wrong, the
    cluster does not answer, or another plan or operator is at work.
    """
    changes = {
        "--yes": yes,
        "--job-timeout": job_timeout is not None,
        "--evict-jobs": evict_jobs is not None,
        "--take-over": take_over,
        "--replace": replace,
    }
    if action == STATUS and any(changes.values()):
        flags = ", ".join(flag for flag, is_given in changes.items() if is_given)
        raise click.UsageError(f"status changes nothing, and takes no {flags}.")
    if action == STATUS:
        with ClusterRecord(kubeconfig, context, namespace) as store:
            report = _status(store, folder)
        _print(report, output)
        return
    options = [f"--job-timeout={job_timeout}"] if job_timeout is not None else []
    options += [f"--evict-jobs={evict_jobs}"] if evict_jobs is not None else []
    call = _Call(
        action=action,
        takes_over=take_over,
        replaces=replace,
        asks=not yes,
        options=options,
        kubeconfig=kubeconfig,
    )
    home = find_plan(folder)
    with locked_plan(home) as lock, ClusterRecord(kubeconfig, context, namespace) as store:
        status, report = _go_on(call, home, store, lock)
    _print(report, output)
    sys.exit(status)


class _Call(NamedTuple):
    """The choices of a person for a call.

    Attributes:
        takes_over: True if they go on in place of another person.
        replaces: True if they go on with a plan in place of another one.
        asks: True if they confirm each step.
        options: Flags of the plan's scripts.
    """

    action: str
    takes_over: bool
    replaces: bool
    asks: bool
    options: Sequence[str]
    kubeconfig: str | None


def _go_on(call: _Call, home: Path, store: ClusterRecord, lock: int) -> tuple[int, WaveReport]:
    """Run the next steps, and return the exit status and the position of the cluster."""
    plan = read_plan(home)
    view = _identify(store, plan)
    course, digest, who = plan_course(plan), plan_digest(home), _who(view)
    former = store.read()
    record = _parsed(former)
    if record is not None:
        refusal = find_refusal(
            record, digest=digest, who=who, takes_over=call.takes_over, replaces=call.replaces
        )
        _refuse(refusal)
        # Another plan that replaces it starts from its beginning.
        record = record if record.digest == digest else None
    tasks = _tasks(call, course, record)
    run = WaveRun(
        home,
        course,
        operator=Operator(
            who=who, digest=digest, clock=_now, confirms=_confirm if call.asks else _accept
        ),
        store=store,
        runner=ScriptRunner(
            home,
            kubeconfig=call.kubeconfig,
            context=view.context,
            options=call.options,
            lock=lock,
        ),
        version="" if former is None else former.version,
    )
    status = run.run(tasks)
    return status, report_wave(run.record or record, course, digest)


def _status(store: ClusterRecord, folder: Path | None) -> WaveReport:
    """Return a cluster's position in its migration; with a plan also its next steps.

    Raises:
        ConfigError: The named folder has no plan, or the ConfigMap is not of this command.
    """
    try:
        home = find_plan(folder)
    except ConfigError:
        if folder is not None:
            raise
        home = None
    course = digest = None
    if home is not None:
        plan = read_plan(home)
        _identify(store, plan)
        course, digest = plan_course(plan), plan_digest(home)
    return report_wave(_parsed(store.read()), course, digest or "")


def _parsed(position: StoredRecord | None) -> WaveRecord | None:
    return None if position is None else parse_record(position.data)


def _tasks(call: _Call, course: Course, record: WaveRecord | None) -> tuple[Task, ...]:
    tasks = next_tasks(course, record) if call.action == NEXT else back_tasks(course, record)
    if isinstance(tasks, Refusal):
        _refuse(tasks)
        return ()
    warning = describe_earlier_wave(record, tasks) if call.action == BACK else ""
    if warning and not call.asks:
        # A finished wave is not drained for a person who meant the one that they had begun.
        _refuse(Refusal(message=f"{warning}; without --yes it asks before the first step"))
    if warning:
        print_line(warning)
    return tasks


def _refuse(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise _Refused(printable(refusal.message))


def _identify(store: ClusterRecord, plan: Plan) -> ClusterView:
    """Return the cluster that answers.

    Raises:
        ConfigError: It is not that of the plan, or nobody has confirmed what the plan depends on.
    """
    if plan.proposals:
        flags = ", ".join(sorted({proposal.flag for proposal in plan.proposals}))
        raise ConfigError(
            f"the plan is held, since nobody has confirmed what it depends on: plan again with {flags}"
        )
    view = store.identify()
    if plan.cluster.uid and view.uid != plan.cluster.uid:
        server = f", {plan.cluster.server}" if plan.cluster.server else ""
        raise ConfigError(
            f"this is another cluster: its kube-system has the uid {view.uid}, and the plan is for "
            f"{plan.cluster.uid}{server}; name the plan's cluster with --context"
        )
    return view


def _who(view: ClusterView) -> str:
    """Return the operator: many people may be one user of a cluster."""
    try:
        account = getpass.getuser()
    except (KeyError, OSError):
        account = ""
    place = "@".join(filter(None, (account, platform.node())))
    return printable(f"{view.user} ({place})" if view.user else place)[:512]


def _now() -> str:
    now = datetime.now(UTC)  # noqa: TID251 - the command's one clock.
    return now.isoformat(timespec="seconds").replace("+00:00", "Z")


def _accept(_question: str) -> bool:
    return True


def _confirm(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        print_line("")
        return False  # Standard input has ended.


def _print(report: WaveReport, output: str) -> None:
    if output != Output.TEXT:
        click.echo(format_document(output, msgspec.json.encode(report), Report.WAVE))
    else:
        click.echo("\n".join(map(printable, wave_lines(report))))
