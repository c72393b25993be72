"""Equivalence classes of nodes: all nodes of a class must get the same verdict.

Two nodes are equivalent for an attempt if no rule of the allocator can tell their devices apart,
position by position. What can tell devices apart is relative to the claims: a uuid or a bus id only
counts if a selector or a constraint reads it, and names of nodes, pools and devices never count.
Everything else that a rule reads has to be in one of three keys, or a cached verdict is wrong: what
is published (`published_key`), what is in use (`usage_key`), and what the attempt reads
(`projected_key`). See docs/equivalence-classes.md.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from allocator.compatibility.constraint import device_key as policy_device_key
from allocator.compatibility.constraint import tombstone_key
from allocator.model.devices import DeviceId, NodeDevices, Pool, PoolState, PublishedDevice
from allocator.model.outcome import AttemptFailed
from allocator.model.pools import targets_node
from allocator.model.requests import PendingClaims
from allocator.model.selectors import DeviceField, SelectorChain, selector_chains
from allocator.model.usage import DeviceUse, PoolUse, Usage
from allocator.search.attempt import AllocatorOptions
from kube.api.resource import DeviceAttribute
from kube.cel.scope import AnswersPending


class Projection(msgspec.Struct, frozen=True):
    """The part of the devices that an attempt reads.

    Attributes:
        chains: Selectors of the requests, each different chain once, in order.
        fields: Fields that the strategy reads; None for all attributes of all devices, if it is
            unknown which count.
        compared: Fully qualified attributes of constraints, of which only equality counts.
        reads_capacities: Capacities of devices that cannot be shared count, too.
        reads_all_usage: The use of pools counts of which no device is selected, too.
    """

    chains: tuple[SelectorChain, ...]
    fields: tuple[DeviceField, ...] | None
    compared: tuple[str, ...] = ()
    reads_capacities: bool = False
    reads_all_usage: bool = True

    @property
    def key(self) -> Hashable:
        """A key that is equal for projections with the same result."""
        texts = tuple([chain.key for chain in self.chains])
        return (
            texts,
            self.fields,
            self.compared,
            self.reads_capacities,
            self.reads_all_usage,
        )


def build_projection(
    pending: PendingClaims,
    fields: tuple[DeviceField, ...] = (),
    *,
    reads_capacities: bool = False,
    reads_all_usage: bool = True,
) -> Projection:
    """Build the projection for claims and a strategy.

    Args:
        pending: The claims.
        fields: Fields that the strategy reads.
        reads_capacities: The strategy reads capacities.
        reads_all_usage: The strategy, or who asks, reads the use of any device.
    """
    requests = [
        request
        for claim_requests in pending.requests
        for alternatives in claim_requests
        for request in alternatives
    ]
    chains = selector_chains(request.expressions for request in requests)
    reads_capacities |= any(request.capacity for request in requests)
    if any(request.derived for request in requests):
        return Projection(chains, None, (), reads_capacities, reads_all_usage)
    compared_attributes = {
        constraint.match_attribute or constraint.distinct_attribute or ""
        for claim in pending.claims
        for constraint in claim.spec.devices.constraints or ()
    }
    compared = tuple(sorted(compared_attributes))
    return Projection(chains, fields, compared, reads_capacities, reads_all_usage)


def explanation_projection(pending: PendingClaims) -> Projection:
    """Build the projection for explanations and for claims that request less of the same.

    Two nodes may reject claims for different reasons, one for its model and one for its memory. For
    the verdict that makes no difference.
    """
    projection = build_projection(pending, reads_capacities=True)
    fields: set[DeviceField] = set()
    for chain in projection.chains:
        referenced_fields = chain.fields
        if referenced_fields is None or projection.fields is None:
            return Projection(projection.chains, None, projection.compared, reads_capacities=True)
        fields.update(referenced_fields)
    return Projection(
        projection.chains, tuple(sorted(fields)), projection.compared, reads_capacities=True
    )


def published_key(
    node: NodeDevices, options: AllocatorOptions, numbers: Mapping[int, int] = MappingProxyType({})
) -> Hashable:
    """Return everything published about a node's devices that any attempt may read.

    Attributes only count as far as policies read them; all others are in `projected_key`.

    Args:
        node: The node, with its devices in the order of its pools.
        options: Feature gates and policies.
        numbers: Index of a pool to a number that stands for its `devices_key`.
    """
    return (
        tuple([_pool_key(pool) for pool in node.pools]),
        tuple(
            [
                numbers.get(index) or devices_key(pool, node, options)
                for index, pool in enumerate(node.pools)
            ]
        ),
        tuple(sorted(node.node_pools.items())),
    )


def devices_key(pool: Pool, node: NodeDevices, options: AllocatorOptions) -> Hashable:
    """Return the part of `published_key` that the devices of a pool have."""
    keys = [_device_key(device, node, pool, options) for device in pool.devices]
    skips_operations = any(device.slice.spec.skip_node_operations for device in pool.devices)
    return tuple(keys), node.declared_features if skips_operations else None


def depends_on_node(pool: Pool) -> bool:
    """Return True if nodes that see a pool may have different `devices_key` of it."""
    return any(
        device.slice.spec.per_device_node_selection or device.slice.spec.skip_node_operations
        for device in pool.devices
    )


def usage_key(pool: Pool, pool_use: PoolUse, options: AllocatorOptions) -> Hashable:
    """Return the use of a pool's devices, by position if they are published."""
    places = {device.id.device: number for number, device in enumerate(pool.devices)}
    return frozenset(
        (
            places.get(name, name),
            _use_key(use, has_uniform_config=pool.id.driver in options.uniform_config_drivers),
            _tombstone_key(pool, name, places, options),
        )
        for name, use in pool_use.items()
    )


