"""The inventory and usage of a cluster, kept up to date and evaluated as a whole.

Inventory and usage are values; this is the only place where they are replaced. A change costs what
it changes: an allocation concerns the nodes of its pools, a local slice concerns its node. A request
costs one search per equivalence class of nodes without a cached verdict.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from allocator.cluster import equivalence
from allocator.cluster.equivalence import Projection
from allocator.cluster.interned_keys import InternedKeys
from allocator.cluster.ranking import Limits, RankedNodes, Ranking
from allocator.cluster.verdict_cache import (
    MAX_KEY_BYTES,
    MAX_KEYS,
    MAX_PARTITIONS,
    MAX_RANKINGS,
    MAX_VERDICT_BYTES,
    MAX_VERDICTS,
    VERDICT_BYTES,
    Entry,
    Partition,
    Question,
    SearchCosts,
    encode_key,
    encode_requests,
)
from allocator.cluster.verdicts import CachedVerdict, ClassKey, ClassVerdict, Outcome, Verdicts
from allocator.model import pools
from allocator.model.devices import NodeDevices, Pool, PoolId
from allocator.model.outcome import AttemptFailed, BudgetExhausted
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims, resolve_requests
from allocator.model.usage import PoolUse, Usage, gather_usage, with_claim, without_claim
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import DEFAULT_BUDGET, allocate
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.strategy import Strategy
from kube.api.core import Node
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kube.sized_cache import SizedCache


class Cluster:
    """The inventory and usage of a cluster. Not thread-safe.

    Attributes:
        usage: Usage by all allocated claims; a value that is replaced with every change.
        options: Feature gates and policies in force.
        costs: Of the answers so far.
    """

    def __init__(
        self,
        *,
        slices: Iterable[ResourceSlice],
        nodes: Iterable[Node],
        claims: Iterable[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        options: AllocatorOptions,
    ) -> None:
        self.options = options
        self.costs = SearchCosts()
        self.usage = gather_usage(claims, options.features)
        self._classes = classes
        self._index = pools.build_index(slices, options.features)
        self._nodes = {node.metadata.name: node for node in nodes}
        self._entries: dict[str, Entry] = {}
        self._nodes_of_pool: dict[PoolId, dict[str, None]] = {}
        self._devices: dict[str, NodeDevices] = {}
        self._keys = InternedKeys(max_keys=MAX_KEYS, max_bytes=MAX_KEY_BYTES)
        self._pool_use_numbers: dict[int, tuple[Pool, PoolUse, int]] = {}
        self._partitions: dict[Hashable, Partition] = {}
        self._verdicts = SizedCache[Hashable, CachedVerdict](
            max_entries=MAX_VERDICTS, max_bytes=MAX_VERDICT_BYTES
        )
        self._ranked: OrderedDict[tuple[Hashable, bytes], None] = OrderedDict()
        for name in sorted(self._nodes):
            self._add_node(name)

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name."""
        return self._nodes

    # --- verdicts ---------------------------------------------------------------------------------

    def node_devices(self, node: str) -> NodeDevices:
        """Return the devices of a node; KeyError if there is no such node.

        If a slice is invalid, the node has no devices, and a verdict about it raises the error.
        """
        return self._devices[node]

    def resolve(self, claims: Sequence[ResourceClaim]) -> PendingClaims:
        """Resolve claims into requests.

        Raises:
            AttemptFailed: The claims are invalid on every node: a class is missing, a gate is off.
        """
        return resolve_requests(claims, self._classes, self.options.features)

    def verdict(
        self,
        pending: PendingClaims,
        node: str,
        *,
        strategy: Strategy = FIRST_FIT,
        budget: Budget = DEFAULT_BUDGET,
        usage: Usage | None = None,
    ) -> Outcome:
        """Search one node and return the outcome with its own devices.

        Args:
            usage: Other usage than there is, such as without the claims of a victim.

        Raises:
            AttemptFailed: The attempt fails.
        """
        error = self._entries[node].error
        if error is not None:
            raise error.without_traceback()
        devices, usage = self._devices[node], usage or self.usage
        order = strategy.order(devices, usage, pending)
        self.costs.searched += 1
        try:
            outcome = allocate(devices, pending, usage, self.options, budget=budget, order=order)
            self.costs.steps += outcome.steps
        except AttemptFailed as failure:
            self.costs.steps += failure.steps
            raise
        return outcome

    def verdicts(
        self,
        pending: PendingClaims,
        *,
        strategy: Strategy = FIRST_FIT,
        budget: Budget = DEFAULT_BUDGET,
        nodes: Collection[str] | None = None,
    ) -> Verdicts:
        """Return the verdicts about all nodes, with one search per equivalence class.

        Args:
            pending: The claims.
            strategy: Order of devices and score of nodes.
            budget: Maximum cost of each search.
            nodes: Only these nodes; None for all.

        Raises:
            AttemptFailed: The attempt fails on all nodes.
        """
        classes = self.class_verdicts(pending, strategy=strategy, budget=budget, nodes=nodes)
        return Verdicts(
            classes=tuple(classes),
            devices=self._devices,
            equivalence_keys=self.equivalence_keys,
            search=lambda node: self.verdict(pending, node, strategy=strategy, budget=budget),
        )

    def class_verdicts(
        self,
        pending: PendingClaims,
        *,
        strategy: Strategy = FIRST_FIT,
        budget: Budget = DEFAULT_BUDGET,
        nodes: Collection[str] | None = None,
    ) -> Iterator[ClassVerdict]:
        """Yield the verdict about each equivalence class, searched lazily.

        The cluster must not change while the iterator is in use.

        Args:
            pending: The claims.
            strategy: Order of devices and score of nodes.
            budget: Maximum cost of each search.
            nodes: Only these nodes; None for all.

        Raises:
            AttemptFailed: The attempt fails on all nodes.
        """
        question = self._question(pending, strategy, budget)
        partition = self._partition(question.projection)
        wanted_nodes = None if nodes is None else frozenset(nodes)
        for class_key, members in partition.members.items():
            names = members.keys() if wanted_nodes is None else wanted_nodes & members.keys()
            first = next(iter(names), None)
            if first is None:
                continue
            cached_verdict = self._find_verdict(question, partition, class_key)
            steps = 0
            if cached_verdict is None:
                cached_verdict = self._search_class(question, partition, class_key, first)
                steps = cached_verdict.outcome.steps
            outcome, score, representative, searched_class = cached_verdict
            same_order = searched_class == class_key
            yield ClassVerdict(
                outcome=outcome,
                score=score,
                representative=representative if same_order else self._devices[first],
                nodes=names,
                same_order=same_order,
                steps=steps,
            )

    def rank_nodes(
        self,
        pending: PendingClaims,
        *,
        strategy: Strategy = FIRST_FIT,
        budget: Budget = DEFAULT_BUDGET,
        limit: int | None = None,
        accepts: Callable[[str, Plan], bool] = lambda _name, _plan: True,
        may_use: Callable[[str], bool] = lambda _name: True,
        limits: Limits | None = None,
    ) -> RankedNodes:
        """Return the best nodes for claims.

        The cost is that of the nodes which changed since the claims were asked for last, of the classes
        that are searched, and of the nodes that are looked at, with all on which a search fails.

        Args:
            pending: The claims.
            strategy: Order of devices and score of nodes.
            budget: Maximum cost of each search.
            limit: Maximum number of nodes; None for all.
            accepts: Whether the caller wants a node that fits, with the plan of a node of its class.
            may_use: Whether a node counts on which a search fails; upstream searches no others.
            limits: The most that the answer may cost; None for all that is needed.

        Raises:
            AttemptFailed: The attempt fails on all nodes, or on a node that counts.
        """
        question = self._question(pending, strategy, budget)
        partition = self._partition(question.projection, limits)
        ranking = self._ranking(question, partition)
        ranking.update(partition.class_of, partial(self._find_verdict, question, partition))
        search = partial(self._search_class, question, partition)
        steps = ranking.search(partition.members, search, limits)
        has_unassigned = bool(partition.unassigned)
        return ranking.answer(
            limit, accepts, may_use=may_use, steps=steps, has_unassigned=has_unassigned
        )

    def equivalence_classes(self, projection: Projection) -> Iterator[tuple[NodeDevices, int]]:
        """Yield a representative and the number of nodes of each class of a projection."""
        for members in self._partition(projection).members.values():
            yield self._devices[next(iter(members))], len(members)

    def equivalence_keys(self, projection: Projection) -> Mapping[str, Hashable]:
        """Return each node's equivalence-class key for a projection."""
        return self._partition(projection).class_of

    def representatives(
        self, projection: Projection, nodes: Collection[str] | None = None
    ) -> list[NodeDevices]:
        """Return the first node by name of each class of a projection, sorted by name.

        Args:
            projection: The projection.
            nodes: Only these nodes; None for all.
        """
        wanted_nodes = None if nodes is None else frozenset(nodes)
        classes = (
            members.keys() if wanted_nodes is None else wanted_nodes.intersection(members)
            for members in self._partition(projection).members.values()
        )
        return [self._devices[name] for name in sorted(min(names) for names in classes if names)]

    def visible_pool(self, pool: PoolId) -> Pool | None:
        """Return a pool as the first node that sees it does; None if no node sees it."""
        for name in self._nodes_of_pool.get(pool, ()):
            return next(
                candidate for candidate in self._devices[name].pools if candidate.id == pool
            )
        return None

    # --- changes ----------------------------------------------------------------------------------

    def allocate(self, claim: ResourceClaim) -> None:
        """Count the devices in a claim's `status.allocation` as in use."""
        self._change_usage(claim, with_claim(self.usage, claim, self.options.features))

    def release(self, claim: ResourceClaim) -> None:
        """Count the devices in a claim's `status.allocation` as free."""
        self._change_usage(claim, without_claim(self.usage, claim, self.options.features))

    def replace_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """Update the inventory after a slice was added, changed or deleted.

        A pool may have slices on several nodes, and each of these nodes depends on all slices: for
        whether the pool is complete, and for the available amounts of its counters.
        """
        slices = [slice_ for slice_ in (old, new) if slice_ is not None]
        before, self._index = self._index, self._index.replace(old, new)
        changed_pools = {PoolId(slice_.spec.driver, slice_.spec.pool.name) for slice_ in slices}
        node_names = [
            published_slice.slice.spec.node_name
            for index in (before, self._index)
            for pool in changed_pools
            for published_slice in index.by_pool.get(pool, ())
        ]
        changed_nodes = set(node_names) if all(node_names) else set(self._nodes)
        for name in sorted(name for name in changed_nodes if name in self._nodes):
            self._add_node(name)

    def replace_node(self, name: str, node: Node | None) -> None:
        """Update the inventory after a node was added, changed or deleted."""
        if node is None:
            self._remove_node(name)
            self._nodes.pop(name, None)
            return
        self._nodes[name] = node
        self._add_node(name)

    # --- caches -----------------------------------------------------------------------------------

    def _question(self, pending: PendingClaims, strategy: Strategy, budget: Budget) -> Question:
        requests = encode_requests(pending)
        return Question(
            pending=pending,
            strategy=strategy,
            budget=budget,
            projection=equivalence.build_projection(
                pending, strategy.fields, reads_capacities=strategy.reads_capacities
            ),
            key=encode_key(requests, strategy, budget),
            size=VERDICT_BYTES + 2 * len(requests),  # As objects they take more than as JSON.
            ignores_order=strategy is FIRST_FIT and equivalence.is_order_independent(pending),
        )

    def _find_verdict(
        self, question: Question, partition: Partition, class_key: ClassKey
    ) -> CachedVerdict | None:
        """Return the cached verdict about a class; None if it has to be searched."""
        verdict = None
        if question.ignores_order:  # Then most classes were not searched themselves.
            free = self._free_signature(partition, class_key, question.projection)
            verdict = None if free is None else self._verdicts.get((question.key, free))
        if verdict is None:
            verdict = self._verdicts.get((question.key, class_key))
        if verdict is not None:
            self.costs.cached += 1
        return verdict

    def _search_class(
        self, question: Question, partition: Partition, class_key: ClassKey, node: str
    ) -> CachedVerdict:
        """Search a node of a class, and cache the verdict."""
        strategy = question.strategy
        outcome = self.verdict(question.pending, node, strategy=strategy, budget=question.budget)
        devices, score = self._devices[node], 0
        if isinstance(outcome, Plan):
            score = strategy.score(devices, self.usage, outcome)
        verdict = CachedVerdict(outcome, score, devices, class_key)
        self._verdicts.put((question.key, class_key), verdict, size=question.size)
        if question.ignores_order and not isinstance(outcome, BudgetExhausted):
            free = self._free_signature(partition, class_key, question.projection)
            if free is not None:
                self._verdicts.put((question.key, free), verdict, size=question.size)
        return verdict

    def _ranking(self, question: Question, partition: Partition) -> Ranking:
        """Return the ranking of a question, kept with the partition of its projection."""
        place = (question.projection.key, question.key)
        ranking = partition.rankings.get(question.key)
        if ranking is None:
            ranking = partition.rankings[question.key] = Ranking(partition.class_of)
        self._ranked[place] = None
        self._ranked.move_to_end(place)
        if len(self._ranked) > MAX_RANKINGS:
            (projection_key, key), _ = self._ranked.popitem(last=False)
            if projection_key in self._partitions:
                self._partitions[projection_key].rankings.pop(key, None)
        return ranking

    def _free_signature(
        self, partition: Partition, class_key: ClassKey, projection: Projection
    ) -> int | None:
        """Return the number of a class's free signature; None if the order of devices may matter."""
        number = partition.free_signatures.get(class_key)
        if number is None:
            node = next(iter(partition.members[class_key]))
            device_key, _, projected_key = class_key
            signature = partition.signatures.get((device_key, projected_key))
            if signature is None:
                devices = self._devices[node]
                signature = equivalence.node_signature(devices, projection, self.options) or ()
                partition.signatures[device_key, projected_key] = signature
            free = None
            if signature:
                free = equivalence.free_signature(signature, self._devices[node], self.usage)
            number = 0 if free is None else self._keys.number(("free", free))
            partition.free_signatures[class_key] = number
        return number or None

    def _partition(self, projection: Projection, limits: Limits | None = None) -> Partition:
        """Return the partition of a projection, up to date for all nodes that are in a class.

        Args:
            limits: How many of the others are assigned to a class; None for all.
        """
        key = projection.key
        partition = self._partitions.pop(key, None)
        if partition is None:
            if len(self._partitions) >= MAX_PARTITIONS:
                self._partitions.pop(next(iter(self._partitions)))
            partition = Partition(sorted(self._entries))
        self._partitions[key] = partition  # The last is the one that was used last.
        number = None if limits is None else limits.nodes
        chosen_names = list(islice(partition.unassigned, number))
        for name in (*partition.stale, *chosen_names):
            self._assign(partition, name, projection)
        partition.stale.clear()
        for name in chosen_names:
            del partition.unassigned[name]
        return partition

    def _assign(self, partition: Partition, name: str, projection: Projection) -> None:
        """Assign a node to its class in a partition."""
        entry = self._entries.get(name)
        if entry is None:
            partition.projected.pop(name, None)
            partition.assign(name, None)
            return
        projected_keys = partition.projected.get(name)
        if projected_keys is None or projected_keys[0] is not entry:
            number = self._keys.number(equivalence.projected_key(entry.devices, projection))
            projected_keys = partition.projected[name] = (entry, number)
        partition.assign(name, (entry.published, entry.usage, projected_keys[1]))

    def _add_node(self, name: str) -> None:
        """Add a node, or update one."""
        self._remove_node(name)
        node, error = self._nodes[name], None
        try:
            devices = pools.node_devices(self._index, node)
        except AttemptFailed as failure:
            # Only a verdict about this node raises it.
            error = failure.without_traceback()
            devices = pools.node_devices(pools.build_index((), self.options.features), node)
        self._devices[name] = devices
        for pool in devices.pools:
            self._nodes_of_pool.setdefault(pool.id, {})[name] = None
        key = equivalence.published_key(devices, self.options) if error is None else str(error)
        self._entries[name] = Entry(
            devices, self._keys.number(key), self._usage_number(devices), error
        )
        self._invalidate(name)

    def _remove_node(self, name: str) -> None:
        devices = self._devices.pop(name, None)
        if devices is None:
            return
        del self._entries[name]
        for pool in devices.pools:
            del self._nodes_of_pool[pool.id][name]
            self._pool_use_numbers.pop(id(pool), None)
        self._invalidate(name)

    def _change_usage(self, claim: ResourceClaim, usage: Usage) -> None:
        """Replace the usage by one that differs in the devices of one claim."""
        before, self.usage = self.usage, usage
        allocation = claim.status.allocation if claim.status else None
        results = (allocation.devices.results if allocation else None) or ()
        claimed_pools = {PoolId(result.driver, result.pool) for result in results}
        changed_pools = {
            pool for pool in claimed_pools if before.pools.get(pool) is not usage.pools.get(pool)
        }
        for name in {name for pool in changed_pools for name in self._nodes_of_pool.get(pool, ())}:
            self._entries[name].usage = self._usage_number(self._devices[name])
            self._invalidate(name)

    def _usage_number(self, devices: NodeDevices) -> int:
        """Return the number of a node's usage key; 0 if no device is in use."""
        numbers = []
        for index, pool in enumerate(devices.pools):
            pool_use = self.usage.pools.get(pool.id)
            if pool_use:
                numbers.append((index, self._pool_use_number(pool, pool_use)))
            else:
                self._pool_use_numbers.pop(id(pool), None)
        return self._keys.number(tuple(numbers)) if numbers else 0

    def _pool_use_number(self, pool: Pool, pool_use: PoolUse) -> int:
        """Return the number of a pool's use; only the latest of each pool is cached."""
        cached_number = self._pool_use_numbers.get(id(pool))
        if cached_number is None or cached_number[1] is not pool_use:
            number = self._keys.number(equivalence.usage_key(pool, pool_use, self.options))
            # The entry refers to the pool, so that its id is not reused.
            cached_number = self._pool_use_numbers[id(pool)] = (pool, pool_use, number)
        return cached_number[2]

    def _invalidate(self, name: str) -> None:
        for partition in self._partitions.values():
            partition.invalidate(name)
