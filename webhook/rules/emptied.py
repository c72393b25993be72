"""A cluster as if nothing were allocated: what there could ever be room for, with what is published.

Two things that pass are left out, so that only the inventory decides: taints, which come with a
fault and go with its repair, and slices of a pool that are still to come. Why the inventory may be
no proof all the same is told by `doubt`.

The allocator's own search answers, so what fits here fits a node of the real cluster once it is free.
Every answer is bounded, in steps, and kept until the inventory changes.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from allocator.cluster import Cluster
from allocator.core.inventory import chain, forget_selectors
from allocator.core.model import (
    Asked,
    Expression,
    Features,
    NodeDevices,
    Plan,
    PoolId,
    PoolState,
    Request,
    Usage,
)
from allocator.core.outcome import AttemptFailed
from allocator.core.problem import Rules
from allocator.core.search import allocate
from allocator.extended_resource_claim import plugged_in
from allocator.near import NearestMiss, nearest_when_empty
from allocator.nodeclass import Lens
from kube.api.core import Node
from kube.api.meta import encode
from kube.api.resource import DeviceClass, DeviceSelector, ResourceClaim, ResourceSlice
from kube.quantity import Quantity
from webhook.rules.mark import Seen, Stock
from webhook.rules.room import BUDGET, Fit, examples, fit, reasons

SEARCHES: Final = 300
"""What a nearest miss may cost, in searches of one node."""
MAX_ANSWERS: Final = 4096
MAX_SIZE: Final = 512 * 1024
"""Bytes of the claims, as JSON, whose answers hold them; a compiled selector takes a hundred times its
length."""

T = TypeVar("T")
Claims = Sequence[ResourceClaim]


class Emptied:
    """The inventory of a cluster, without what is allocated of it. Not for several threads at once.

    Attributes:
        rules: Gates and policies in force.
    """

    def __init__(
        self,
        *,
        slices: Iterable[ResourceSlice],
        nodes: Iterable[Node],
        classes: Mapping[str, DeviceClass],
        rules: Rules,
    ) -> None:
        """Take in an inventory.

        Args:
            slices: As they are published, of all generations, without taints of DeviceTaintRules.
            classes: By name; may change, if `forget` is called then.
        """
        features: Features = replace(rules.features, device_taints=False)
        self.rules = replace(rules, features=features)
        self._classes = classes
        self._pools: dict[PoolId, dict[str, ResourceSlice]] = {}
        for number, one in enumerate(slices):
            name = one.metadata.name or f"#{number}"
            self._pools.setdefault(_pool_of(one), {})[name] = one
        self._cluster = Cluster(
            slices=[one for parts in self._pools.values() for one in completed(parts).values()],
            nodes=nodes,
            claims=(),
            classes=classes,
            rules=self.rules,
        )
        self._answers: dict[Hashable, Any] = {}
        self._size = 0

    # --- changes ---------------------------------------------------------------------------------

    def replace_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Take notice of a slice that came, changed or went."""
        touched = sorted({_pool_of(one) for one in (old, new) if one is not None})
        before = {pool: completed(self._pools.get(pool, {})) for pool in touched}
        if old is not None:
            self._pools.get(_pool_of(old), {}).pop(old.metadata.name, None)
        if new is not None:
            self._pools.setdefault(_pool_of(new), {})[new.metadata.name] = new
        for pool in touched:
            after = completed(self._pools.get(pool, {}))
            for name in sorted({*before[pool], *after}):
                was, now = before[pool].get(name), after.get(name)
                if was != now:
                    self._cluster.replace_slice(was, now)
            if not self._pools.get(pool):
                self._pools.pop(pool, None)
        self.forget()

    def replace_node(self, name: str, node: Node | None) -> None:
        """Take notice of a node that came, changed or went."""
        self._cluster.replace_node(name, node)
        self.forget()

    def forget(self) -> None:
        """Forget every answer, since something that it depends on has changed."""
        self._answers.clear()
        self._size = 0

    def kept(self, key: Hashable, make: Callable[[], T], *, size: int = 0) -> T:
        """Return what was found out before, or find it out; it holds until the inventory changes.

        Args:
            size: Bytes of what the answer holds on to, where a stranger chooses them.
        """
        if key not in self._answers:
            if len(self._answers) >= MAX_ANSWERS or self._size + size > MAX_SIZE:
                self.forget()
                forget_selectors()
            self._answers[key] = make()
            self._size += size
        found: T = self._answers[key]
        return found

    # --- questions -------------------------------------------------------------------------------

    def ask(self, claims: Claims) -> Asked:
        """Return claims ready for the search.

        Raises:
            AttemptFailed: They can be met nowhere: a class is missing, a gate is off.
        """
        return self._cluster.ask(claims)

    def fits(self, claims: Claims) -> Fit:
        """Return whether claims fit some node, solved together."""
        key = ("fits", signature(claims).hash)
        return self.kept(key, lambda: self._fits(claims))

    def fits_without_modes(self, claims: Claims) -> bool:
        """Return whether claims fit a node that is looked at if all modes went together."""
        features = replace(self.rules.features, compatibility_groups=False)
        rules = replace(self.rules, features=features, policies=())
        try:
            asked = self.ask(claims)
            return any(
                isinstance(allocate(node, asked, Usage(), rules, budget=BUDGET), Plan)
                for node in self.examples(asked)
            )
        except AttemptFailed:
            return False

    def examples(self, asked: Asked) -> tuple[NodeDevices, ...]:
        """Return one node of each class, those with the most devices that could serve first."""
        return tuple(one.node for one in examples(self._cluster, asked))

    def why(self, claims: Claims) -> str:
        """Return what rules out the devices of nodes, aggregated, in one line.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        return reasons(self._cluster, self.ask(claims))

    def nearest(self, claims: Claims) -> NearestMiss | None:
        """Return the smallest change with which claims would fit; None where none was found."""
        try:
            names = [node.node for node in self.examples(self.ask(claims))]
        except AttemptFailed:
            return None
        return nearest_when_empty(self._cluster, claims, nodes=names, searches=SEARCHES)

    def stock(self, device_class: str) -> Stock:
        """Return the devices that a class selects, by driver; nothing where there is no such class."""
        return self.kept(("stock", device_class), lambda: self._stock(device_class))

    def only_claimed(self, resources: Collection[str]) -> frozenset[str]:
        """Return those of some resources that no node offers without DRA, as far as nodes tell."""
        tell, offered = self.kept("offered", self._offered)
        return frozenset(resources) - offered if tell else frozenset()

    # --- proof -----------------------------------------------------------------------------------

    @property
    def drivers(self) -> frozenset[str]:
        """All that have slices."""
        return self.kept("drivers", lambda: frozenset(pool.driver for pool in self._pools))

    def doubt(self, drivers: Iterable[str]) -> str:
        """Return why what these drivers publish is no proof of what there is; empty where it is."""
        found = (self.kept(("doubt", one), partial(self._doubt, one)) for one in sorted(drivers))
        return next((each for each in found if each), "")

    def _doubt(self, driver: str) -> str:
        pools = sorted(pool for pool in self._pools if pool.driver == driver)
        if not pools:
            return f"driver {driver} has no slices"
        for pool in pools:
            parts = self._pools[pool]
            if not is_complete(parts):
                return f"pool {pool.pool} of driver {driver} is incomplete"
            seen = self._cluster.reached(pool)
            if seen is None:
                return f"pool {pool.pool} of driver {driver} is for nodes that are not here"
            if seen.state is not PoolState.COMPLETE:
                return f"pool {pool.pool} of driver {driver} is {seen.state.value}: {seen.why}"
        return ""

    # --- how it is found out ---------------------------------------------------------------------

    def _fits(self, claims: Claims) -> Fit:
        try:
            asked = self.ask(claims)
            return Fit.NOWHERE if self._is_beyond(asked) else fit(self._cluster, asked)
        except AttemptFailed:
            return Fit.UNJUDGED

    def _is_beyond(self, asked: Asked) -> bool:
        """Return whether some request asks more than any device of its class has: no search."""
        return any(
            all(map(self._asks_beyond, alternatives))
            for claim in asked.requests
            for alternatives in claim
        )

    def _asks_beyond(self, request: Request) -> bool:
        amounts = request.capacity
        if not amounts:
            return False
        stock = self.stock(request.device_class.metadata.name).values()
        return any(
            all(name not in seen.capacity or amount > seen.capacity[name] for seen in stock)
            for name, amount in amounts.items()
        )

    def _offered(self) -> tuple[bool, frozenset[str]]:
        """Return whether all nodes tell what they offer, and that."""
        nodes = self._cluster.nodes.values()
        offered = frozenset(name for each in nodes for name in plugged_in(each))
        return all(each.status.allocatable is not None for each in nodes), offered

    def _stock(self, name: str) -> Stock:
        device_class = self._classes.get(name)
        if device_class is None:
            return {}
        of_class = expressions(device_class.spec.selectors)
        stock: dict[str, Seen] = {}
        for node, number in self._cluster.alike(Lens((of_class,), (), (), weighs=True)):
            for driver, seen in _on_node(node, of_class).items():
                stock[driver] = _added(stock.get(driver, Seen()), seen, number)
        return stock


class Signature(NamedTuple):
    """What stands for claims, which may be as long as a body.

    Attributes:
        hash: Of all that an answer depends on, names in messages included.
        size: Bytes of the claims as JSON.
    """

    hash: bytes
    size: int


def signature(claims: Claims) -> Signature:
    """Return what stands for claims."""
    told = encode([(one.metadata.namespace, one.metadata.name, one.spec.devices) for one in claims])
    return Signature(sha256(told).digest(), len(told))


def expressions(selectors: Iterable[DeviceSelector] | None) -> tuple[Expression, ...]:
    """Return selectors as they are judged."""
    return tuple(
        Expression(text=selector.cel.expression, origin=f"selector {index}")
        for index, selector in enumerate(selectors or ())
        if selector.cel is not None
    )


def is_complete(parts: Mapping[str, ResourceSlice]) -> bool:
    """Return whether all slices of the newest generation of a pool are there."""
    newest = _newest(parts)
    return all(one.spec.pool.resource_slice_count == len(newest) for one in newest.values())


def completed(parts: Mapping[str, ResourceSlice]) -> Mapping[str, ResourceSlice]:
    """Return the slices of a pool, as if what is there of the newest generation were all of it.

    Older ones stay: a node whose own slices are whole has them, whatever other nodes see.
    """
    if is_complete(parts):
        return dict(parts)
    newest = _newest(parts)
    return {**parts, **{name: _of_count(one, len(newest)) for name, one in newest.items()}}


def _newest(parts: Mapping[str, ResourceSlice]) -> Mapping[str, ResourceSlice]:
    newest = max((one.spec.pool.generation for one in parts.values()), default=0)
    return {name: one for name, one in parts.items() if one.spec.pool.generation == newest}


def _of_count(one: ResourceSlice, count: int) -> ResourceSlice:
    pool = replace(one.spec.pool, resource_slice_count=count)
    return replace(one, spec=replace(one.spec, pool=pool))


def _pool_of(one: ResourceSlice) -> PoolId:
    return PoolId(one.spec.driver, one.spec.pool.name)


def _on_node(node: NodeDevices, of_class: tuple[Expression, ...]) -> Mapping[str, Seen]:
    chosen = chain(of_class).selection(node).chosen
    found: dict[str, Seen] = {}
    for position, each in enumerate(node.devices):
        if chosen >> position & 1:
            amounts = {name: one.value for name, one in (each.device.capacity or {}).items()}
            one = Seen(nodes=1, devices=1, on_one_node=1, capacity=amounts)
            before = found.get(each.id.driver)
            found[each.id.driver] = one if before is None else _beside(before, one)
    return found


def _beside(before: Seen, one: Seen) -> Seen:
    count = before.devices + one.devices
    capacity = _largest(before.capacity, one.capacity)
    return Seen(nodes=1, devices=count, on_one_node=count, capacity=capacity)


def _added(before: Seen, seen: Seen, number: int) -> Seen:
    return Seen(
        nodes=before.nodes + number,
        devices=before.devices + seen.devices * number,
        on_one_node=max(before.on_one_node, seen.on_one_node),
        capacity=_largest(before.capacity, seen.capacity),
    )


def _largest(one: Mapping[str, Quantity], other: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    return {
        name: max(each[name] for each in (one, other) if name in each)
        for name in sorted({*one, *other})
    }
