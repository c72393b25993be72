"""The waves of a migration: nodes and namespaces that fit at every moment. Pure.

A wave fits if all pods have devices while its nodes are drained, and when its nodes have DRA drivers
and its namespaces are opted in. Pods that have no devices before the first wave count for nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from cli.answers.assessment.assess import AssessedCluster
from cli.answers.assessment.outcomes import AssessedWorkload, Outcome
from cli.answers.plan.evidence import Evidence
from cli.answers.plan.model import Held, PlannedNode, PlannedWorkload, Wave
from cli.answers.plan.placement import Placement, Placer, PodKey, Stage

_TRIED_ALONE = 32
"""Nodes that are tried one by one where the first ones do not fit."""
_SHOWN = 3
"""Objects that a reason names."""
_FREE_DEVICES = (
    "free devices for these pods first: scale down, add a node, or wait for Jobs to end; then plan again "
    "from a new snapshot"
)
_KEEP_LESS = "plan with a lower --keep-free, or free devices first"


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A node that can be switched, and what has to be known of it."""

    node: PlannedNode
    notes: tuple[str, ...]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of waves.

    Attributes:
        wave_nodes: The most nodes of a wave.
        keep_free: Percentage of devices that stay without a consumer.
    """

    wave_nodes: int
    keep_free: int


class Waves(msgspec.Struct, frozen=True, kw_only=True):
    """The waves, and what has none."""

    waves: tuple[Wave, ...]
    held: tuple[Held, ...]


class _Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A wave that fits."""

    nodes: tuple[Candidate, ...]
    namespaces: tuple[str, ...]
    after: Placement


