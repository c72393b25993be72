"""The inventory and usage of a cluster, kept up to date and evaluated as a whole.

A change costs what it changes: an allocation concerns the nodes of its pools, a local slice concerns
its node. What many nodes share concerns their equivalence classes, and not each of them. A request
costs one search per class without a cached verdict.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from allocator.cluster.canonical_requests import names_of
from allocator.cluster.classifier import Classifier
from allocator.cluster.equivalence import Projection, build_projection
from allocator.cluster.inventory import Change, Inventory
from allocator.cluster.preference import Preference
from allocator.cluster.ranking import Failure, Limits, RankedNodes, Ranking, interrupted
from allocator.cluster.searches import ClassSearches, Turn, own_error, search_wanted
from allocator.cluster.verdict_cache import (
    MAX_PARTITIONS,
    MAX_RANKINGS,
    MIN_REPLACED,
    Partition,
    Question,
    SearchCosts,
    build_question,
    new_interned_keys,
    new_verdict_cache,
)
from allocator.cluster.verdicts import (
    CachedVerdict,
    ClassKey,
    ClassVerdict,
    FeasibilityKey,
    NodePlans,
    Outcome,
    Usable,
    Verdicts,
    every_node,
)
from allocator.model.amount_bound import AmountBound
from allocator.model.devices import DeviceId, NodeDevices, Pool, PoolId, PublishedDevice
from allocator.model.outcome import AttemptFailed, BudgetExhausted
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims, resolve_requests
from allocator.model.slice_index import SliceChange
from allocator.model.usage import Usage, gather_usage, with_claim, without_claim
from allocator.nodes.node_changes import NodeChanges
from allocator.search.attempt import AllocatorOptions
from allocator.search.search import DEFAULT_BUDGET, allocate
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.strategy import Strategy
from kube.api.core import Node
from kube.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kube.cel.scope import AnswerInterrupted, AnswersPending, BudgetSpent


class Cluster:
    """The inventory and usage of a cluster. Not thread-safe.

    Attributes:
        costs: The costs of the answers so far.
        changes: The nodes whose devices or usage changed.
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
        self.costs = SearchCosts()
        self._classes = classes
        # Nodes with other devices since the verdicts were dropped.
        self._replaced_count = 0
        self._partitions: dict[Hashable, Partition] = {}
        self._verdicts = new_verdict_cache()
        self._ranked: OrderedDict[tuple[Hashable, bytes], None] = OrderedDict()
        keys = new_interned_keys()
        usage = gather_usage(claims, options.features)
        self._inventory = Inventory(
            slices=slices, nodes=nodes, usage=usage, options=options, keys=keys
        )
        self.changes: NodeChanges = self._inventory.changes
        self._devices = self._inventory.devices
        self._classifier = Classifier(self._inventory, keys, options)

    @property
    def options(self) -> AllocatorOptions:
        """Feature gates and policies in force."""
        return self._inventory.options

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name."""
        return self._inventory.nodes

    @property
    def names(self) -> Sequence[str]:
        """The names of the nodes, sorted."""
        return self._inventory.names

    @property
    def usage(self) -> Usage:
        """Usage by all allocated claims; a value that is replaced with every change."""
        return self._inventory.usage

    # --- verdicts ---------------------------------------------------------------------------------

    def node_devices(self, node: str) -> NodeDevices:
        """Return the devices of a node, none if a slice is invalid; KeyError for an unknown node."""
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
        bounds: Sequence[AmountBound] = (),
    ) -> Outcome:
        """Search one node and return the outcome with its own devices.

        Args:
            usage: Other usage than there is, such as without the claims of a victim.
            bounds: Bounds on the sums of amounts.

        Raises:
            AttemptFailed: The attempt fails.
            AnswerInterrupted: There is no outcome, for the reason that the class of the error says.
        """
        if (error := self._inventory.entries[node].error) is not None:
            raise error.without_traceback()
        devices, usage = self._devices[node], usage or self.usage
        order = strategy.order(devices, usage, pending)
        self.costs.searched += 1
        with self.costs.charged():
            return allocate(
                devices, pending, usage, self.options, budget=budget, order=order, bounds=bounds
            )

    def verdicts(
        self,
        pending: PendingClaims,
        *,
        strategy: Strategy = FIRST_FIT,
        budget: Budget = DEFAULT_BUDGET,
        nodes: Collection[str] | None = None,
    ) -> Verdicts:
        """Return the verdicts about all nodes; arguments and errors as of `class_verdicts`."""
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
            strategy: Order of devices and score of nodes.
            budget: Maximum cost of each search.
            nodes: Only these nodes; None for all.

        Raises:
            AttemptFailed: The attempt fails on all nodes.
        """
        question = build_question(pending, strategy, budget, self.options)
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
            outcome, score, representative, searched_state = cached_verdict
            same_order = searched_state == (
                self._classifier.class_state(partition, class_key) if class_key[3] else class_key
            )
            yield ClassVerdict(
                found=outcome,
                pending=pending,
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
        preference: Preference | None = None,
        limits: Limits | None = None,
    ) -> RankedNodes:
        """Return the best nodes for claims.

        It costs the nodes that changed since the claims were asked for last, the classes that are
        searched, and the nodes that are looked at, with all on which a search fails.

        Args:
            strategy: Order of devices and score of nodes.
            budget: Maximum cost of each search.
            limit: Maximum number of nodes; None for all.
            accepts: A predicate that is true if the caller wants a node that fits. It gets the node
                and the plan of a node of its class, in which requests may have other names.
            may_use: A predicate that is true if a node counts when a search fails on it.
            preference: The nodes that come first; None for the strategy's order.
            limits: The most that the answer may cost; None for all that is needed.

        Raises:
            AttemptFailed: The attempt fails on all nodes, or on a node that counts.
            AnswerInterrupted: There are no limits, and not all nodes could be looked at.
        """
        try:
            # Upstream's strategy reads no usage, so that much of it counts for other claims alone.
            reads_all_usage = strategy is not FIRST_FIT
            question = build_question(
                pending, strategy, budget, self.options, reads_all_usage=reads_all_usage
            )
            start = preference.start if preference is not None else ""
            partition, interruption = self._partition_within(question.projection, limits, start)
            ranking = self._ranking(question, partition)
            find = partial(self._find_verdict, question, partition)
            ranking.update(partition.names, find)
        except (AnswersPending, BudgetSpent) as error:
            if limits is None:
                raise
            return interrupted(error)
        search = partial(self._search_or_fail, question, partition)
        turn = Turn(self.names, start, preference, limit, accepts) if start and preference else None
        searched = search_wanted(ranking, ClassSearches(partition, find, search), turn, limits)
        interruption = searched.interruption or interruption
        if interruption is not None and limits is None:
            raise interruption
        failed_node = ranking.failed_node(partition.names, may_use)
        if failed_node is not None:
            raise own_error(self.verdict, question, ranking, failed_node).without_traceback()
        answer = ranking.answer(
            partition, limit, accepts, preference, interruption, unknown=searched.unknown
        )
        return replace(answer, is_settled=searched.is_settled)

    def node_plans(
        self,
        pending: PendingClaims,
        *,
        strategy: Strategy = FIRST_FIT,
        may_use: Usable = every_node,
    ) -> NodePlans:
        """Return the plan of every node that counts and has devices for claims, until a change.

        Raises:
            AttemptFailed: The attempt fails on all nodes, or on one of them.
            AnswerInterrupted: Not all nodes could be looked at.
        """
        reads_all_usage = strategy is not FIRST_FIT
        question = build_question(
            pending, strategy, DEFAULT_BUDGET, self.options, reads_all_usage=reads_all_usage
        )
        partition = self._partition(question.projection)
        ranking = self._ranking(question, partition)
        find = partial(self._find_verdict, question, partition)
        ranking.update(partition.names, find)
        search = partial(self._search_or_fail, question, partition)
        ranking.search_used(partition.names, find, search, may_use)
        failed_node = ranking.failed_node(partition.names, may_use)
        if failed_node is not None:
            raise own_error(self.verdict, question, ranking, failed_node).without_traceback()
        return NodePlans(class_of=partition.class_of, verdicts=ranking.verdicts)

    def equivalence_classes(self, projection: Projection) -> Iterator[tuple[NodeDevices, int]]:
        """Yield a representative and the number of nodes of each class of a projection."""
        for members in self._partition(projection).members.values():
            yield self._devices[next(iter(members))], len(members)

    def feasibility_keys(self, pending: PendingClaims) -> Mapping[str, FeasibilityKey]:
        """Return each node's key for any number of claims that may come together."""
        projection = build_projection(pending, reads_all_usage=False)
        partition = self._partition(projection)
        keys = {
            class_key: self._classifier.feasibility_key(partition, class_key, projection, pending)
            for class_key in partition.members
        }
        return {name: keys[class_key] for name, class_key in partition.class_of.items()}

    def equivalence_keys(self, projection: Projection) -> Mapping[str, Hashable]:
        """Return each node's equivalence-class key for a projection."""
        return self._partition(projection).class_of

    def representatives(
        self, projection: Projection, nodes: Collection[str] | None = None
    ) -> list[NodeDevices]:
        """Return the first of all nodes, or of some, of each class of a projection, sorted by name."""
        wanted_nodes = None if nodes is None else frozenset(nodes)
        classes = (
            members.keys() if wanted_nodes is None else wanted_nodes.intersection(members)
            for members in self._partition(projection).members.values()
        )
        return [self._devices[name] for name in sorted(min(names) for names in classes if names)]

    def visible_pool(self, pool: PoolId) -> Pool | None:
        """Return a pool as the first node that sees it does; None if no node sees it."""
        return self._inventory.visible_pool(pool)

    # --- changes ----------------------------------------------------------------------------------

    def allocate(self, claim: ResourceClaim) -> None:
        """Count the devices in a claim's `status.allocation` as in use."""
        usage = with_claim(self.usage, claim, self.options.features)
        self._invalidate(self._inventory.change_usage(claim, usage))

    def release(self, claim: ResourceClaim) -> None:
        """Count the devices in a claim's `status.allocation` as free."""
        usage = without_claim(self.usage, claim, self.options.features)
        self._invalidate(self._inventory.change_usage(claim, usage))

    def replace_usage(self, usage: Usage) -> None:
        """Count other devices as in use, at the cost of the pools that another use object is given for."""
        self._invalidate(self._inventory.replace_usage(usage))

    def replace_slices(self, changes: Sequence[SliceChange]) -> None:
        """Update the inventory after slices were added, changed or deleted."""
        self._classifier.forget_shared_uses()
        self._invalidate_devices(self._inventory.replace_slices(changes))

    def replace_tombstones(self, tombstones: Mapping[DeviceId, PublishedDevice]) -> None:
        """Take over the last state of devices that vanish; called before they vanish from their slices."""
        self._inventory.options = replace(self.options, tombstones=tombstones)

    def replace_classes(self, classes: Mapping[str, DeviceClass]) -> None:
        """Take over the DeviceClasses; verdicts count no more if one was changed or deleted."""
        before, self._classes = self._classes, classes
        if any(classes.get(name) != device_class for name, device_class in before.items()):
            self._verdicts.clear()
            self._ranked.clear()
            for partition in self._partitions.values():
                partition.rankings.clear()

    def replace_node(self, name: str, node: Node | None) -> None:
        """Update the inventory after a node was added, changed or deleted."""
        self._invalidate_devices(self._inventory.replace_node(name, node))
        if node is None:
            for partition in self._partitions.values():
                partition.unassigned.pop(name, None)

    # --- caches -----------------------------------------------------------------------------------

    def _find_verdict(
        self, question: Question, partition: Partition, class_key: ClassKey
    ) -> CachedVerdict | None:
        """Return the cached verdict about a class; None if it has to be searched."""
        verdict = None
        if question.ignores_order:  # Then most classes were not searched themselves.
            # Without shared pools the signature is its own part: no call for each class.
            own = 0 if class_key[3] else partition.free_signatures.get(class_key, 0)
            free = own or self._classifier.free_signature(partition, class_key, question.projection)
            if free is not None:
                verdict = self._verdicts.get((question.key, free))
        if verdict is None:
            verdict = self._verdicts.get(
                (question.key, self._classifier.class_state(partition, class_key))
            )
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
        state = self._classifier.class_state(partition, class_key)
        verdict = CachedVerdict(outcome, score, devices, state)
        self._verdicts.put((question.key, state), verdict, size=question.size)
        if question.ignores_order and not isinstance(outcome, BudgetExhausted):
            free = self._classifier.free_signature(partition, class_key, question.projection)
            if free is not None:
                self._verdicts.put((question.key, free), verdict, size=question.size)
        return verdict

    def _search_or_fail(
        self, question: Question, partition: Partition, class_key: ClassKey, node: str
    ) -> CachedVerdict | Failure:
        """Search a node of a class; return the failure if the search raises one."""
        try:
            return self._search_class(question, partition, class_key, node)
        except AttemptFailed as error:
            return Failure(error.without_traceback(), names_of(question.pending), node)

    def _ranking(self, question: Question, partition: Partition) -> Ranking:
        """Return the ranking of a question, kept with the partition of its projection."""
        place = (question.projection.key, question.key)
        ranking = partition.rankings.get(question.key)
        if ranking is None:
            ranking = partition.rankings[question.key] = Ranking(partition.members)
        self._ranked[place] = None
        self._ranked.move_to_end(place)
        if len(self._ranked) > MAX_RANKINGS:
            (projection_key, key), _ = self._ranked.popitem(last=False)
            if projection_key in self._partitions:
                self._partitions[projection_key].rankings.pop(key, None)
        return ranking

    def _partition(self, projection: Projection) -> Partition:
        """Return the partition of a projection, with all nodes.

        Raises:
            AnswerInterrupted: Some nodes could not be assigned to a class.
        """
        partition, interruption = self._partition_within(projection, None)
        if interruption is not None:
            raise interruption
        return partition

    def _partition_within(
        self, projection: Projection, limits: Limits | None, start: str = ""
    ) -> tuple[Partition, AnswerInterrupted | None]:
        """Return the partition of a projection, up to date for all nodes that are in a class.

        Args:
            limits: The maximum number of other nodes that are assigned to a class; None for all.
            start: The node with which these begin, in the order of names.

        Returns:
            The partition, and the reason for which nodes have no class; None if all have one.
        """
        key = projection.key
        partition = self._partitions.pop(key, None) or Partition(sorted(self._inventory.entries))
        self._partitions[key] = partition  # The last is the one that was used last.
        if len(self._partitions) > MAX_PARTITIONS:
            self._partitions.pop(next(iter(self._partitions)))
        number = None if limits is None else limits.nodes
        with self.costs.charged():
            interruption = self._classifier.assign_nodes(partition, projection, number, start)
        partition.invalidate_verdicts()
        partition.forget_outdated_rankings()
        return partition, interruption

    def _invalidate_devices(self, change: Change) -> None:
        """Have the next answers take in nodes with other devices.

        A verdict keeps the devices of the node that was searched, which may be published no more.
        """
        self._invalidate(change)
        self._replaced_count += len(change.nodes)
        if self._replaced_count > max(MIN_REPLACED, len(self.nodes)):
            self._replaced_count = 0
            self._verdicts.clear()

    def _invalidate(self, change: Change) -> None:
        """Have the next answers take in a change."""
        if change.shared_pools:
            self._classifier.forget_shared_uses()
        for partition in self._partitions.values():
            for name in change.nodes:
                partition.invalidate(name)
            partition.invalidate_pools(change.shared_pools)