def _tombstone_key(
    pool: Pool, name: str, places: Mapping[str, int], options: AllocatorOptions
) -> Hashable:
    """Return the key of the tombstone that policies read for an unpublished device in use."""
    if not options.policies or name in places:
        return None
    tombstone = options.tombstones.get(DeviceId(pool.id.driver, pool.id.pool, name))
    return None if tombstone is None else tombstone_key(options.policies, pool, tombstone)


def relevant_pools(
    node: NodeDevices, projection: Projection, options: AllocatorOptions
) -> tuple[int, ...]:
    """Return the indices of a node's pools such that an attempt may read their use.

    What a search reads of the use of a pool decides about devices of that pool alone: counters, shares
    and policies are of one pool. A limit of consumers per node spans all pools of a driver.
    """
    if projection.reads_all_usage:
        return tuple(range(len(node.pools)))
    read_mask = 0
    for chain in projection.chains:
        selected_mask, failing_positions = _selector_verdicts(node, chain)
        read_mask |= selected_mask
        for position in failing_positions:
            read_mask |= 1 << position
    pools = {
        index
        for index, (start, pool) in enumerate(zip(node.pool_starts, node.pools, strict=True))
        if read_mask >> start & ((1 << len(pool.devices)) - 1)
    }
    for index, pool in enumerate(node.pools):
        if pool.id.driver in options.consumer_limits:
            pools.add(index)
    return tuple(sorted(pools))


def is_shared(pool: Pool) -> bool:
    """Return True if devices of a pool may be seen, or count, on several nodes."""
    return (
        pool.names_no_node
        or bool(pool.elsewhere)
        or any(device.slice.spec.node_name is None for device in pool.devices)
    )


def projected_key(node: NodeDevices, projection: Projection) -> Hashable:
    """Return the part of a node's devices that an attempt reads: selector verdicts and equal attributes.

    Raises:
        AnswerInterrupted: A verdict is not known, for the reason that the class of the error says.
    """
    verdicts = _verdicts_of_chains(node, projection)
    fields = projection.fields
    attributes: Hashable
    if fields is None:
        attributes = tuple([_attributes_key(device) for device in node.devices])
    else:
        attributes = tuple(
            [
                tuple([field.value(device.id.driver, device.device) for field in fields])
                for device in node.devices
            ]
        )
    return (
        verdicts,
        attributes if fields is None or fields else None,
        tuple([_equality_pattern(node, name) for name in projection.compared]),
        tuple([_capacity_key(device) for device in node.devices])
        if projection.reads_capacities
        else None,
    )


