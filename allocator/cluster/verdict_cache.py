"""The cached equivalence classes and verdicts of a cluster.

Keys of nodes are interned as numbers, so that classes compare and hash cheaply.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from allocator.cluster.canonical_requests import encode_requests
from allocator.cluster.equivalence import (
    NodeSignature,
    Projection,
    build_projection,
    is_order_independent,
)
from allocator.cluster.interned_keys import InternedKeys
from allocator.cluster.ranking import Ranking
from allocator.cluster.verdicts import CachedVerdict, ClassKey
from allocator.model.devices import NodeDevices, PoolId
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Budget
from allocator.model.requests import PendingClaims
from allocator.search.attempt import AllocatorOptions
from allocator.strategies.first_fit import FIRST_FIT
from allocator.strategies.strategy import Strategy
from kube.api.meta import encode
from kube.cel.scope import current_scope
from kube.collections.least_recently_used import LeastRecentlyUsed
from kube.collections.sized_cache import SizedCache

MAX_PARTITIONS: Final = 64

MAX_RANKINGS: Final = 64
"""Requests whose nodes are kept in order; of each node a ranking holds some hundred bytes."""

MIN_OUTDATED: Final = 4096
"""Changes since a question was asked last, below which its ranking is kept in any case."""

MAX_VERDICTS: Final = 1 << 16

MAX_VERDICT_BYTES: Final = 48 * 2**20
"""The size limit of all cached verdicts, since users choose the number and content of claims."""

VERDICT_BYTES: Final = 1024
"""The size of a verdict without the parts that it holds of the claims."""

MIN_REPLACED: Final = 1024
"""Nodes with other devices after which all verdicts are dropped, or the number of nodes if that is more;
some verdicts keep devices that are published no more."""

MAX_SIGNATURES: Final = 1 << 14

MAX_KEYS: Final = 1 << 18
"""Interned keys; more than 5,000 nodes in 32 states each have."""

MAX_KEY_BYTES: Final = 64 * 2**20
"""The size limit of interned keys; 5,000 nodes of 8 devices, all different, have about 25 MB."""


class SearchCosts:
    """The costs of answers since the cluster was made; the counts only grow.

    Attributes:
        cached: Verdicts that were known.
        searched: Searches of a node.
        steps: Steps of all searches.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.cached = self.searched = self.steps = 0

    def charged(self) -> "_Charge":
        """Count the steps of a block, also in the meter in force."""
        return _Charge(self)


class _Charge:
    """A block with its steps counted; a generator would cost more, and every answer opens some."""

    def __init__(self, costs: SearchCosts) -> None:
        self._costs = costs
        self._meter = current_scope().meter
        self._before = self._meter.steps

    def __enter__(self) -> None:
        """Begin to count."""

    def __exit__(self, *_error: object) -> None:
        """Count the steps since the block began."""
        self._costs.steps += self._meter.steps - self._before


def new_verdict_cache() -> SizedCache[Hashable, CachedVerdict]:
    """Return an empty cache of verdicts."""
    return SizedCache(max_entries=MAX_VERDICTS, max_bytes=MAX_VERDICT_BYTES)


def new_interned_keys() -> InternedKeys:
    """Return an empty table of keys."""
    return InternedKeys(max_keys=MAX_KEYS, max_bytes=MAX_KEY_BYTES)


class Question(NamedTuple):
    """Claims to be given verdicts, and the terms of their search.

    Attributes:
        key: A digest of everything about it that a verdict depends on, beside the node.
        size: Bytes of a cached verdict, roughly.
        ignores_order: The order of devices cannot affect whether the claims fit.
    """

    pending: PendingClaims
    strategy: Strategy
    budget: Budget
    projection: Projection
    key: bytes
    size: int
    ignores_order: bool


def build_question(
    pending: PendingClaims,
    strategy: Strategy,
    budget: Budget,
    options: AllocatorOptions,
    *,
    reads_all_usage: bool = True,
) -> Question:
    """Return the question about claims.

    Args:
        pending: The claims.
        strategy: Order of devices and score of nodes.
        budget: Maximum cost of each search.
        options: Options of the searches.
        reads_all_usage: The same value as in the projection.
    """
    requests = encode_requests(pending.claims, options)
    return Question(
        pending=pending,
        strategy=strategy,
        budget=budget,
        projection=build_projection(
            pending,
            strategy.fields,
            reads_capacities=strategy.reads_capacities,
            reads_all_usage=reads_all_usage,
        ),
        key=encode_key(requests, strategy, budget, reads_all_usage=reads_all_usage),
        size=VERDICT_BYTES + 2 * len(requests),  # As objects they take more than as JSON.
        ignores_order=strategy is FIRST_FIT and is_order_independent(pending),
    )


class Entry:
    """A node with the keys that no projection changes.

    Attributes:
        published: Number of its published key.
        pool_uses: Number of the use of each pool, by index; 0 for one of which nothing is in use, and
            for a shared one.
        shared_pools: Number of each pool that other nodes may see, by index; 0 for all others.
        error: Error of a slice that concerns the node; None if there is none.
    """

    def __init__(
        self,
        devices: NodeDevices,
        published_key: int,
        shared_pools: tuple[int, ...],
        error: AttemptFailed | None,
    ) -> None:
        self.devices = devices
        self.published = published_key
        self.pool_uses = [0] * len(devices.pools)
        self.shared_pools = shared_pools
        self.error = error


