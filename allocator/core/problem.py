"""One attempt on one node, laid out for the search: who may serve what, as bit masks.

Everything here is decided once per attempt and node, or once per device that looks alike: selectors,
taints, static capacity, what is in use. The search then only combines.

Source of the order of checks: upstream's validateDeviceRequest, isSelectable, allocateDevice.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from allocator.core import (
    binding,
    capacity,
    compatibility,
    constraints,
    counters,
    groups,
    node_operations,
    sharing,
    taints,
)
from allocator.core.capacity import Capacity
from allocator.core.constraints import Constraints, Need
from allocator.core.counters import Counters
from allocator.core.inventory import Chain, chain
from allocator.core.model import (
    Asked,
    Choice,
    DeviceId,
    DeviceUse,
    Features,
    NodeDevices,
    PoolState,
    PublishedDevice,
    Request,
    Usage,
)
from allocator.core.outcome import AttemptFailed, Reason, Refusal
from allocator.core.pools import targets
from allocator.core.requests import limits
from allocator.core.rules import CompiledPolicy
from allocator.core.tracker import Tracker

_NODES: Final = 8192


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What decides beside the claims and the inventory; the same for a whole cluster.

    Attributes:
        features: The gates.
        policies: Compatibility policies in force; all of a driver's have to be met.
        tombstones: Last known data of devices that are held and no longer published.
        keeps_configurations_apart: Claims whose sharing configurations contradict never meet on
            one device. A rule of ours; upstream lets the node driver refuse the second.
    """

    features: Features = Features()
    policies: tuple[CompiledPolicy, ...] = ()
    tombstones: Mapping[DeviceId, PublishedDevice] = msgspec.field(default_factory=dict)
    keeps_configurations_apart: bool = False


