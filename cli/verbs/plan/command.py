"""`drawbridge plan`: waves of nodes and namespaces, with the runbooks that take a cluster through them."""

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from answers.model.findings import DEFAULT_NAMESPACE
from cli.output.formats import Output, Report, format_document
from cli.output.help import Command
from cli.output.progress import INTERRUPTED, LongRun
from cli.output.standard_error import print_line
from cli.reading.cluster_documents import ClusterDocuments, with_documents
from cli.runbooks import driver_runbook, runbooks
from cli.runbooks.kustomize import kustomize_files
from cli.runbooks.plan_folder import PAGE, PLAN, is_plan, is_plan_path
from cli.runbooks.plan_text import format_plan
from cli.verbs.plan.page import format_plan_page
from kube.errors import ConfigError
from kube.manifests.dump import dump_yaml
from migration.assessment.blockers import TIME_SLICING, WHOLE
from migration.plan.drivers.confirmed import (
    DRIVER_FLAG,
    NONE,
    OPERATOR_FLAG,
    REPOSITORY,
    Confirmation,
)
from migration.plan.drivers.vendors import is_operator_version
from migration.plan.facts.repository_patches import KUSTOMIZE, SCRIPTS
from migration.plan.model.plan import is_name, is_namespace
from migration.plan.planning.build import BuiltPlan, build_plan
from migration.plan.planning.prepared import PlanQuestion
from migration.plan.search.moments import Policy
from process.profiles.profile_files import profile_texts

