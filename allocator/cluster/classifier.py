"""The equivalence class of each node, with the state that a verdict about the class depends on."""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator
from itertools import chain
from typing import Final

from allocator.cluster import equivalence
from allocator.cluster.equivalence import Projection
from allocator.cluster.interned_keys import InternedKeys
from allocator.cluster.inventory import Inventory
from allocator.cluster.verdict_cache import Partition, ProjectedNode
from allocator.cluster.verdicts import ClassKey, ClassState, FeasibilityKey
from allocator.model.requests import PendingClaims
from allocator.search.attempt import AllocatorOptions
from kube.cel.scope import AnswerInterrupted, AnswersPending, BudgetSpent, current_scope

_READS_PER_STEP: Final = 16
"""Verdicts that are looked up in the time of a step."""


class Classifier:
    """The assignment of nodes to classes, and the use and free devices of these."""

    def __init__(self, inventory: Inventory, keys: InternedKeys, options: AllocatorOptions) -> None:
        self._inventory = inventory
        self._keys = keys
        self._options = options
        # Number of shared pools to the number of their use now.
        self._shared_uses: dict[int, int] = {}

    def forget_shared_uses(self) -> None:
        """Note that the use of a shared pool changed."""
        self._shared_uses.clear()

    def assign_nodes(
        self, partition: Partition, projection: Projection, number: int | None, start: str = ""
    ) -> AnswerInterrupted | None:
        """Assign the nodes that changed to a class, and some of those that are in none yet.

        The engine is to hear at once of all verdicts that are missing, as far as it takes them, so nodes
        beyond the number are read once some are.

        Args:
            number: The maximum number of nodes without a class that are assigned; None for all.
            start: The node with which these begin, in the order of names.

        Returns:
            The reason for which nodes remained without a class; None if all were assigned.
        """
        interruption: AnswersPending | BudgetSpent | None = None
        for name in tuple(partition.stale):
            try:
                self._assign(partition, name, projection)
            except (AnswersPending, BudgetSpent) as error:
                partition.assign(name, None)
                partition.unassigned[name] = None
                interruption = error
            partition.stale.discard(name)
        pending = interruption if isinstance(interruption, AnswersPending) else None
        if number == 0 and pending is None:
            return interruption
        names: Iterable[str] = tuple(partition.unassigned)
        if start:
            names = (name for name in self._in_turn(start) if name in partition.unassigned)
        for count, name in enumerate(names):
            is_enough = number is not None and count >= number
            if is_enough and (pending is None or not pending.has_room):
                break
            try:
                self._assign(partition, name, projection)
                del partition.unassigned[name]
            except AnswersPending as error:
                interruption = pending = error
            except BudgetSpent as error:
                return interruption or error
        return interruption

    def _in_turn(self, start: str) -> Iterator[str]:
        """Yield all nodes in order, those before a start behind the others.

        They are read as far as they are needed, so that an answer costs no sort of all nodes.
        """
        names = self._inventory.names
        place = bisect_left(names, start)
        for number in chain(range(place, len(names)), range(place)):
            yield names[number]

    def _assign(self, partition: Partition, name: str, projection: Projection) -> None:
        """Assign a node to its class in a partition.

        Raises:
            AnswerInterrupted: As `equivalence.projected_key` does.
        """
        entry = self._inventory.entries.get(name)
        if entry is None:
            partition.projected.pop(name, None)
            partition.assign(name, None)
            return
        projected = partition.projected.get(name)
        if projected is None or projected.entry is not entry:
            reads = len(projection.chains) * len(entry.devices.devices)
            current_scope().meter.charge(1 + reads // _READS_PER_STEP)
            number = self._keys.number(equivalence.projected_key(entry.devices, projection))
            pools = equivalence.relevant_pools(entry.devices, projection, self._options)
            pools = partition.pool_sets.setdefault(pools, pools)
            projected = partition.projected[name] = ProjectedNode(entry, number, pools)
        uses, shared = entry.pool_uses, entry.shared_pools
        own_uses = tuple([(index, uses[index]) for index in projected.pools if uses[index]])
        seen_pools = tuple([(index, shared[index]) for index in projected.pools if shared[index]])
        class_key = (
            entry.published,
            self._keys.number(own_uses) if own_uses else 0,
            projected.projected,
            self._keys.number(seen_pools) if seen_pools else 0,
        )
        pool_ids = [entry.devices.pools[index].id for index, _ in seen_pools]
        partition.assign(name, class_key, pool_ids)

    def class_state(self, partition: Partition, class_key: ClassKey) -> ClassState:
        """Return the key of a class with the use of its shared pools now."""
        if not class_key[3]:
            return class_key
        published_key, own_uses, projected, shared = class_key
        number = self._shared_uses.get(shared)
        if number is None:
            name = next(iter(partition.members[class_key]))
            node, pools = self._inventory.entries[name], partition.projected[name].pools
            uses = tuple(
                [
                    (index, self._inventory.pool_use_number(node.devices.pools[index]))
                    for index in pools
                    if node.shared_pools[index]
                ]
            )
            number = self._shared_uses[shared] = self._keys.number(uses)
        return published_key, own_uses, projected, number

    def free_signature(
        self, partition: Partition, class_key: ClassKey, projection: Projection
    ) -> Hashable | None:
        """Return a class's free signature, as numbers; None if the order of devices may matter.

        What is free in shared pools is the same for many classes, so it is a number of its own.
        """
        own = partition.free_signatures.get(class_key)
        if own is None:
            own = self._free_number(partition, class_key, projection, in_shared_pools=False)
            partition.free_signatures[class_key] = own
        if not own or not class_key[3]:
            return own or None
        published_key, _, projected, _ = class_key
        *_, shared_use = self.class_state(partition, class_key)
        place = (published_key, projected, shared_use)
        rest = partition.shared_signatures.get(place)
        if rest is None:
            rest = self._free_number(partition, class_key, projection, in_shared_pools=True)
            partition.shared_signatures[place] = rest
        return (own, rest) if rest else None

    def feasibility_key(
        self,
        partition: Partition,
        class_key: ClassKey,
        projection: Projection,
        pending: PendingClaims,
    ) -> FeasibilityKey:
        """Return the key of a class's nodes for any number of claims that may come together.

        Args:
            partition: The partition by the projection of the claims.
            class_key: The class.
            projection: The projection of the claims.
            pending: The claims, each once.
        """
        *_, shared = class_key
        if shared:
            return FeasibilityKey(class_key, sees_shared_pools=True)
        # Where order makes no difference to one of the claims, it makes none to several.
        free = None
        if equivalence.is_order_independent(pending):
            free = self.free_signature(partition, class_key, projection)
        return FeasibilityKey(class_key if free is None else free, sees_shared_pools=False)

    def _free_number(
        self,
        partition: Partition,
        class_key: ClassKey,
        projection: Projection,
        *,
        in_shared_pools: bool,
    ) -> int:
        """Return the number of the free part of a class's pools; 0 if device order may matter."""
        node = next(iter(partition.members[class_key]))
        devices, shared_pools = (
            self._inventory.devices[node],
            self._inventory.entries[node].shared_pools,
        )
        published_key, _, projected, _ = class_key
        signature = partition.signatures.get((published_key, projected))
        if signature is None:
            signature = equivalence.node_signature(devices, projection, self._options) or ()
            partition.signatures[published_key, projected] = signature
        pools = frozenset(
            index
            for index in partition.projected[node].pools
            if bool(shared_pools[index]) is in_shared_pools
        )
        if not signature or equivalence.has_group_across(signature, devices, pools):
            return 0
        free = equivalence.free_signature(signature, devices, pools, self._inventory.usage)
        return 0 if free is None else self._keys.number(("free", free))