class ProjectedNode(NamedTuple):
    """A node with the keys that depend on a projection.

    Attributes:
        projected: Number of its projected key.
        pools: Indices of the pools whose use counts.
    """

    entry: Entry
    projected: int
    pools: tuple[int, ...]


class Partition:
    """The nodes by equivalence class, for one projection.

    Attributes:
        members: Class to names of its nodes, in order of arrival.
        names: Class to names of its nodes, sorted.
        projected: Node to its keys.
        class_of: Node to its class.
        shared_pools: Class to the shared pools that count for it, if there are any.
        classes_of_pool: Shared pool to the classes for which it counts.
        pool_sets: The different `ProjectedNode.pools`, each as one object.
        signatures: Published and projected key to the signature; () if order may matter.
        free_signatures: Class to the number of the free signature of its own pools; 0 if order may
            matter.
        shared_signatures: Published key, projected key and use of shared pools to the number of the
            free signature of these pools; 0 if order may matter.
        unassigned: Nodes that are in no class yet, in order.
        stale: Nodes that changed since they were assigned to a class.
        stale_pools: Shared pools whose use changed since the last question.
        rankings: Key of a question to the ranking of the nodes for it.
    """

    def __init__(self, nodes: Iterable[str]) -> None:
        self.unassigned = dict.fromkeys(nodes)
        self.members: dict[ClassKey, dict[str, None]] = {}
        self.names: dict[ClassKey, list[str]] = {}
        self.projected: dict[str, ProjectedNode] = {}
        self.class_of: dict[str, ClassKey] = {}
        self.shared_pools: dict[ClassKey, Sequence[PoolId]] = {}
        self.classes_of_pool: dict[PoolId, dict[ClassKey, None]] = {}
        self.pool_sets: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.signatures = LeastRecentlyUsed[tuple[int, int], NodeSignature](MAX_SIGNATURES)
        self.free_signatures: dict[ClassKey, int] = {}
        self.shared_signatures = LeastRecentlyUsed[tuple[int, int, int], int](MAX_SIGNATURES)
        self.stale: set[str] = set()
        self.stale_pools: set[PoolId] = set()
        self.rankings: dict[bytes, Ranking] = {}

    def invalidate(self, name: str) -> None:
        """Note that a node changed, or is new."""
        if name in self.class_of:
            self.stale.add(name)
        else:
            self.unassigned[name] = None

    def invalidate_pools(self, pools: Iterable[PoolId]) -> None:
        """Note that the use of shared pools changed; those that count for no class yet are skipped."""
        self.stale_pools.update(pool for pool in pools if pool in self.classes_of_pool)

    def invalidate_verdicts(self) -> None:
        """Mark for a new look-up the verdicts about classes that see a pool with a changed use."""
        for pool in self.stale_pools:
            for ranking in self.rankings.values():
                ranking.stale.update(self.classes_of_pool.get(pool, ()))
        self.stale_pools.clear()

    def forget_outdated_rankings(self) -> None:
        """Forget the rankings with more changes than classes; nobody asks these questions any more.

        Each change leaves the key of a class in each ranking, until its question is asked again.
        """
        limit = max(MIN_OUTDATED, len(self.members))
        outdated_keys = [key for key, ranking in self.rankings.items() if ranking.lag > limit]
        for key in outdated_keys:
            del self.rankings[key]

    def assign(
        self, name: str, class_key: ClassKey | None, shared_pools: Sequence[PoolId] = ()
    ) -> None:
        """Assign a node to a class; None if the node is gone.

        Args:
            shared_pools: The shared pools that count for the class.
        """
        before = self.class_of.pop(name, None)
        if before == class_key:
            if class_key is not None:
                self.class_of[name] = class_key
            return
        if before is not None:
            self._remove(name, before)
        if class_key is not None:
            self._add(name, class_key, shared_pools)
        for ranking in self.rankings.values():
            ranking.changed.update(key for key in (before, class_key) if key is not None)

    def _add(self, name: str, class_key: ClassKey, shared_pools: Sequence[PoolId]) -> None:
        self.class_of[name] = class_key
        if class_key not in self.members:
            self.members[class_key], self.names[class_key] = {}, []
            if shared_pools:
                self.shared_pools[class_key] = shared_pools
                for pool in shared_pools:
                    self.classes_of_pool.setdefault(pool, {})[class_key] = None
                # A class that comes back did not see the changes in between.
                for ranking in self.rankings.values():
                    ranking.stale.add(class_key)
        self.members[class_key][name] = None
        insort(self.names[class_key], name)

    def _remove(self, name: str, class_key: ClassKey) -> None:
        members, names = self.members[class_key], self.names[class_key]
        del members[name], names[bisect_left(names, name)]
        if members:
            return
        del self.members[class_key], self.names[class_key]
        self.free_signatures.pop(class_key, None)
        for pool in self.shared_pools.pop(class_key, ()):
            del self.classes_of_pool[pool][class_key]
            if not self.classes_of_pool[pool]:
                del self.classes_of_pool[pool]


def encode_key(
    requests: bytes, strategy: Strategy, budget: Budget, *, reads_all_usage: bool
) -> bytes:
    """Return the key of a question: one value, so that it is hashed once, not once per class.

    Args:
        requests: The requests, as encoded by `canonical_requests.encode_requests`.
        reads_all_usage: The projection's value of the same name.
    """
    search = encode(
        [strategy.name, strategy.weights, strategy.kinds, budget.steps, reads_all_usage]
    )
    return sha256(search + b"\n" + requests).digest()
