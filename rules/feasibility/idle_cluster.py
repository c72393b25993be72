"""The idle cluster: the published inventory without allocations.

It decides what is feasible at all. Two temporary causes are ignored, so that only the inventory
counts: device taints, which go when a fault is repaired, and slices of a pool that are not published
yet. `evidence_gap` says why the inventory may be incomplete all the same.

The verdicts are those of the allocator's own search, so claims that fit here fit a node of the real
cluster once its devices are free. Each verdict has a bound in steps and is cached until the inventory
changes.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.cluster.equivalence import Projection
from allocator.compatibility.compile import CompiledPolicy
from allocator.explain.change import ClosestFit
from allocator.explain.closest_fit import closest_fit_when_idle
from allocator.model.devices import NodeDevices, PoolId, PoolState, pool_of
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed, BudgetExhausted
from allocator.model.plan import Plan
from allocator.model.requests import Expression, PendingClaims, Request
from allocator.model.selectors import SelectorChain, clear_selector_caches, selector_chain
from allocator.model.usage import Usage
from allocator.nodes.amounts import ResourceAmounts, read_amounts
from allocator.pods.extended_resource_claim import device_plugin_resources
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import allocate
from kube.api.core import Node
from kube.api.meta import encode
from kube.api.resource import DeviceClass, DeviceSelector, ResourceClaim, ResourceSlice
from kube.quantity import ZERO, Quantity
from rules.feasibility.bounded_search import (
    BUDGET,
    Feasibility,
    example_nodes,
    feasibility,
    summarize_reasons,
)
from rules.feasibility.high_water_mark import ClassStock, DriverStock
from rules.feasibility.unusable_pools import Remedy, UnusablePool, explain_unusable_pool

MAX_INCOMPLETE: Final = 8
"""Nodes with an incomplete pool that are tried, each with a search."""
SEARCHES: Final = 300
"""Cost of a closest fit, in searches of one node."""
MAX_ANSWERS: Final = 4096
MAX_SIZE: Final = 512 * 1024
"""Bytes of claims, as JSON, that cached answers hold; a compiled selector takes a hundred times its
length."""

T = TypeVar("T")
Claims = Sequence[ResourceClaim]


class IdleCluster:
    """The inventory of a cluster without allocations. Not thread-safe.

    Attributes:
        rules: Feature gates and policies in force.
    """

    def __init__(
        self,
        *,
        slices: Iterable[ResourceSlice],
        nodes: Iterable[Node],
        classes: Mapping[str, DeviceClass],
        rules: AllocatorOptions,
    ) -> None:
        """Build the cluster from an inventory.

        Args:
            slices: Published slices of all generations, without taints of DeviceTaintRules.
            classes: The DeviceClasses by name; call `forget_answers` after a change of the mapping.
        """
        features: Features = replace(rules.features, device_taints=False)
        self.rules = replace(rules, features=features)
        self._classes = classes
        self._pools: dict[PoolId, dict[str, ResourceSlice]] = {}
        for number, slice_ in enumerate(slices):
            name = slice_.metadata.name or f"#{number}"
            self._pools.setdefault(pool_of(slice_), {})[name] = slice_
        self._incomplete = {pool for pool, parts in self._pools.items() if not is_complete(parts)}
        self._cluster = Cluster(
            slices=[
                slice_
                for parts in self._pools.values()
                for slice_ in complete_slices(parts).values()
            ],
            nodes=nodes,
            claims=(),
            classes=classes,
            options=self.rules,
        )
        self._answers: dict[Hashable, Any] = {}
        self._size = 0

    # --- changes ---------------------------------------------------------------------------------

    def replace_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Add, change or remove a slice."""
        changed_pools = sorted({pool_of(slice_) for slice_ in (old, new) if slice_ is not None})
        before = {pool: complete_slices(self._pools.get(pool, {})) for pool in changed_pools}
        if old is not None:
            self._pools.get(pool_of(old), {}).pop(old.metadata.name, None)
        if new is not None:
            self._pools.setdefault(pool_of(new), {})[new.metadata.name] = new
        for pool in changed_pools:
            after = complete_slices(self._pools.get(pool, {}))
            for name in sorted({*before[pool], *after}):
                was, now = before[pool].get(name), after.get(name)
                if was != now:
                    self._cluster.replace_slices([(was, now)])
            self._incomplete.discard(pool)
            if not self._pools.get(pool):
                self._pools.pop(pool, None)
            elif not is_complete(self._pools[pool]):
                self._incomplete.add(pool)
        self.forget_answers()

    def replace_node(self, name: str, node: Node | None) -> None:
        """Add, change or remove a node."""
        self._cluster.replace_node(name, node)
        self.forget_answers()

    def forget_answers(self) -> None:
        """Drop every cached answer, after a change of something that it depends on."""
        self._answers.clear()
        self._size = 0

    def memoize(self, key: Hashable, compute: Callable[[], T], *, size: int = 0) -> T:
        """Return the cached answer, or compute and cache it until the inventory changes.

        Args:
            size: Bytes that the answer holds, where a user of the cluster chooses them.
        """
        if key not in self._answers:
            if len(self._answers) >= MAX_ANSWERS or self._size + size > MAX_SIZE:
                self.forget_answers()
                clear_selector_caches()
            self._answers[key] = compute()
            self._size += size
        answer: T = self._answers[key]
        return answer

    # --- questions -------------------------------------------------------------------------------

    def ask(self, claims: Claims) -> PendingClaims:
        """Return the claims as requests of the search.

        Raises:
            AttemptFailed: No node can satisfy them: a class is missing, a feature gate is off.
        """
        return self._cluster.resolve(claims)

    def feasibility(self, claims: Claims) -> Feasibility:
        """Search for a node that fits the claims together."""
        key = ("feasibility", signature(claims).hash)
        return self.memoize(key, lambda: self._feasibility(claims))

    def is_feasible_without_modes(self, claims: Claims) -> bool:
        """Return True if an example node fits the claims if all device modes were compatible."""
        features = replace(self.rules.features, compatibility_groups=False)
        return self._is_feasible_under(claims, replace(self.rules, features=features, policies=()))

    def deciding_policies(self, claims: Claims) -> tuple[str, ...]:
        """Return the names of policies that have to go for an example node to fit the claims; empty if they do not decide."""
        if not self.rules.policies or not self._is_feasible_under(
            claims, replace(self.rules, policies=())
        ):
            return ()
        harmless: list[CompiledPolicy] = []
        names: list[str] = []
        for policy in self.rules.policies:
            if self._is_feasible_under(claims, replace(self.rules, policies=(*harmless, policy))):
                harmless.append(policy)
            else:
                names.append(policy.name)
        return tuple(names)

    def _is_feasible_under(self, claims: Claims, rules: AllocatorOptions) -> bool:
        """Return True if an example node fits the claims under other rules."""
        try:
            pending = self.ask(claims)
            return any(
                isinstance(allocate(node, pending, Usage(), rules, budget=BUDGET), Plan)
                for node in self.example_nodes(pending)
            )
        except AttemptFailed:
            return False

    def example_nodes(self, pending: PendingClaims) -> tuple[NodeDevices, ...]:
        """Return one node of each equivalence class, those with the most selected devices first."""
        return tuple(slice_.node for slice_ in example_nodes(self._cluster, pending))

    def summarize_reasons(self, claims: Claims) -> tuple[str, ...]:
        """Return the reasons against the devices of nodes, aggregated, in one line.

        Raises:
            AttemptFailed: The attempt ends on all nodes.
        """
        return summarize_reasons(self._cluster, self.ask(claims))

    def closest_fit(self, claims: Claims) -> ClosestFit | None:
        """Return the smallest change that makes the claims feasible; None if none was found."""
        try:
            names = [node.node for node in self.example_nodes(self.ask(claims))]
        except AttemptFailed:
            return None
        return closest_fit_when_idle(self._cluster, claims, nodes=names, searches=SEARCHES)

    def class_stock(self, device_class: str) -> ClassStock:
        """Return the devices that a class selects, by driver; empty if the class does not exist."""
        return self.memoize(("stock", device_class), lambda: self._class_stock(device_class))

    def unusable_pools(self, claims: Claims) -> tuple[UnusablePool, ...]:
        """Return the pools with nothing but unusable devices for the only request of a claim."""
        (request,) = self.ask(claims).requests[0][0]
        selectors = selector_chain(request.expressions)
        causes = (self._explain_unusable(pool, selectors) for pool in sorted(self._pools))
        return tuple(cause for cause in causes if cause is not None)

    def _explain_unusable(self, pool: PoolId, selectors: SelectorChain) -> UnusablePool | None:
        return explain_unusable_pool(
            pool,
            tuple(_newest(self._pools[pool]).values()),
            self._cluster.visible_pool(pool),
            nodes=self._cluster.nodes,
            features=self.rules.features,
            selectors=selectors,
        )

    def without_plugin(self, resources: Collection[str]) -> frozenset[str]:
        """Return the extended resources that no node's device plugin offers; empty if unknown."""
        is_known, names = self.memoize("offered", self._plugin_resources)
        return frozenset(resources) - names if is_known else frozenset()

    def largest_plugin_offer(self, resource: str) -> int:
        """Return the largest number of a resource that a device plugin offers on one node."""
        return self.memoize(("offer", resource), lambda: self._largest_plugin_offer(resource))

    # --- evidence --------------------------------------------------------------------------------

    @property
    def drivers(self) -> frozenset[str]:
        """Drivers that have slices."""
        return self.memoize("drivers", lambda: frozenset(pool.driver for pool in self._pools))

    def allocatable_nodes(self) -> Mapping[str, ResourceAmounts]:
        """Return the allocatable resources of the nodes that tell them, by name."""
        return self.memoize("allocatable", self._allocatable_nodes)

    def _allocatable_nodes(self) -> Mapping[str, ResourceAmounts]:
        return {
            name: read_amounts(node.status.allocatable)
            for name, node in self._cluster.nodes.items()
            if node.status.allocatable is not None
        }

    def fitting_nodes(self, claims: Claims) -> tuple[str, ...]:
        """Return the nodes with the devices of claims; none without an answer about all nodes."""
        try:
            verdicts = self._cluster.verdicts(self.ask(claims), budget=BUDGET)
        except AttemptFailed:
            return ()
        outcomes = [(node, outcome) for node, outcome, _ in verdicts]
        if any(isinstance(outcome, BudgetExhausted) for _, outcome in outcomes):
            return ()
        return tuple(node for node, outcome in outcomes if isinstance(outcome, Plan))

    def incomplete_pool_for(self, claims: Claims) -> tuple[PoolId, str] | None:
        """Return the first incomplete pool of a node that fits claims once it is complete, and the node; None without one."""
        nodes = {
            slice_.spec.node_name: pool
            for pool in sorted(self._incomplete)
            for slice_ in _newest(self._pools[pool]).values()
            if slice_.spec.node_name in self._cluster.nodes
        }
        names = sorted(filter(None, nodes))[:MAX_INCOMPLETE]
        if not names:
            return None
        verdicts = self._cluster.verdicts(self.ask(claims), budget=BUDGET, nodes=names)
        fitting = (node for node, outcome, _ in verdicts if isinstance(outcome, Plan))
        node = next(fitting, None)
        return None if node is None else (nodes[node], node)

    def describe_incomplete_pool(self, pool: PoolId) -> str:
        """Return the missing slices of an incomplete pool: `pool a is incomplete: 1 of 2 slices of generation 1`."""
        newest = tuple(_newest(self._pools[pool]).values())
        of_pool = newest[0].spec.pool
        expected = f"{of_pool.resource_slice_count} slices of generation {of_pool.generation}"
        return f"pool {pool.pool} is incomplete: {len(newest)} of {expected}"

    def evidence_gap(self, drivers: Iterable[str]) -> str:
        """Return the reason the slices of drivers are no evidence; empty if they are.

        The cause comes before the driver, since the API server cuts long warnings.
        """
        gaps = (
            self.memoize(("evidence gap", driver), partial(self._evidence_gap, driver))
            for driver in sorted(drivers)
        )
        return next(filter(None, gaps), "")

    def _evidence_gap(self, driver: str) -> str:
        pools = sorted(pool for pool in self._pools if pool.driver == driver)
        if not pools:
            return f"driver {driver} has no slices"
        for pool in pools:
            parts = self._pools[pool]
            if not is_complete(parts):
                return f"{self.describe_incomplete_pool(pool)}, driver {driver}"
            unusable = self._explain_unusable(pool, selector_chain(()))
            if unusable is not None and unusable.remedy is Remedy.GATE:
                return f"pool {pool.pool} is unusable: {unusable.cause}, driver {driver}"
            visible_pool = self._cluster.visible_pool(pool)
            if visible_pool is None:
                return f"pool {pool.pool} is for nodes that do not exist, driver {driver}"
            if visible_pool.state is not PoolState.COMPLETE:
                state = f"{visible_pool.state.value}: {visible_pool.why}"
                return f"pool {pool.pool} is {state}, driver {driver}"
        return ""

    # --- verdicts --------------------------------------------------------------------------------

    def _feasibility(self, claims: Claims) -> Feasibility:
        try:
            pending = self.ask(claims)
            return (
                Feasibility.INFEASIBLE
                if self._exceeds_every_device(pending)
                else feasibility(self._cluster, pending)
            )
        except AttemptFailed:
            return Feasibility.NOT_EVALUATED

    def _exceeds_every_device(self, pending: PendingClaims) -> bool:
        """Return True if a request needs more than any device of its class has, without a search."""
        return any(
            all(map(self._exceeds_class, alternatives))
            for claim in pending.requests
            for alternatives in claim
        )

    def _exceeds_class(self, request: Request) -> bool:
        amounts = request.capacity
        if not amounts:
            return False
        stock = self.class_stock(request.device_class.metadata.name).values()
        return any(
            all(
                name not in stock_entry.capacity or amount > stock_entry.capacity[name]
                for stock_entry in stock
            )
            for name, amount in amounts.items()
        )

    def _plugin_resources(self) -> tuple[bool, frozenset[str]]:
        """Return True if all nodes have status.allocatable, and the resources of device plugins."""
        nodes = self._cluster.nodes.values()
        resources = frozenset(name for node in nodes for name in device_plugin_resources(node))
        return all(node.status.allocatable is not None for node in nodes), resources

    def _largest_plugin_offer(self, resource: str) -> int:
        nodes = self._cluster.nodes.values()
        offers = ((node.status.allocatable or {}).get(resource, ZERO) for node in nodes)
        return int(max(offers, default=ZERO))

    def _class_stock(self, name: str) -> ClassStock:
        device_class = self._classes.get(name)
        if device_class is None:
            return {}
        of_class = expressions(device_class.spec.selectors)
        stock: dict[str, DriverStock] = {}
        for node, number in self._cluster.equivalence_classes(
            Projection((selector_chain(of_class),), (), (), reads_capacities=True)
        ):
            for driver, on_node in _node_stock(node, of_class).items():
                stock[driver] = _with_nodes(stock.get(driver, DriverStock()), on_node, number)
        return stock


