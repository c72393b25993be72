"""The nodes of a cluster with their devices, and the use of these, as numbers that compare cheaply.

A change returns what it concerns: nodes one by one, but a pool that several nodes may see as one.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import NamedTuple

from msgspec.structs import replace

from allocator.cluster import equivalence
from allocator.cluster.interned_keys import InternedKeys
from allocator.cluster.verdict_cache import Entry
from allocator.features.consumer_limits import assigned_pools
from allocator.model import pools, slice_index
from allocator.model.devices import NodeDevices, Pool, PoolId
from allocator.model.outcome import AttemptFailed
from allocator.model.slice_index import SliceChange
from allocator.model.usage import PoolUse, Usage
from allocator.nodes.node_changes import NodeChanges
from allocator.search.attempt import AllocatorOptions
from kube.api.core import Node
from kube.api.resource import ResourceClaim, ResourceSlice


class SharedPool(NamedTuple):
    """A pool that several nodes may see.

    Attributes:
        number: A number that no other pool gets.
        nodes: The nodes that see the pool.
        devices_number: The number of the pool's `devices_key`; 0 if the key depends on the node.
    """

    pool: Pool
    number: int
    nodes: dict[str, None]
    devices_number: int


class Change(NamedTuple):
    """The scope of a change.

    Attributes:
        nodes: Nodes that are new or gone, or whose devices or own usage changed.
        shared_pools: Shared pools whose use changed; the nodes that see them are not in `nodes`.
    """

    nodes: Sequence[str]
    shared_pools: Sequence[PoolId] = ()


class Inventory:
    """The nodes with their devices, and the usage.

    Attributes:
        options: Feature gates, policies in force, and what is known of devices that vanished.
        usage: Usage by all allocated claims; a value that is replaced with every change.
        nodes: All nodes by name.
        devices: Devices of each node.
        entries: Node to its keys.
        changes: The nodes whose devices or usage changed.
    """

    def __init__(
        self,
        *,
        slices: Iterable[ResourceSlice],
        nodes: Iterable[Node],
        usage: Usage,
        options: AllocatorOptions,
        keys: InternedKeys,
    ) -> None:
        """Lay out all nodes."""
        self.usage = usage
        self.nodes = {node.metadata.name: node for node in nodes}
        self.devices: dict[str, NodeDevices] = {}
        self.entries: dict[str, Entry] = {}
        self.options = options
        self.changes = NodeChanges()
        self._names: tuple[str, ...] | None = None
        self._keys = keys
        self._index = slice_index.build_index(slices, options.features)
        self._nodes_of_pool: dict[PoolId, dict[str, None]] = {}
        # Those that see the pool as a shared one.
        self._sharing_nodes: dict[PoolId, dict[str, None]] = {}
        self._shared_pools: dict[int, SharedPool] = {}
        self._pool_numbers = count(1)
        self._pool_use_numbers: dict[int, tuple[Pool, PoolUse, int]] = {}
        for name in sorted(self.nodes):
            self._add_node(name)

    @property
    def names(self) -> Sequence[str]:
        """The names of the nodes, sorted."""
        if self._names is None:
            self._names = tuple(sorted(self.nodes))
        return self._names

    def visible_pool(self, pool: PoolId) -> Pool | None:
        """Return a pool as the first node that sees it does; None if no node sees it."""
        for name in self._nodes_of_pool.get(pool, ()):
            return next(candidate for candidate in self.devices[name].pools if candidate.id == pool)
        return None

    def replace_slices(self, changes: Sequence[SliceChange]) -> Change:
        """Update the nodes after slices were added, changed or deleted.

        A pool may have slices on several nodes, and each of these nodes depends on all slices: for
        whether the pool is complete, and for the available amounts of its counters.
        """
        before, self._index = self._index, self._index.replace_all(changes)
        names = slice_index.nodes_of_changes(before, self._index, changes)
        changed_names = sorted(self.nodes if names is None else names & self.nodes.keys())
        for name in changed_names:
            self._add_node(name)
        return Change(nodes=changed_names)

    def replace_node(self, name: str, node: Node | None) -> Change:
        """Update the nodes after one was added, changed or deleted."""
        if node is None or name not in self.nodes:
            self._names = None
        if node is None:
            self._remove_node(name)
            self.nodes.pop(name, None)
            return Change(nodes=[name])
        self.nodes[name] = node
        self._add_node(name)
        return Change(nodes=[name])

    def change_usage(self, claim: ResourceClaim, usage: Usage) -> Change:
        """Replace the usage by one that differs in the devices of one claim."""
        before, self.usage = self.usage, usage
        allocation = claim.status.allocation if claim.status else None
        results = (allocation.devices.results if allocation else None) or ()
        claimed_pools = {PoolId(result.driver, result.pool) for result in results}
        return self._use_changed(claimed_pools, before)

    def replace_usage(self, usage: Usage) -> Change:
        """Replace the usage by another one."""
        before, self.usage = self.usage, usage
        if usage is before:
            return Change(nodes=())
        return self._use_changed(before.pools.keys() | usage.pools.keys(), before)

    def _use_changed(self, pools_in_use: Collection[PoolId], before: Usage) -> Change:
        """Take in that the usage of some of these pools is another than before."""
        usage = self.usage
        changed_pools = {
            pool for pool in pools_in_use if before.pools.get(pool) is not usage.pools.get(pool)
        }
        changed_nodes: list[str] = []
        shared_pools: list[PoolId] = []
        for pool_id in changed_pools:
            nodes = self._nodes_of_pool.get(pool_id, {})
            sharing_nodes = self._sharing_nodes.get(pool_id)
            if sharing_nodes:
                shared_pools.append(pool_id)
                if len(sharing_nodes) == len(nodes):
                    continue
            for name in nodes:
                entry = self.entries[name]
                for index, pool in enumerate(entry.devices.pools):
                    if pool.id == pool_id and not entry.shared_pools[index]:
                        entry.pool_uses[index] = self.pool_use_number(pool)
                        changed_nodes.append(name)
        if shared_pools:
            self.changes.add_all()
        self.changes.add(changed_nodes)
        return Change(changed_nodes, shared_pools)

    def _add_node(self, name: str) -> None:
        """Add a node, or update one."""
        self._remove_node(name)
        node, error = self.nodes[name], None
        try:
            devices = pools.node_devices(self._index, node)
        except AttemptFailed as failure:
            # Only a verdict about this node raises it.
            error = failure.without_traceback()
            devices = pools.node_devices(slice_index.build_index((), self.options.features), node)
        if node_pools := assigned_pools(self.options.consumer_limits, devices):
            devices = replace(devices, node_pools=node_pools)
        self.devices[name] = devices
        for pool in devices.pools:
            self._nodes_of_pool.setdefault(pool.id, {})[name] = None
        shared_pools = [self._share(devices, pool) for pool in devices.pools]
        numbers = {
            index: pool.devices_number
            for index, pool in enumerate(shared_pools)
            if pool is not None
        }
        key = (
            equivalence.published_key(devices, self.options, numbers)
            if error is None
            else str(error)
        )
        pool_numbers = tuple([0 if pool is None else pool.number for pool in shared_pools])
        entry = self.entries[name] = Entry(devices, self._keys.number(key), pool_numbers, error)
        for index, pool in enumerate(devices.pools):
            if shared_pools[index] is None:
                entry.pool_uses[index] = self.pool_use_number(pool)

    def _share(self, node: NodeDevices, pool: Pool) -> SharedPool | None:
        """Count a node that sees a shared pool, and return it; None for one that is not shared."""
        shared_pool = self._shared_pools.get(id(pool))
        if shared_pool is None:
            if not equivalence.is_shared(pool):
                return None
            devices_number = 0
            if not equivalence.depends_on_node(pool):
                key = equivalence.devices_key(pool, node, self.options)
                devices_number = self._keys.number(("devices", key))
            shared_pool = SharedPool(pool, next(self._pool_numbers), {}, devices_number)
            self._shared_pools[id(pool)] = shared_pool
        shared_pool.nodes[node.node] = None
        self._sharing_nodes.setdefault(pool.id, {})[node.node] = None
        return shared_pool

    def _remove_node(self, name: str) -> None:
        self.changes.add((name,))
        devices = self.devices.pop(name, None)
        if devices is None:
            return
        del self.entries[name]
        for pool in devices.pools:
            _discard(self._nodes_of_pool, pool.id, name)
            shared_pool = self._shared_pools.get(id(pool))
            if shared_pool is not None:
                del shared_pool.nodes[name]
                _discard(self._sharing_nodes, pool.id, name)
                if shared_pool.nodes:
                    continue
                del self._shared_pools[id(pool)]
            self._pool_use_numbers.pop(id(pool), None)

    def pool_use_number(self, pool: Pool) -> int:
        """Return the number of a pool's use, cached for the latest; 0 if no device is in use."""
        pool_use = self.usage.pools.get(pool.id)
        if not pool_use:
            self._pool_use_numbers.pop(id(pool), None)
            return 0
        cached_number = self._pool_use_numbers.get(id(pool))
        if cached_number is None or cached_number[1] is not pool_use:
            number = self._keys.number(equivalence.usage_key(pool, pool_use, self.options))
            # The entry refers to the pool, so that its id is not reused.
            cached_number = self._pool_use_numbers[id(pool)] = (pool, pool_use, number)
        return cached_number[2]


def _discard(nodes_of_pool: dict[PoolId, dict[str, None]], pool: PoolId, node: str) -> None:
    """Take a node out, and the pool after its last one."""
    nodes = nodes_of_pool[pool]
    del nodes[node]
    if not nodes:
        del nodes_of_pool[pool]
