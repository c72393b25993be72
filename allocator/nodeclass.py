"""Nodes that must get the same verdict, so that each verdict is found once.

Two nodes are of one class, for one attempt, when no rule of the allocator can tell their devices
apart, position by position. What can tell devices apart is relative to what is asked: a uuid or a
bus id counts only if a selector or a constraint looks at it. Names of nodes, pools and devices
never count; everything else that a rule reads has to be in one of the three looks, or the memo
lies: what is published (`fixed`), what is in use (`use`), what the attempt looks at (`seen`).
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Final

import msgspec

from allocator.core.compatibility import look
from allocator.core.inventory import Chain, Place, chain
from allocator.core.model import (
    Asked,
    DeviceId,
    DeviceUse,
    Expression,
    NodeDevices,
    Pool,
    PoolState,
    PoolUse,
    PublishedDevice,
    Usage,
)
from allocator.core.outcome import AttemptFailed
from allocator.core.pools import targets
from allocator.core.problem import Rules
from kube.api.resource import DeviceAttribute


class Lens(msgspec.Struct, frozen=True):
    """What an attempt looks at in devices.

    Attributes:
        chains: Selectors of each request that differs in them, in order.
        places: What the strategy looks at beside capacities; None for all attributes of all
            devices, where it cannot be told what counts.
        compared: Fully qualified attributes of constraints, of which only equality counts.
        weighs: Capacities count of devices that cannot be shared, too.
    """

    chains: tuple[tuple[Expression, ...], ...]
    places: tuple[Place, ...] | None
    compared: tuple[str, ...] = ()
    weighs: bool = False

    @property
    def key(self) -> Hashable:
        """Equal for lenses that show the same."""
        texts = tuple([chain(expressions).key for expressions in self.chains])
        return texts, self.places, self.compared, self.weighs


def lens(asked: Asked, places: tuple[Place, ...] = (), *, weighs: bool = False) -> Lens:
    """Return what claims look at, and a strategy that looks at `places`, and maybe capacities."""
    requests = [one for claim in asked.requests for alternatives in claim for one in alternatives]
    chains = tuple({chain(one.expressions).key: one.expressions for one in requests}.values())
    weighs |= any(request.capacity for request in requests)
    if any(request.derived for request in requests):
        return Lens(chains, None, (), weighs)
    compared = {
        constraint.match_attribute or constraint.distinct_attribute or ""
        for claim in asked.claims
        for constraint in claim.spec.devices.constraints or ()
    }
    return Lens(chains, places, tuple(sorted(compared)), weighs)


def close_up(asked: Asked) -> Lens:
    """Return what words about claims look at, and claims that ask for less of the same.

    Two nodes may refuse for different reasons, one for its model and one for its memory; for the
    verdict that makes no difference.
    """
    through = lens(asked, weighs=True)
    places: set[Place] = set()
    for expressions in through.chains:
        looked_at = chain(expressions).places
        if looked_at is None or through.places is None:
            return Lens(through.chains, None, through.compared, weighs=True)
        places.update(looked_at)
    return Lens(through.chains, tuple(sorted(places)), through.compared, weighs=True)


def fixed(node: NodeDevices, rules: Rules) -> Hashable:
    """Return what is published of a node's devices that any attempt may read.

    Of attributes it is what policies make of them; the others are in `seen`.
    """
    has_operations = any(each.slice.spec.skip_node_operations for each in node.devices)
    return (
        tuple([_pool(pool) for pool in node.pools]),
        node.pool_of,
        node.declared_features if has_operations else None,
        tuple(
            [
                _device(each, node, node.pools[pool], rules)
                for each, pool in zip(node.devices, node.pool_of, strict=True)
            ]
        ),
    )


def use(pool: Pool, held: PoolUse, rules: Rules) -> Hashable:
    """Return how devices of a pool are used, by position where they have one."""
    places = {each.id.device: number for number, each in enumerate(pool.devices)}
    return frozenset(
        (places.get(name, name), _use(one, rules), _gone(pool, name, places, rules))
        for name, one in held.items()
    )


def _gone(pool: Pool, name: str, places: Mapping[str, int], rules: Rules) -> Hashable:
    """Return what policies know of a held device that is not published, as an identity."""
    if not rules.policies or name in places:
        return None
    last_seen = rules.tombstones.get(DeviceId(pool.id.driver, pool.id.pool, name))
    return None if last_seen is None else id(last_seen)


def seen(node: NodeDevices, through: Lens) -> Hashable:
    """Return what an attempt sees of a node's devices: verdicts of selectors, equal attributes."""
    places = through.places
    attributes: Hashable
    if places is None:
        attributes = tuple([_attributes(each) for each in node.devices])
    else:
        attributes = tuple(
            [
                tuple([place.value(each.id.driver, each.device) for place in places])
                for each in node.devices
            ]
        )
    return (
        tuple([_verdicts(node, chain(expressions)) for expressions in through.chains]),
        attributes if places is None or places else None,
        tuple([_pattern(node, name) for name in through.compared]),
        tuple([_capacity(each) for each in node.devices]) if through.weighs else None,
    )