class Signature(NamedTuple):
    """A short key for claims, since these may be as long as a request body.

    Attributes:
        hash: A hash of everything that an answer depends on, including names in messages.
        size: Bytes of the claims as JSON.
    """

    hash: bytes
    size: int


def signature(claims: Claims) -> Signature:
    """Return the signature of claims."""
    text = encode(
        [(claim.metadata.namespace, claim.metadata.name, claim.spec.devices) for claim in claims]
    )
    return Signature(sha256(text).digest(), len(text))


def expressions(selectors: Iterable[DeviceSelector] | None) -> tuple[Expression, ...]:
    """Return selectors as the allocator evaluates them."""
    return tuple(
        Expression(text=selector.cel.expression, origin=f"selector {index}")
        for index, selector in enumerate(selectors or ())
        if selector.cel is not None
    )


def is_complete(parts: Mapping[str, ResourceSlice]) -> bool:
    """Return True if all slices of the newest generation of a pool exist."""
    newest = _newest(parts)
    return all(slice_.spec.pool.resource_slice_count == len(newest) for slice_ in newest.values())


def complete_slices(parts: Mapping[str, ResourceSlice]) -> Mapping[str, ResourceSlice]:
    """Return the slices of a pool as if its newest generation were complete.

    Older generations stay: a node whose own slices are complete uses them.
    """
    if is_complete(parts):
        return dict(parts)
    newest = _newest(parts)
    return {**parts, **{name: _of_count(slice_, len(newest)) for name, slice_ in newest.items()}}


