"""The waves of a plan with the preparation that they need. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from migration.assessment.chart_names import ChartName, chart_mappings, with_chart_names
from migration.assessment.outcomes import AssessedWorkload
from migration.plan.model.parts import AwaitedNodes
from migration.plan.model.plan import Held, PlannedNode
from migration.plan.planning.chart_names import left_names
from migration.plan.planning.mappings import (
    held_in_parts,
    planned_mappings,
    publishing_drivers,
    unmapped_workloads,
)
from migration.plan.planning.prepared import (
    PlanQuestion,
    PreparedCluster,
    planned_lines,
    planned_quotas,
)
from migration.plan.planning.unpublished import (
    Unpublished,
    held_unpublished,
    held_unserved_later,
    never_whole,
    unserved_later,
)
from migration.plan.search.moments import Candidate, PlanProgress, Policy
from migration.plan.search.wave_report import Waves
from migration.plan.search.waves import Planner
from quotas.resource_quotas.usage import OBJECT_COUNTS
from translation.cluster.snapshot import WideMapping, vocabularies_in_force


class Preparation(NamedTuple):
    """The preparation of waves: nodes, resource name to the DeviceClass that has to map it, and mappings to take back."""

    nodes: Sequence[PlannedNode]
    mappings: Mapping[str, str]
    taken_back: Sequence[WideMapping]


class PreparedSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster that waves are searched for.

    Attributes:
        workloads: The cluster's workloads, without the mappings of charts.
        candidates: The nodes that may be switched.
        chart_names: The foreign resource names that classes of charts map today.
    """

    prepared: PreparedCluster
    question: PlanQuestion
    workloads: Sequence[AssessedWorkload]
    candidates: Sequence[Candidate]
    chart_names: Sequence[ChartName]

    def preparation(self, waves: Waves, planner: Planner | None = None) -> Preparation:
        """Return the preparation of waves.

        What no wave needs is not prepared; where there is no wave, the preparation of all shows what is missing.

        Args:
            waves: The waves.
            planner: Has found these; None if it has not been asked.
        """
        prepared, workloads = self.prepared, self.workloads
        planned = [node for wave in waves.waves for node in wave.nodes] or [
            entry.node for entry in self.candidates
        ]
        drivers = {driver for node in planned for driver in node.devices}
        stage = prepared.stage()
        # Of what is held, pods on other nodes than those that hold it are drained all the same.
        switched = stage.switched.union(node.name for wave in waves.waves for node in wave.nodes)
        live_nodes = prepared.live_nodes
        mappings = planned_mappings(
            *(workloads, self.question.profiles),
            drivers=drivers | publishing_drivers(prepared.objects),
            unmoved=waves.left
            | {
                entry.object
                for entry in waves.held
                # Next pods of one without pods may come to switched nodes.
                if (nodes := live_nodes.get(entry.object)) and switched.isdisjoint(nodes)
            }
            | (self._staying(waves, planner) if planner is not None else set()),
            opted_in=stage.opted_in.union(*(wave.namespaces for wave in waves.waves)),
        )
        mappings = with_chart_names(mappings, self.chart_names)
        staying_keys = {
            key
            for workload in workloads
            if any(live_nodes.get(workload.key.reference, ()))
            for key in workload.unmapped
        }
        classes = prepared.cluster.state.classes
        taken_back = chart_mappings(classes, mappings, drivers, staying_keys)
        return Preparation(planned, mappings, taken_back)

    def _staying(self, waves: Waves, planner: Planner) -> set[str]:
        """Return the native workloads that have no pods on switched nodes, and may use none of these."""
        nodes = [node for wave in waves.waves for node in wave.nodes]
        if not nodes:
            return set()
        stage = self.prepared.stage()
        switched = stage.switched.union(node.name for node in nodes)
        usable, live_nodes = planner.usable_later(stage, nodes), self.prepared.live_nodes
        return {
            reference
            for workload in self.workloads
            for reference in [workload.key.reference]
            if workload.unmapped
            and switched.isdisjoint(live_nodes.get(reference, ()))
            and switched.isdisjoint(usable.serving(workload))
        }

    def unmapped(
        self, preparation: Preparation, namespaces: Collection[str]
    ) -> dict[str, list[AssessedWorkload]]:
        """Return the namespaces with native workloads of names without a class once all is prepared."""
        return unmapped_workloads(
            self.workloads,
            preparation.mappings.keys() | left_names(self.chart_names, preparation.taken_back),
            namespaces,
            {source.name for source in self.question.objects if source.kind == "DeviceClass"},
            vocabularies_in_force(self.question.options, self.question.profiles),
        )


