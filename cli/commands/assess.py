"""`drawbridge assess`: what of a cluster would become claims, and what blocks it."""

import asyncio
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from cli.answers.assessment.assess import Assessment
from cli.answers.assessment.assess import assess as assess_cluster
from cli.answers.assessment.blockers import Blocker
from cli.inputs.findings import DEFAULT_NAMESPACE, printable
from cli.inputs.live_snapshot import LiveSnapshot, read_snapshot
from cli.inputs.options import NO_CLUSTER, translation_options
from cli.inputs.settings import SharedSettings, read_settings
from cli.output.assess_text import format_assessment, format_csv
from cli.output.formats import API_VERSION, Output, Report, format_document, text_or_document
from cli.output.help import Command
from cli.output.progress import LongRun
from kube.client.client import Client
from kube.manifests.reader import read_paths
from kube.manifests.source import SourceObject
from process.profile_files import load_profiles

CSV: Final = "csv"


class WorkloadDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A workload; `object` is `Kind/namespace/name`."""

    object: str
    pods: int
    outcome: str
    codes: tuple[str, ...]
    fix: str


class NodeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A node with devices; `assumed` is false where ResourceSlices publish all of them."""

    name: str
    source: str
    devices: int
    assumed: bool


class UnplacedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A workload, and how many of its pods found no devices."""

    object: str
    pods: int


class CapacityDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods that were placed at once."""

    pods: int
    placed: int
    unplaced: tuple[UnplacedDocument, ...]
    not_counted: tuple[str, ...]


class AssessmentDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document of `drawbridge assess -o json`."""

    kubernetes_version: str
    unreadable: tuple[str, ...]
    workloads: tuple[WorkloadDocument, ...]
    totals: Mapping[str, int]
    nodes: tuple[NodeDocument, ...]
    capacity: CapacityDocument
    blockers: tuple[Blocker, ...]
    readers: Mapping[str, tuple[str, ...]]


EXAMPLES: Final = """\
drawbridge assess --live
drawbridge snapshot -o cluster.json.gz
drawbridge assess --snapshot cluster.json.gz -o csv > workloads.csv
"""


@click.command("assess", cls=Command, epilog=EXAMPLES)
@click.option(
    "--snapshot",
    "snapshots",
    multiple=True,
    metavar="PATH",
    help="State of a cluster: the file of drawbridge snapshot, or Kubernetes objects in YAML or "
    "JSON. Repeatable.",
)
@click.option("--live", is_flag=True, help="Read the kubeconfig's cluster.")
@click.option("--kubeconfig", metavar="FILE", help="Path to a kubeconfig (with --live).")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig (with --live).")
@click.option(
    "--profiles",
    "profile_directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory of driver profiles, one YAML file each, beside the shipped ones.",
)
@click.option("--settings", metavar="FILE", help="Settings file of the cluster's processes.")
@text_or_document(csv="one line per workload")
def assess(
    *,
    snapshots: tuple[str, ...],
    live: bool,
    kubeconfig: str | None,
    context: str | None,
    profile_directory: Path | None,
    settings: str | None,
    output: str,
) -> None:
    """Report what of a cluster would become claims, what would be lost, and what blocks it.

    Workloads are those of top-level owners; their pods count with them. Nodes without
    ResourceSlices get an assumed inventory, from what their device plugin, HAMi or Koordinator
    says of them. Read-only.

    Exit status: 0 when nothing blocks a migration, 1 when something does, 2 when the call is wrong.
    """
    if live == bool(snapshots):
        raise click.UsageError(
            "--live and --snapshot are mutually exclusive." if live else NO_CLUSTER
        )
    if not live and (kubeconfig or context):
        raise click.UsageError("--kubeconfig and --context require --live.")
    profiles = load_profiles(profile_directory)
    options = translation_options(
        (), profiles, SharedSettings() if settings is None else read_settings(settings)
    )
    objects, version, unreadable = (
        _of_cluster(asyncio.run(_read_live(kubeconfig, context))) if live else _of_files(snapshots)
    )
    assessment = assess_cluster(
        objects,
        profiles,
        options,
        namespace=DEFAULT_NAMESPACE,
        version=version,
        unreadable=unreadable,
    )
    if output == Output.TEXT:
        click.echo(format_assessment(assessment, shutil.get_terminal_size().columns))
    elif output == CSV:
        click.echo(format_csv(assessment.workloads), nl=False)
    else:
        document = msgspec.json.encode(build_document(assessment))
        click.echo(format_document(output, document, Report.ASSESS))
    sys.exit(1 if assessment.blockers else 0)


def build_document(assessment: Assessment) -> AssessmentDocument:
    """Return the assessment as `-o json` and `-o yaml` print it."""
    capacity = assessment.capacity
    return AssessmentDocument(
        kubernetes_version=assessment.version,
        unreadable=assessment.unreadable,
        workloads=tuple(
            WorkloadDocument(
                object=workload.key.reference,
                pods=workload.pods,
                outcome=workload.outcome.value,
                codes=workload.codes,
                fix=workload.fix,
            )
            for workload in assessment.workloads
        ),
        totals=assessment.totals(),
        nodes=tuple(
            NodeDocument(
                name=node.node,
                source=node.source.value,
                devices=node.published or len(node.legacy),
                assumed=not node.published,
            )
            for node in assessment.nodes
            if node.source is not None
        ),
        capacity=CapacityDocument(
            pods=capacity.pods,
            placed=capacity.placed,
            unplaced=tuple(
                UnplacedDocument(object=reference, pods=pods)
                for reference, pods in capacity.unplaced.items()
            ),
            not_counted=capacity.not_counted,
        ),
        blockers=assessment.blockers,
        readers=assessment.readers,
    )


async def _read_live(kubeconfig: str | None, context: str | None) -> LiveSnapshot:
    async with await Client.from_kubeconfig(kubeconfig, context) as client:
        return await read_snapshot(client, LongRun("objects read"))


def _of_cluster(state: LiveSnapshot) -> tuple[list[SourceObject], str, tuple[str, ...]]:
    """Return the objects of a cluster, its version, and what could not be read."""
    objects = [
        SourceObject(document=dict(item), source="the cluster", line=0) for item in state.items
    ]
    for missing in state.unreadable:
        note = f"note: {missing.resource} cannot be read, and are left out: {missing.reason}"
        click.echo(printable(note), err=True)
    return objects, state.version, tuple(missing.resource for missing in state.unreadable)


def _of_files(paths: Sequence[str]) -> tuple[list[SourceObject], str, tuple[str, ...]]:
    """Return the objects of files, and what a snapshot file tells of its cluster."""
    objects = read_paths(paths)
    version = ""
    unreadable: list[str] = []
    for origin in objects:
        if (origin.api_version, origin.kind) == (API_VERSION, "Snapshot"):
            version = _text(origin.document.get("kubernetesVersion")) or version
            unreadable += _texts(origin.document.get("unreadable"))
    return objects, version, tuple(dict.fromkeys(unreadable))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
