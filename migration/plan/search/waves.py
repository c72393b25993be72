"""The waves of a migration: nodes and namespaces that fit at every moment. Pure.

A wave fits if all pods have devices while its nodes are drained, and when its nodes have DRA drivers
and its namespaces are opted in. Pods that wait for devices before the first wave count for nothing. Those that
run, and that no node would serve after their move, never move: their nodes and their workloads are held.

Namespaces move as a whole where they can. Only those that do not fit are divided into their workloads. A
node is switched only if its devices are of use to somebody afterwards.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.assessment.stopped_outcomes import suspended_text
from migration.assessment.unmoved import staying_nodes
from migration.legacy.kai_webhook import KaiPods
from migration.plan.facts.taken_back import TakenBack
from migration.plan.model.parts import (
    AwaitedNodes,
    Divisible,
    Part,
    bare_pods,
    divide,
    servable_parts,
)
from migration.plan.model.plan import Held, PlannedNode
from migration.plan.search.attempts import WaveSearch
from migration.plan.search.closed_nodes import (
    at_home,
    closed_reasons,
    full_nodes,
    left_behind,
    stopped_behind,
    unknown_nodes,
    vain_reasons,
)
from migration.plan.search.couplings import idle_workloads, with_couplings
from migration.plan.search.device_map import wave_details
from migration.plan.search.kai_parts import divisible_beside_kai, held_beside_kai, held_together
from migration.plan.search.losses import NodeLosses
from migration.plan.search.moments import (
    Candidate,
    Moment,
    PlanProgress,
    Policy,
    policies_in_order,
)
from migration.plan.search.next_pods import StoppedPods, find_added_pods, find_next_pods
from migration.plan.search.rivals import Misfit, awaited_pods, misfit_of
from migration.plan.search.searched import (
    SearchedWaves,
    completed,
    search_policies,
    without_nodes,
)
from migration.plan.search.sparing import SparingSearch
from migration.plan.search.spread import Spreading
from migration.plan.search.unmovable import (
    Unmovable,
    bound_workloads,
    deselected_workloads,
    held_unmovable,
    held_without_claims,
    lacking_devices,
    left_without_claims,
    sliced_workloads,
    uncreated_workloads,
    unserved_workload,
    without_held,
)
from migration.plan.search.usable_nodes import NeededNodes, UsableNodes, held_barred
from migration.plan.search.wave_report import (
    WaveReports,
    Waves,
    evicted_others,
    held_objects,
    own_obstacles,
    unplaced_pods,
)
from migration.plan.stage.placement import Placer
from migration.plan.stage.stage import PodKey, Stage, switched_labels
from migration.plan.stage.stage_allocator import Placement


class Planner:
    """A planner that takes nodes and namespaces from the remaining ones, wave by wave."""

    def __init__(
        self,
        cluster: AssessedCluster,
        live_nodes: Mapping[str, Sequence[str]],
        placer: Placer,
        policy: Policy,
        bound_pods: Collection[tuple[str, str]] = (),
        *,
        divisible: Collection[str],
        taken_back: TakenBack,
        partial: Collection[str] = (),
        awaited: Mapping[str, AwaitedNodes] = {},
        kai_pods: KaiPods,
        starting: Collection[str] = (),
    ) -> None:
        """Prepare the planner.

        Args:
            cluster: The cluster with the inventory of all nodes.
            live_nodes: Workload to the nodes of its pods, in the order of their numbers.
            placer: Places the pods.
            policy: The sizes of waves.
            bound_pods: Namespace and name of the pods with a volume of one node.
            divisible: The workloads that can get claims by themselves, before the rest of their namespace.
            taken_back: The systems that take back changes of workloads.
            partial: The namespaces that are never opted in as a whole.
            awaited: Namespace to nodes that it waits for, besides those for the next pods of its workloads.
            starting: The workloads with pods to come, as `Kind/namespace/name`, without DaemonSets.
            kai_pods: The pods of KAI beside shares that its webhook changes.
        """
        self._divisible = Divisible(workloads=frozenset(divisible))
        self._partial, self._kai_pods = partial, kai_pods
        self._awaited, self._starting = awaited, frozenset(starting)
        self._bound, self._taken_back = bound_pods, taken_back
        self._cluster, self._workloads = cluster, cluster.workloads
        self._placer, self._policy = placer, policy
        self._policies = policies_in_order(policy) if policy.notes_loss else (policy,)
        self._losses = NodeLosses.none(placer)
        self._stopped = StoppedPods(placer, cluster.workloads)
        self._live_nodes = live_nodes
        self._unknown = unknown_nodes(self._workloads, live_nodes, placer.counted_unmoved)
        self._unmovable = frozenset[str]()
        self._today = self._usable = UsableNodes(cluster, placer)
        self._needed = NeededNodes(cluster, self._today, live_nodes)
        self._serving = self._usable.claim_nodes(cluster.workloads)
        live = {
            PodKey(reference, number): node
            for reference, nodes in live_nodes.items()
            for number, node in enumerate(nodes)
            if node
        }
        self._live = Placement(nodes=live, unmatched=frozenset(live))

    def plan(
        self,
        candidates: Sequence[Candidate],
        namespaces: Sequence[str],
        start: Stage,
        progress: PlanProgress,
    ) -> Waves:
        """Return the waves.

        Args:
            candidates: Nodes to be switched.
            namespaces: The namespaces to opt in.
            start: The nodes and namespaces that are switched and opted in already.
            progress: Follows the search.
        """
        progress.expect(len(candidates))
        stage = self._labelled(start, (entry.node for entry in candidates))
        self._usable = UsableNodes(self._cluster, self._placer, stage.labels)
        self._serving = self._usable.claim_nodes(self._workloads)
        divisible = frozenset(filter(self._serving.get, self._divisible.workloads))
        unmovable = {entry.workload.key.reference: entry for entry in self.unmovable(stage)}
        unmovable |= held_beside_kai(
            *(self._kai_pods, self._workloads, unmovable, divisible),
            namespaces=namespaces,
            partial=self._partial,
        )
        self._divisible = divisible_beside_kai(self._kai_pods, unmovable, divisible)
        self._unmovable = frozenset(unmovable)
        nodes_of = {
            name: frozenset(filter(None, self._live_nodes.get(name, ())))
            if entry.nodes is None
            else entry.nodes
            for name, entry in unmovable.items()
        }
        own_nodes = frozenset[str]().union(*nodes_of.values())
        unmovable_held = tuple(held_unmovable(unmovable, nodes_of, candidates, namespaces))
        closed = stage.closed | full_nodes(unmovable, nodes_of, self._placer.not_counted)
        stage = msgspec.structs.replace(stage, closed=closed)
        candidates = [entry for entry in candidates if entry.node.name not in own_nodes]
        left = left_without_claims(self._cluster, unmovable.values(), self._starting)
        names = [entry.node.name for entry in candidates]
        barred = tuple(held_without_claims(left, names, self._usable.serving))
        candidates = without_held(candidates, barred)
        barred += tuple(self._barred(candidates, namespaces, start))
        candidates = without_held(candidates, barred)
        parts = servable_parts(
            namespaces,
            self._unmovable,
            self._workloads,
            start.selected,
            self._divisible,
            partial=self._partial,
        )
        begin = msgspec.structs.replace(
            self._begin(stage, candidates, parts),
            closed_reasons=closed_reasons(stage, self._unknown, unmovable_held),
        )
        self._losses = NodeLosses.today(self._placer, begin, self._policies[0].spare_nodes)
        next_pods = find_next_pods(
            *(self._placer, self._workloads, self._starting, begin.stage, begin.placement)
        )
        added_pods = find_added_pods(
            *(self._placer, self._workloads, self._taken_back),
            *(begin.stage, begin.placement),
        )
        search = self._searched(begin, start.selected, progress)
        useful = self._without_useless_nodes(begin, search, progress)
        if not progress.stops():
            moving = (self._workloads, self._divisible)
            sparing = SparingSearch(self._placer, self._losses, self._policy, moving, progress)
            useful = sparing.sparing(useful)
            repeating = WaveSearch(self._placer, self._policy, self._losses, progress.stops)
            useful = completed(useful, self._placer, repeating, self._policy.wave_nodes)
            spreading = Spreading(self._placer, self._losses, self._policies, progress)
            useful = spreading.steadier(useful)
        today = self._losses.today_note(keeps_spare=useful.keeps_spare())
        notes = (today, suspended_text(self._workloads))
        reports = WaveReports(self._placer, self._workloads, self._policy.wave_nodes, notes)
        alone = WaveSearch(self._placer, self._policy, self._losses, progress.stops)
        return Waves(
            waves=with_couplings(
                tuple(reports.waves(useful.waves, useful.switched(), next_pods, added_pods)),
                self._serving,
                self._usable_nodes(start),
                begin.idle,
                self._placer.daemon_pods.waiting_nodes(begin.stage, begin.placement),
            ),
            held=()
            if progress.stops()
            else (
                *unmovable_held,
                *barred,
                *held_together(self._kai_pods, useful.end.parts),
                *held_objects(
                    begin,
                    useful,
                    obstacles=own_obstacles(alone, begin, useful, search),
                    in_vain=self._vain_reasons(begin, useful),
                ),
            ),
            complete=not progress.stops(),
            early=useful.early(),
            left=frozenset(entry.workload.key.reference for entry in left),
            rooms=self._stopped.rooms(begin, useful.end),
            details=tuple(
                wave_details(
                    *(moment, attempt, self._placer.device_counts()),
                    evicted_others(self._placer, moment, attempt),
                )
                for moment, attempt in useful.waves
            ),
        )

    def misfit(
        self,
        stage: Stage,
        nodes: Sequence[PlannedNode],
        parts: tuple[Part, ...],
        scheduled: Mapping[str, int],
    ) -> Misfit | None:
        """Return the pods without devices in a drain of nodes, or after their switch with parts opted in; None without any.

        Args:
            scheduled: Workload to the number of its pods that had a node once; as many have to have devices after the switch.
        """
        search = WaveSearch(self._placer, self._policy, self._losses, lambda: False)
        begin = self._begin(self._labelled(stage, nodes), (), ())
        awaited = awaited_pods(begin, scheduled, self._live.nodes)
        obstacle = search.check_wave(begin, frozenset(n.name for n in nodes), parts, awaited)
        return None if obstacle is None else misfit_of(obstacle, awaited)

    def usable_later(self, stage: Stage, nodes: Iterable[PlannedNode]) -> UsableNodes:
        """Return the nodes that workloads may use, once some nodes are switched."""
        return UsableNodes(self._cluster, self._placer, self._labelled(stage, nodes).labels)

    def _labelled(self, stage: Stage, nodes: Iterable[PlannedNode]) -> Stage:
        """Return a stage with the labels that the switch of nodes gives them, and without nodes of unknown devices."""
        own_labels = {node.metadata.name: node.labels for node in self._cluster.state.nodes}
        labels = {**stage.labels, **switched_labels(nodes, own_labels)}
        return msgspec.structs.replace(stage, labels=labels, closed=stage.closed | self._unknown)

    def unplaced(self, stage: Stage, draining: frozenset[str]) -> tuple[str, ...]:
        """Return the pods without devices that find no place while nodes are drained, as `Pod/namespace/name`."""
        before = self._begin(stage, (), ()).placement
        during = self._placer.place(msgspec.structs.replace(stage, draining=draining), before)
        return unplaced_pods(self._placer, before, during)

    def unmovable(self, stage: Stage) -> Iterator[Unmovable]:
        """Yield the workloads with running pods that never move: no node would serve or take them, or one node alone."""
        placement = self._placer.place(stage, self._live)
        live, remaining = self._live.nodes, self._cluster.remaining.nodes
        colocated = self._placer.colocated
        suspects = live.keys() & (placement.unmatched | placement.unplaced | colocated.pods)
        keys = [key for key in sorted(suspects) if live[key] not in stage.switched]
        keys += [key for key, node in placement.nodes.items() if node in remaining]
        unserved = self._placer.unserved(stage, keys) if keys else frozenset[str]()
        unserved |= lacking_devices(self._cluster, self._placer, stage, self._live_nodes)
        own = staying_nodes(self._cluster)
        for workload in self._workloads:
            if (name := workload.key.reference) in unserved:
                amounts = colocated.lacking(stage, name, self._usable.serving(workload))
                lacking = self._usable.lacking(workload)._replace(amounts=amounts)
                yield unserved_workload(workload, lacking, own.get(name, ()))
        others = {
            entry.workload.key.reference: entry
            for entry in (
                *uncreated_workloads(self._cluster),
                *bound_workloads(self._workloads, self._bound, stage, self._live_nodes),
                *deselected_workloads(self._cluster, self._placer, stage.labels, stage.switched),
                *sliced_workloads(self._workloads, self._live_nodes, self._cluster.sliced),
            )
        }
        yield from (entry for name, entry in others.items() if name not in unserved)

    def _barred(
        self, candidates: Sequence[Candidate], namespaces: Collection[str], start: Stage
    ) -> Iterator[Held]:
        """Yield the nodes without a workload that moves and may use them."""
        stage = msgspec.structs.replace(start, opted_in=start.opted_in.union(namespaces))
        moving = [
            workload
            for workload in self._workloads
            if workload.result is not None
            and workload.key.reference not in self._unmovable
            and (workload.outcome is Outcome.NATIVE or stage.has_moved(workload))
        ]
        used = frozenset(self._live.nodes.values())
        yield from held_barred(candidates, moving, self._usable, used)

    def _begin(
        self, stage: Stage, candidates: Sequence[Candidate], parts: tuple[Part, ...]
    ) -> Moment:
        placement = self._placer.place(stage, self._live)
        workloads = self._workloads if parts else ()
        waiting = {key.workload for key in placement.unplaced.difference(self._live.nodes)}
        in_reach = stage.switched.union(entry.node.name for entry in candidates)
        out_of_reach = self._usable.out_of_reach(workloads, waiting, in_reach)
        return Moment(
            stage=stage,
            placement=placement,
            pending=placement.unplaced,
            nodes=tuple(candidates),
            parts=parts,
            serving=self._serving,
            usable=self._usable.all_nodes(self._workloads),
            awaited=self._usable.awaited(
                workloads,
                self._starting.union(out_of_reach, bare_pods(workloads)) - self._unmovable,
                self._awaited,
                stage,
            ),
            idle=tuple(idle_workloads(self._workloads, stage, self._today.serving)),
            staying=staying_nodes(self._cluster),
            taken_back=self._taken_back,
        )

    def _searched(
        self, begin: Moment, selected: Collection[str], progress: PlanProgress
    ) -> SearchedWaves:
        """Return the waves of all policies, without a node to spare if something were held for it."""
        search = self._search_in_parts(begin, selected, self._policies, progress)
        if search.lacked_spare and self._policy.notes_loss and not search.is_whole():
            without = self._search_in_parts(begin, selected, (self._policy,), progress)
            search = self._better(search, without)
        return search

    def _search_in_parts(
        self,
        begin: Moment,
        selected: Collection[str],
        policies: Sequence[Policy],
        progress: PlanProgress,
    ) -> SearchedWaves:
        """Return the better waves of two: of whole namespaces, and of namespaces in parts.

        Args:
            begin: The moment before the first wave.
            selected: Workloads that have claims already.
            policies: The policies, as of `_search`.
            progress: Follows the search.
        """
        whole = search = search_policies(self._placer, self._losses, begin, policies, progress)
        waiting = [{part.namespace for part in whole.end.parts}]
        if self._policy.notes_loss and len(policies) > 1:
            waiting.append({part.namespace for part in whole.parts_without_spare()})
        tried, late = len(begin.parts), begin.awaited.keys()
        for namespaces in waiting:
            moving = (self._workloads, selected, self._divisible)
            divided = divide(begin.parts, namespaces, *moving, waiting=late, staying=begin.staying)
            if len(divided) > tried and not progress.stops():
                tried = len(divided)
                in_parts = msgspec.structs.replace(begin, parts=divided)
                search = self._better(
                    search,
                    search_policies(self._placer, self._losses, in_parts, policies, progress),
                )
        return search

    def _better(self, first: SearchedWaves, second: SearchedWaves) -> SearchedWaves:
        """Return the search that leaves fewer pods without claims, then that with more nodes, with one to spare."""

        def rank(search: SearchedWaves) -> tuple[int, int, bool]:
            left = sum(workload.pods for workload in self._left_behind(search.end.stage))
            return -left, len(search.switched()), search.keeps_spare()

        return second if rank(second) > rank(first) else first

    # --- nodes in vain ----------------------------------------------------------------------------

    def _without_useless_nodes(
        self, begin: Moment, search: SearchedWaves, progress: PlanProgress
    ) -> SearchedWaves:
        """Return the waves without nodes that are of use to nobody.

        Once all pods have claims, every node is of use. Until then a node is taken from the pods that
        are left behind, for pods that have to be there.
        """
        useless = self._useless_nodes(begin, search)
        if not useless & search.switched() or progress.stops():
            return search
        rest = msgspec.structs.replace(
            begin,
            nodes=tuple(entry for entry in begin.nodes if entry.node.name not in useless),
            parts=search.begin_parts(),
        )
        again = search_policies(self._placer, self._losses, rest, self._policies, progress)
        again = msgspec.structs.replace(again, obstacle=search.obstacle or again.obstacle)
        is_useful = not self._useless_nodes(begin, again) & again.switched()
        if is_useful and len(again.end.parts) <= len(search.end.parts):
            return again
        # Fewer nodes do not do, so those that the parts do without are left out, and all once nothing moves any more.
        last = max(
            (number for number, (_, attempt) in enumerate(search.waves, start=1) if attempt.parts),
            default=0,
        )
        end = search.waves[last][0] if last < len(search.waves) else search.end
        moving = msgspec.structs.replace(search, waves=search.waves[:last], end=end)
        repeating = WaveSearch(self._placer, self._policy, self._losses, progress.stops)
        moving = without_nodes(moving, useless, repeating)
        useful = tuple(entry for entry in moving.end.nodes if entry.node.name not in useless)
        further = search_policies(
            self._placer,
            self._losses,
            msgspec.structs.replace(moving.end, nodes=useful),
            self._policies,
            progress,
        )
        return SearchedWaves(
            waves=(*moving.waves, *further.waves),
            end=further.end,
            obstacle=search.obstacle or further.obstacle,
        )

    def _useless_nodes(self, begin: Moment, search: SearchedWaves) -> frozenset[str]:
        """Return the nodes that pods left behind could use, and no pod does that has claims, or would once it is started."""
        stage, placement = search.end.stage, search.end.placement
        used = stage.switched & frozenset(placement.nodes.values())
        needed = self._stopped.needed_nodes(stage, placement)
        return frozenset(self._needs(begin, search)) - used - needed

    def _needs(self, begin: Moment, search: SearchedWaves) -> Mapping[str, Sequence[str]]:
        """Return the nodes that pods left behind could use, each with the workloads of these."""
        behind = self._left_behind(search.end.stage)
        return self._needed.by_node(behind, [entry.node for entry in begin.nodes])

    def _vain_reasons(self, begin: Moment, search: SearchedWaves) -> dict[str, str]:
        """Return nodes with the reason that the switch of each would be in vain."""
        nodes = [entry.node for entry in begin.nodes]
        stopped = stopped_behind(self._workloads, search.end.stage)
        return vain_reasons(
            self._needs(begin, search),
            self._needed.by_node(stopped, nodes),
            *(self._cluster, self._usable),
            at_home=at_home(self._live_nodes, {node.name for node in nodes}),
        )

    def _left_behind(self, stage: Stage) -> list[AssessedWorkload]:
        """Return the workloads with pods that need resources of a device plugin."""
        return list(left_behind(self._workloads, stage, self._live.nodes, self._unmovable))

    def usable_nodes(self) -> Mapping[str, frozenset[str]]:
        """Return workload, as `Kind/namespace/name`, to the nodes that its pods may use today.

        Those whose devices no node has today, nor offers under their device keys, are left out.
        """
        return self._today.offered_nodes(self._workloads)

    def _usable_nodes(self, stage: Stage) -> frozenset[str]:
        """Return the nodes that pods may use once they are switched, though no further workload gets claims."""
        return frozenset[str]().union(
            *(
                self._usable.serving(workload)
                for workload in self._workloads
                if workload.result is not None
                and (workload.outcome is Outcome.NATIVE or stage.has_moved(workload))
            )
        )