# --- feasibility regardless of order --------------------------------------------------------------

NodeSignature = tuple[tuple[int, Hashable, int], ...]
"""Position, device key and group of each selected device; devices with equal values of the compared
attribute are a group."""


def is_order_independent(pending: PendingClaims) -> bool:
    """Return True if the claims fit, or do not fit, in any order of devices.

    That is so for requests for a number of dedicated devices: which of them fit together depends on
    the devices and not on their order. Which devices the claims get does depend on it.
    """
    return not any(
        request.parent is not None
        or request.all_devices
        or request.admin
        or request.capacity
        or request.derived
        for claim_requests in pending.requests
        for alternatives in claim_requests
        for request in alternatives
    )


def node_signature(
    node: NodeDevices, projection: Projection, options: AllocatorOptions
) -> NodeSignature | None:
    """Return the devices of a node without their order; None if the order may matter."""
    if len(projection.compared) > 1 or projection.fields != () or options.policies:
        return None
    if options.consumer_limits:
        return None  # Devices in use count, too, which the free ones do not tell.
    if any(pool.counter_sets or pool.elsewhere for pool in node.pools):
        return None
    if any(device.slice.spec.skip_node_operations for device in node.devices):
        return None  # What the node declares counts, too.
    verdicts = [_selector_verdicts(node, chain) for chain in projection.chains]
    pattern = _equality_pattern(node, projection.compared[0]) if projection.compared else None
    signature = []
    for position, (device, pool) in enumerate(zip(node.devices, node.pool_of, strict=True)):
        if any(failing for _, failing in verdicts) or device.device.allow_multiple_allocations:
            return None
        selected_bits = tuple([mask >> position & 1 for mask, _ in verdicts])
        if not any(selected_bits):
            continue
        group = pattern[position] if pattern is not None else None
        if isinstance(group, DeviceAttribute):
            return None
        key = (selected_bits, _device_key(device, node, node.pools[pool], options))
        signature.append((position, key, _NO_GROUP if group is None else group))
    return tuple(signature)


def has_group_across(signature: NodeSignature, node: NodeDevices, pools: Collection[int]) -> bool:
    """Return True if devices inside and outside of some pools are of one group.

    Args:
        signature: The devices of the node that are selected.
        node: The node.
        pools: Indices of the pools.
    """
    groups: tuple[set[int], set[int]] = (set(), set())
    for position, _, group in signature:
        groups[node.pool_of[position] in pools].add(group)
    return not groups[0].isdisjoint(groups[1] - {_NO_GROUP})


def free_signature(
    signature: NodeSignature, node: NodeDevices, pools: Collection[int], usage: Usage
) -> Hashable | None:
    """Return the multiset of free devices in some pools by group; None if one is in use but not exclusively.

    Args:
        signature: The devices of the node that are selected.
        node: The node.
        pools: Indices of the pools.
        usage: Usage by allocated claims.
    """
    in_use = set()
    for pool in [node.pools[index] for index in pools]:
        for name, use in usage.pools.get(pool.id, _NOTHING).items():
            if use.is_shared or not use.exclusive:
                return None
            in_use.add(node.positions.get(DeviceId(pool.id.driver, pool.id.pool, name)))
    groups: dict[int, list[Hashable]] = {}
    for position, key, group in signature:
        if position not in in_use and node.pool_of[position] in pools:
            groups.setdefault(group, []).append(key)
    ungrouped_counts = Counter(groups.pop(_NO_GROUP, ()))
    grouped_counts = Counter(frozenset(Counter(keys).items()) for keys in groups.values())
    is_invalid = any(pool.state is PoolState.INVALID for pool in node.pools)
    return frozenset(ungrouped_counts.items()), frozenset(grouped_counts.items()), is_invalid


_NO_GROUP: Final = -1
_NOTHING: Final[PoolUse] = {}