class Table(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One request, or alternative, on one node.

    Attributes:
        need: Devices wanted.
        candidates: Positions to look at one by one: those that will do by themselves, and those
            that end the attempt.
        fatal: Among them, those that end the attempt.
        failures: Why, by position.
        refused: Positions that match but can never be chosen in this attempt.
        listed: Of mode All, the positions that all have to be chosen; None of ExactCount.
        matching: Positions that class and request select, in use or not.
    """

    request: Request
    need: int
    candidates: int
    fatal: int = 0
    failures: Mapping[int, str] = msgspec.field(default_factory=dict)
    refused: int = 0
    listed: tuple[int, ...] | None = None
    matching: int = 0


class Problem(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An attempt on a node. Its trackers hold the search's state; all else stands.

    Attributes:
        tables: Per claim, per top-level request, per alternative.
        trackers: Of the features that have a say here, in upstream's order.
        kinds: By position; equal numbers mean that no rule can tell the devices apart.
        capacity: Never None where a device can be shared.
        shareable: Positions of devices that allow several allocations.
        shared: Among them, those of which a share is in use.
        is_treacherous: Looking at some device may end the attempt, so nothing may look ahead.
        steps: What laying it out cost.
    """

    node: NodeDevices
    asked: Asked
    tables: tuple[tuple[tuple[Table, ...], ...], ...]
    trackers: tuple[Tracker, ...] = ()
    constraints: Constraints | None = None
    capacity: Capacity | None = None
    counters: Counters | None = None
    kinds: tuple[int, ...] = ()
    shareable: int = 0
    shared: int = 0
    is_treacherous: bool = False
    steps: int = 0

    @property
    def has_invalid_pools(self) -> bool:
        """Some pool of the node contradicts itself; upstream then reports an error of the node."""
        return any(pool.state is PoolState.INVALID for pool in self.node.pools)

    @property
    def is_order_bound(self) -> bool:
        """The verdict depends on the order of devices even without errors."""
        return self.constraints is not None and self.constraints.is_order_bound

    def claim_name(self, claim: int) -> str:
        """Return `namespace/name`, for messages."""
        metadata = self.asked.claims[claim].metadata
        return f"{metadata.namespace}/{metadata.name}"

    def choice(self, table: Table, position: int) -> Choice:
        """Return a chosen device with what it takes."""
        capacity = self.capacity
        consumed = None if capacity is None else capacity.consumed(table.request, position)
        device = self.node.devices[position]
        return Choice(request=table.request, device=device, consumed=consumed)

    def hopeless(self) -> Refusal | None:
        """Return why no search is needed; None when one is, or when it must find the error."""
        if self.is_treacherous:
            return None
        needs: dict[Request, Need] = {}
        for claim in self.tables:
            for alternatives in claim:
                if all(map(_is_short, alternatives)):
                    return Refusal(reason=Reason.TOO_FEW)
                table = alternatives[0]
                if table.request.parent is None and table.listed is None:
                    needs[table.request] = Need(table.candidates, table.need)
        return None if self.constraints is None else self.constraints.hopeless(needs)

    def narrowed(self, request: Request, mask: int) -> int:
        """Return a superset of the positions in `mask` that constraints can still accept."""
        return mask if self.constraints is None else mask & self.constraints.allowed(request)


def _is_short(table: Table) -> bool:
    """Return whether a request cannot be met, whatever the others take."""
    is_empty = table.listed is not None and not table.listed
    return is_empty or table.candidates.bit_count() < table.need


def problem(node: NodeDevices, asked: Asked, usage: Usage, rules: Rules) -> Problem:
    """Lay out an attempt.

    Raises:
        AttemptFailed: What upstream finds before it searches: a selector that fails in mode All, a
            pool that is being updated in mode All, more than 32 devices in a claim.
    """
    return _Layout(node, asked, usage, rules).laid_out()


class _Layout:
    """Gathers what requests share while their tables are made."""

    def __init__(self, node: NodeDevices, asked: Asked, usage: Usage, rules: Rules) -> None:
        self._node = node
        self._asked = asked
        self._usage = usage
        self._rules = rules
        self._features = rules.features
        self._requests = [
            one for claim in asked.requests for alternatives in claim for one in alternatives
        ]
        self._every = (1 << len(node.devices)) - 1
        self._facts = _facts(node)
        self._shareable = self._facts.shareable if rules.features.consumable_capacity else 0
        self._barred = sum(
            1 << position
            for position in bits(self._facts.bound)
            if binding.refusal(node.devices[position].device, rules.features) is not None
        )
        self._taken = self._shared = 0
        for position, use in self._used():
            self._taken |= use.exclusive << position
            self._shared |= use.is_shared << position
        self._shared &= self._shareable
        self._known: dict[Hashable, _Looks] = {}
        self._steps = 0
        self._capacity = capacity.tracker(node, usage, self._requests, rules.features)

    def laid_out(self) -> Problem:
        tables = tuple(
            tuple(tuple(self._table(one) for one in alternatives) for alternatives in claim)
            for claim in self._asked.requests
        )
        needs = {
            id(table.request): table.need
            for claim in tables
            for alternatives in claim
            for table in alternatives
        }
        limits(self._asked, lambda request: needs[id(request)])
        bound = constraints.tracker(self._node, self._asked, self._features)
        counted = counters.tracker(self._node, self._usage, self._features)
        trackers = self._trackers(bound, counted)
        every = [table for claim in tables for one in claim for table in one]
        must = bound is not None and any(
            table.listed is not None and bound.applies(table.request) for table in every
        )
        treacherous = must or any(table.fatal for table in every)
        if bound is not None:
            treacherous |= any(table.candidates & bound.unjudged(table.request) for table in every)
        return Problem(
            node=self._node,
            asked=self._asked,
            tables=tables,
            trackers=trackers,
            constraints=bound,
            capacity=self._capacity,
            counters=counted,
            # In mode All the order in which constraints see devices decides which way it ends.
            kinds=tuple(range(len(self._node.devices))) if must else self._kinds(every, trackers),
            shareable=self._shareable,
            shared=self._shared,
            is_treacherous=treacherous,
            steps=self._steps,
        )

    def _trackers(self, bound: Constraints | None, counted: Counters | None) -> tuple[Tracker, ...]:
        """Return the rules about combinations that have a say, in upstream's order, then ours."""
        node, usage, features = self._node, self._usage, self._features
        found = (
            groups.tracker(node, usage, features, compatibility.governed(self._rules.policies)),
            counted,
            bound,
            self._capacity,
            compatibility.tracker(
                node, usage, self._rules.policies, self._asked, self._rules.tombstones
            ),
            sharing.tracker(node, usage, self._asked, features)
            if self._rules.keeps_configurations_apart
            else None,
        )
        return tuple(each for each in found if each is not None)

    def _table(self, request: Request) -> Table:
        looks = self._looks(request)
        free = ~self._taken if not request.admin else -1
        listed = None
        if request.all_devices:
            listed = self._listed(request, looks.failures, looks.fitting)
        fatal = sum(1 << position for position in looks.failures)
        return Table(
            request=request,
            need=request.count if listed is None else len(listed),
            candidates=(fatal | looks.fitting & ~looks.refused) & free,
            fatal=fatal & free,
            failures=looks.failures,
            refused=looks.refused | (looks.matching & ~free),
            listed=listed,
            matching=looks.matching,
        )

    def _looks(self, request: Request) -> "_Looks":
        """Return what a request can see of each device by itself; the same for requests alike."""
        selectors = chain(request.expressions)
        key = (selectors, request.tolerations, tuple(sorted((request.capacity or {}).items())))
        known = self._known.get(key)
        if known is None:
            known = self._looked(request, selectors)
            # Messages name the request.
            if not known.failures:
                self._known[key] = known
        return known

    def _looked(self, request: Request, selectors: Chain) -> "_Looks":
        before = selectors.spent
        selection = selectors.selection(self._node)
        self._steps += selectors.spent - before
        matching = selection.chosen & ~self._barred
        failures = {
            position: message
            for position, message in selection.failures.items()
            if not self._barred >> position & 1
        }
        # Unlike what one may expect, selectors come before the device's own node selection, so
        # that devices of other nodes in the same slice can end the attempt.
        for position in bits(matching & self._facts.picks_nodes):
            try:
                is_here = targets(self._node.devices[position], self._node)
            except AttemptFailed as error:
                failures[position] = str(error)
                is_here = False
            if not is_here:
                matching ^= 1 << position
        fitting = matching
        if self._capacity is not None:
            short, broken = self._capacity.unsuited(request, matching)
            failures |= broken
            fitting &= ~short
        refused = 0
        for position in bits(matching & self._facts.conditional):
            if self._refusal(request, self._node.devices[position]) is not None:
                refused |= 1 << position
        return _Looks(matching=matching, failures=failures, fitting=fitting, refused=refused)

    def _refusal(self, request: Request, published: PublishedDevice) -> Refusal | None:
        """Return what keeps a device from a request whatever else is chosen."""
        return (
            node_operations.refusal(published.slice, self._node.declared_features, self._features)
            or counters.refusal(published.device, self._features)
            or taints.refusal(published.device, request.tolerations, self._features)
        )

    def _listed(
        self, request: Request, failures: Mapping[int, str], fitting: int
    ) -> tuple[int, ...]:
        """Return the positions of "all" devices.

        Raises:
            AttemptFailed: What "all" are cannot be known.
        """
        claim = self._asked.claims[request.claim].metadata
        origin = f"claim {claim.namespace}/{claim.name}, request {request.name}"
        for pool in self._node.pools:
            if pool.state is not PoolState.COMPLETE:
                state = "being updated" if pool.state is PoolState.INCOMPLETE else "invalid"
                raise AttemptFailed(
                    f"{origin}: asks for all devices, but resource pool {pool.id} is currently "
                    f"{state}"
                )
        if failures:
            raise AttemptFailed(failures[min(failures)])
        return tuple(bits(fitting))

    def _kinds(self, tables: Sequence[Table], trackers: Sequence[Tracker]) -> tuple[int, ...]:
        """Return a number per position, equal where no rule can tell two devices apart."""
        positions = range(len(self._node.devices))
        masks = {mask for table in tables for mask in (table.candidates, table.fatal)}
        masks |= {table.matching for table in tables} | {self._shareable, self._shared}
        # A mask of all or of none tells no device from another.
        telling = [mask for mask in masks if mask & self._every not in {0, self._every}]
        looks: list[Iterable[Hashable]] = [map(tracker.sees, positions) for tracker in trackers]
        looks += [[mask >> position & 1 for position in positions] for mask in telling]
        if not looks:
            return (0,) * len(positions)
        numbers: dict[Hashable, int] = {}
        return tuple([numbers.setdefault(look, len(numbers)) for look in zip(*looks, strict=True)])

    def _used(self) -> Iterator[tuple[int, DeviceUse]]:
        """Yield positions of devices that are in use, and how."""
        held = [self._usage.pools.get(pool.id) for pool in self._node.pools]
        if not any(held):
            return
        for position, published in enumerate(self._node.devices):
            of_pool = held[self._node.pool_of[position]]
            use = of_pool.get(published.id.device) if of_pool else None
            if use is not None:
                yield position, use


class _Looks(msgspec.Struct, frozen=True, kw_only=True):
    """What a request sees of each device of a node, whatever is in use.

    Attributes:
        matching: Positions that class and request select, for this node.
        failures: Positions that end the attempt, and why.
        fitting: Of the matching ones, those whose whole capacity would be enough.
        refused: Of the matching ones, those that something else keeps from the request.
    """

    matching: int
    failures: Mapping[int, str]
    fitting: int
    refused: int


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is worth knowing of a node's devices before they are looked at one by one.

    Attributes:
        shareable: Positions of devices that allow multiple allocations.
        bound: Those with binding conditions.
        picks_nodes: Those that say themselves for which nodes they are.
        conditional: Those that taints, counters or node operations may keep from a request.
    """

    shareable: int
    bound: int
    picks_nodes: int
    conditional: int


@lru_cache(maxsize=_NODES)
def _facts(node: NodeDevices) -> _Facts:
    shareable = bound = picks_nodes = conditional = 0
    for position, published in enumerate(node.devices):
        device, spec, bit = published.device, published.slice.spec, 1 << position
        if device.allow_multiple_allocations:
            shareable |= bit
        if device.binding_conditions:
            bound |= bit
        if spec.per_device_node_selection:
            picks_nodes |= bit
        if device.taints or device.consumes_counters or spec.skip_node_operations:
            conditional |= bit
    return _Facts(
        shareable=shareable, bound=bound, picks_nodes=picks_nodes, conditional=conditional
    )


def bits(mask: int) -> Iterator[int]:
    """Yield the positions in a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        mask ^= lowest
        yield lowest.bit_length() - 1
