"""The state of a cluster between two waves, and the waves that are tried from there, as values. Pure."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

import msgspec

from findings.text import join_names
from migration.plan.facts.taken_back import TakenBack
from migration.plan.model.parts import AwaitedNodes, Part
from migration.plan.model.plan import PlannedNode
from migration.plan.search.couplings import IdleWorkload
from migration.plan.stage.stage import PodKey, Stage
from migration.plan.stage.stage_allocator import Placement


class PlanProgress(Protocol):
    """Follows the search for waves, and may end it."""

    def expect(self, total: int) -> None:
        """Take the number of nodes that get a wave at best."""

    def __call__(self, done_count: int) -> None:
        """Take the number of nodes that have a wave."""

    def stops(self) -> bool:
        """Return True if the search is to end with the waves that there are."""


class NodeWork(NamedTuple):
    """A pod that a script waits for before it drains its node.

    Attributes:
        pod: The pod; None for one without devices.
        never_ends: It does not end by itself.
        since: The time at which it began, in RFC 3339; empty if it is not known.
        group: The workload that loses work with each of its pods, as a training; empty without one.
    """

    pod: PodKey | None
    never_ends: bool
    since: str
    group: str = ""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A node that can be switched, and the facts that its switch depends on.

    Attributes:
        work: The pods that a script waits for.
    """

    node: PlannedNode
    notes: tuple[str, ...]
    work: tuple[NodeWork, ...] = ()

    @property
    def has_work(self) -> bool:
        """Return True if a script waits for a pod of it, so that it comes last."""
        return bool(self.work)

    @property
    def never_ends(self) -> bool:
        """Return True if such a pod does not end by itself, so that it comes after the others with work."""
        return any(entry.never_ends for entry in self.work)

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the workloads that lose work with each of their pods, so that their nodes come together."""
        return tuple(sorted({entry.group for entry in self.work if entry.group}))

    @property
    def works_since(self) -> str:
        """Return the start of the oldest of these pods, in RFC 3339; empty if unknown."""
        return min((entry.since for entry in self.work), default="")

    def following(self, before: Placement, after: Placement) -> "Candidate":
        """Return the node without the pods that a wave has taken from it, by a restart of their workload."""
        name = self.node.name
        work = tuple(
            entry
            for entry in self.work
            if entry.pod is None
            or before.nodes.get(entry.pod) != name
            or after.nodes.get(entry.pod, name) == name
        )
        return self if work == self.work else msgspec.structs.replace(self, work=work)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of waves.

    Attributes:
        wave_nodes: The most nodes of a wave.
        keep_free: Percentage of devices that stay without a consumer.
        spare_nodes: Nodes that may be lost after a wave, of those with device plugins and of those with
            DRA drivers, the largest ones of all and of each group; no more pods lack devices then than today.
        notes_loss: A wave after which one node cannot be lost has a note. Such waves come after others, where that
            makes none wait for work.
        leaves_work: Nodes with work have no wave.
        leaves_endless: Nodes with a pod that does not end by itself have no wave.
    """

    wave_nodes: int
    keep_free: int
    spare_nodes: int = 0
    notes_loss: bool = False
    leaves_work: bool = False
    leaves_endless: bool = False

    @property
    def tried_losses(self) -> int:
        """Return the number of nodes of a side that are lost together, as a trial after each wave."""
        return with_spare(self).spare_nodes if self.notes_loss else self.spare_nodes

    @property
    def leaves_nodes(self) -> bool:
        """Return True if some nodes are left without a wave."""
        return self.leaves_work or self.leaves_endless

    def leaves_nothing(self, nodes: Sequence[Candidate]) -> bool:
        """Return True if there are none of the nodes that are to be left, so that the next policy is the same."""
        if self.leaves_work:
            return not any(entry.has_work for entry in nodes)
        return self.leaves_endless and not any(entry.never_ends for entry in nodes)


def with_spare(policy: Policy) -> Policy:
    """Return a policy that keeps a node to spare in each wave, in place of a note."""
    return msgspec.structs.replace(policy, spare_nodes=1, notes_loss=False)


def policies_in_order(policy: Policy) -> tuple[Policy, ...]:
    """Return the policies to search by, with a node to spare and without, for all nodes last."""
    pair = (with_spare(policy), policy)
    left: tuple[dict[str, bool], ...] = ({"leaves_work": True}, {"leaves_endless": True}, {})
    return tuple(msgspec.structs.replace(entry, **flags) for flags in left for entry in pair)


