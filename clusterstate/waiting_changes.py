"""The changes of slices and nodes that are applied together, so that no batch takes long.

A change of a slice lays out all nodes that may see its pool. So a pool is a unit: all its slices that
wait are applied together, and a generation that is complete never counts as incomplete in between. A
slice that moves from one pool to another makes one unit of both.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from allocator.model.devices import PoolId
from allocator.pods.claims import Name


class Unit(NamedTuple):
    """A node, or pools that can only be applied together with their slices that wait."""

    nodes: tuple[str, ...] = ()
    pools: tuple[PoolId, ...] = ()
    slices: tuple[Name, ...] = ()


class Part(msgspec.Struct):
    """Slices and nodes with changes that are applied together."""

    slices: list[Name] = msgspec.field(default_factory=list)
    nodes: list[str] = msgspec.field(default_factory=list)


class WaitingChanges:
    """The slices and nodes with changes, or maybe with other taints; the first has waited longest."""

    def __init__(self) -> None:
        """Begin with none."""
        # Names of nodes, and pools, for the next parts.
        self._queue: dict[str | PoolId, None] = {}
        # Pools that too many nodes see for a part.
        self._wide: set[PoolId] = set()
        self._slices: dict[PoolId, dict[Name, None]] = {}
        # Slice to the pools that it is in now, and was in when it was applied last.
        self._pools: dict[Name, dict[PoolId, None]] = {}

    def __len__(self) -> int:
        """Return the number of pools and nodes that wait for a part."""
        return len(self._queue)

    @property
    def has_wide_pools(self) -> bool:
        """Return True if pools wait that too many nodes see for a part."""
        return bool(self._wide)

    def put_node(self, name: str) -> None:
        """Have a node wait."""
        self._queue[name] = None

    def put_slice(self, name: Name, pools: Iterable[PoolId]) -> None:
        """Have a slice wait.

        Args:
            name: Its name.
            pools: The pools that it is in now, and was in when it was applied last.
        """
        for pool in pools:
            self._pools.setdefault(name, {})[pool] = None
            self._slices.setdefault(pool, {})[name] = None
            if pool not in self._wide:
                self._queue[pool] = None

    def clear(self) -> None:
        """Have nothing wait."""
        for collection in (self._queue, self._wide, self._slices, self._pools):
            collection.clear()

    def take_part(
        self,
        count_nodes: Callable[[Unit], int],
        *,
        max_size: int | None = None,
        max_nodes: int | None = None,
    ) -> Part:
        """Return the next part to apply, and remove it from the waiting changes.

        Args:
            count_nodes: Returns how many nodes are laid out for pools.
            max_size: Slices that change and nodes that are laid out for a part, unless it is one unit;
                None for any number.
            max_nodes: Pools for which more nodes are laid out get no part; None for any number.
        """
        part, size = Part(), 0
        for entry in list(self._queue):
            if entry not in self._queue:
                continue  # It was in the unit of a pool before.
            unit = self._unit_of(entry)
            nodes = count_nodes(unit) if unit.pools else 1
            if self._has_wide(unit) or (max_nodes is not None and nodes > max_nodes):
                self._widen(unit)
                continue
            unit_size = max(nodes, len(unit.slices))
            if max_size is not None and size and size + unit_size > max_size:
                break
            size += unit_size
            self._remove(unit)
            part.slices += unit.slices
            part.nodes += unit.nodes
        return part

    def _unit_of(self, entry: str | PoolId) -> Unit:
        """Return a node; or a pool with those that share slices with it, also by way of others."""
        if isinstance(entry, str):
            return Unit(nodes=(entry,))
        pools, slices = [entry], dict(self._slices[entry])
        for unit_pool in pools:
            for name in self._slices[unit_pool]:
                slices[name] = None
                pools += [other for other in self._pools[name] if other not in pools]
        return Unit(pools=tuple(pools), slices=tuple(slices))

    def _has_wide(self, unit: Unit) -> bool:
        return not self._wide.isdisjoint(unit.pools)

    def _widen(self, unit: Unit) -> None:
        self._wide.update(unit.pools)
        for pool in unit.pools:
            self._queue.pop(pool, None)

    def _remove(self, unit: Unit) -> None:
        for node in unit.nodes:
            del self._queue[node]
        for pool in unit.pools:
            self._queue.pop(pool, None)
            del self._slices[pool]
        for name in unit.slices:
            del self._pools[name]
