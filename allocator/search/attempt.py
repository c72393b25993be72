"""One attempt on one node, laid out for the search: the candidates of each request as bit masks.

Everything here is decided once per attempt and node, or once per projection of a device: selectors,
taints, static capacity, usage. The search then only combines.

Source of the order of checks: upstream's validateDeviceRequest, isSelectable, allocateDevice.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from allocator.compatibility import constraint as compatibility
from allocator.compatibility.compile import CompiledPolicy
from allocator.features import amount_bounds, consumer_limits, node_operations
from allocator.features import binding_conditions as binding
from allocator.features import co_tenant_config as sharing
from allocator.features import compatibility_groups as groups
from allocator.features import constraints as attributes
from allocator.features import consumable_capacity as capacity
from allocator.features import device_taints as taints
from allocator.features import partitionable_devices as counters
from allocator.features.constraints import AttributeConstraints, DeviceDemand
from allocator.features.consumable_capacity import CapacityConstraint
from allocator.features.consumer_limits import ConsumerLimit
from allocator.features.partitionable_devices import CounterConstraint
from allocator.model.amount_bound import AmountBound
from allocator.model.constraint import Constraint
from allocator.model.devices import DeviceId, NodeDevices, PoolState, PublishedDevice
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed, Reason, RejectionReason
from allocator.model.plan import Choice
from allocator.model.pools import targets_node
from allocator.model.requests import PendingClaims, Request, check_result_limits
from allocator.model.selectors import SelectorChain, selector_chain
from allocator.model.usage import DeviceUse, Usage
from kube.cel.scope import current_scope

_NODES: Final = 8192


class AllocatorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a search besides claims and inventory; the same for a whole cluster.

    Attributes:
        features: Feature gates.
        policies: DeviceCompatibilityPolicies in force; all policies for a driver apply.
        tombstones: Last known data of devices that are in use and no longer published.
        uniform_config_drivers: Drivers that require the sharing configurations of co-tenants to
            agree. A device is rejected where they contradict; upstream leaves that to the driver.
        consumer_limits: Driver to how many consumers its devices may have.
    """

    features: Features = Features()
    policies: tuple[CompiledPolicy, ...] = ()
    tombstones: Mapping[DeviceId, PublishedDevice] = msgspec.field(default_factory=dict)
    uniform_config_drivers: frozenset[str] = frozenset()
    consumer_limits: Mapping[str, ConsumerLimit] = msgspec.field(default_factory=dict)


