"""The rest of waves once nodes of theirs come later. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from migration.plan.model.parts import Part
from migration.plan.search.moments import Attempt, Candidate, Obstacle

_LATE: Final = "no wave before {} needs the end of the work on {}, so {} later"


class RemainingWave(NamedTuple):
    """The rest of a wave without the nodes of later ones.

    Attributes:
        left: The names of the other nodes.
        allowed: The sides that may be without a node to spare after it.
        obstacles: The obstacles to more nodes, where it is as it was.
        reason: The reason that it is no larger, other than work of the others; empty without one.
        early_note: A note on its work, as of an attempt.
    """

    nodes: tuple[Candidate, ...]
    parts: tuple[Part, ...] = ()
    left: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()
    obstacles: tuple[Obstacle, ...] = ()
    reason: str = ""
    early_note: str = ""

    @classmethod
    def of(cls, attempt: Attempt, late: Collection[str]) -> "RemainingWave":
        """Return a wave without some nodes."""
        left = tuple(entry.node.name for entry in attempt.nodes if entry.node.name in late)
        return cls(
            nodes=tuple(entry for entry in attempt.nodes if entry.node.name not in late),
            parts=attempt.parts,
            left=left,
            allowed=frozenset(attempt.without_spare),
            obstacles=() if left else attempt.obstacles,
            reason=attempt.order_reason,
            early_note=attempt.early_note,
        )

    def with_node(self, node: Candidate, wave_nodes: int) -> "RemainingWave":
        """Return the wave with one more node; nothing keeps a full one small."""
        nodes = (*self.nodes, node)
        return self._replace(
            nodes=nodes, obstacles=self.obstacles if len(nodes) < wave_nodes else ()
        )

    def takes_alike(self, node: Candidate, wave_nodes: int) -> bool:
        """Return True if nothing of it would wait for the work of one more node, nor that for its work."""
        work = (node.has_work, node.never_ends)
        return (
            len(self.nodes) < wave_nodes
            and all((entry.has_work, entry.never_ends) == work for entry in self.nodes)
            and not (node.has_work and self.parts)
        )

    def for_reason(self, reason: str) -> "RemainingWave":
        """Return the wave with one more reason that it is no larger."""
        return self._replace(reason="; ".join(filter(None, (self.reason, reason))))

    @property
    def is_work(self) -> bool:
        """Return True if it is nodes with work alone."""
        return not self.parts and all(entry.has_work for entry in self.nodes)

    @property
    def order_reason(self) -> str:
        """Return the reason that it is no larger; empty without other nodes."""
        if self.reason:
            return self.reason
        if not self.left:
            return ""
        several = len(self.left) > 1
        own, come = ("theirs", "these nodes come") if several else ("its own", "this node comes")
        return _LATE.format(own, ", ".join(self.left), come)


def merged_waves(waves: Iterable[RemainingWave], wave_nodes: int) -> list[RemainingWave]:
    """Return waves with those of work alone together as far as one may have their nodes."""
    merged: list[RemainingWave] = []
    for wave in waves:
        if not wave.nodes and not wave.parts:
            continue
        former = merged[-1] if merged else None
        if (
            former is not None
            and (former.left or wave.left)
            and former.is_work
            and wave.is_work
            and len(former.nodes) + len(wave.nodes) <= wave_nodes
        ):
            merged[-1] = RemainingWave(
                nodes=(*former.nodes, *wave.nodes),
                left=(*former.left, *wave.left),
                allowed=former.allowed | wave.allowed,
            )
        else:
            merged.append(wave)
    return merged


def node_chunks(nodes: Sequence[Candidate], size: int) -> Iterator[tuple[Candidate, ...]]:
    """Yield nodes in chunks, with those of one training in the same one as far as it has space."""
    chunk: tuple[Candidate, ...] = ()
    for _, group in groupby(nodes, key=lambda entry: entry.groups or entry.node.name):
        block = tuple(group)
        if chunk and len(chunk) + min(len(block), size) > size:
            yield chunk
            chunk = ()
        chunk += block
        while len(chunk) > size:
            yield chunk[:size]
            chunk = chunk[size:]
    if chunk:
        yield chunk