def _verdicts_of_chains(
    node: NodeDevices, projection: Projection
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return the verdicts of all chains; ask an engine for all missing verdicts at once."""
    verdicts: list[tuple[int, tuple[int, ...]]] = []
    pending: AnswersPending | None = None
    for chain in projection.chains:
        try:
            verdicts.append(_selector_verdicts(node, chain))
        except AnswersPending as error:
            pending = error
    if pending is not None:
        raise pending
    return tuple(verdicts)


def _selector_verdicts(node: NodeDevices, selectors: SelectorChain) -> tuple[int, tuple[int, ...]]:
    """Return a mask of the devices that selectors select, and the positions of their failures."""
    selection = selectors.selection(node)
    return selection.selected, tuple(selection.failures)


def _pool_key(pool: Pool) -> Hashable:
    # A limit of consumers reads the use of a pool without devices, which name no driver here.
    key = pool.id.driver, pool.names_no_node, pool.state
    if not pool.counter_sets and not pool.elsewhere:
        return key
    # Devices on other nodes consume the same counters, so such a pool is unique.
    if pool.elsewhere:
        return *key, id(pool)
    return *key, tuple(
        (
            name,
            tuple(
                (counter, amount.value)
                for counter, amount in sorted((counter_set.counters or {}).items())
            ),
        )
        for name, counter_set in sorted(pool.counter_sets.items())
    )


def _device_key(
    published_device: PublishedDevice, node: NodeDevices, pool: Pool, options: AllocatorOptions
) -> Hashable:
    device, spec = published_device.device, published_device.slice.spec
    is_here: Hashable = None
    if spec.per_device_node_selection:
        try:
            is_here = targets_node(published_device, node)
        except AttemptFailed as error:
            is_here = str(error)
    return (
        published_device.id.driver,
        device.allow_multiple_allocations or False,
        _capacity_key(published_device) if device.allow_multiple_allocations else None,
        _counters_key(published_device),
        device.taints or None,
        device.binding_conditions or None,
        spec.skip_node_operations or None,
        is_here,
        policy_device_key(options.policies, pool, published_device) if options.policies else None,
    )


def _capacity_key(device: PublishedDevice) -> Hashable:
    capacity = device.device.capacity
    return frozenset(capacity.items()) if capacity else None


def _counters_key(device: PublishedDevice) -> Hashable:
    consumes = device.device.consumes_counters
    if not consumes:
        return None
    return tuple(
        (
            consumption.counter_set,
            frozenset(
                (name, amount.value) for name, amount in (consumption.counters or {}).items()
            ),
            consumption.compatibility_groups or None,
        )
        for consumption in consumes
    )


def _attributes_key(device: PublishedDevice) -> Hashable:
    attributes = device.device.attributes
    return (device.id.driver, frozenset(attributes.items()) if attributes else None)


def _use_key(use: DeviceUse, *, has_uniform_config: bool) -> Hashable:
    capacity = None if use.capacity is None else frozenset(use.capacity.items())
    parameters = None
    if has_uniform_config and use.share_ids:
        parameters = msgspec.json.encode(
            [consumer.parameters for consumer in use.consumers], order="sorted"
        )
    return use.exclusive, len(use.share_ids), capacity, parameters


def _equality_pattern(node: NodeDevices, name: str) -> tuple[DeviceAttribute | int | None, ...]:
    """Return a number per position, equal for devices with equal values of an attribute."""
    numbers: dict[DeviceAttribute, int] = {}
    domain, _, identifier = name.partition("/")
    pattern: list[DeviceAttribute | int | None] = []
    for device in node.devices:
        value = _attribute_value(device, name, domain, identifier)
        if value is None:
            pattern.append(None)
        elif _is_list(value):
            # Lists are compared by their common elements, so their values count.
            pattern.append(value)
        else:
            pattern.append(numbers.setdefault(value, len(numbers)))
    if any(isinstance(value, DeviceAttribute) for value in pattern):
        return tuple(
            [_attribute_value(device, name, domain, identifier) for device in node.devices]
        )
    return tuple(pattern)


def _attribute_value(
    device: PublishedDevice, name: str, domain: str, identifier: str
) -> DeviceAttribute | None:
    attributes: Mapping[str, DeviceAttribute] = device.device.attributes or {}
    value = attributes.get(name)
    if value is None and identifier and domain == device.id.driver:
        return attributes.get(identifier)
    return value


def _is_list(value: DeviceAttribute) -> bool:
    return bool(value.ints or value.bools or value.strings or value.versions)