# --- whether there is a solution, in no order -----------------------------------------------------

Line = tuple[tuple[int, Hashable, int], ...]
"""Position, look and group of each device that some selector chooses; equal values make a group."""


def is_plain(asked: Asked) -> bool:
    """Return whether the order of devices cannot matter to whether the claims fit.

    So it is for dedicated devices by number: which of them fit together depends on what they are,
    and not on their places. Which devices the claims get does depend on it.
    """
    requests = [one for claim in asked.requests for alternatives in claim for one in alternatives]
    return not any(
        one.parent is not None or one.all_devices or one.admin or one.capacity or one.derived
        for one in requests
    )


def line(node: NodeDevices, through: Lens, rules: Rules) -> Line | None:
    """Return what counts of a node's devices where order does not; None where it may."""
    if len(through.compared) > 1 or through.places != () or rules.policies:
        return None
    if any(pool.counter_sets or pool.elsewhere for pool in node.pools):
        return None
    verdicts = [_verdicts(node, chain(expressions)) for expressions in through.chains]
    patterns = _pattern(node, through.compared[0]) if through.compared else None
    lined_up = []
    for position, (published, pool) in enumerate(zip(node.devices, node.pool_of, strict=True)):
        if any(failing for _, failing in verdicts) or published.device.allow_multiple_allocations:
            return None
        chosen = tuple([mask >> position & 1 for mask, _ in verdicts])
        if not any(chosen):
            continue
        group = patterns[position] if patterns is not None else None
        if isinstance(group, DeviceAttribute):
            return None
        kind = (chosen, _device(published, node, node.pools[pool], rules))
        lined_up.append((position, kind, _GROUPLESS if group is None else group))
    return tuple(lined_up)


def free(lined_up: Line, node: NodeDevices, usage: Usage) -> Hashable | None:
    """Return what is free, blind to places; None where something is held in other ways."""
    taken = set()
    for pool in node.pools:
        for name, held in usage.pools.get(pool.id, _NOTHING).items():
            if held.is_shared or not held.exclusive:
                return None
            taken.add(node.positions.get(DeviceId(pool.id.driver, pool.id.pool, name)))
    groups: dict[int, list[Hashable]] = {}
    for position, kind, group in lined_up:
        if position not in taken:
            groups.setdefault(group, []).append(kind)
    alone = Counter(groups.pop(_GROUPLESS, ()))
    invalid = any(pool.state is PoolState.INVALID for pool in node.pools)
    together = Counter(frozenset(Counter(looks).items()) for looks in groups.values())
    return frozenset(alone.items()), frozenset(together.items()), invalid