def without_spare(policy: Policy) -> Policy:
    """Return the policy that `with_spare` was made of."""
    return msgspec.structs.replace(policy, spare_nodes=0, notes_loss=True)


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """The reason nodes and namespaces do not fit.

    Attributes:
        moment: The description of the moment, with `{}` for the nodes.
        problem: The problem at that moment.
        stage: The stage of the placement that leaves pods without devices; None for another problem.
        before: The places of the pods before that placement.
        missing: The pods without devices, where no pods that wait have some in their place.
    """

    moment: str
    nodes: tuple[str, ...]
    problem: str
    fix: str
    missing: frozenset[PodKey] = frozenset()
    stage: Stage | None = None
    before: Placement | None = None

    @property
    def reason(self) -> str:
        """Return the reason with the first nodes."""
        return f"{self.moment.format(join_names(self.nodes) or 'all nodes')}, {self.problem}"

    @property
    def own_reason(self) -> str:
        """Return the reason of a node that was tried alone; of nodes with equal reasons the texts are equal."""
        return f"{self.moment.format('this node only')}, {self.problem}"

    @property
    def note(self) -> str:
        """Return the reason with all nodes, for a wave that has fewer."""
        return f"no larger: {self.moment.format(', '.join(self.nodes))}, {self.problem}"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A wave that fits.

    Attributes:
        obstacles: The reasons why it has no more nodes, each with the fewest nodes that do not fit.
        during: The placement while its nodes are drained; None without nodes.
        without_spare: The sides, device plugins or DRA drivers, that cannot lose a node after the
            wave.
        order_reason: The reason that its other nodes are left to later waves, though they might fit; empty without one.
        part_reasons: Namespace that moves in part to the reason that no more of it does.
        spread_note: A note on a wave that fits only where pods are packed; empty for another one.
        early_note: A note on a wave with work that later waves need no end of; empty for another one.
    """

    nodes: tuple[Candidate, ...]
    parts: tuple[Part, ...]
    after: Placement
    obstacles: tuple[Obstacle, ...] = ()
    during: Placement | None = None
    without_spare: tuple[str, ...] = ()
    order_reason: str = ""
    part_reasons: Mapping[str, str] = {}
    spread_note: str = ""
    early_note: str = ""

    def drained(self, before: Placement) -> Placement:
        """Return the places of the pods once its nodes are drained."""
        return self.during.after(before) if self.during is not None else before


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a cluster between two waves.

    Attributes:
        pending: Pods without devices from the beginning, which count for nothing.
        nodes: Not switched yet.
        parts: The parts without claims so far.
        serving: Workload, as `Kind/namespace/name`, to the nodes with devices for its claims; and namespace to those
            of all its workloads.
        usable: Workload to the nodes that its pods may use, be it by claims or by device keys.
        awaited: Namespace to the nodes that it waits for before it is opted in as a whole.
        idle: The workloads that start pods later.
        staying: Workload to the nodes of its pods without claims yet that stay with their device plugin.
        closed_reasons: Node that is held and takes no pods to the reason.
        taken_back: The systems that take back changes of workloads.
    """

    stage: Stage
    placement: Placement
    pending: frozenset[PodKey]
    nodes: tuple[Candidate, ...]
    parts: tuple[Part, ...]
    serving: Mapping[str, frozenset[str]] = {}
    usable: Mapping[str, frozenset[str]] = {}
    awaited: Mapping[str, Sequence[AwaitedNodes]] = {}
    idle: tuple[IdleWorkload, ...] = ()
    staying: Mapping[str, Collection[str]] = {}
    closed_reasons: Mapping[str, str] = {}
    taken_back: TakenBack = TakenBack()

    def awaiting(self, part: Part, nodes: frozenset[str]) -> tuple[AwaitedNodes, ...]:
        """Return the nodes that a part has to wait for, though some nodes are switched as well."""
        return tuple(
            entry
            for entry in self.awaited.get(part.namespace, ())
            if entry.is_for(part)
            and entry.nodes.isdisjoint(self.stage.switched)
            and entry.nodes.isdisjoint(nodes)
        )

    def serving_nodes(self, part: Part) -> frozenset[str]:
        """Return the nodes with devices for the claims of a part; none if its pods get no claims."""
        nothing = frozenset[str]()
        names = part.workloads or (part.namespace,)
        return nothing.union(*(self.serving.get(name, nothing) for name in names))

    def servable(
        self, nodes: frozenset[str], daemon_nodes: Mapping[str, frozenset[str]]
    ) -> Sequence[Part]:
        """Return the parts that some switched node would serve; nearly all of them once every node is switched.

        Namespaces whose pods get no claims are among them. Those with pods of DaemonSets always wait for a node: one that
        ended would get nothing on its node any more.

        Args:
            nodes: Nodes that are switched as well.
            daemon_nodes: Namespace to the nodes with pods of its DaemonSets that get claims.
        """
        switched = self.stage.switched | nodes
        return [
            part
            for part in self.parts
            if not (serving := self.serving_nodes(part))
            or serving & switched
            or (not self.nodes and part.namespace not in daemon_nodes)
        ]

    def stage_with(self, attempt: Attempt) -> Stage:
        """Return the stage after a wave."""
        names = {entry.node.name for entry in attempt.nodes}
        return stage_after(self.stage, names, attempt.parts)

    def following(self, attempt: Attempt) -> "Moment":
        """Return the state after a wave."""
        names = {entry.node.name for entry in attempt.nodes}
        return msgspec.structs.replace(
            self,
            stage=self.stage_with(attempt),
            placement=attempt.after,
            nodes=tuple(
                entry.following(self.placement, attempt.after)
                for entry in self.nodes
                if entry.node.name not in names
            ),
            parts=tuple(part for part in self.parts if part not in attempt.parts),
        )


