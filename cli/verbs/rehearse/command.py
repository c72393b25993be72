"""`drawbridge rehearse`: a plan is tried wave by wave on simulated nodes of this machine."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import yaml

import cli
from answers.model.findings import DEFAULT_NAMESPACE
from cli.flags.cluster_flags import PROFILES_FLAG, SNAPSHOT_FLAG
from cli.flags.completion import FILE_NAME
from cli.output.formats import Report, format_document, text_or_document
from cli.output.help import Command
from cli.output.standard_error import print_line
from cli.reading.cluster_documents import DocumentFlags, read_documents
from cli.runbooks.plan_folder import PLAN
from cli.verbs.rehearse.child import exit_on_sigterm, run_child
from cli.verbs.rehearse.driver_values import read_driver_values, write_driver_values
from cli.verbs.rehearse.page import format_rehearsal_page
from cli.verbs.rehearse.text import format_rehearsal
from findings.text import printable
from kube.errors import ConfigError
from kube.manifests.reader import read_paths
from kube.manifests.source import SourceObject
from migration.plan.facts.repository_patches import KUSTOMIZE, SCRIPTS
from migration.plan.model.plan import Plan
from migration.rehearsal.build import build_rehearsal
from migration.rehearsal.model import RehearsalAnswer, RehearsalInput
from migration.rehearsal.stops import known_stops

EXAMPLES: Final = """\
drawbridge snapshot -o cluster.json.gz
drawbridge rehearse --snapshot cluster.json.gz --wave-nodes 4 --gpu-operator none --driver-release none
"""
PAGE_FORM: Final = "html"
_PROGRAM: Final = Path("e2e", "rehearse.py")
_NO_CHECKOUT: Final = (
    "rehearse starts a control plane with the programs of this project's tests, which an installation does "
    "not have. Run it from a checkout: clone the repository, make setup, .venv/bin/drawbridge rehearse. "
    "--binaries DIR names built programs, so that the checkout needs no Go"
)
_BINARIES: Final = "DRAWBRIDGE_E2E_BINARIES"
_UNTOUCHED: Final = (
    *("LANG", "LC_ALL", "PATH", "TERM", "TMPDIR", "VIRTUAL_ENV"),
    *("GOCACHE", "GOFLAGS", "GOMODCACHE", "GOPATH", "GOPROXY", "GOSUMDB", "GOTOOLCHAIN"),
)
"""Variables that the rehearsal gets; those that name a cluster are not among them."""


@click.command("rehearse", cls=Command, epilog=EXAMPLES)
@SNAPSHOT_FLAG
@click.option(
    "--wave-nodes",
    type=click.IntRange(min=1),
    metavar="N",
    default=4,
    show_default=True,
    help="The most nodes that a wave switches, as of plan.",
)
@click.option("--keep-free", metavar="PERCENT", default="0", show_default=True, help="As of plan.")
@click.option("--spare-nodes", type=click.IntRange(min=0), metavar="N", help="As of plan.")
@click.option("--time-slicing", metavar="hold|whole", default="", help="As of plan.")
@click.option(
    "--driver-release",
    metavar="[repository:]NAMESPACE/NAME|none",
    default="",
    help="As of plan.",
)
@click.option(
    "--driver-values",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="The values that the release of --driver-release has to keep, which prepare.sh of the plan asks for.",
)
@click.option("--gpu-operator", metavar="VERSION|none", default="", help="As of plan.")
@click.option(
    "--format",
    type=click.Choice([SCRIPTS, KUSTOMIZE]),
    default=SCRIPTS,
    show_default=True,
    help="As of plan; the rehearsal commits the folder kustomize when a script asks for it.",
)
@click.option("--plugin-label", metavar="KEY=VALUE[,...]", default="", help="As of plan.")
@PROFILES_FLAG
@click.option(
    "--settings", type=FILE_NAME, metavar="FILE", help="Settings file of the cluster's processes."
)
@click.option(
    "--evict-jobs",
    is_flag=True,
    help="Run the scripts with --evict-jobs=all: evict pods that would lose work, instead of waiting for them.",
)
@click.option(
    "--binaries",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Folder with etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok; "
    "without it they are built from Go modules, once.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="New folder for the plan, the logs of its scripts and of the control plane, and all watch events.",
)
@text_or_document(html="a page")
def rehearse(
    *,
    snapshots: tuple[str, ...],
    profile_directory: Path | None,
    settings: str | None,
    driver_values: Path | None,
    evict_jobs: bool,
    binaries: Path | None,
    keep: Path | None,
    output: str,
    **flags: Any,
) -> None:
    """Try the plan of a cluster on simulated nodes, and check the results.

    Starts a real control plane on this machine with the nodes, slices, device plugins and workloads of a
    snapshot, installs Drawbridge, and runs the scripts of the plan wave by wave. A checker reads every
    watch event: no unfinished work is killed, every pod has the devices that it asked for, no tenant is
    above its quota, no device is idle for two minutes that a waiting pod could use, and nothing is left
    behind. No other cluster is asked, whatever KUBECONFIG names. Secrets, webhooks and controllers of
    others are not loaded, and commands of their charts are printed as not rehearsed. Pods that nothing
    creates again are deleted and created as the plan asks a person to, with --format kustomize patches are committed
    when a script asks for them, and the answer says when. Nothing is started where the plan knows that its scripts
    would stop.

    Exit status: 0 when every wave was done and no rule was broken, 1 when not, 2 when the call is wrong or scripts would stop.
    """
    root = Path(cli.__file__).parents[1]
    if not (root / _PROGRAM).is_file():
        raise click.UsageError(_NO_CHECKOUT)
    if not snapshots:
        raise click.UsageError("Missing option '--snapshot'.")
    values = read_driver_values(driver_values, flags["driver_release"]) if driver_values else None
    documents = read_documents(
        DocumentFlags(
            snapshots=snapshots,
            live=False,
            kubeconfig=None,
            context=None,
            profile_directory=profile_directory,
            settings=settings,
        ),
        lambda: lambda _: None,
    )
    with ExitStack() as stack:
        stack.enter_context(exit_on_sigterm())
        folder = _folder(keep, stack)
        inputs = [f"--snapshot={path}" for path in snapshots]
        inputs += [f"--profiles={profile_directory}"] if profile_directory else []
        inputs += [f"--settings={settings}"] if settings else []
        plan = _plan(folder, [*inputs, *_words(flags)], is_left=keep is not None)
        _check_stops(plan, documents.objects)
        write_driver_values(folder / "plan", plan, values)
        rehearsal = build_rehearsal(
            plan, documents.objects, documents.profiles, documents.options, DEFAULT_NAMESPACE
        )
        rehearsal = msgspec.structs.replace(
            rehearsal,
            evict_jobs=evict_jobs,
            settings=yaml.safe_load(documents.settings or "") or {},
        )
        answer = _run(root, folder, rehearsal, binaries)
    if output == PAGE_FORM:
        click.echo(format_rehearsal_page(answer), nl=False)
    elif output == "text":
        click.echo(format_rehearsal(answer, shutil.get_terminal_size().columns))
    else:
        click.echo(format_document(output, msgspec.json.encode(answer), Report.REHEARSE))
    sys.exit(0 if answer.is_good else 1)


def _folder(keep: Path | None, stack: ExitStack) -> Path:
    if keep is None:
        return Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="drawbridge-rehearsal-"))
        )
    if keep.exists() and any(keep.iterdir()):
        raise click.UsageError(f"--keep {keep} is not empty; name a new folder.")
    keep.mkdir(parents=True, exist_ok=True)
    return keep.absolute()


def _words(flags: dict[str, Any]) -> list[str]:
    """Return the flags of `plan` as words of a command line."""
    return [
        f"--{name.replace('_', '-')}={value}"
        for name, value in flags.items()
        if value not in {None, ""}
    ]


def _plan(folder: Path, words: list[str], *, is_left: bool) -> Plan:
    """Write the plan as `drawbridge plan` does, and return it; nobody can read its folder later unless it is left."""
    command = [sys.executable, "-m", "cli", "plan", *words, f"--output={folder / 'plan'}"]
    text = folder / "plan.txt"
    with (
        text.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True) as process,  # noqa: S603
    ):
        for line in process.stderr or ():
            if is_left or str(folder) not in line:
                print_line(line.rstrip("\n"))
    if process.returncode not in {0, 1}:
        sys.exit(2)
    (source,) = read_paths([str(folder / "plan" / PLAN)])
    plan = msgspec.convert(source.document, Plan)
    if plan.proposals:
        flags = ", ".join(sorted({proposal.flag for proposal in plan.proposals}))
        raise click.UsageError(
            f"The scripts of the plan stop until these are said: {flags}; see drawbridge plan."
        )
    if not plan.waves:
        raise click.UsageError(
            f"The plan has no wave, so there is nothing to rehearse:\n{text.read_text()}"
        )
    return plan


def _check_stops(plan: Plan, objects: tuple[SourceObject, ...]) -> None:
    """Raise a UsageError if a script of the plan stops at something that is known before it is run."""
    stops = [*known_stops(plan, objects)]
    if stops:
        text = "\n".join(f"  {printable(stop)}" for stop in stops)
        raise click.UsageError(
            f"The scripts of the plan stop before its end, so nothing was started:\n{text}\n"
            "Rehearse again with the same flags as the plan that follows."
        )


def _run(
    root: Path, folder: Path, rehearsal: RehearsalInput, binaries: Path | None
) -> RehearsalAnswer:
    """Run the waves in a process of its own, with an environment that names no cluster."""
    (folder / "input.json").write_bytes(msgspec.json.encode(rehearsal))
    home = folder / "home"
    home.mkdir(mode=0o700)
    command = [sys.executable, "-m", "e2e.rehearse", str(folder), "--until-input-ends"]
    environment = _environment(home, binaries)
    # The control plane's words go to standard error, which is for people.
    status = run_child(command, root, environment)
    result = folder / "result.json"
    if status or not result.exists():
        raise ConfigError(
            f"the rehearsal did not come to its end, status {status}: see above; --keep DIR keeps "
            "the logs"
        )
    return msgspec.json.decode(result.read_bytes(), type=RehearsalAnswer)


def _environment(home: Path, binaries: Path | None) -> dict[str, str]:
    """Return an environment that names no cluster; its programs are kept if the caller's are."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return {
        "GOPATH": str(Path.home() / "go"),
        "GOCACHE": str(cache / "go-build"),
        **{name: value for name, value in os.environ.items() if name in _UNTOUCHED},
        "HOME": str(home),
        "XDG_CACHE_HOME": str(cache),
        **({_BINARIES: str(binaries.absolute())} if binaries else {}),
    }
