"""The pods that find no devices once a node is lost, beside those that the same loss would leave today. Pure."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from findings.text import join_names
from migration.cluster.equivalence import NodeGroup
from migration.plan.search.moments import Moment
from migration.plan.search.rivals import pods_have
from migration.plan.stage.placement import Placer
from migration.plan.stage.stage import PodKey, Stage
from migration.plan.stage.stage_allocator import Placement

_GROUPS: Final = 32
"""Groups of nodes of each side whose loss is tried."""
_SINGLE: Final = 64
"""Nodes that are tried today beside the largest ones, each with other pods."""
_TODAY: Final = (
    "no node to spare today: of {1} losses that were tried, that of {0} leaves pods without devices before the first wave "
    "already; after each wave, the loss of the nodes with the most pods leaves no more of them without"
)
_UNLESS_NOTED: Final = ", unless a note of that wave says so"


class Loss(NamedTuple):
    """The loss of the largest nodes of a side, or of a group of it.

    Attributes:
        side: The side, as text.
        missing: The pods without devices then.
    """

    side: str
    nodes: tuple[str, ...]
    missing: frozenset[PodKey]


class NodeLosses:
    """The losses of nodes, compared with those of today."""

    def __init__(
        self,
        placer: Placer,
        number: int,
        missing_today: Mapping[tuple[str, ...], int],
        others_today: Mapping[tuple[str, ...], int] = {},
    ) -> None:
        """Take the losses of today.

        Args:
            placer: Places the pods.
            number: The number of nodes that are lost together.
            missing_today: The nodes of a loss to the number of pods without devices then, before the first wave.
            others_today: The same of further nodes, for the note.
        """
        self._placer = placer
        self._number = number
        self._devices = placer.device_counts()
        self._groups = placer.node_groups()
        tried_today = {**missing_today, **others_today}
        self._lost_today = tuple(nodes for nodes, missing in tried_today.items() if missing)
        self._number_tried = len(tried_today)
        self._today: dict[NodeGroup, int] = {}
        for nodes, missing in missing_today.items():
            for group in self._groups_of(nodes):
                self._today[group] = max(self._today.get(group, 0), missing)

    @classmethod
    def none(cls, placer: Placer) -> "NodeLosses":
        """Return losses of no nodes."""
        return cls(placer, 0, {})

    @classmethod
    def today(cls, placer: Placer, begin: Moment, number: int) -> "NodeLosses":
        """Return the losses of some nodes together, compared with those at the moment before the first wave."""
        if not number:
            return cls.none(placer)
        losses = cls(placer, number, {})
        tried = {
            loss.nodes: len(loss.missing)
            for loss in losses.tried(begin, begin.stage, begin.placement)
        }
        others = losses._others_today(begin, tried) if number == 1 else {}
        return cls(placer, number, tried, others)

    def today_note(self, *, keeps_spare: bool) -> str:
        """Return a note on today's losses that leave pods without devices; empty if none does.

        Args:
            keeps_spare: No wave has a note that it leaves no node to spare.
        """
        lost = " or ".join(sorted(" and ".join(nodes) for nodes in self._lost_today))
        text = _TODAY if keeps_spare else f"{_TODAY}{_UNLESS_NOTED}"
        return text.format(lost, self._number_tried) if lost else ""

    def find(self, moment: Moment, stage: Stage, after: Placement) -> Iterator[Loss]:
        """Yield the first loss of each side that leaves more pods without devices than it would today.

        Args:
            moment: The moment before a wave.
            stage: The stage after it.
            after: The placement after it.
        """
        sides: set[str] = set()
        for loss in self.tried(moment, stage, after):
            allowed = sum(self._today.get(group, 0) for group in self._groups_of(loss.nodes))
            if loss.side not in sides and len(loss.missing) > allowed:
                sides.add(loss.side)
                yield loss

    def tried(self, moment: Moment, stage: Stage, after: Placement) -> Iterator[Loss]:
        """Yield all losses at a stage, also those that every pod outlives; the arguments are those of `find`."""
        used = Counter(after.nodes.values())
        for title, is_switched in (("device plugins", False), ("DRA drivers", True)):
            side = [name for name in self._devices if (name in stage.switched) is is_switched]
            # Of equal nodes one with many pods is the greater loss.
            side.sort(key=lambda name: (-self._devices[name], -used[name], name))
            tried: set[tuple[str, ...]] = set()
            for nodes in (side, *self._grouped(side)):
                lost = tuple(sorted(nodes[: self._number]))
                if lost in tried or not any(used[name] for name in lost):
                    continue
                tried.add(lost)
                yield Loss(title, lost, self._missing(lost, moment, stage, after))

    def _others_today(
        self, begin: Moment, tried: Collection[tuple[str, ...]]
    ) -> dict[tuple[str, ...], int]:
        """Return the losses of single nodes beside those that were tried, one of those with equal pods each.

        Pods of a group's nodes differ in what they may use, so the loss of the largest one is not always the worst.
        """
        pods: dict[str, Counter[str]] = {}
        for key, name in begin.placement.nodes.items():
            pods.setdefault(name, Counter())[key.workload] += 1
        known_shapes = {self._shape(nodes[0], pods) for nodes in tried}
        others: dict[tuple[str, ...], int] = {}
        for name in sorted(self._devices):
            shape = self._shape(name, pods)
            if name not in pods or shape in known_shapes or len(others) == _SINGLE:
                continue
            known_shapes.add(shape)
            others[(name,)] = len(self._missing((name,), begin, begin.stage, begin.placement))
        return others

    def _shape(self, name: str, pods: Mapping[str, Counter[str]]) -> object:
        return self._groups[name], frozenset(pods.get(name, Counter()).items())

    def _missing(
        self, lost: tuple[str, ...], moment: Moment, stage: Stage, after: Placement
    ) -> frozenset[PodKey]:
        """Return the pods without devices once some nodes are lost."""
        without = msgspec.structs.replace(stage, draining=frozenset(lost))
        return self._placer.place(without, after).unplaced - moment.pending

    def _grouped(self, side: Sequence[str]) -> list[list[str]]:
        """Return the nodes of a side by group, in order: free devices on others are of no use to their pods."""
        groups: dict[NodeGroup, list[str]] = {}
        for name in side:
            groups.setdefault(self._groups[name], []).append(name)
        return list(groups.values())[:_GROUPS]

    def _groups_of(self, nodes: Sequence[str]) -> Sequence[NodeGroup]:
        return list(dict.fromkeys(self._groups[name] for name in nodes))


def loss_text(loss: Loss) -> str:
    """Return the text about the pods that find no devices once nodes are lost."""
    return f"{pods_have(loss.missing, 'no devices')}, once {join_names(loss.nodes)} is lost"