def _newest(parts: Mapping[str, ResourceSlice]) -> Mapping[str, ResourceSlice]:
    newest = max((slice_.spec.pool.generation for slice_ in parts.values()), default=0)
    return {name: slice_ for name, slice_ in parts.items() if slice_.spec.pool.generation == newest}


def _of_count(slice_: ResourceSlice, count: int) -> ResourceSlice:
    pool = replace(slice_.spec.pool, resource_slice_count=count)
    return replace(slice_, spec=replace(slice_.spec, pool=pool))


def _node_stock(node: NodeDevices, of_class: tuple[Expression, ...]) -> Mapping[str, DriverStock]:
    """Return the selected devices of one node, by driver."""
    selected_bits = selector_chain(of_class).selection(node).selected
    stocks: dict[str, DriverStock] = {}
    for position, published_device in enumerate(node.devices):
        if selected_bits >> position & 1:
            amounts = {
                name: amount.value
                for name, amount in (published_device.device.capacity or {}).items()
            }
            device = DriverStock(nodes=1, devices=1, on_one_node=1, capacity=amounts)
            before = stocks.get(published_device.id.driver)
            stocks[published_device.id.driver] = (
                device if before is None else _with_device(before, device)
            )
    return stocks


def _with_device(before: DriverStock, device: DriverStock) -> DriverStock:
    """Return the stock of a node with one more device."""
    count = before.devices + device.devices
    capacity = _largest(before.capacity, device.capacity)
    return DriverStock(nodes=1, devices=count, on_one_node=count, capacity=capacity)


def _with_nodes(before: DriverStock, on_node: DriverStock, number: int) -> DriverStock:
    """Return a stock with a number of equal nodes more."""
    return DriverStock(
        nodes=before.nodes + number,
        devices=before.devices + on_node.devices * number,
        on_one_node=max(before.on_one_node, on_node.on_one_node),
        capacity=_largest(before.capacity, on_node.capacity),
    )


def _largest(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    return {
        name: max(amounts[name] for amounts in (left, right) if name in amounts)
        for name in sorted({*left, *right})
    }
