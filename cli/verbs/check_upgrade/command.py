"""`drawbridge check-upgrade`: the breaking changes of an upgrade of Kubernetes or of Drawbridge."""

import asyncio
import shutil
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Final

import click
import msgspec

from answers.model.findings import DEFAULT_NAMESPACE
from answers.model.kubernetes_version import Version
from cli.flags.cluster_flags import add_flags
from cli.flags.completion import FILE_NAME
from cli.flags.version_type import VersionType
from cli.output.formats import Output, Report, format_document, text_or_document
from cli.output.help import Command
from cli.output.progress import LongRun
from cli.output.standard_error import print_line, print_notes
from cli.reading.cluster_documents import (
    CLUSTER_DOCUMENT_FLAGS,
    DocumentFlags,
    read_documents,
    reads_live,
)
from cli.reading.settings import read_settings
from cli.reading.upgrade import read_upgrade_facts
from cli.verbs.check_upgrade.text import format_upgrade
from findings.finding import Severity
from kube.errors import ConfigError
from kube.manifests.reader import read_paths
from kube.names import DISTRIBUTION
from migration.upgrade.check import UpgradeQuestion
from migration.upgrade.check import check_upgrade as find_consequences
from migration.upgrade.model import UpgradeFacts
from process.profiles.profile_files import load_profiles

EXAMPLES: Final = """\
# before Drawbridge is upgraded to the version of this command
drawbridge check-upgrade --live
# before Kubernetes is, with the manifests of a repository
drawbridge check-upgrade --live --kubernetes 1.38 -R -f manifests/
"""


def _with_cluster(command: click.decorators.FC) -> click.decorators.FC:
    return add_flags(command, CLUSTER_DOCUMENT_FLAGS)


@click.command("check-upgrade", cls=Command, epilog=EXAMPLES)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=FILE_NAME,
    metavar="PATH",
    help="Manifests to check as well: a file, a directory, or - for standard input. Repeatable.",
)
@click.option(
    "-R", "--recursive", is_flag=True, help="Read the subdirectories of directories that -f names."
)
@_with_cluster
@click.option(
    "--kubernetes",
    "target",
    type=VersionType(),
    metavar="VERSION",
    help="The version of Kubernetes after the upgrade (default: that of the cluster).",
)
@text_or_document("a paragraph per finding")
def check_upgrade(
    files: tuple[str, ...],
    *,
    recursive: bool,
    snapshots: tuple[str, ...],
    live: bool,
    kubeconfig: str | None,
    context: str | None,
    profile_directory: Path | None,
    settings: str | None,
    target: Version | None,
    output: str,
) -> None:
    """Report problems with an upgrade: of Drawbridge to the version of this command, or of Kubernetes.

    Settings that this version does not have; translated manifests, and pods that wait, of another
    translation version, profile or signature; fields whose feature gates are off in a version of
    Kubernetes; API versions that it does not serve; components that do not run with it. Read-only.

    Exit status: 0 when nothing breaks, 1 when something does, 2 when the call is wrong.
    """
    problem = _settings_problem(settings)
    flags = DocumentFlags(
        snapshots=snapshots,
        live=live,
        kubeconfig=kubeconfig,
        context=context,
        profile_directory=profile_directory,
        settings=None if problem else settings,
    )
    manifests = read_paths(files, recursive=recursive)
    facts = UpgradeFacts()
    is_live = reads_live(flags)
    if files and not is_live and not snapshots:
        objects, version = manifests, ""
        profiles = load_profiles(profile_directory)
        if target is None:
            raise click.UsageError("Without a cluster, --kubernetes says to which version.")
    else:
        documents = read_documents(flags, lambda: LongRun("objects read", is_divisible=False))
        objects, version = [*documents.objects, *manifests], documents.version
        profiles = dict(documents.profiles)
    if is_live:
        facts, note = asyncio.run(read_upgrade_facts(kubeconfig, context))
        print_notes([note] if note and settings is None else [])
        for what in facts.unreadable:
            print_line(f"note: {what} cannot be read, and is left out")
    if problem:
        facts = msgspec.structs.replace(facts, settings_problem=problem)
    answer = find_consequences(
        UpgradeQuestion(
            objects=objects,
            facts=facts,
            profiles=profiles,
            kubernetes=version,
            target=target,
            client_version=version_of(DISTRIBUTION),
            namespace=DEFAULT_NAMESPACE,
        )
    )
    if output != Output.TEXT:
        click.echo(format_document(output, msgspec.json.encode(answer), Report.CHECK_UPGRADE))
    else:
        click.echo(format_upgrade(answer, shutil.get_terminal_size().columns))
    sys.exit(1 if any(entry.severity is Severity.ERROR for entry in answer.findings) else 0)


def _settings_problem(path: str | None) -> str:
    """Return the reason this version rejects a settings file; empty if it accepts it."""
    if path is None or not Path(path).is_file():
        return ""
    try:
        read_settings(path)
    except ConfigError as error:
        return str(error)
    return ""
