"""`drawbridge settings`: the settings of legacy systems, as settings of the cluster's processes."""

import asyncio
from pathlib import Path
from typing import Final

import click

from cli.flags.cluster_flags import with_live_kubeconfig
from cli.flags.completion import FILE_NAME
from cli.flags.plugin import is_plugin
from cli.output.help import Command
from cli.output.standard_error import print_line
from cli.reading.settings import settings_of
from findings.text import printable
from kube.errors import ConfigError, Forbidden
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from migration.settings_import.legacy_documents import LegacyDocument, documents_of, values_of
from migration.settings_import.legacy_settings import ImportedSettings, import_settings
from process.profiles.profile_files import load_profiles

EXAMPLES: Final = """\
drawbridge settings import --live > settings.yaml
drawbridge settings import -f configmaps.yaml --values hami-values.yaml
kubectl get configmap -n kube-system -o yaml | drawbridge settings import -f -
"""


@click.command("settings", cls=Command, has_colours=False, epilog=EXAMPLES)
@click.argument("action", type=click.Choice(["import"]))
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=FILE_NAME,
    metavar="PATH",
    help="ConfigMaps of HAMi, Koordinator and Volcano, as kubectl get prints them; - for standard input. "
    "Repeatable.",
)
@click.option(
    "--values",
    "values_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Values of their Helm charts (helm get values --all). Repeatable.",
)
@click.option(
    "--live",
    is_flag=True,
    help="Read the ConfigMaps of the kubeconfig's cluster; kubectl drawbridge does so by default.",
)
@with_live_kubeconfig
def settings(
    action: str,  # noqa: ARG001 - the only one.
    files: tuple[str, ...],
    values_files: tuple[Path, ...],
    kubeconfig: str | None,
    context: str | None,
    *,
    live: bool,
) -> None:
    """Print the settings of HAMi, Koordinator and Volcano as a settings file.

    Reads renamed resource names, defaults and scheduler names; a comment names each setting that has
    no target, and what to do. The file is for ConfigMap drawbridge-settings and for --settings.

    Exit status: 0 when printed, 1 when no settings of HAMi or Koordinator are there, 2 when the call is
    wrong.
    """
    live = live or (is_plugin() and not (files or values_files))
    if not (files or values_files or live):
        raise click.UsageError("Name ConfigMaps or values: use -f PATH, --values FILE or --live.")
    if not live and (kubeconfig or context):
        raise click.UsageError("--kubeconfig and --context require --live.")
    documents = [*documents_of(read_paths(files))] if files else []
    if live:
        documents += asyncio.run(_read_live(kubeconfig, context))
    documents += [_read_values(path) for path in values_files]
    imported_settings = import_settings(documents)
    if not imported_settings.sources:
        print_line("no settings of HAMi or Koordinator are there")
        raise SystemExit(1)
    text = _to_text(imported_settings)
    # What is printed is what the processes read.
    settings_of(text, "the imported settings").translation.checked_options(load_profiles())
    click.echo(text, nl=False)


def _read_values(path: Path) -> LegacyDocument:
    try:
        return values_of(path.read_bytes(), str(path))
    except OSError as fault:
        raise ConfigError(f"{path}: {fault.strerror}") from fault


async def _read_live(kubeconfig: str | None, context: str | None) -> list[LegacyDocument]:
    # The client takes longer to import than all the rest, and files are the usual case.
    from cli.reading.live import legacy_settings  # noqa: PLC0415
    from kube.client.client import Client  # noqa: PLC0415

    async with await Client.from_kubeconfig(kubeconfig, context) as client:
        try:
            return await legacy_settings(client)
        except Forbidden as refusal:
            raise ConfigError(
                f"ConfigMaps of the cluster cannot be read: {refusal}; name them with -f PATH"
            ) from refusal


def _to_text(imported_settings: ImportedSettings) -> str:
    lines = [f"# Imported from {source}." for source in imported_settings.sources]
    if imported_settings.notes:
        lines += [
            "#",
            "# Not imported:",
            *(f"# - {note.line()}" for note in imported_settings.notes),
        ]
    document = (
        {"translation": imported_settings.translation} if imported_settings.translation else {}
    )
    return "\n".join([*map(printable, lines), dump_yaml([document])])
