"""The waves that a migration should not pause after, each with the reasons and the wave that ends them. Pure.

All pods have devices between such waves, too. But something is half done: nodes that nobody may use yet, a namespace in
two systems, or pods that get no devices again if they end.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from findings.text import join_names
from migration.plan.model.plan import Wave


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
    waves: Sequence[Wave], serving: Mapping[str, frozenset[str]], in_use: Collection[str]
) -> tuple[Wave, ...]:
    """Return waves with a note on each that a migration should not pause after.

    Args:
        waves: All waves, in their order.
        serving: Workload, as `Kind/namespace/name`, to the nodes with devices for its claims.
        in_use: Nodes that pods may use as soon as they are switched, whatever the waves opt in.
    """
    couplings = (
        *_namespaces_in_parts(waves),
        *_unused_nodes(waves, serving, in_use),
        *_waiting_pods(waves),
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


def _waiting_pods(waves: Sequence[Wave]) -> Iterator[Coupling]:
    """Yield the DaemonSets in a namespace that is opted in before all their nodes are switched."""
    wave_of = {node.name: wave.wave for wave in waves for node in wave.nodes}
    for wave in waves:
        for workload in wave.workloads:
            nodes = [name for name in workload.waiting if name in wave_of]
            last = max((wave_of[name] for name in nodes), default=0)
            if last > wave.wave:
                reason = (
                    f"a pod of {workload.object} that ends on {join_names(nodes)} gets no devices before the node is "
                    f"switched, until wave {last}"
                )
                yield Coupling(wave.wave, last, reason)