class Planner:
    """Takes nodes and namespaces from what is left, wave by wave."""

    def __init__(
        self,
        cluster: AssessedCluster,
        evidence: Evidence,
        live_nodes: Mapping[str, Sequence[str]],
        placer: Placer,
        policy: Policy,
    ) -> None:
        """Prepare the planner.

        Args:
            cluster: With the inventory of all nodes.
            evidence: The pods and budgets.
            live_nodes: Workload to the nodes of its pods, in the order of their numbers.
            placer: Places the pods.
            policy: The sizes of waves.
        """
        self._workloads = cluster.workloads
        self._evidence = evidence
        self._placer = placer
        self._policy = policy
        self._located = {
            PodKey(reference, number): node
            for reference, nodes in live_nodes.items()
            for number, node in enumerate(nodes)
            if node
        }
        self._pending_before: frozenset[PodKey] = frozenset()
        self._reason = self._fix = ""

    def plan(
        self,
        candidates: Sequence[Candidate],
        namespaces: Sequence[str],
        start: Stage,
        progress: Callable[[int], None],
    ) -> Waves:
        """Return the waves.

        Args:
            candidates: Nodes to be switched.
            namespaces: To be opted in.
            start: What is switched and opted in already.
            progress: Called with the number of nodes that have a wave.
        """
        labels = {entry.node.name: entry.node.labels for entry in candidates}
        stage = msgspec.structs.replace(start, labels={**start.labels, **labels})
        before = self._placer.place(stage, self._located)
        self._pending_before = before.unplaced
        self._located = dict(before.nodes)
        remaining, pending = list(candidates), self._in_order(namespaces)
        total = len(remaining)
        waves: list[Wave] = []
        while remaining or pending:
            attempt = self._next(stage, remaining, pending)
            if attempt is None:
                break
            waves.append(self._wave(len(waves) + 1, attempt, before, remaining))
            names = {entry.node.name for entry in attempt.nodes}
            remaining = [entry for entry in remaining if entry.node.name not in names]
            pending = [name for name in pending if name not in attempt.namespaces]
            stage = msgspec.structs.replace(
                stage,
                switched=stage.switched | names,
                opted_in=stage.opted_in | set(attempt.namespaces),
            )
            before = attempt.after
            self._located = dict(before.nodes)
            progress(total - len(remaining))
        return Waves(waves=tuple(waves), held=tuple(self._unplanned(remaining, pending)))

    def misfit(self, stage: Stage, draining: frozenset[str]) -> str:
        """Explain why pods find no devices while nodes are drained; empty where all do."""
        before = self._placer.place(stage, self._located)
        self._pending_before = before.unplaced
        during = self._placer.place(
            msgspec.structs.replace(stage, draining=draining), {**self._located, **before.nodes}
        )
        is_fit = self._fits(during, f"while draining {_join_names(sorted(draining))}")
        return "" if is_fit else self._reason

    def _in_order(self, namespaces: Sequence[str]) -> list[str]:
        """Return the namespaces with the fewest pods that get claims first."""
        pods = Counter[str]()
        for workload in self._workloads:
            if workload.outcome is not Outcome.NATIVE:
                pods[workload.key.namespace] += workload.pods
        return sorted(namespaces, key=lambda name: (pods[name], name))

    def _next(
        self,
        stage: Stage,
        remaining: Sequence[Candidate],
        pending: Sequence[str],
    ) -> _Attempt | None:
        """Return the largest wave that fits; the reason of the last that does not is kept."""
        self._reason = self._fix = ""
        if not remaining:
            return self._try(stage, (), pending, len(pending))
        occupied = Counter(self._located.values())
        ordered = sorted(remaining, key=lambda entry: (occupied[entry.node.name], entry.node.name))
        size = too_large = min(self._policy.wave_nodes, len(ordered))
        attempt = self._try_size(stage, ordered, size, pending)
        while attempt is None and size > 1:
            size, too_large = size // 2, size
            attempt = self._try_size(stage, ordered, size, pending)
        while attempt is not None and too_large - size > 1:
            middle = (size + too_large) // 2
            larger = self._try_size(stage, ordered, middle, pending)
            if larger is None:
                too_large = middle
            else:
                attempt, size = larger, middle
        return attempt

    def _try_size(
        self, stage: Stage, ordered: Sequence[Candidate], size: int, pending: Sequence[str]
    ) -> _Attempt | None:
        """Return the wave of the first nodes; where a single one does not fit, that of another one."""
        share = _share(len(pending), size, len(ordered))
        for first in range(min(len(ordered), _TRIED_ALONE) if size == 1 else 1):
            attempt = self._try(stage, tuple(ordered[first : first + size]), pending, share)
            if attempt is not None:
                return attempt
        return None

    def _try(
        self, stage: Stage, nodes: tuple[Candidate, ...], pending: Sequence[str], share: int
    ) -> _Attempt | None:
        """Return the wave of some nodes with as many namespaces as its share, or as fit."""
        names = frozenset(entry.node.name for entry in nodes)
        located: Mapping[PodKey, str] = self._located
        if nodes:
            during = self._placer.place(
                msgspec.structs.replace(stage, draining=names), self._located
            )
            if not self._fits(during, f"while draining {_join_names(sorted(names))}"):
                return None
            located = {**self._located, **during.nodes}
        switched = msgspec.structs.replace(stage, switched=stage.switched | names)
        for number in _numbers(share, len(pending)):
            if not (nodes or number):
                continue
            chosen = tuple(pending[:number])
            after = self._placer.place(
                msgspec.structs.replace(switched, opted_in=stage.opted_in | set(chosen)), located
            )
            what = f" and {_join_names(chosen)} opted in" if chosen else ""
            if self._fits(
                after, f"with {_join_names(sorted(names)) or 'all nodes'} switched{what}"
            ):
                return _Attempt(nodes=nodes, namespaces=chosen, after=after)
        return None

    def _fits(self, placement: Placement, moment: str) -> bool:
        missing = placement.unplaced - self._pending_before
        if missing:
            workloads = Counter(key.workload for key in missing)
            texts = [f"{count} of {name}" for name, count in sorted(workloads.items())]
            pods = "1 pod has" if len(missing) == 1 else f"{len(missing)} pods have"
            self._reason = f"{moment}, {pods} no devices: {_join_names(texts)}"
            self._fix = _FREE_DEVICES
            return False
        minimum = -(-placement.devices * self._policy.keep_free // 100)
        if placement.free < minimum:
            self._reason = (
                f"{moment}, {placement.free} of {placement.devices} devices are free, and "
                f"--keep-free {self._policy.keep_free} asks for {minimum}"
            )
            self._fix = _KEEP_LESS
            return False
        return True

    def _wave(
        self, number: int, attempt: _Attempt, before: Placement, remaining: Sequence[Candidate]
    ) -> Wave:
        nodes = tuple(entry.node for entry in attempt.nodes)
        names = {node.name for node in nodes}
        is_split = 0 < len(nodes) < min(self._policy.wave_nodes, len(remaining))
        return Wave(
            wave=number,
            nodes=nodes,
            namespaces=attempt.namespaces,
            workloads=tuple(_planned(self._workloads, attempt.namespaces)),
            moved_pods=sum(node in names for node in self._located.values()),
            free_before=before.free,
            free_after=attempt.after.free,
            split=is_split,
            notes=tuple(
                dict.fromkeys(
                    (
                        *((self._reason,) if is_split and self._reason else ()),
                        *(note for entry in attempt.nodes for note in entry.notes),
                    )
                )
            ),
        )

    def _unplanned(self, remaining: Sequence[Candidate], pending: Sequence[str]) -> Iterator[Held]:
        for entry in sorted(remaining, key=lambda entry: entry.node.name):
            yield Held(object=f"Node//{entry.node.name}", reason=self._reason, fix=self._fix)
        for name in pending:
            yield Held(object=f"Namespace//{name}", reason=self._reason, fix=self._fix)


def _share(namespaces: int, size: int, nodes: int) -> int:
    """Return how many namespaces a wave should opt in.

    The last wave should have none: pods that are not opted in fit no switched node, so as long as there
    are such pods the last nodes of their system cannot be drained together.

    Args:
        namespaces: That are not opted in.
        size: Nodes of this wave, and of each wave after it but the last.
        nodes: That are not switched, those of this wave among them.

    >>> [_share(12, 14, nodes) for nodes in (40, 26, 14, 12)]
    [6, 12, 12, 12]
    """
    left = nodes - size
    if left <= 0:
        return namespaces
    of_last_wave = (left - 1) % size + 1
    return -(-namespaces * size // (nodes - of_last_wave))


def _numbers(share: int, most: int) -> Iterator[int]:
    """Yield how many namespaces are tried: the share, more up to all, then fewer.

    >>> list(_numbers(2, 6)), list(_numbers(0, 0))
    ([2, 3, 5, 6, 1, 0], [0])
    """
    yield share
    step, number = 1, share
    while number < most:
        number = min(number + step, most)
        yield number
        step *= 2
    step, number = 1, share
    while number > 0:
        number = max(number - step, 0)
        yield number
        step *= 2


def _planned(
    workloads: Iterable[AssessedWorkload], namespaces: Sequence[str]
) -> Iterator[PlannedWorkload]:
    for workload in workloads:
        if workload.key.namespace in namespaces and workload.result is not None:
            yield PlannedWorkload(
                object=workload.key.reference,
                pods=workload.pods,
                outcome=workload.outcome.value,
            )


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
