"""`drawbridge assess`: the parts of a cluster that would become claims, and their blockers."""

import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click
import msgspec

from answers.cluster.quota_status import unenforced_notes
from answers.model.cluster_state import build_state
from answers.model.findings import DEFAULT_NAMESPACE
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects
from cli.output.formats import Output, Report, format_document, text_or_document
from cli.output.help import Command
from cli.output.progress import LongRun
from cli.output.standard_error import print_line
from cli.reading.cluster_documents import ClusterDocuments, with_documents
from cli.verbs.assess.page import format_assess_page
from cli.verbs.assess.text import format_assessment, format_csv, format_residue
from migration.assessment.assess import assess as assess_cluster
from migration.assessment.assess import assess_cluster as assess_nodes_and_workloads
from migration.assessment.assess import assess_in_detail
from migration.assessment.assessed_cluster import AssessedCluster, Assessment, DetailedAssessment
from migration.assessment.blockers import Blocker
from migration.assessment.residue import Residue, find_residue, has_uncounted
from migration.cluster.drain_stops import DrainStop
from migration.conversion.replaced_lines import ReplacedLines
from migration.legacy.remaining import Remaining
from translation.cluster.snapshot import WideMapping

CSV: Final = "csv"
HTML: Final = "html"
CONVERTED: Final = "converted"
AS_THEY_ARE: Final = "as-they-are"

_Answer = TypeVar("_Answer", AssessedCluster, Assessment, DetailedAssessment)


class WorkloadDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A workload; `object` is `Kind/namespace/name`."""

    object: str
    pods: int
    outcome: str
    codes: tuple[str, ...]
    fix: str


class NodeDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node with devices; `assumed` is false if ResourceSlices publish all of them.

    Attributes:
        replicas: The times that its device plugin offers each GPU under the name of whole ones.
        mig_size: The size of the MIG devices that its device plugin offers under that name; empty if these are GPUs.
    """

    name: str
    source: str
    devices: int
    assumed: bool
    replicas: int = 1
    mig_size: str = ""


class UnplacedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A workload, and the number of its pods that found no devices."""

    object: str
    pods: int


class CapacityDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods that were placed at once."""

    pods: int
    placed: int
    unplaced: tuple[UnplacedDocument, ...]
    not_counted: tuple[str, ...]


class AssessmentDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document of `drawbridge assess -o json`.

    Attributes:
        notes: Facts in the form of blockers that block nothing, such as pods that wait for a DeviceQuota anyway.
        unknown_devices: Node to the devices that its device plugins offer and that are not known, such as replicas.
        kept: Vocabularies and resource names that stay with their device plugin (`translation.keep`).
        keys_to_keep: Further such names to the workloads that move with their GPUs only if these stay.
        drain_stops: The PodDisruptionBudgets that would stop drains of nodes with devices of a legacy system.
        wide_mappings: DeviceClasses that map a resource name of pods, and give other devices than it means; all else
            is as if they mapped nothing.
        out_of_service: Nodes with devices that take no pods, to `cordoned`, `not ready` or `offering no devices`; plan
            holds them.
        remaining: The nodes and workloads that stay with their device plugin, for names of replicas in `translation.keep`.
    """

    kubernetes_version: str
    unreadable: tuple[str, ...]
    workloads: tuple[WorkloadDocument, ...]
    totals: Mapping[str, int]
    nodes: tuple[NodeDocument, ...]
    capacity: CapacityDocument
    blockers: tuple[Blocker, ...]
    readers: Mapping[str, tuple[str, ...]]
    notes: tuple[Blocker, ...] = ()
    quotas_to_convert: tuple[str, ...] = ()
    quotas_left: Mapping[str, Mapping[str, str]] = {}
    replaced_lines: tuple[ReplacedLines, ...] = ()
    unknown_devices: Mapping[str, tuple[str, ...]] = {}
    kept: tuple[str, ...] = ()
    keys_to_keep: Mapping[str, tuple[str, ...]] = {}
    drain_stops: tuple[DrainStop, ...] = ()
    wide_mappings: tuple[WideMapping, ...] = ()
    out_of_service: Mapping[str, str] = {}
    remaining: Remaining = Remaining()
    residue: tuple[Blocker, ...] | msgspec.UnsetType = msgspec.UNSET


EXAMPLES: Final = """\
drawbridge assess --live
drawbridge snapshot -o cluster.json.gz
drawbridge assess --snapshot cluster.json.gz -o csv > workloads.csv
drawbridge assess --snapshot cluster.json.gz -o html > assessment.html
"""


@click.command("assess", cls=Command, epilog=EXAMPLES)
@with_documents(lambda: LongRun("read", is_divisible=False))
@click.option(
    "--residue",
    "reports_residue",
    is_flag=True,
    help="At the end of a migration, report what is left of legacy systems instead.",
)
@click.option(
    "--quotas",
    type=click.Choice([CONVERTED, AS_THEY_ARE]),
    default=CONVERTED,
    show_default=True,
    help="Count pods by the quotas as `drawbridge quota convert` prints them, or as they are.",
)
@text_or_document(csv="one line per workload", html="a page for a browser, in one file")
def assess(documents: ClusterDocuments, output: str, *, reports_residue: bool, quotas: str) -> None:
    """Report the claims that a cluster would get, and the losses and blockers of the move.

    Workloads are those of top-level owners; their pods count with them. Nodes without
    ResourceSlices get an assumed inventory, from what their device plugin, HAMi or Koordinator
    says of them. Quotas that can be converted block nothing. Read-only.

    Exit status: 0 when nothing blocks a migration, 1 when something does (with --residue, when
    something is left), 2 when the call is wrong.
    """
    objects, _ = decode_objects(documents.objects, STATE_KINDS, DEFAULT_NAMESPACE)
    for note in unenforced_notes(build_state(objects)):
        print_line(f"note: {note}")
    residue = _find_residue(documents) if reports_residue else None
    if output == HTML:
        details = _assess(
            assess_in_detail,
            documents,
            unreadable=documents.unreadable,
            converts_quotas=quotas == CONVERTED,
        )
        assessment = details.assessment
        page = format_assess_page(
            details,
            documents.profiles,
            residue,
            context=documents.context,
            taken_at=documents.taken_at,
        )
        click.echo(page, nl=False)
        sys.exit(1 if (assessment.blockers if residue is None else residue.left) else 0)
    assessment = _assess(
        assess_cluster,
        documents,
        unreadable=documents.unreadable,
        converts_quotas=quotas == CONVERTED,
    )
    width = shutil.get_terminal_size().columns
    if output == Output.TEXT and residue is not None:
        click.echo(format_residue(residue, assessment.remaining, width))
    elif output == Output.TEXT:
        click.echo(format_assessment(assessment, width))
    elif output == CSV:
        click.echo(format_csv(assessment.workloads), nl=False)
    else:
        document = msgspec.json.encode(build_document(assessment, residue))
        click.echo(format_document(output, document, Report.ASSESS))
    sys.exit(1 if (assessment.blockers if residue is None else residue.left) else 0)


def _assess(
    assessor: Callable[..., _Answer], documents: ClusterDocuments, **arguments: Any
) -> _Answer:
    """Return the answer of a function of `migration.assessment.assess` about a cluster."""
    return assessor(
        documents.objects,
        documents.profiles,
        documents.options,
        namespace=DEFAULT_NAMESPACE,
        version=documents.version,
        gates=documents.gates,
        **arguments,
    )


def _find_residue(documents: ClusterDocuments) -> Residue:
    cluster = _assess(assess_nodes_and_workloads, documents, converts_quotas=False)
    converted = cluster
    if has_uncounted(cluster):
        converted = _assess(assess_nodes_and_workloads, documents, converts_quotas=True)
    return find_residue(
        *(cluster, converted, documents.objects, DEFAULT_NAMESPACE, documents.unreadable),
        options=documents.options,
    )


def build_document(assessment: Assessment, residue: Residue | None = None) -> AssessmentDocument:
    """Return the assessment as `-o json` and `-o yaml` print it.

    Args:
        assessment: The assessment.
        residue: The remains of legacy systems; None where they were not asked for.
    """
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
                replicas=node.replicas,
                mig_size=node.mig_size,
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
        notes=assessment.notes,
        quotas_to_convert=assessment.quotas_to_convert,
        quotas_left=assessment.quotas_left,
        replaced_lines=assessment.replaced_lines,
        unknown_devices=assessment.unknown_devices,
        kept=assessment.kept,
        keys_to_keep=assessment.capacity.keys_to_keep,
        drain_stops=assessment.drain_stops,
        wide_mappings=assessment.wide_mappings,
        out_of_service=assessment.out_of_service,
        remaining=assessment.remaining,
        residue=msgspec.UNSET if residue is None else residue.left,
    )