_GROUPLESS: Final = -1
_NOTHING: Final[PoolUse] = {}


def _verdicts(node: NodeDevices, selectors: Chain) -> tuple[int, tuple[int, ...]]:
    """Return which devices the selectors choose, and on which they fail."""
    chosen, failing = 0, []
    for position, each in enumerate(node.devices):
        verdict = selectors.verdict(each)
        if verdict is True:
            chosen |= 1 << position
        elif verdict is not False:
            failing.append(position)
    return chosen, tuple(failing)


def _pool(pool: Pool) -> Hashable:
    if not pool.counter_sets and not pool.elsewhere:
        return pool.state
    # Devices elsewhere count against the counters: such a pool is like no other.
    if pool.elsewhere:
        return pool.state, id(pool)
    return pool.state, tuple(
        (name, tuple((key, one.value) for key, one in sorted((each.counters or {}).items())))
        for name, each in sorted(pool.counter_sets.items())
    )


def _device(published: PublishedDevice, node: NodeDevices, pool: Pool, rules: Rules) -> Hashable:
    device, spec = published.device, published.slice.spec
    reached: Hashable = None
    if spec.per_device_node_selection:
        try:
            reached = targets(published, node)
        except AttemptFailed as error:
            reached = str(error)
    return (
        published.id.driver,
        device.allow_multiple_allocations or False,
        _capacity(published) if device.allow_multiple_allocations else None,
        _consumed(published),
        device.taints or None,
        device.binding_conditions or None,
        spec.skip_node_operations or None,
        reached,
        look(rules.policies, pool, published) if rules.policies else None,
    )


def _capacity(published: PublishedDevice) -> Hashable:
    capacity = published.device.capacity
    return frozenset(capacity.items()) if capacity else None


def _consumed(published: PublishedDevice) -> Hashable:
    consumes = published.device.consumes_counters
    if not consumes:
        return None
    return tuple(
        (
            each.counter_set,
            frozenset((name, one.value) for name, one in (each.counters or {}).items()),
            each.compatibility_groups or None,
        )
        for each in consumes
    )


def _attributes(published: PublishedDevice) -> Hashable:
    attributes = published.device.attributes
    return (published.id.driver, frozenset(attributes.items()) if attributes else None)


def _use(one: DeviceUse, rules: Rules) -> Hashable:
    capacity = None if one.capacity is None else frozenset(one.capacity.items())
    parameters = None
    if rules.keeps_configurations_apart and one.share_ids:
        parameters = msgspec.json.encode(
            [holder.parameters for holder in one.holders], order="sorted"
        )
    return one.exclusive, len(one.share_ids), capacity, parameters


def _pattern(node: NodeDevices, name: str) -> tuple[DeviceAttribute | int | None, ...]:
    """Return which devices of a node have equal values of one attribute, whatever the values."""
    numbers: dict[DeviceAttribute, int] = {}
    domain, _, identifier = name.partition("/")
    pattern: list[DeviceAttribute | int | None] = []
    for each in node.devices:
        value = _compared(each, name, domain, identifier)
        if value is None:
            pattern.append(None)
        elif _is_list(value):
            # Lists are compared by what they have in common, so their values count.
            pattern.append(value)
        else:
            pattern.append(numbers.setdefault(value, len(numbers)))
    if any(isinstance(one, DeviceAttribute) for one in pattern):
        return tuple([_compared(each, name, domain, identifier) for each in node.devices])
    return tuple(pattern)


def _compared(
    published: PublishedDevice, name: str, domain: str, identifier: str
) -> DeviceAttribute | None:
    attributes: Mapping[str, DeviceAttribute] = published.device.attributes or {}
    found = attributes.get(name)
    if found is None and identifier and domain == published.id.driver:
        return attributes.get(identifier)
    return found


def _is_list(value: DeviceAttribute) -> bool:
    return bool(value.ints or value.bools or value.strings or value.versions)