EXAMPLES: Final = """\
drawbridge snapshot -o cluster.json.gz
drawbridge plan --snapshot cluster.json.gz --wave-nodes 4 --keep-free 10 -o plan
"""
_LABEL: Final = re.compile(
    r"[A-Za-z0-9][-A-Za-z0-9_./]{0,315}=[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_SCRIPT_MODE: Final = 0o755


class _Percentage(click.IntRange):
    """A whole number, with or without a percent sign."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text: Any = str(value).removesuffix("%")
        return super().convert(text, param, ctx)


@click.command("plan", cls=Command, epilog=EXAMPLES)
@with_documents(lambda: LongRun("read", is_divisible=False))
@click.option(
    "--wave-nodes",
    type=click.IntRange(min=1),
    metavar="N",
    default=4,
    show_default=True,
    help="The most nodes that a wave switches; a wave that does not fit is split.",
)
@click.option(
    "--keep-free",
    type=_Percentage(0, 100),
    metavar="PERCENT",
    default=0,
    show_default=True,
    help="Whole devices that stay without a consumer at every moment; one with a share in use is in use, however much "
    "of its memory is free.",
)
@click.option(
    "--driver-release",
    metavar="[repository:]NAMESPACE/NAME|none",
    default="",
    help="The Helm release of NVIDIA's DRA driver that the cluster has, or none; with repository: where you change its "
    "values in a repository, as for Argo CD. What a snapshot shows only proposes one, since whoever may write in a "
    "namespace can write that.",
)
@click.option(
    "--gpu-operator",
    metavar="VERSION|none",
    default="",
    help="The version of NVIDIA's GPU Operator that the cluster has, or none; as above.",
)
@click.option(
    "--plugin-label",
    metavar="KEY=VALUE[,...]",
    default="",
    help="The node label that keeps away a device plugin that no DaemonSet shows, or that a cloud or an operator manages. "
    "A label of GKE is set on nodes of its own vendor only.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice([SCRIPTS, KUSTOMIZE]),
    default=SCRIPTS,
    show_default=True,
    help="Whether scripts change namespaces, quotas, classes and DaemonSets, or wait for a repository: kustomize "
    "also writes the folder kustomize with patches for it.",
)
@click.option(
    "--spare-nodes",
    type=click.IntRange(min=0),
    metavar="N",
    default=None,
    help="Nodes that may be lost after every wave, of those with device plugins and of those with DRA "
    "drivers, the largest ones of all and of those that the same pods may use: no more pods lack devices then "
    "than today, or nodes are held. By default one, and where that is impossible a note in place of it.",
)
@click.option(
    TIME_SLICING,
    "time_slicing",
    type=click.Choice(["hold", WHOLE]),
    default="hold",
    show_default=True,
    help="Whether nodes whose device plugin offers each GPU several times are held, or switched, so that each pod "
    "with a part of a GPU gets a whole one.",
)
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder to write: plan.yaml, plan.html, README.md, prepare.sh, quotas/, and wave-N/ with preflight.sh, "
    "switch.sh, verify.sh and rollback.sh; with --settings and --profiles copies of the files, which the "
    "scripts use. It is new, empty, or an older plan.",
)
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the page for the meeting that decides, which is plan.html of the folder, to this file; without -o "
    "nothing else is written.",
)
def plan(
    documents: ClusterDocuments,
    *,
    wave_nodes: int,
    keep_free: int,
    driver_release: str,
    gpu_operator: str,
    plugin_label: str,
    form: str,
    spare_nodes: int | None,
    time_slicing: str,
    folder: Path | None,
    page: Path | None,
) -> None:
    """Plan a migration in waves, and write a runbook for each.

    Every wave is simulated while its nodes are drained, and after it, with nodes of device plugins
    and of DRA drivers together. Pods stay where they are unless they have to move. Nodes that a
    PodDisruptionBudget, a GPU driver or a workload holds have no wave, nor have namespaces whose pods
    would be rejected. Reads the cluster and writes files; people run them. Until a person has
    confirmed a Helm release or an Operator that the cluster shows, the scripts stop at once.

    Exit status: 0 when every node and namespace has a wave, 1 when some have none, 2 when the call is
    wrong.
    """
    if folder is None and page is None:
        raise click.UsageError("Missing option '-o' / '--output', or '--page'.")
    confirmation = _confirmation(driver_release, gpu_operator)
    if folder is not None:
        _check_folder(folder)
    question = PlanQuestion(
        objects=documents.objects,
        profiles=documents.profiles,
        options=documents.options,
        namespace=DEFAULT_NAMESPACE,
        version=documents.version,
        gates=documents.gates,
        unreadable=documents.unreadable,
        confirmation=confirmation,
        server=documents.server,
        context=documents.context,
        taken_at=documents.taken_at,
        plugin_label=_checked_label(plugin_label),
        form=form if form == KUSTOMIZE else "",
        gives_whole=time_slicing == WHOLE,
    )
    policy = Policy(
        wave_nodes=wave_nodes,
        keep_free=keep_free,
        spare_nodes=spare_nodes or 0,
        notes_loss=spare_nodes is None,
    )
    with LongRun("planned nodes") as run:
        built = build_plan(question, policy, run)
    text = format_plan_page(built.plan, built.details)
    if folder is not None:
        _write(folder, {**_files(built, _inputs(documents)), PAGE: text.encode()})
    if page is not None:
        page.write_text(text, encoding="utf-8")
    width = shutil.get_terminal_size().columns
    click.echo(format_plan(built.plan, width, width if sys.stdout.isatty() else 0))
    if folder is not None:
        print_line(f"note: written to {folder}; read {folder / 'README.md'} first")
    if run.is_interrupted:
        sys.exit(INTERRUPTED)
    sys.exit(1 if built.plan.held else 0)


def _confirmation(driver_release: str, gpu_operator: str) -> Confirmation:
    namespace, _, name = driver_release.removeprefix(REPOSITORY).partition("/")
    if driver_release not in {"", NONE} and not (is_namespace(namespace) and is_name(name)):
        raise click.UsageError(
            f"{DRIVER_FLAG} is NAMESPACE/NAME, {REPOSITORY}NAMESPACE/NAME or {NONE}, not {driver_release}"
        )
    if gpu_operator not in {"", NONE} and not is_operator_version(gpu_operator):
        raise click.UsageError(
            f"{OPERATOR_FLAG} is a version such as v26.3.1, or {NONE}, not {gpu_operator}"
        )
    return Confirmation(driver_release=driver_release, gpu_operator=gpu_operator)


def _checked_label(text: str) -> str:
    """Return labels as `kubectl label` sets them, with commas between them, or nothing."""
    if text and not all(map(_LABEL.fullmatch, text.split(","))):
        raise click.UsageError(f"--plugin-label is KEY=VALUE, as of a label, not {text}")
    return text


def _inputs(documents: ClusterDocuments) -> Mapping[str, bytes]:
    """Return path below the plan's folder to content, for the settings and the profiles."""
    inputs: dict[str, bytes] = {}
    if documents.settings is not None:
        inputs[runbooks.SETTINGS] = documents.settings
    if documents.profile_directory is not None:
        for path, content in profile_texts(documents.profile_directory):
            inputs[f"{runbooks.PROFILES}/{path.name}"] = content
    return inputs


def _files(built: BuiltPlan, inputs: Mapping[str, bytes]) -> Mapping[str, bytes]:
    document = format_document(Output.YAML, msgspec.json.encode(built.plan), Report.PLAN)
    quotas = {name: dump_yaml([quota]) for name, quota in built.quotas.items()}
    texts = runbooks.folder_files(built.plan, f"{document}\n", quotas, inputs)
    if built.plan.format == KUSTOMIZE:
        texts |= kustomize_files(built.plan, built.quotas)
    return {**{name: text.encode() for name, text in texts.items()}, **inputs}


def _check_folder(folder: Path) -> None:
    """Check that nothing of anybody else is in the folder.

    Raises:
        ConfigError: There is.
    """
    if not folder.exists() or not any(folder.iterdir()):
        return
    foreign = sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if not is_plan_path(path, folder)
    )
    if foreign or not is_plan(folder / PLAN):
        what = f"has {foreign[0]}, which is no file of a plan" if foreign else f"has no {PLAN}"
        raise ConfigError(f"{folder} is not empty, and {what}: name a new folder with -o")


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a plan, in place of those of an older one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "quotas").mkdir(exist_ok=True)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()) and path.name != "quotas":
                path.rmdir()
        elif str(path.relative_to(folder)) not in {*files, driver_runbook.DRIVER_VALUES}:
            path.unlink()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content)
        if path.suffix == ".sh":
            path.chmod(_SCRIPT_MODE)