class RequestCandidates(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The candidate devices of one request, or alternative, on one node.

    Attributes:
        request: The request.
        count: Number of devices that it needs.
        candidates: Positions to try, in order: suitable devices, and devices that abort the attempt.
        fatal: The candidates that abort the attempt.
        failures: Position to message, for devices that abort the attempt.
        rejected: Selected positions that cannot be chosen in this attempt.
        all_positions: All positions to choose in mode All; None in mode ExactCount.
        matching: Positions that class and request select, in use or not.
    """

    request: Request
    count: int
    candidates: int
    fatal: int = 0
    failures: Mapping[int, str] = msgspec.field(default_factory=dict)
    rejected: int = 0
    all_positions: tuple[int, ...] | None = None
    matching: int = 0


class Attempt(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An attempt on a node, immutable except for the state of its constraints.

    Attributes:
        pending: The claims.
        requests: The candidates of each alternative, per claim and top-level request.
        constraints: All constraints that apply here, in upstream's order.
        attribute_constraints: The constraint of the claims' own constraints, if any.
        capacity_constraint: The constraint on capacities; not None where a device can be shared.
        counter_constraint: The constraint on shared counters, if any.
        shareable: Mask of devices that allow multiple allocations.
        shared: Mask of shareable devices with a share in use.
        constrains_all: A claim's constraint applies to a request with mode All.
        may_abort: Inspecting some device may abort the attempt, so the search must not look ahead.
        steps: Cost of the layout.
    """

    node: NodeDevices
    pending: PendingClaims
    requests: tuple[tuple[tuple[RequestCandidates, ...], ...], ...]
    constraints: tuple[Constraint, ...] = ()
    attribute_constraints: AttributeConstraints | None = None
    capacity_constraint: CapacityConstraint | None = None
    counter_constraint: CounterConstraint | None = None
    shareable: int = 0
    shared: int = 0
    constrains_all: bool = False
    may_abort: bool = False
    steps: int = 0

    @property
    def has_invalid_pools(self) -> bool:
        """A pool of the node is invalid; upstream then reports an error of the node."""
        return any(pool.state is PoolState.INVALID for pool in self.node.pools)

    @property
    def is_order_sensitive(self) -> bool:
        """The verdict depends on the order of devices, even without errors."""
        return (
            self.attribute_constraints is not None and self.attribute_constraints.is_order_sensitive
        )

    def claim_name(self, claim: int) -> str:
        """Return `namespace/name`, for messages."""
        metadata = self.pending.claims[claim].metadata
        return f"{metadata.namespace}/{metadata.name}"

    def choice(self, request: Request, position: int) -> Choice:
        """Return the choice of a device for a request."""
        capacity = self.capacity_constraint
        consumed_amounts = (
            None if capacity is None else capacity.consumed_capacity(request, position)
        )
        return Choice(
            request=request, device=self.node.devices[position], consumed=consumed_amounts
        )

    def infeasibility(self) -> RejectionReason | None:
        """Return the reason the attempt fails without a search; None if a search is needed."""
        # An abort must come where upstream has it, so nothing is decided before the search.
        if self.may_abort:
            return None
        needs: dict[Request, DeviceDemand] = {}
        for claim_requests in self.requests:
            for alternatives in claim_requests:
                if all(map(_has_too_few, alternatives)):
                    return RejectionReason(reason=Reason.TOO_FEW_DEVICES)
                first = alternatives[0]
                # The search may skip an alternative, so only requests without alternatives count.
                if first.request.parent is None and first.all_positions is None:
                    needs[first.request] = DeviceDemand(first.candidates, first.count)
        return (
            None
            if self.attribute_constraints is None
            else self.attribute_constraints.infeasibility(needs)
        )

    def prune(self, request: Request, mask: int) -> int:
        """Remove positions from a mask that the claims' constraints cannot accept any more."""
        return (
            mask
            if self.attribute_constraints is None
            else mask & self.attribute_constraints.allowed_positions(request)
        )

    def find_symmetry_classes(self) -> tuple[int, ...]:
        """Return a number per position, equal for devices that no rule can tell apart.

        Only a search in which a device failed needs them.
        """
        positions = range(len(self.node.devices))
        # In mode All the order in which constraints see devices decides how the attempt ends.
        if self.constrains_all:
            return tuple(positions)
        masks = {self.shareable, self.shared}
        for claim_requests in self.requests:
            for alternatives in claim_requests:
                for candidates in alternatives:
                    masks |= {candidates.candidates, candidates.fatal, candidates.matching}
        # A mask of all or of no devices tells no devices apart.
        all_positions = (1 << len(positions)) - 1
        masks = {mask for mask in masks if mask & all_positions not in {0, all_positions}}
        keys: list[Iterable[Hashable]] = [
            map(constraint.equivalence_key, positions) for constraint in self.constraints
        ]
        keys += [[mask >> position & 1 for position in positions] for mask in masks]
        if not keys:
            return (0,) * len(positions)
        ids: dict[Hashable, int] = {}
        return tuple([ids.setdefault(key, len(ids)) for key in zip(*keys, strict=True)])


def _has_too_few(candidates: RequestCandidates) -> bool:
    """Return True if a request has too few candidates by itself."""
    is_empty = candidates.all_positions is not None and not candidates.all_positions
    return is_empty or candidates.candidates.bit_count() < candidates.count


def lay_out(
    node: NodeDevices,
    pending: PendingClaims,
    usage: Usage,
    options: AllocatorOptions,
    bounds: Sequence[AmountBound] = (),
) -> Attempt:
    """Lay out an attempt.

    Raises:
        AttemptFailed: An error that upstream finds before it searches: a selector that fails or an
            incomplete pool in mode All, more than 32 devices in a claim.
        AnswerInterrupted: A selector has no verdict, for the reason that the class of the error says.
    """
    return _Layout(node, pending, usage, options, bounds).attempt()


class _Layout:
    """The facts that requests share while their candidates are determined."""

    def __init__(
        self,
        node: NodeDevices,
        pending: PendingClaims,
        usage: Usage,
        options: AllocatorOptions,
        bounds: Sequence[AmountBound],
    ) -> None:
        self._node = node
        self._bounds = bounds
        self._pending = pending
        self._usage = usage
        self._options = options
        self._features = options.features
        self._requests = [
            request
            for claim_requests in pending.requests
            for alternatives in claim_requests
            for request in alternatives
        ]
        self._masks = _device_masks(node)
        self._shareable = self._masks.shareable if options.features.consumable_capacity else 0
        self._excluded = sum(
            1 << position
            for position in bits(self._masks.with_binding_conditions)
            if binding.rejection(node.devices[position].device, options.features) is not None
        )
        self._allocated = self._shared = 0
        for position, use in self._device_uses():
            self._allocated |= use.exclusive << position
            self._shared |= use.is_shared << position
        self._shared &= self._shareable
        self._suitability_of: dict[Hashable, _Suitability] = {}
        self._steps = 0
        self._capacity = capacity.build_constraint(node, usage, self._requests, options.features)

    def attempt(self) -> Attempt:
        requests = tuple(
            tuple(tuple(map(self._candidates, alternatives)) for alternatives in claim_requests)
            for claim_requests in self._pending.requests
        )
        flat = [
            candidates
            for claim_requests in requests
            for alternatives in claim_requests
            for candidates in alternatives
        ]
        counts = {id(candidates.request): candidates.count for candidates in flat}
        check_result_limits(self._pending, lambda request: counts[id(request)])
        by_attribute = attributes.build_constraint(self._node, self._pending, self._features)
        by_counter = counters.build_constraint(self._node, self._usage, self._features)
        constrains_all = by_attribute is not None and any(
            candidates.all_positions is not None and by_attribute.constrains(candidates.request)
            for candidates in flat
        )
        may_abort = constrains_all or any(candidates.fatal for candidates in flat)
        if by_attribute is not None:
            may_abort |= any(
                candidates.candidates & by_attribute.failing_positions(candidates.request)
                for candidates in flat
            )
        return Attempt(
            node=self._node,
            pending=self._pending,
            requests=requests,
            constraints=self._constraints(by_attribute, by_counter),
            attribute_constraints=by_attribute,
            capacity_constraint=self._capacity,
            counter_constraint=by_counter,
            shareable=self._shareable,
            shared=self._shared,
            constrains_all=constrains_all,
            may_abort=may_abort,
            steps=self._steps,
        )

    def _constraints(
        self, by_attribute: AttributeConstraints | None, by_counter: CounterConstraint | None
    ) -> tuple[Constraint, ...]:
        """Return the constraints that apply, in upstream's order, then our own."""
        node, usage, options = self._node, self._usage, self._options
        constraints = (
            groups.build_constraint(
                node, usage, self._features, compatibility.enforced_drivers(options.policies)
            ),
            by_counter,
            by_attribute,
            self._capacity,
            compatibility.build_constraint(
                node, usage, options.policies, self._pending, options.tombstones
            ),
            sharing.build_constraint(
                node, usage, self._pending, options.uniform_config_drivers, self._features
            ),
            consumer_limits.build_constraint(node, usage, options.consumer_limits),
            amount_bounds.AmountBounds(node, self._bounds, self._requests, self._capacity)
            if self._bounds
            else None,
        )
        return tuple(constraint for constraint in constraints if constraint is not None)

    def _candidates(self, request: Request) -> RequestCandidates:
        suitability = self._suitability(request)
        free = ~self._allocated if not request.admin else -1
        all_positions = None
        if request.all_devices:
            all_positions = self._list_all(request, suitability.failures, suitability.large_enough)
        fatal = sum(1 << position for position in suitability.failures)
        suitable = suitability.large_enough & ~suitability.rejected
        return RequestCandidates(
            request=request,
            count=request.count if all_positions is None else len(all_positions),
            candidates=(fatal | suitable) & free,
            fatal=fatal & free,
            failures=suitability.failures,
            rejected=suitability.rejected | (suitability.matching & ~free),
            all_positions=all_positions,
            matching=suitability.matching,
        )

    def _suitability(self, request: Request) -> "_Suitability":
        """Return the suitability of each device by itself, from a cache for equal requests."""
        amounts = tuple(sorted((request.capacity or {}).items()))
        key = (request.expressions, request.tolerations, amounts)
        suitability = self._suitability_of.get(key)
        if suitability is None:
            suitability = self._evaluate(request, selector_chain(request.expressions))
            # Messages name the request.
            if not suitability.failures:
                self._suitability_of[key] = suitability
        return suitability

    def _evaluate(self, request: Request, selectors: SelectorChain) -> "_Suitability":
        meter = current_scope().meter
        before = meter.steps
        selection = selectors.selection(self._node)
        self._steps += meter.steps - before
        matching = selection.selected & ~self._excluded
        failures = {
            position: message
            for position, message in selection.failures.items()
            if not self._excluded >> position & 1
        }
        # Like upstream, evaluate selectors before the device's own node selection, so a device of
        # another node in the same slice can abort the attempt.
        for position in bits(matching & self._masks.with_node_selection):
            try:
                is_here = targets_node(self._node.devices[position], self._node)
            except AttemptFailed as error:
                failures[position] = str(error)
                is_here = False
            if not is_here:
                matching ^= 1 << position
        large_enough = matching
        if self._capacity is not None:
            too_small, errors = self._capacity.find_unsuitable(request, matching)
            failures |= errors
            large_enough &= ~too_small
        rejected_mask = 0
        for position in bits(matching & self._masks.conditional):
            if self._rejection(request, self._node.devices[position]) is not None:
                rejected_mask |= 1 << position
        return _Suitability(
            matching=matching, failures=failures, large_enough=large_enough, rejected=rejected_mask
        )

    def _rejection(self, request: Request, device: PublishedDevice) -> RejectionReason | None:
        """Return the reason a device can never serve a request; None if it can."""
        return (
            node_operations.rejection(device.slice, self._node.declared_features, self._features)
            or counters.rejection(device.device, self._features)
            or taints.rejection(device.device, request.tolerations, self._features)
        )

    def _list_all(
        self, request: Request, failures: Mapping[int, str], large_enough: int
    ) -> tuple[int, ...]:
        """Return the positions of all devices that a request with mode All gets.

        Raises:
            AttemptFailed: The set of all devices is unknown.
        """
        claim = self._pending.claims[request.claim].metadata
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
        return tuple(bits(large_enough))

    def _device_uses(self) -> Iterator[tuple[int, DeviceUse]]:
        """Yield position and use of each device in use."""
        # One lookup per pool, not per device: most pools have no device in use.
        uses = [self._usage.pools.get(pool.id) for pool in self._node.pools]
        if not any(uses):
            return
        for position, device in enumerate(self._node.devices):
            pool_use = uses[self._node.pool_of[position]]
            use = pool_use.get(device.id.device) if pool_use else None
            if use is not None:
                yield position, use


class _Suitability(msgspec.Struct, frozen=True, kw_only=True):
    """The suitability of each device of a node for a request, independent of the use.

    Attributes:
        matching: Positions that class and request select, and that are for this node.
        failures: Position to message, for devices that abort the attempt.
        large_enough: Matching positions whose total capacity suffices.
        rejected: Matching positions that taints, counters or node operations reject.
    """

    matching: int
    failures: Mapping[int, str]
    large_enough: int
    rejected: int


class _DeviceMasks(msgspec.Struct, frozen=True, kw_only=True):
    """Masks of the devices of a node that need a closer look.

    Attributes:
        shareable: Devices that allow multiple allocations.
        with_binding_conditions: Devices with binding conditions.
        with_node_selection: Devices that select their nodes themselves.
        conditional: Devices that taints, counters or node operations may keep from a request.
    """

    shareable: int
    with_binding_conditions: int
    with_node_selection: int
    conditional: int


# Cached by node, since the masks depend neither on claims nor on usage.
@lru_cache(maxsize=_NODES)
def _device_masks(node: NodeDevices) -> _DeviceMasks:
    shareable = with_binding_conditions = with_node_selection = conditional = 0
    for position, published_device in enumerate(node.devices):
        device, spec, bit = published_device.device, published_device.slice.spec, 1 << position
        if device.allow_multiple_allocations:
            shareable |= bit
        if device.binding_conditions:
            with_binding_conditions |= bit
        if spec.per_device_node_selection:
            with_node_selection |= bit
        if device.taints or device.consumes_counters or spec.skip_node_operations:
            conditional |= bit
    return _DeviceMasks(
        shareable=shareable,
        with_binding_conditions=with_binding_conditions,
        with_node_selection=with_node_selection,
        conditional=conditional,
    )


def bits(mask: int) -> Iterator[int]:
    """Yield the positions in a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        mask ^= lowest
        yield lowest.bit_length() - 1
