"""The room of the usual pods on each node, as the scheduler is told it, for pods that the sidecar is not asked about.

The plugin computes from it what a pod without claims costs a node: it knows what the node has left better than the
sidecar does. It decides nothing about devices: a vector says how many usual pods have devices there, and what each is worth.

Nodes that changed are looked at in the decision that is made anyway, and told with its answer.
"""

from threading import Lock
from typing import Final

from allocator.cluster.node_losses import NodeLosses
from allocator.strategies.pod_kinds import KindSlots
from kube.cel.scope import AnswersPending, BudgetSpent
from sidecar.model.protocol import UsualPods

MAX_LOOKED_AT: Final = 256
"""Nodes that are looked at with one decision; the rest of them with later ones."""
MAX_TOLD: Final = 1024
"""Nodes in one answer, each with at most 64 kinds."""
MAX_SLOTS: Final = 1 << 16
MAX_VALUE: Final = 1 << 36
"""Bounds of what the plugin adds up in 64 bits, far above any real node."""

Vector = tuple[KindSlots, ...]


class ToldSlots:
    """The slots of the usual pods on each node, and the part that the plugin may not know.

    `look` is called on the thread of a decision, and `changes` on the event loop.
    """

    def __init__(self) -> None:
        """Begin without a node."""
        self._lock = Lock()
        self._losses: NodeLosses | None = None
        self._position = -1
        self._unseen: dict[str, None] = {}
        # The plugin has nothing from before the first number.
        self._first = self._number = 0
        self._kinds: dict[tuple[int, int], int] = {}
        self._vectors: dict[str, Vector] = {}
        # Nodes that the plugin may not know, and the number of the answer that told them last, 0 without one.
        self._pending: dict[str, int] = {}

    @property
    def has_begun(self) -> bool:
        """True if nodes were looked at."""
        return self._losses is not None

    def look(self, losses: NodeLosses) -> None:
        """Take in the nodes that changed, at most `MAX_LOOKED_AT` of them.

        Args:
            losses: The costs of pods on nodes, with the kinds in use.
        """
        with self._lock:
            losses.take_changes()
            names = losses.cluster.changes.since(self._position)
            self._position = losses.cluster.changes.position
            if losses is not self._losses or names is None:
                self._begin(losses)
            else:
                self._unseen.update(dict.fromkeys(names))
            for name in list(self._unseen)[:MAX_LOOKED_AT]:
                del self._unseen[name]
                try:
                    vector = losses.slots(name) if name in losses.cluster.nodes else ()
                except (AnswersPending, BudgetSpent):
                    self._unseen[name] = None
                    continue
                self._take(name, vector)

    def _begin(self, losses: NodeLosses) -> None:
        """Forget everything: with other kinds all vectors are others."""
        table = losses.strategy.table
        self._losses = losses
        self._unseen = dict.fromkeys(losses.cluster.nodes)
        self._number += 1
        self._first = self._number
        pairs = dict.fromkeys((kind.cpu_milli, kind.memory) for kind in table.kinds)
        self._kinds = {pair: number for number, pair in enumerate(pairs)}
        self._vectors.clear()
        self._pending.clear()

    def _take(self, name: str, vector: Vector) -> None:
        """Note the vector of a node; a node without slots loses nothing, as one without devices."""
        if vector == self._vectors.get(name, ()):
            return
        if vector:
            self._vectors[name] = vector
        else:
            del self._vectors[name]
        self._pending[name] = 0

    def changes(self, since: int | None) -> UsualPods | None:
        """Return the news for the plugin.

        Args:
            since: The number of the last changes that it has, 0 without any; None if it wants none.

        Returns:
            None if nothing was looked at, or the plugin wants none.
        """
        with self._lock:
            if since is None or self._losses is None:
                return None
            is_whole = not self._first < since <= self._number
            if is_whole:
                self._pending = dict.fromkeys(self._vectors, 0)
            else:
                self._pending = {
                    name: number for name, number in self._pending.items() if number != since
                }
            if is_whole or self._pending:
                self._number += 1
            classes: dict[Vector, int] = {}
            nodes: dict[str, int] = {}
            removed: list[str] = []
            for name in list(self._pending)[:MAX_TOLD]:
                self._pending[name] = self._number
                vector = self._vectors.get(name)
                if vector is None:
                    removed.append(name)
                else:
                    nodes[name] = classes.setdefault(vector, len(classes))
            return UsualPods(
                number=self._number,
                since=0 if is_whole else since,
                kinds=tuple(self._kinds) if is_whole else (),
                classes=tuple(map(self._encoded, classes)),
                nodes=nodes,
                removed=tuple(removed),
                more=bool(self._unseen) or len(self._pending) > len(nodes) + len(removed),
            )

    def _encoded(self, vector: Vector) -> tuple[tuple[int, int, int], ...]:
        return tuple(
            (
                self._kinds[row.cpu_milli, row.memory],
                min(row.slots, MAX_SLOTS),
                min(row.value, MAX_VALUE),
            )
            for row in vector
        )
