"""The waves of a plan, as a search has found them, and the objects that it has no wave for. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import msgspec

from findings.text import join_names, quote_text, reference_text
from kube.names import TRANSLATE_LABEL
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.device_pods import LEFT_SCHEDULER_FIX
from migration.plan.facts.claim_losses import claim_losses
from migration.plan.facts.taken_back import TakenBack
from migration.plan.model.parts import AwaitedNodes, Part
from migration.plan.model.plan import (
    FreeDevicesReport,
    Held,
    PartialNamespace,
    PlannedWorkload,
    Wave,
)
from migration.plan.model.stopped_workloads import StartRoom
from migration.plan.search.attempts import WaveSearch
from migration.plan.search.closed_nodes import NO_USER
from migration.plan.search.device_map import WaveDetails
from migration.plan.search.moments import Attempt, Moment, Obstacle, stage_after
from migration.plan.search.next_pods import AddedPodNotes, AddedPods, NextPod, next_pod_notes
from migration.plan.search.searched import SearchedWaves
from migration.plan.stage.other_pods import PodName
from migration.plan.stage.placement import Placer
from migration.plan.stage.stage_allocator import Placement

_NO_SPARE: Final = (
    "after it no node to spare of those with {}: were one lost, more pods would have no devices than today; "
    "--spare-nodes 1 holds what cannot have one"
)
_NOT_TRIED: Final = "not tried by itself, as one of many; {}"
_MOVE_FIRST: Final = (
    "solve what holds namespaces and workloads, then plan again from a new snapshot"
)
_WITH_THOSE: Final = "once it is opted in with {} switched (no more nodes can be before that)"
_EXPLAINED: Final = 64
"""Held objects of a kind that are tried by themselves for a reason of their own."""

_NAMES: Final = 5
"""Workloads that a note names; README.md has all."""


class Waves(msgspec.Struct, frozen=True, kw_only=True):
    """The waves, and the objects without a wave.

    Attributes:
        complete: The search was not ended before all nodes and namespaces were tried.
        early: The namespaces that are not opted in, with the nodes that they wait for in vain.
        details: The details of each wave.
        left: The native workloads, as `Kind/namespace/name`, whose next pods keep their device plugin.
        rooms: Stopped workload, as `Kind/namespace/name`, to the devices for its next pods.
    """

    waves: tuple[Wave, ...]
    held: tuple[Held, ...]
    complete: bool = True
    details: tuple[WaveDetails, ...] = ()
    early: Mapping[str, tuple[AwaitedNodes, ...]] = {}
    left: frozenset[str] = frozenset()
    rooms: Mapping[str, StartRoom] = {}


class WaveReports:
    """The waves as they stand in a plan."""

    def __init__(
        self,
        placer: Placer,
        workloads: Sequence[AssessedWorkload],
        wave_nodes: int,
        first_notes: Sequence[str],
    ) -> None:
        """Prepare the reports.

        Args:
            placer: Has placed the pods.
            workloads: The cluster's workloads.
            wave_nodes: The most nodes of a wave.
            first_notes: Notes on the first wave; empty ones are none.
        """
        self._placer = placer
        self._workloads = workloads
        self._wave_nodes = wave_nodes
        self._first_notes = first_notes

    def waves(
        self,
        attempts: Sequence[tuple[Moment, Attempt]],
        switched: frozenset[str],
        next_pods: Sequence[NextPod] = (),
        added_pods: Sequence[AddedPods] = (),
    ) -> Iterator[Wave]:
        """Yield the waves of the plan.

        Args:
            attempts: The nodes and parts of each, with the moment before it.
            switched: The nodes of all waves.
            next_pods: The next pods that there are devices for today.
            added_pods: The pods that autoscalers may add, of which there are devices for some today.
        """
        moments = [(moment.stage_with(attempt), attempt.after) for moment, attempt in attempts]
        taken_back = next((moment.taken_back for moment, _ in attempts), TakenBack())
        next_notes = next_pod_notes(self._placer, next_pods, taken_back, moments)
        added_notes = AddedPodNotes(self._placer, added_pods, moments)
        # The first wave names the DaemonSets that were opted in before it.
        former = frozenset[str]()
        for number, (moment, attempt) in enumerate(attempts, start=1):
            names = {entry.node.name for entry in attempt.nodes}
            after = stage_after(moment.stage, names, attempt.parts)
            waiting = self._placer.daemon_pods.waiting_nodes(after, attempt.after)
            others = {name: own for name, own in waiting.items() if name not in former}
            notes = (
                *next_notes[number - 1],
                *_added_notes(number, moment, attempt, added_notes),
                *_waiting_notes(others, switched),
            )
            yield self._wave(number, moment, attempt, waiting, notes)
            former = frozenset(waiting)

    def _wave(
        self,
        number: int,
        moment: Moment,
        attempt: Attempt,
        waiting: Mapping[str, tuple[str, ...]],
        waiting_notes: Sequence[str],
    ) -> Wave:
        """Return a wave of the plan.

        Args:
            number: Its number.
            moment: The moment before it.
            attempt: Its nodes and parts.
            waiting: DaemonSet to the nodes with pods of it that are not restarted.
            waiting_notes: The notes on these, and on next pods.
        """
        nodes = tuple(entry.node for entry in attempt.nodes)
        names = {node.name for node in nodes}
        namespaces = tuple(part.namespace for part in attempt.parts if part.completes)
        partial = tuple(_partial_namespaces(attempt.parts, namespaces))
        labelled = {name for part in attempt.parts for name in part.workloads}
        selective = {reference.split("/")[1] for reference in moment.stage.selected}
        touched = {*namespaces, *(entry.namespace for entry in partial)}
        during = attempt.during or moment.placement
        workloads = tuple(
            self._planned(
                namespaces,
                labelled,
                moment.stage.selected,
                waiting,
                evicted={
                    key.workload for key, node in moment.placement.nodes.items() if node in names
                },
            )
        )
        return Wave(
            wave=number,
            nodes=nodes,
            namespaces=namespaces,
            partial_namespaces=partial,
            formerly_selective=tuple(sorted(touched & selective)),
            workloads=workloads,
            free_before=sum(moment.placement.free),
            free_after=sum(attempt.after.free),
            free_for_keys=FreeDevicesReport(
                before=moment.placement.free.for_keys, after=attempt.after.free.for_keys
            ),
            free_for_claims=FreeDevicesReport(
                before=moment.placement.free.for_claims, after=attempt.after.free.for_claims
            ),
            evicted_others=len(evicted_others(self._placer, moment, attempt)),
            unplaced_pods=unplaced_pods(self._placer, moment.placement, during),
            split=0 < len(nodes) < min(self._wave_nodes, len(moment.nodes)),
            notes=tuple(
                dict.fromkeys(
                    (
                        *(obstacle.note for obstacle in attempt.obstacles),
                        *([f"no larger: {attempt.order_reason}"] if attempt.order_reason else []),
                        *(_NO_SPARE.format(side) for side in attempt.without_spare),
                        *([attempt.spread_note] if attempt.spread_note else []),
                        *([attempt.early_note] if attempt.early_note else []),
                        *self._part_notes(partial, attempt),
                        *(note for entry in attempt.nodes for note in entry.notes),
                        *waiting_notes,
                        *self._scheduler_notes(workloads),
                        *(filter(None, self._first_notes) if number == 1 else ()),
                    )
                )
            ),
        )

    def _part_notes(self, partial: Iterable[PartialNamespace], attempt: Attempt) -> Iterator[str]:
        """Yield a note on each namespace that moves in part, with the reason that no more of it does."""
        numbers = Counter(
            workload.key.namespace
            for workload in self._workloads
            if workload.result is not None and workload.outcome is not Outcome.NATIVE
        )
        for entry in partial:
            if reason := attempt.part_reasons.get(entry.namespace):
                verb = "gets" if len(entry.workloads) == 1 else "get"
                yield (
                    f"namespace {entry.namespace}: {len(entry.workloads)} of its {numbers[entry.namespace]} workloads {verb} "
                    f"claims with this wave, and no more: {reason}"
                )

    def _scheduler_notes(self, planned: Iterable[PlannedWorkload]) -> Iterator[str]:
        """Yield a note on each scheduler that pods leave with a wave."""
        names = {entry.object for entry in planned}
        leaving: dict[str, list[str]] = {}
        for workload in self._workloads:
            if workload.key.reference in names:
                for scheduler in workload.left_schedulers:
                    leaving.setdefault(scheduler, []).append(reference_text(workload.key.reference))
        for scheduler, references in sorted(leaving.items()):
            verb = "leaves" if len(references) == 1 else "leave"
            yield (
                f"{join_names(references, _NAMES)} {verb} scheduler {quote_text(scheduler)} with this wave: its queues, fair share "
                f"and gangs no longer apply to pods with claims; {LEFT_SCHEDULER_FIX}"
            )

    def _planned(
        self,
        namespaces: Collection[str],
        labelled: Collection[str],
        selected: Collection[str],
        waiting: Mapping[str, tuple[str, ...]],
        *,
        evicted: Collection[str],
    ) -> Iterator[PlannedWorkload]:
        """Yield the workloads with pods that change: those with a label, the rest of namespaces, native ones evicted."""
        for workload in self._workloads:
            reference = workload.key.reference
            is_labelled = reference in labelled and workload.key.namespace not in namespaces
            is_rest = workload.key.namespace in namespaces and reference not in selected
            if workload.outcome is Outcome.NATIVE:
                is_rest = reference in evicted
            if workload.result is not None and (is_labelled or is_rest):
                yield PlannedWorkload(
                    object=reference,
                    pods=workload.pods,
                    outcome=workload.outcome.value,
                    labelled=is_labelled,
                    waiting=waiting.get(reference, ()),
                    claim_losses=tuple(claim_losses(workload)),
                )


def _partial_namespaces(
    parts: Iterable[Part], whole: Collection[str]
) -> Iterator[PartialNamespace]:
    """Yield the namespaces that a wave moves a part of, with the moved workloads."""
    chosen = [part for part in parts if part.namespace not in whole]
    for namespace, members in groupby(chosen, key=lambda part: part.namespace):
        workloads = tuple(name for part in members for name in part.workloads)
        yield PartialNamespace(namespace=namespace, workloads=workloads)


def evicted_others(placer: Placer, moment: Moment, attempt: Attempt) -> Collection[PodName]:
    """Return the pods without devices that the drains of a wave evict."""
    during = attempt.during or moment.placement
    return placer.others.evicted(moment.placement.others, during.others)


def unplaced_pods(placer: Placer, before: Placement, during: Placement) -> tuple[str, ...]:
    """Return the pods without devices that a drain evicts, and that find no place, as `Pod/namespace/name`."""
    evicted = placer.others.evicted(before.others, during.others)
    return tuple(
        f"Pod/{name.namespace}/{name.name}" for name in sorted(evicted) if not evicted[name]
    )


def _added_notes(
    wave: int, moment: Moment, attempt: Attempt, notes: AddedPodNotes
) -> Iterator[str]:
    """Yield the notes of a wave on pods that autoscalers may add while its nodes are drained."""
    names = frozenset(entry.node.name for entry in attempt.nodes)
    if names:
        stage = msgspec.structs.replace(moment.stage, draining=names, waits=True)
        yield from notes.of_wave(wave, stage, attempt.drained(moment.placement))


def _waiting_notes(
    waiting: Mapping[str, Sequence[str]], switched: Collection[str]
) -> Iterator[str]:
    """Yield notes for each DaemonSet that is opted in and has pods on nodes with a device plugin.

    Args:
        waiting: DaemonSet to these nodes.
        switched: The nodes of all waves.
    """
    for workload, nodes in waiting.items():
        later = [node for node in nodes if node in switched]
        never = [node for node in nodes if node not in switched]
        if later:
            yield (
                f"{workload} is not restarted: on {join_names(later)} its pods keep the devices of the plugin until "
                "the node is switched, and one that ends before that waits for it"
            )
        if never:
            yield (
                f"no wave switches {join_names(never)}: pods of {workload} keep the devices of the plugin there, and "
                "one that ends gets none again before its node has changed hands; solve what holds these nodes first; a "
                f'DaemonSet of such nodes alone may keep its device keys: label its template {TRANSLATE_LABEL}: "false"'
            )


def own_obstacles(
    alone: WaveSearch, begin: Moment, search: SearchedWaves, in_vain: SearchedWaves
) -> dict[str, Obstacle | None]:
    """Return object to the obstacle to a wave of it alone after all waves, for the first ones without a wave.

    Args:
        alone: A search of the same pods.
        begin: The moment before the first wave.
        search: The waves.
        in_vain: The waves with the nodes in them that are switched in vain.
    """
    switched = search.switched()
    left = [entry for entry in begin.nodes if entry.node.name not in switched][:_EXPLAINED]
    namespaces = list(dict.fromkeys(part.namespace for part in search.end.parts))[:_EXPLAINED]
    return {
        **{f"Node//{entry.node.name}": alone.explain(search.end, entry) for entry in left},
        **{
            f"Namespace//{name}": _namespace_obstacle(alone, name, search.end, in_vain.end)
            for name in namespaces
        },
    }


def _namespace_obstacle(
    alone: WaveSearch, name: str, end: Moment, end_in_vain: Moment
) -> Obstacle | None:
    """Return the obstacle to the opt-in of a namespace, with the nodes for it that are switched in vain without it.

    These are held for its pods, so that they are held is no reason for the namespace.
    """
    serving = end.serving.get(name, frozenset())
    in_vain = serving & (end_in_vain.stage.switched - end.stage.switched)
    obstacle = alone.explain_namespace(end_in_vain, name) if in_vain else None
    if obstacle is None:
        return alone.explain_namespace(end, name)
    return msgspec.structs.replace(obstacle, moment=_WITH_THOSE, nodes=tuple(sorted(in_vain)))


def held_objects(
    begin: Moment,
    search: SearchedWaves,
    *,
    obstacles: Mapping[str, Obstacle | None],
    in_vain: Mapping[str, str],
) -> Iterator[Held]:
    """Yield the objects without a wave: infeasible ones, and nodes that would be switched in vain.

    Args:
        begin: The moment before the first wave.
        search: The waves; nodes that were of use to nobody are not among those at its end.
        obstacles: Object, as `Node//name` or `Namespace//name`, to its own obstacle.
        in_vain: Node that was not tried to the reason that its switch would be in vain.
    """
    obstacle = search.obstacle
    reason, fix = (obstacle.reason, obstacle.fix) if obstacle is not None else ("", _MOVE_FIRST)
    switched, tried = search.switched(), {entry.node.name for entry in search.end.nodes}
    for name in sorted(entry.node.name for entry in begin.nodes if entry.node.name not in switched):
        reference = f"Node//{name}"
        own = obstacles.get(reference)
        if own is not None:
            yield Held(object=reference, reason=own.own_reason, fix=own.fix)
        elif name not in tried:
            yield Held(object=reference, reason=in_vain.get(name, NO_USER), fix=_MOVE_FIRST)
        else:
            text = reason if reference in obstacles else _NOT_TRIED.format(reason)
            yield Held(object=reference, reason=text, fix=fix)
    for namespace in dict.fromkeys(part.namespace for part in search.end.parts):
        reference = f"Namespace//{namespace}"
        own = obstacles.get(reference)
        if own is None:
            yield Held(object=reference, reason=reason, fix=fix)
        else:
            yield Held(object=reference, reason=own.reason, fix=own.fix or fix)
