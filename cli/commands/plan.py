"""`drawbridge plan`: waves of nodes and namespaces, with the runbooks that take a cluster through them."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from cli.answers.plan.build import BuiltPlan, PlanQuestion, build_plan
from cli.answers.plan.model import KIND
from cli.answers.plan.waves import Policy
from cli.inputs.cluster_documents import ClusterDocuments, with_documents
from cli.inputs.findings import DEFAULT_NAMESPACE
from cli.inputs.kinds import API_VERSION
from cli.output import runbooks
from cli.output.formats import Output, Report, format_document
from cli.output.help import Command
from cli.output.plan_text import format_plan
from cli.output.progress import LongRun
from kube.errors import ConfigError
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from process.profile_files import SUFFIXES, profile_texts

PLAN: Final = "plan.yaml"
EXAMPLES: Final = """\
drawbridge snapshot -o cluster.json.gz
drawbridge plan --snapshot cluster.json.gz --wave-nodes 4 --keep-free 10 -o plan
"""
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
    help="Devices that stay without a consumer at every moment.",
)
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    required=True,
    help="Folder to write: plan.yaml, README.md, prepare.sh, quotas/, and wave-N/ with preflight.sh, "
    "switch.sh, verify.sh and rollback.sh; with --settings and --profiles copies of the files, which the "
    "scripts use. It is new, empty, or an older plan.",
)
def plan(documents: ClusterDocuments, wave_nodes: int, keep_free: int, folder: Path) -> None:
    """Plan a migration in waves, and write a runbook for each.

    Every wave is simulated while its nodes are drained, and after it, with nodes of device plugins
    and of DRA drivers together. Pods stay where they are unless they have to move. Nodes that a
    PodDisruptionBudget, a GPU driver or a workload holds have no wave, nor have namespaces whose pods
    would be rejected. Reads the cluster and writes files; people run them.

    Exit status: 0 when every node and namespace has a wave, 1 when some have none, 2 when the call is
    wrong.
    """
    _check_folder(folder)
    question = PlanQuestion(
        objects=documents.objects,
        profiles=documents.profiles,
        options=documents.options,
        namespace=DEFAULT_NAMESPACE,
        version=documents.version,
        gates=documents.gates,
        unreadable=documents.unreadable,
    )
    policy = Policy(wave_nodes=wave_nodes, keep_free=keep_free)
    with LongRun("planned nodes", is_divisible=False) as run:
        built = build_plan(question, policy, run)
    _write(folder, _files(built, _inputs(documents)))
    click.echo(format_plan(built.plan, shutil.get_terminal_size().columns))
    click.echo(f"note: written to {folder}; read {folder / 'README.md'} first", err=True)
    sys.exit(1 if built.plan.held else 0)


def _inputs(documents: ClusterDocuments) -> Mapping[str, bytes]:
    """Return path below the plan's folder to content, for what says how the cluster is translated."""
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
    return {**{name: text.encode() for name, text in texts.items()}, **inputs}


def _check_folder(folder: Path) -> None:
    """Check that nothing of anybody else is in the folder.

    Raises:
        ConfigError: There is.
    """
    if not folder.exists() or not any(folder.iterdir()):
        return
    foreign = sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if not _is_ours(path, folder)
    )
    if foreign or not _is_plan(folder / PLAN):
        what = f"has {foreign[0]}, which is no file of a plan" if foreign else f"has no {PLAN}"
        raise ConfigError(f"{folder} is not empty, and {what}: name a new folder with -o")


def _is_plan(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    objects = read_paths([str(path)])
    return [(source.api_version, source.kind) for source in objects] == [(API_VERSION, KIND)]


def _is_ours(path: Path, folder: Path) -> bool:
    """Return whether a path is one that a plan has; a link never is."""
    if path.is_symlink():
        return False
    match path.relative_to(folder).parts:
        case ("plan.yaml" | "README.md" | "prepare.sh" | runbooks.SETTINGS,):
            return path.is_file()
        case ("quotas" | runbooks.PROFILES,):
            return path.is_dir()
        case ("quotas", file):
            return path.is_file() and file.endswith(".yaml")
        case (runbooks.PROFILES, _):
            return path.is_file() and path.suffix in SUFFIXES
        case (wave,):
            return path.is_dir() and _is_wave(wave)
        case (wave, file):
            return (
                _is_wave(wave)
                and path.is_file()
                and file in {f"{name}.sh" for name in runbooks.PHASES}
            )
        case _:
            return False


def _is_wave(name: str) -> bool:
    prefix, _, number = name.partition("-")
    return prefix == "wave" and number.isascii() and number.isdigit()


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a plan, in place of those of an older one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "quotas").mkdir(exist_ok=True)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()) and path.name != "quotas":
                path.rmdir()
        elif str(path.relative_to(folder)) not in files:
            path.unlink()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        if path.suffix == ".sh":
            path.chmod(_SCRIPT_MODE)
