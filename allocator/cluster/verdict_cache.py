"""The cached equivalence classes and verdicts of a cluster.

Keys of nodes are interned as numbers, so that classes compare and hash cheaply.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final, NamedTuple

from allocator.cluster.equivalence import NodeSignature, Projection
from allocator.cluster.ranking import Ranking
from allocator.cluster.verdicts import ClassKey
from allocator.model.devices import NodeDevices
from allocator.model.outcome import AttemptFailed
from allocator.model.plan import Budget
from allocator.model.requests import PendingClaims
from allocator.strategies.strategy import Strategy
from kube.api.meta import encode
from kube.least_recently_used import LeastRecentlyUsed

MAX_PARTITIONS: Final = 64

MAX_RANKINGS: Final = 64
"""Requests whose nodes are kept in order; of each node a ranking holds some hundred bytes."""

MAX_VERDICTS: Final = 1 << 16

MAX_VERDICT_BYTES: Final = 48 * 2**20
"""Of all cached verdicts, since users choose how many claims there are and what is in them."""

VERDICT_BYTES: Final = 1024
"""Of a verdict, beside what it holds of the claims."""

MAX_SIGNATURES: Final = 1 << 14

MAX_KEYS: Final = 1 << 18
"""Interned keys; more than 5,000 nodes in 32 states each have."""

MAX_KEY_BYTES: Final = 64 * 2**20
"""Of all interned keys; 5,000 nodes of 8 devices that are all different have about 25 MB."""


class SearchCosts:
    """The costs of answers since the cluster was made; the counts only grow.

    Attributes:
        cached: Verdicts that were known.
        searched: Searches of a node.
        steps: Of all searches.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.cached = self.searched = self.steps = 0


class Question(NamedTuple):
    """Claims about which verdicts are wanted, and how they are searched.

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


class Entry:
    """A node with the keys that no projection changes.

    Attributes:
        published: Number of its published key.
        usage: Number of its usage key.
        error: Error of a slice that concerns the node; None if there is none.
    """

    def __init__(
        self, devices: NodeDevices, published_key: int, usage: int, error: AttemptFailed | None
    ) -> None:
        self.devices = devices
        self.published = published_key
        self.usage = usage
        self.error = error


class Partition:
    """The nodes by equivalence class, for one projection.

    Attributes:
        members: Class to names of its nodes, in order of arrival.
        projected: Node to its entry and the number of its projected key.
        class_of: Node to its class.
        signatures: Published and projected key to the signature; () if order may matter.
        free_signatures: Class to the number of its free signature; 0 if order may matter.
        unassigned: Nodes that are in no class yet, in order.
        stale: Nodes that changed since they were assigned to a class.
        rankings: Key of a question to the ranking of the nodes for it.
    """

    def __init__(self, nodes: Iterable[str]) -> None:
        self.unassigned = dict.fromkeys(nodes)
        self.members: dict[ClassKey, dict[str, None]] = {}
        self.projected: dict[str, tuple[Entry, int]] = {}
        self.class_of: dict[str, ClassKey] = {}
        self.signatures = LeastRecentlyUsed[tuple[int, int], NodeSignature](MAX_SIGNATURES)
        self.free_signatures: dict[ClassKey, int] = {}
        self.stale: set[str] = set()
        self.rankings: dict[bytes, Ranking] = {}

    def invalidate(self, name: str) -> None:
        """Note that a node changed, or is new."""
        if name in self.class_of:
            self.stale.add(name)
        else:
            self.unassigned[name] = None

    def assign(self, name: str, class_key: ClassKey | None) -> None:
        """Assign a node to a class; None if the node is gone."""
        before = self.class_of.get(name)
        if before == class_key:
            return
        for ranking in self.rankings.values():
            ranking.changed.add(name)
        if before is not None:
            del self.members[before][name]
            if not self.members[before]:
                del self.members[before]
                self.free_signatures.pop(before, None)
            del self.class_of[name]
        if class_key is not None:
            self.members.setdefault(class_key, {})[name] = None
            self.class_of[name] = class_key


def encode_requests(pending: PendingClaims) -> bytes:
    """Return everything about the claims that a verdict depends on."""
    return encode([claim.spec.devices for claim in pending.claims])


def encode_key(requests: bytes, strategy: Strategy, budget: Budget) -> bytes:
    """Return the key of a question: one value whose hash is computed once, not once per class.

    Args:
        requests: As `encode_requests` returns them.
    """
    search = encode([strategy.name, strategy.weights, budget.steps])
    return sha256(search + b"\n" + requests).digest()
