"""A cluster's inventory and its use, kept as it changes, and asked as a whole.

What is published and what is held are values; this is the one place where they are replaced. A
change costs what changed: an allocation touches the nodes of its pools, a local slice its node.
A question costs one search per class of nodes that was not asked the same before.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

import msgspec

from allocator import nodeclass
from allocator.core import pools
from allocator.core.model import (
    Asked,
    Budget,
    Choice,
    NodeDevices,
    Plan,
    Pool,
    PoolId,
    PoolUse,
    Usage,
)
from allocator.core.outcome import AttemptFailed, GaveUp, Unfit
from allocator.core.problem import Rules
from allocator.core.requests import asked as flat
from allocator.core.search import DEFAULT_BUDGET, allocate
from allocator.core.usage import gathered, with_claim, without_claim
from allocator.nodeclass import Lens, Line
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.strategy import Strategy
from kube.api.core import Node
from kube.api.meta import encode
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice

Outcome = Plan | Unfit | GaveUp

_Kind = tuple[int, int, int]
"""Numbers for what is published of a node, how it is used, and what is seen of it."""

_LENSES: Final = 64
_VERDICTS: Final = 1 << 16
_LOOKS: Final = 1 << 16
_LOOKS_PER_NODE: Final = 256
"""Looks that are numbered, beside `_LOOKS`; more than a node has through all lenses."""
_NOTHING: Final[PoolUse] = {}


class ClassVerdict(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One outcome and the nodes that it holds for.

    Attributes:
        outcome: A plan names the devices of `example`.
        score: 0 to 100, of the strategy; 0 where the claims do not fit.
        example: The node that was searched.
        nodes: All nodes of the class, by name.
        is_theirs: The plan is theirs, too, by position; otherwise that of a node with the same
            devices in another order, and theirs has to be searched.
    """

    outcome: Outcome
    score: int
    example: NodeDevices
    nodes: tuple[str, ...]
    is_theirs: bool = True


