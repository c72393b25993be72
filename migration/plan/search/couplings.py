"""The waves that a migration should not pause after, each with the reasons and the wave that ends them. Pure.

All pods have devices between such waves, too. But something is half done: nodes that nobody may use yet, a namespace in
two systems, pods that get no devices again if they end, or workloads without pods whose next ones would get none.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from findings.text import join_names
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.plan.model.plan import Wave
from migration.plan.stage.stage import Stage


class IdleWorkload(NamedTuple):
    """A workload that starts pods later, as a CronJob does, and that moves with its whole namespace alone.

    Attributes:
        workload: It, as `Kind/namespace/name`.
        nodes: The nodes that would serve its pods by their device keys.
    """

    workload: str
    namespace: str
    nodes: frozenset[str]

    def gap(self, waves: Sequence[tuple[Collection[str], Collection[str]]]) -> tuple[int, int]:
        """Return the number of the wave that leaves it no node, and that of the wave that gives its pods claims.

        The latter is 0 without such a wave; both are where it has nodes until then.

        Args:
            waves: The nodes that each wave switches, and the namespaces that it opts in.
        """
        left = set(self.nodes)
        first = 0
        for number, (nodes, namespaces) in enumerate(waves, start=1):
            left.difference_update(nodes)
            if not left and not first:
                first = number
            if self.namespace in namespaces:
                return (first, number) if 0 < first < number else (0, 0)
        return first, 0


def idle_workloads(
    workloads: Iterable[AssessedWorkload],
    stage: Stage,
    serving: Callable[[AssessedWorkload], frozenset[str]],
) -> Iterator[IdleWorkload]:
    """Yield the CronJobs and suspended Jobs that have no claims yet, and are to get some.

    Args:
        workloads: The cluster's workloads.
        stage: The nodes and namespaces that have moved.
        serving: A function that returns the nodes with devices for a workload.
    """
    for workload in workloads:
        key = workload.key
        gets_claims = workload.result is not None and workload.outcome is not Outcome.NATIVE
        starts_later = key.kind == "CronJob" or workload.suspended
        if gets_claims and starts_later and not stage.has_moved(workload):
            nodes = serving(workload) - stage.switched
            if nodes:
                yield IdleWorkload(key.reference, key.namespace, nodes)


class Coupling(NamedTuple):
    """Something that is half done from a wave on until another one.

    Attributes:
        first: The wave that begins it.
        last: The wave that ends it.
        reason: The reason, with the last wave.
    """

    first: int
    last: int
    reason: str


def with_couplings(
    waves: Sequence[Wave],
    serving: Mapping[str, frozenset[str]],
    in_use: Collection[str],
    idle: Iterable[IdleWorkload] = (),
    opted_in: Mapping[str, Sequence[str]] = {},
) -> tuple[Wave, ...]:
    """Return waves with a note on each that a migration should not pause after.

    Args:
        waves: All waves, in their order.
        serving: Workload, as `Kind/namespace/name`, to the nodes with devices for its claims.
        in_use: Nodes that pods may use as soon as they are switched, whatever the waves opt in.
        idle: The workloads that start pods later.
        opted_in: DaemonSet that is opted in before the first wave, as `Kind/namespace/name`, to the nodes with a device
            plugin and pods of it.
    """
    couplings = (
        *_namespaces_in_parts(waves),
        *_unused_nodes(waves, serving, in_use),
        *_waiting_pods(waves, opted_in),
        *_waiting_runs(waves, idle),
    )
    return tuple(
        _coupled(wave, [entry for entry in couplings if entry.first <= wave.wave < entry.last])
        for wave in waves
    )


def _coupled(wave: Wave, couplings: Sequence[Coupling]) -> Wave:
    """Return a wave with the couplings that are half done after it."""
    if not couplings:
        return wave
    reasons = "; ".join(dict.fromkeys(entry.reason for entry in couplings))
    return msgspec.structs.replace(
        wave,
        coupled_until=max(entry.last for entry in couplings),
        notes=(f"no place to pause after it: {reasons}", *wave.notes),
    )


def _namespaces_in_parts(waves: Sequence[Wave]) -> Iterator[Coupling]:
    """Yield the namespaces that move in parts, and are opted in as a whole in the end."""
    for last in waves:
        for namespace in last.namespaces:
            parts = [
                wave.wave
                for wave in waves[: last.wave]
                if any(entry.namespace == namespace for entry in wave.partial_namespaces)
            ]
            if parts:
                reason = f"Namespace/{namespace} is in two systems until wave {last.wave}"
                yield Coupling(parts[0], last.wave, reason)


def _unused_nodes(
    waves: Sequence[Wave], serving: Mapping[str, frozenset[str]], in_use: Collection[str]
) -> Iterator[Coupling]:
    """Yield the nodes that are switched before any workload that they serve gets claims."""
    first_use: dict[str, Wave] = {}
    for wave in waves:
        for workload in wave.workloads:
            if workload.is_translated and workload.pods:
                for name in serving.get(workload.object, ()):
                    first_use.setdefault(name, wave)
    for wave in waves:
        nodes: dict[int, list[str]] = {}
        for node in wave.nodes:
            user = first_use.get(node.name)
            if user is not None and user.wave > wave.wave and node.name not in in_use:
                nodes.setdefault(user.wave, []).append(node.name)
        for number, names in nodes.items():
            reason = f"no pod may use {join_names(names)} until wave {number} gives some claims"
            yield Coupling(wave.wave, number, reason)


def _waiting_pods(
    waves: Sequence[Wave], opted_in: Mapping[str, Sequence[str]]
) -> Iterator[Coupling]:
    """Yield the DaemonSets that are opted in before all their nodes are switched."""
    wave_of = {node.name: wave.wave for wave in waves for node in wave.nodes}
    waiting = [(1, reference, nodes) for reference, nodes in opted_in.items()]
    waiting += [
        (wave.wave, workload.object, workload.waiting)
        for wave in waves
        for workload in wave.workloads
    ]
    for first, reference, nodes in waiting:
        later = [name for name in nodes if wave_of.get(name, 0) > first]
        if later:
            last = max(wave_of[name] for name in later)
            reason = (
                f"a pod of {reference} that ends on {join_names(later)} gets no devices before the node is switched, "
                f"until wave {last}"
            )
            yield Coupling(first, last, reason)


def _waiting_runs(waves: Sequence[Wave], idle: Iterable[IdleWorkload]) -> Iterator[Coupling]:
    """Yield the workloads that have no node for their next pods until their namespace is opted in."""
    moves = [({node.name for node in wave.nodes}, wave.namespaces) for wave in waves]
    names: dict[tuple[int, int], list[str]] = {}
    for entry in idle:
        names.setdefault(entry.gap(moves), []).append(entry.workload)
    for (first, last), own in names.items():
        if last:
            reason = f"the next pods of {join_names(own)} find no node with devices until wave {last} opts their namespace in"
            yield Coupling(first, last, reason)
