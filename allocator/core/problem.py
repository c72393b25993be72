"""One attempt on one node, laid out for the search: who may serve what, as bit masks.

Everything here is decided once per attempt and node, or once per device that looks alike: selectors,
taints, static capacity, what is in use. The search then only combines.

Source of the order of checks: upstream's validateDeviceRequest, isSelectable, allocateDevice.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

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
from allocator.core.inventory import Failure, chain
from allocator.core.model import (
    Asked,
    Choice,
    DeviceId,
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
        consumed = None
        if self.capacity is not None and self.shareable >> position & 1:
            consumed = self.capacity.consumed(table.request, position)
        elif self.shareable >> position & 1:
            consumed = {}
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
        self._uses = [usage.of(published.id) for published in node.devices]
        self._taken = self._mask(self._is_taken)
        self._steps = 0
        self._capacity = (
            capacity.tracker(node, usage, self._requests, rules.features)
            if rules.features.consumable_capacity
            else None
        )

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
        trackers = self._trackers(bound)
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
            # In mode All the order in which constraints see devices decides which way it ends.
            kinds=tuple(range(len(self._uses))) if must else self._kinds(every, trackers),
            shareable=self._mask(self._can_be_shared),
            shared=self._mask(self._is_shared),
            is_treacherous=treacherous,
            steps=self._steps,
        )

    def _trackers(self, bound: Constraints | None) -> tuple[Tracker, ...]:
        """Return the rules about combinations that have a say, in upstream's order, then ours."""
        node, usage, features = self._node, self._usage, self._features
        found = (
            groups.tracker(node, usage, features, compatibility.governed(self._rules.policies)),
            counters.tracker(node, usage, features),
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
        selectors = chain(request.expressions)
        before = selectors.spent
        matching = fatal = refused = fitting = 0
        failures: dict[int, str] = {}
        for position, published in enumerate(self._node.devices):
            bit = 1 << position
            verdict = self._selects(selectors.verdict, published)
            if verdict is False:
                continue
            if isinstance(verdict, Failure):
                failures[position] = verdict.message
                fatal |= bit
                continue
            matching |= bit
            static = self._statically(request, position)
            if isinstance(static, Failure):
                failures[position] = static.message
                fatal |= bit
            elif static is None:
                fitting |= bit
            if self._refusal(request, published) is not None:
                refused |= bit
        self._steps += selectors.spent - before
        free = ~self._taken if not request.admin else -1
        listed = None
        if request.all_devices:
            listed = self._listed(request, failures, fitting)
        return Table(
            request=request,
            need=request.count if listed is None else len(listed),
            candidates=(fatal | fitting & ~refused) & free,
            fatal=fatal & free,
            failures=failures,
            refused=refused | (matching & ~free),
            listed=listed,
            matching=matching,
        )

    def _selects(
        self, verdict: Callable[[PublishedDevice], bool | Failure], published: PublishedDevice
    ) -> bool | Failure:
        """Return whether class and request select a device here, and which error says otherwise."""
        if binding.refusal(published.device, self._features) is not None:
            return False
        selected = verdict(published)
        if selected is not True or not published.slice.spec.per_device_node_selection:
            return selected
        # Unlike what one may expect, selectors come before the device's own node selection, so
        # that devices of other nodes in the same slice can end the attempt.
        try:
            return targets(published, self._node)
        except AttemptFailed as error:
            return Failure(str(error))

    def _statically(self, request: Request, position: int) -> Failure | Refusal | None:
        """Return why a device's whole capacity is not enough for a request; None when it is."""
        if self._capacity is None:
            return None
        try:
            static = self._capacity.static(request, position)
        except AttemptFailed as error:
            return Failure(str(error))
        return static if isinstance(static, Refusal) else None

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
        numbers: dict[Hashable, int] = {}
        masks = [
            mask for table in tables for mask in (table.candidates, table.fatal, table.matching)
        ]
        kinds = []
        for position in range(len(self._uses)):
            look = (
                tuple([mask >> position & 1 for mask in masks]),
                self._can_be_shared(position),
                self._is_shared(position),
                tuple([tracker.sees(position) for tracker in trackers]),
            )
            kinds.append(numbers.setdefault(look, len(numbers)))
        return tuple(kinds)

    def _can_be_shared(self, position: int) -> bool:
        device = self._node.devices[position].device
        return self._features.consumable_capacity and bool(device.allow_multiple_allocations)

    def _is_taken(self, position: int) -> bool:
        use = self._uses[position]
        return use is not None and use.exclusive

    def _is_shared(self, position: int) -> bool:
        use = self._uses[position]
        return use is not None and use.is_shared and self._can_be_shared(position)

    def _mask(self, holds: Callable[[int], bool]) -> int:
        return sum(1 << position for position in range(len(self._uses)) if holds(position))


def bits(mask: int) -> Iterator[int]:
    """Yield the positions in a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        mask ^= lowest
        yield lowest.bit_length() - 1