class Verdicts(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Of every node, whether the claims fit; good until the cluster changes.

    Attributes:
        looks: From a lens to what tells nodes apart through it, by their names; needed where a
            class has several.
        search: The outcome of one node; needed where a plan is another's.
    """

    classes: tuple[ClassVerdict, ...]
    devices: Mapping[str, NodeDevices]
    looks: Callable[[Lens], Mapping[str, Hashable]] = lambda _through: {}
    search: Callable[[str], Outcome] | None = None

    def __iter__(self) -> Iterator[tuple[str, Outcome, int]]:
        """Yield each node's name, outcome and score; nodes of one class together."""
        for each in self.classes:
            for node in each.nodes:
                yield node, each.outcome, each.score

    def plan(self, node: str) -> Plan | None:
        """Return which devices a node would give; None where the claims do not fit."""
        for each in self.classes:
            if node in each.nodes:
                outcome = each.outcome
                if not each.is_theirs and self.search is not None:
                    outcome = self.search(node)
                if not isinstance(outcome, Plan):
                    return None
                if not each.is_theirs:
                    return outcome
                return moved(outcome, each.example, self.devices[node])
        return None


def moved(plan: Plan, example: NodeDevices, node: NodeDevices) -> Plan:
    """Return the plan for another node of the same class: the same positions, its own devices."""
    if example is node:
        return plan

    def elsewhere(choice: Choice) -> Choice:
        position = example.positions[choice.device.id]
        return msgspec.structs.replace(choice, device=node.devices[position])

    choices = tuple([tuple([elsewhere(one) for one in claim]) for claim in plan.choices])
    return msgspec.structs.replace(plan, node=node.node, choices=choices)


class Cluster:
    """Inventory and usage of a cluster. Not for several threads at once.

    Attributes:
        usage: What all allocated claims hold; a value, replaced with every change.
        rules: Gates and policies in force.
    """

    def __init__(
        self,
        *,
        slices: Iterable[ResourceSlice],
        nodes: Iterable[Node],
        claims: Iterable[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        rules: Rules,
    ) -> None:
        self.rules = rules
        self.usage = gathered(claims, rules.features)
        self._classes = classes
        self._index = pools.index(slices, rules.features)
        self._nodes = {node.metadata.name: node for node in nodes}
        self._seats: dict[str, _Seat] = {}
        self._by_pool: dict[PoolId, dict[str, None]] = {}
        self._devices: dict[str, NodeDevices] = {}
        self._ids: dict[Hashable, int] = {}
        # Never begins anew, so that no number ever means two looks.
        self._numbers = count(1)
        self._uses: dict[tuple[int, int], tuple[Pool, PoolUse, int]] = {}
        self._partitions: dict[Hashable, _Partition] = {}
        self._verdicts: dict[Hashable, _Known] = {}
        for name in sorted(self._nodes):
            self._seat(name)

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name."""
        return self._nodes

    # --- questions -------------------------------------------------------------------------------

    def node_devices(self, node: str) -> NodeDevices:
        """Return what a node can be given; KeyError when there is no such node.

        That is nothing where a slice cannot be judged; who asks for a verdict is told of that.
        """
        return self._devices[node]

    def ask(self, claims: Sequence[ResourceClaim]) -> Asked:
        """Return claims ready for the search.

        Raises:
            AttemptFailed: They can be met nowhere: a class is missing, a gate is off.
        """
        return flat(claims, self._classes, self.rules.features)

    def verdict(
        self,
        asked: Asked,
        node: str,
        *,
        strategy: Strategy = FIRST_FIT,
        budget: Budget = DEFAULT_BUDGET,
    ) -> Outcome:
        """Return the outcome of one node, with its own devices.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        unreadable = self._seats[node].unreadable
        if unreadable is not None:
            raise unreadable
        devices = self._devices[node]
        order = strategy.order(devices, self.usage, asked)
        return allocate(devices, asked, self.usage, self.rules, budget=budget, order=order)

    def verdicts(
        self,
        asked: Asked,
        *,
        strategy: Strategy = FIRST_FIT,
        budget: Budget = DEFAULT_BUDGET,
        nodes: Collection[str] | None = None,
    ) -> Verdicts:
        """Return the outcome of every node, searched once per class of nodes.

        Args:
            nodes: Only these; None for all.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        found = self.searched(asked, strategy=strategy, budget=budget, nodes=nodes)
        return Verdicts(
            classes=tuple(found),
            devices=self._devices,
            looks=self.looks,
            search=lambda node: self.verdict(asked, node, strategy=strategy, budget=budget),
        )

    def searched(
        self,
        asked: Asked,
        *,
        strategy: Strategy = FIRST_FIT,
        budget: Budget = DEFAULT_BUDGET,
        nodes: Collection[str] | None = None,
    ) -> Iterator[ClassVerdict]:
        """Yield the outcome of each class of nodes, searched only when it is asked for.

        The cluster must not change meanwhile.

        Args:
            nodes: Only these; None for all.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        through = nodeclass.lens(asked, strategy.places, weighs=strategy.weighs)
        partition = self._partition(through)
        question = (_signature(asked), strategy.name, budget.steps)
        is_plain = strategy is FIRST_FIT and nodeclass.is_plain(asked)
        wanted = None if nodes is None else frozenset(nodes)
        for kind, members in partition.members.items():
            names = tuple(members) if wanted is None else tuple(wanted.intersection(members))
            if not names:
                continue
            crowd = self._crowd(partition, kind, names[0], through) if is_plain else None
            known = self._verdicts.get((question, kind)) or (
                self._verdicts.get((question, crowd)) if crowd is not None else None
            )
            if known is None:
                outcome = self.verdict(asked, names[0], strategy=strategy, budget=budget)
                devices, score = self._devices[names[0]], 0
                if isinstance(outcome, Plan):
                    score = strategy.score(devices, self.usage, outcome)
                known = _Known(outcome, score, devices, kind)
                self._remember((question, kind), known)
                if crowd is not None and not isinstance(known.outcome, GaveUp):
                    self._remember((question, crowd), known)
            is_theirs = known.kind == kind
            example = known.example if is_theirs else self._devices[names[0]]
            yield ClassVerdict(
                outcome=known.outcome,
                score=known.score,
                example=example,
                nodes=names,
                is_theirs=is_theirs,
            )

    def alike(self, through: Lens) -> Iterator[tuple[NodeDevices, int]]:
        """Yield one node of each class that a lens tells apart, and how many are of the class."""
        for members in self._partition(through).members.values():
            yield self._devices[next(iter(members))], len(members)

    def looks(self, through: Lens) -> Mapping[str, Hashable]:
        """Return of each node what is equal where a lens shows no difference."""
        return self._partition(through).class_of

    def examples(self, through: Lens, nodes: Collection[str] | None = None) -> list[NodeDevices]:
        """Return the first node by name of each class that a lens tells apart, by name.

        Args:
            nodes: Only these; None for all.
        """
        wanted = None if nodes is None else frozenset(nodes)
        every = (
            members.keys() if wanted is None else wanted.intersection(members)
            for members in self._partition(through).members.values()
        )
        return [self._devices[name] for name in sorted(min(names) for names in every if names)]

    def reached(self, pool: PoolId) -> Pool | None:
        """Return a pool as the first node sees it that sees it at all; None when none does."""
        for name in self._by_pool.get(pool, ()):
            return next(one for one in self._devices[name].pools if one.id == pool)
        return None

    # --- changes ---------------------------------------------------------------------------------

    def allocate(self, claim: ResourceClaim) -> None:
        """Count what a claim's `status.allocation` holds."""
        self._change(claim, with_claim(self.usage, claim, self.rules.features))

    def release(self, claim: ResourceClaim) -> None:
        """Stop counting what a claim's `status.allocation` holds."""
        self._change(claim, without_claim(self.usage, claim, self.rules.features))

    def replace_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Take notice of a slice that came, changed or went.

        A pool may have slices on several nodes, and each of them looks at all: whether the pool is
        whole, and what is left of its counters.
        """
        changes = [one for one in (old, new) if one is not None]
        before, self._index = self._index, self._index.replaced(old, new)
        related = [
            each.slice.spec.node_name
            for index in (before, self._index)
            for pool in {PoolId(one.spec.driver, one.spec.pool.name) for one in changes}
            for each in index.by_pool.get(pool, ())
        ]
        changed = set(related) if all(related) else set(self._nodes)
        for name in sorted(name for name in changed if name in self._nodes):
            self._seat(name)

    def replace_node(self, name: str, node: Node | None) -> None:
        """Take notice of a node that came, changed or went."""
        if node is None:
            self._unseat(name)
            self._nodes.pop(name, None)
            return
        self._nodes[name] = node
        self._seat(name)

    # --- how it is kept --------------------------------------------------------------------------

    def _remember(self, question: Hashable, known: "_Known") -> None:
        if len(self._verdicts) >= _VERDICTS:
            self._verdicts.clear()
        self._verdicts[question] = known

    def _crowd(
        self, partition: "_Partition", kind: _Kind, node: str, through: Lens
    ) -> Hashable | None:
        """Return what nodes have in common that give the same verdict, but not the same devices."""
        crowd = partition.crowds.get(kind)
        if crowd is None:
            fixed, _, view = kind
            lined_up = partition.lines.get((fixed, view))
            if lined_up is None:
                lined_up = nodeclass.line(self._devices[node], through, self.rules) or ()
                partition.lines[fixed, view] = lined_up
            free = None
            if lined_up:
                free = nodeclass.free(lined_up, self._devices[node], self.usage)
            crowd = partition.crowds[kind] = 0 if free is None else self._id(("crowd", free))
        return crowd or None

    def _partition(self, through: Lens) -> "_Partition":
        self._forget()
        key = through.key
        partition = self._partitions.get(key)
        if partition is None:
            if len(self._partitions) >= _LENSES:
                self._partitions.pop(next(iter(self._partitions)))
            partition = self._partitions[key] = _Partition()
            partition.stale.update(self._seats)
        for name in partition.stale:
            seat = self._seats.get(name)
            if seat is None:
                partition.views.pop(name, None)
                partition.place(name, None)
                continue
            known = partition.views.get(name)
            if known is None or known[0] is not seat:
                view = self._id(nodeclass.seen(seat.devices, through))
                known = partition.views[name] = (seat, view)
            partition.place(name, (seat.fixed, seat.use, known[1]))
        partition.stale.clear()
        return partition

    def _seat(self, name: str) -> None:
        """Look at a node anew."""
        self._unseat(name)
        node, unreadable = self._nodes[name], None
        try:
            devices = pools.node_devices(self._index, node)
        except AttemptFailed as fault:
            # Whoever asks this node is told; others, and what needs no verdict, are not stopped.
            unreadable = fault
            devices = pools.node_devices(pools.index((), self.rules.features), node)
        self._devices[name] = devices
        for pool in devices.pools:
            self._by_pool.setdefault(pool.id, {})[name] = None
        look = nodeclass.fixed(devices, self.rules) if unreadable is None else str(unreadable)
        self._seats[name] = _Seat(devices, self._id(look), self._use_of(devices), unreadable)
        self._mark(name)

    def _unseat(self, name: str) -> None:
        devices = self._devices.pop(name, None)
        if devices is None:
            return
        del self._seats[name]
        for pool in devices.pools:
            del self._by_pool[pool.id][name]
        self._mark(name)

    def _change(self, claim: ResourceClaim, usage: Usage) -> None:
        """Put another usage in force, which differs in what one claim holds."""
        self._forget()
        before, self.usage = self.usage, usage
        allocation = claim.status.allocation if claim.status else None
        results = (allocation.devices.results if allocation else None) or ()
        touched = {PoolId(result.driver, result.pool) for result in results}
        changed = {pool for pool in touched if before.pools.get(pool) is not usage.pools.get(pool)}
        for name in {name for pool in changed for name in self._by_pool.get(pool, ())}:
            self._seats[name].use = self._use_of(self._devices[name])
            self._mark(name)

    def _use_of(self, devices: NodeDevices) -> int:
        """Return a number for how a node's devices are used; 0 when none is."""
        looks = []
        for number, pool in enumerate(devices.pools):
            held = self.usage.pools.get(pool.id)
            if held:
                looks.append((number, self._pool_use(pool, held)))
        return self._id(tuple(looks)) if looks else 0

    def _pool_use(self, pool: Pool, held: PoolUse) -> int:
        key = (id(pool), id(held))
        known = self._uses.get(key)
        if known is None:
            if len(self._uses) >= _VERDICTS:
                self._uses.clear()
            look = self._id(nodeclass.use(pool, held, self.rules))
            # Both are kept, so that their ids stay theirs.
            known = self._uses[key] = (pool, held, look)
        return known[2]

    def _mark(self, name: str) -> None:
        for partition in self._partitions.values():
            partition.stale.add(name)

    def _id(self, look: Hashable) -> int:
        number = self._ids.get(look)
        if number is None:
            number = self._ids[look] = next(self._numbers)
        return number

    def _forget(self) -> None:
        """Look at everything anew where more looks are numbered than nodes can have now.

        Each way to use a device is a look, and most of them never come back.
        """
        if len(self._ids) <= _LOOKS + _LOOKS_PER_NODE * len(self._nodes):
            return
        for known in (self._ids, self._uses, self._partitions, self._verdicts):
            known.clear()
        for name in sorted(self._nodes):
            self._seat(name)


class _Known(NamedTuple):
    """An outcome, the node that it was found on, and the class of that node."""

    outcome: Outcome
    score: int
    example: NodeDevices
    kind: _Kind


class _Seat:
    """What is known of a node: numbers that are equal where looks are.

    Attributes:
        unreadable: Why its devices cannot be told; None where they can.
    """

    def __init__(
        self, devices: NodeDevices, fixed: int, use: int, unreadable: AttemptFailed | None
    ) -> None:
        self.devices = devices
        self.fixed = fixed
        self.use = use
        self.unreadable = unreadable


class _Partition:
    """Nodes by class, for everything that looks through one lens.

    Attributes:
        members: Class to names of its nodes, in order of arrival.
        views: Node to a number for what is seen of its devices, while they stay the same.
        class_of: Node to its class.
        lines: Of what is published and seen, what counts where order does not; () for nothing.
        crowds: Class to a number for what is free, blind to places; 0 where they may count.
        stale: Nodes that changed since they were placed.
    """

    def __init__(self) -> None:
        self.members: dict[_Kind, dict[str, None]] = {}
        self.lines: dict[tuple[int, int], Line] = {}
        self.crowds: dict[_Kind, int] = {}
        self.views: dict[str, tuple[_Seat, int]] = {}
        self.stale: set[str] = set()
        self.class_of: dict[str, _Kind] = {}

    def place(self, name: str, kind: _Kind | None) -> None:
        """Put a node into a class; None when it is gone."""
        before = self.class_of.get(name)
        if before == kind:
            return
        if before is not None:
            del self.members[before][name]
            if not self.members[before]:
                del self.members[before]
                self.crowds.pop(before, None)
            del self.class_of[name]
        if kind is not None:
            self.members.setdefault(kind, {})[name] = None
            self.class_of[name] = kind


def _signature(asked: Asked) -> bytes:
    """Return all of the claims that a verdict depends on."""
    return encode([claim.spec.devices for claim in asked.claims])