class CheckedMoment(NamedTuple):
    """A moment that is checked: its description with `{}` for the nodes, its stage, and the places before it."""

    text: str
    nodes: frozenset[str]
    stage: Stage
    before: Placement


def stage_after(stage: Stage, nodes: frozenset[str] | set[str], parts: Sequence[Part]) -> Stage:
    """Return the stage with additional switched nodes, and additional parts with claims."""
    return msgspec.structs.replace(
        stage,
        switched=stage.switched | nodes,
        opted_in=stage.opted_in | {part.namespace for part in parts if part.completes},
        selected=stage.selected.union(*(part.workloads for part in parts)),
    )


def with_those_of(moment: Moment, waves: Sequence[tuple[Moment, Attempt]]) -> Moment:
    """Return a moment with the nodes and parts of some waves alone."""
    names = {entry.node.name for _, attempt in waves for entry in attempt.nodes}
    moving = {part for _, attempt in waves for part in attempt.parts}
    return msgspec.structs.replace(
        moment,
        nodes=tuple(entry for entry in moment.nodes if entry.node.name in names),
        parts=tuple(part for part in moment.parts if part in moving),
    )


def with_left(moment: Moment, end: Moment) -> Moment:
    """Return a moment with the nodes and parts that no wave has."""
    return msgspec.structs.replace(
        moment, nodes=(*moment.nodes, *end.nodes), parts=(*moment.parts, *end.parts)
    )


def nodes_in_order(moment: Moment, bound: Collection[str]) -> list[Candidate]:
    """Return the nodes in the order of their waves: with few pods first, with work that has to end last.

    Args:
        moment: The moment before a wave.
        bound: The nodes with a DaemonSet's pod that has to have claims before.
    """
    occupied = Counter(moment.placement.nodes.values())
    return sorted(
        moment.nodes,
        key=lambda entry: (
            *(entry.has_work, entry.never_ends),
            *(not entry.groups, entry.groups),
            entry.node.name in bound,
            occupied[entry.node.name],
            entry.node.name,
        ),
    )


def rounds(ordered: Sequence[Candidate], policy: Policy) -> Iterator[list[Candidate]]:
    """Yield the nodes to make a wave of, until one fits: without work, with work that ends, with other work, mixed ones.

    What is switched or opted in beside a node with work would wait for that.
    """
    busy = [entry for entry in ordered if entry.has_work and not policy.leaves_work]
    groups = [
        [entry for entry in ordered if not entry.has_work],
        [entry for entry in busy if not entry.never_ends],
        [entry for entry in busy if entry.never_ends and not policy.leaves_endless],
    ]
    groups = [nodes for nodes in groups if nodes]
    yield from groups
    for number in range(2, len(groups) + 1):
        yield list(chain.from_iterable(groups[:number]))
