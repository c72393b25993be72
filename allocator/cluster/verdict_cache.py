"""The cached equivalence classes and verdicts of a cluster.

Keys of nodes are interned as numbers, so that classes compare and hash cheaply.
"""

from typing import Final, NamedTuple

from allocator.cluster.equivalence import NodeSignature
from allocator.cluster.verdicts import Outcome
from allocator.model.devices import NodeDevices
from allocator.model.outcome import AttemptFailed
from allocator.model.requests import PendingClaims
from kube.api.meta import encode

ClassKey = tuple[int, int, int]
"""Numbers of the published key, the usage key and the projected key of a node."""

MAX_PARTITIONS: Final = 64

MAX_VERDICTS: Final = 1 << 16

MAX_KEYS: Final = 1 << 16

MAX_KEYS_PER_NODE: Final = 256
"""Interned keys in addition to `MAX_KEYS`; more than a node has in all partitions."""


class CachedVerdict(NamedTuple):
    """An outcome, the score, the node that was searched, and the class of that node."""

    outcome: Outcome
    score: int
    representative: NodeDevices
    class_key: ClassKey


class Entry:
    """A node with the keys that no projection changes.

    Attributes:
        published: Number of its published key.
        usage: Number of its usage key.
        error: Error of a slice that concerns the node; None if there is none.
    """

    def __init__(
        self, devices: NodeDevices, published: int, usage: int, error: AttemptFailed | None
    ) -> None:
        self.devices = devices
        self.published = published
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
        stale: Nodes that changed since they were assigned to a class.
    """

    def __init__(self) -> None:
        self.members: dict[ClassKey, dict[str, None]] = {}
        self.projected: dict[str, tuple[Entry, int]] = {}
        self.class_of: dict[str, ClassKey] = {}
        self.signatures: dict[tuple[int, int], NodeSignature] = {}
        self.free_signatures: dict[ClassKey, int] = {}
        self.stale: set[str] = set()

    def assign(self, name: str, class_key: ClassKey | None) -> None:
        """Assign a node to a class; None if the node is gone."""
        before = self.class_of.get(name)
        if before == class_key:
            return
        if before is not None:
            del self.members[before][name]
            if not self.members[before]:
                del self.members[before]
                self.free_signatures.pop(before, None)
            del self.class_of[name]
        if class_key is not None:
            self.members.setdefault(class_key, {})[name] = None
            self.class_of[name] = class_key


def request_key(pending: PendingClaims) -> bytes:
    """Return everything about the claims that a verdict depends on."""
    return encode([claim.spec.devices for claim in pending.claims])
