"""A cluster as it is assessed: its workloads, its nodes and their inventory, as values, and the assessment. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

from allocator.explain.trace import PlacementTrace
from answers.cluster.devices import Device
from answers.model.cluster_state import ClusterState
from kube.manifests.source import SourceObject
from migration.assessment.blockers import Blocker, GpuParts
from migration.assessment.capacity import Capacity
from migration.assessment.chart_names import ChartName, NameChanges
from migration.assessment.claim_counts import ClaimShortage
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.drain_stops import DrainStop
from migration.cluster.evidence import is_ready, mapping_at
from migration.cluster.limit_ranges import RejectedWorkload
from migration.cluster.node_devices import NodeDevices
from migration.conversion.replaced_lines import ReplacedLines
from migration.legacy.kept_names import NamesInUse
from migration.legacy.remaining import Remaining
from translation.cluster.component_statements import Component
from translation.cluster.snapshot import WideMapping


class AssessedCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster with the inventory that it would have.

    Attributes:
        nodes: The nodes with devices.
        state: The state with assumed slices of nodes that publish none, and with the classes that
            these need.
        version: The API server's version; empty if it is not known.
        quotas_to_convert: `ResourceQuota/namespace/name` of those that the workloads are evaluated by as if
            they were converted.
        quotas_left: `ResourceQuota/namespace/name` to its lines that count no pods with claims, and for
            which no line can be added, each with the reason.
        replaced_lines: Lines of ResourceQuotas that a migration removes, since DeviceQuotas count both sides.
        unknown_devices: Node to the devices that its device plugins offer and that are not known, such as replicas.
        sliced: Nodes that offer parts of GPUs under the name of whole ones; none that offer each several times, where each
            of their pods may get a whole one.
        converts_quotas: The workloads are evaluated by the quotas as they would be converted.
        wide_mappings: The mappings of keys of pods that give other devices, too; all else is as if the classes mapped
            nothing, since a migration takes the names from them first.
        claim_shortages: The lines of ResourceQuotas that let too few claims or templates be created for the workloads, or
            too few devices be claimed by those that are still to move.
        early_shortages: The lines that are too low for pods that are opted in already, because of what a plan prepares.
        not_started: The workloads that quotas let start no pod today, and not after a migration either, each with the reason.
        unserved_next: The workloads that nothing here moves, and whose next pods would find no devices, as of
            `find_unserved_next`.
        other_drivers: Drivers with published devices that are no legacy ones: of NICs, and without a profile.
        chart_names: The foreign resource names that classes of charts map today.
        name_changes: The change of resource names by a preparation of all nodes.
        remaining: The nodes and workloads that stay with their device plugin.
        names_in_use: Node to the kept names of devices in use there, as of `find_names_in_use`.
        offering_none: The nodes with devices that their device plugin offers none of.
        rejected_next: The workloads with next pods that a LimitRange rejects, those without devices, too.
    """

    workloads: tuple[AssessedWorkload, ...]
    nodes: tuple[NodeDevices, ...]
    state: ClusterState
    version: str = ""
    quotas_to_convert: tuple[str, ...] = ()
    quotas_left: Mapping[str, Mapping[str, str]] = {}
    replaced_lines: tuple[ReplacedLines, ...] = ()
    unknown_devices: Mapping[str, tuple[str, ...]] = {}
    sliced: Mapping[str, GpuParts] = {}
    converts_quotas: bool = True
    wide_mappings: tuple[WideMapping, ...] = ()
    claim_shortages: tuple[ClaimShortage, ...] = ()
    early_shortages: tuple[ClaimShortage, ...] = ()
    not_started: Mapping[str, str] = {}
    unserved_next: Mapping[str, tuple[str, ...]] = {}
    other_drivers: frozenset[str] = frozenset()
    chart_names: tuple[ChartName, ...] = ()
    name_changes: NameChanges = NameChanges({}, ())
    remaining: Remaining = Remaining()
    names_in_use: Mapping[str, NamesInUse] = {}
    offering_none: tuple[str, ...] = ()
    rejected_next: Mapping[str, RejectedWorkload] = {}


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a cluster that would become claims.

    Attributes:
        nodes: The nodes with devices.
        notes: Facts in the form of blockers that block nothing.
        readers: Quotas, limit ranges and policies that name device keys: `Kind/namespace/name` to
            the keys.
        version: The API server's version; empty if it is not known.
        unreadable: Resources that could not be read.
        quotas_to_convert: The quotas to convert, as in `AssessedCluster`.
        quotas_left: The lines without one for claims, as in `AssessedCluster`.
        replaced_lines: The lines to remove, as in `AssessedCluster`.
        unknown_devices: The devices that are not known, as in `AssessedCluster`.
        components: The components of others that are seen in the cluster, to their minor release; None where it is not known.
        kept: Vocabularies and resource names that stay with their device plugin.
        drain_stops: The PodDisruptionBudgets that would stop drains of nodes with devices of a legacy system.
        wide_mappings: The mappings to take back, as in `AssessedCluster`.
        out_of_service: Nodes with devices that take no pods, to `cordoned`, `not ready` or `offering no devices`.
        remaining: The nodes and workloads that stay with their device plugin.
    """

    workloads: tuple[AssessedWorkload, ...]
    nodes: tuple[NodeDevices, ...]
    capacity: Capacity
    blockers: tuple[Blocker, ...]
    readers: Mapping[str, tuple[str, ...]]
    version: str
    unreadable: tuple[str, ...]
    notes: tuple[Blocker, ...] = ()
    quotas_to_convert: tuple[str, ...] = ()
    quotas_left: Mapping[str, Mapping[str, str]] = {}
    replaced_lines: tuple[ReplacedLines, ...] = ()
    unknown_devices: Mapping[str, tuple[str, ...]] = {}
    components: Mapping[Component, int | None] = {}
    kept: tuple[str, ...] = ()
    drain_stops: tuple[DrainStop, ...] = ()
    wide_mappings: tuple[WideMapping, ...] = ()
    out_of_service: Mapping[str, str] = {}
    remaining: Remaining = Remaining()

    def totals(self) -> dict[str, int]:
        """Return the number of workloads of each outcome."""
        counts = Counter(workload.outcome for workload in self.workloads)
        return {outcome.value: counts[outcome] for outcome in Outcome}


class DetailedAssessment(msgspec.Struct, frozen=True, kw_only=True):
    """An assessment with all devices and placements, for a page.

    Attributes:
        devices: Published and assumed ones, with the claims of all pods that were placed.
        traces: `Kind/namespace/name` of a workload to the placement of its first pod before any other
            is placed; of the first `MAX_TRACED` workloads.
    """

    assessment: Assessment
    devices: tuple[Device, ...]
    traces: Mapping[str, PlacementTrace]


def nodes_out_of_service(objects: Iterable[SourceObject], names: Collection[str]) -> dict[str, str]:
    """Return those of some nodes that take no pods, to `cordoned` or `not ready`."""
    states = {
        source.name: "cordoned" if is_ready(source.document) else "not ready"
        for source in objects
        if source.kind == "Node"
        and source.name in names
        and (
            mapping_at(source.document, "spec").get("unschedulable") is True
            or not is_ready(source.document)
        )
    }
    return dict(sorted(states.items()))