def with_planned_lines(search: PreparedSearch) -> PreparedSearch:
    """Return a search with the lines of ResourceQuotas for devices that are too low once all of its nodes are prepared.

    Before, the cluster has those with the mappings of all native workloads.
    """
    cluster, question = search.prepared.cluster, search.question
    if not cluster.state.resource_quotas:
        return search
    _, mappings, taken_back = search.preparation(Waves(waves=(), held=()))
    wide_mappings = (*cluster.wide_mappings, *taken_back)
    quotas = planned_quotas(question, cluster, mappings, wide_mappings)
    lines = planned_lines(question, cluster, mappings, wide_mappings, quotas)
    counts = [entry for entry in cluster.claim_shortages if entry.line in OBJECT_COUNTS]
    cluster = msgspec.structs.replace(
        cluster,
        claim_shortages=(*counts, *lines.shortages),
        early_shortages=lines.early,
        not_started=lines.not_started,
    )
    prepared = msgspec.structs.replace(search.prepared, cluster=cluster)
    return msgspec.structs.replace(search, prepared=prepared)


class SearchedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The waves with their preparation.

    Attributes:
        usable: Workload, as `Kind/namespace/name`, to the nodes that its pods may use today, without those whose
            devices no node has.
        in_parts: The namespaces that are never opted in as a whole, since no class maps names of these workloads.
        never_whole: Those for which no wave has the driver publish GPUs.
        unpublished: The namespaces with pods that get claims until their driver publishes GPUs.
        early: Those with workloads whose next pods would get claims that no wave brings devices for.
    """

    waves: Waves
    preparation: Preparation
    usable: Mapping[str, frozenset[str]] = {}
    in_parts: Mapping[str, list[AssessedWorkload]] = {}
    never_whole: Mapping[str, Unpublished] = {}
    unpublished: Mapping[str, Unpublished] = {}
    early: Mapping[str, Sequence[AwaitedNodes]] = {}

    def held_namespaces(
        self, opted_in: Collection[str], nodes_of: Mapping[str, Collection[str]]
    ) -> Iterator[Held]:
        """Yield the namespaces that are never opted in as a whole, or were too early.

        Args:
            opted_in: The namespaces that are opted in today.
            nodes_of: Workload to the nodes of its pods.
        """
        yield from held_in_parts(self.in_parts)
        yield from held_unpublished(
            {name: entry for name, entry in self.never_whole.items() if name not in self.in_parts},
            {name: entry for name, entry in self.unpublished.items() if name in opted_in},
            [node.name for wave in self.waves.waves for node in wave.nodes],
            nodes_of,
        )
        others = self.early.keys() - self.in_parts.keys() - self.never_whole.keys()
        yield from held_unserved_later({name: self.early[name] for name in sorted(others)})


def search_waves(
    search: PreparedSearch,
    namespaces: Sequence[str],
    obstacles: Sequence[Held],
    policy: Policy,
    progress: PlanProgress,
) -> SearchedPlan:
    """Return the waves of a plan.

    Args:
        search: The cluster.
        namespaces: The namespaces to opt in.
        obstacles: The reasons that there is no wave at all.
        policy: The sizes of waves.
        progress: Follows the search for waves, and may end it.
    """
    prepared = search.prepared
    nodes = [entry.node for entry in search.candidates]
    waves = Waves(waves=(), held=tuple(obstacles))
    unpublished = prepared.unpublished(search.question, search.workloads, nodes)
    searched = SearchedPlan(
        waves=waves, preparation=search.preparation(waves), unpublished=unpublished
    )
    while not obstacles:
        in_parts = dict(searched.in_parts)
        awaited = {name: AwaitedNodes(nodes=entry.nodes) for name, entry in unpublished.items()}
        planner = prepared.planner(policy, in_parts, awaited)
        waves = planner.plan(search.candidates, namespaces, prepared.stage(), progress)
        usable, preparation = planner.usable_nodes(), search.preparation(waves, planner)
        switched = {node.name for wave in waves.waves for node in wave.nodes}
        # A search that was ended may have switched their nodes later.
        closed = never_whole(unpublished, namespaces, switched) if waves.complete else {}
        opted_in = {name for wave in waves.waves for name in wave.namespaces}
        unmapped = search.unmapped(preparation, opted_in | closed.keys())
        is_done = in_parts.keys() >= unmapped.keys()
        if not is_done and progress.stops():
            # These waves opt the namespaces in as a whole still, so nobody may run them.
            waves = msgspec.structs.replace(waves, complete=False)
        early = unserved_later(waves.early) if waves.complete else {}
        # Each of these has one reason of its own.
        told_objects = {
            f"Namespace//{name}" for name in (closed.keys() | early.keys()) - in_parts.keys()
        }
        other_held = tuple(entry for entry in waves.held if entry.object not in told_objects)
        searched = SearchedPlan(
            waves=msgspec.structs.replace(waves, held=other_held),
            preparation=preparation,
            usable=usable,
            # Their pods would get claims with the label of the namespace, so the others get labels of their own.
            in_parts=in_parts | unmapped,
            never_whole=closed,
            early=early,
            unpublished=unpublished,
        )
        if is_done or progress.stops():
            break
    return searched
