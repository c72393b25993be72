"""The waves of a plan with spread pods, in place of packed ones; and the pods or nodes to make up for these. Pure.

A wave that fits only with packed pods may not fit once those before it have placed theirs otherwise.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from findings.text import count_text, join_names
from kube.quantity import ZERO, Quantity
from migration.plan.model.parts import Part
from migration.plan.search.attempts import WaveSearch
from migration.plan.search.losses import NodeLosses
from migration.plan.search.moments import (
    Attempt,
    Moment,
    Obstacle,
    PlanProgress,
    Policy,
    with_left,
    with_those_of,
)
from migration.plan.search.rivals import missing_pods
from migration.plan.search.searched import SearchedWaves, completed, search_policies
from migration.plan.stage.placement import Placer
from migration.plan.stage.stage import PodKey
from migration.plan.stage.stage_allocator import Placement

_ROUNDS: Final = 4
"""Times that pods without devices are taken away until the others have some."""
_MORE_NODES: Final = 4
"""The most nodes that are proposed."""
_BEFORE: Final = 4
"""Waves before the first one that does not fit with spread pods, which may change, too."""
_STEPS: Final = 400_000
"""Steps of the search for other waves, times the pods of the cluster."""
_WITHOUT_REPLICAS: Final = ("DaemonSet/", "Pod/")
_SPREAD: Final = "where schedulers spread pods over all devices"
_NOTE: Final = (
    "it fits only where schedulers pack the pods of this wave and of those before it as this plan does, which leaves over {}; "
    "where they spread them over all devices, {}, {}"
)
_ENOUGH: Final = "; to have it fit in both cases, first {}"
_AGAIN: Final = "; plan again from a new snapshot before it"


class SpreadWave(NamedTuple):
    """A wave with spread pods: the moment before it, and the obstacle to it; None if it fits."""

    moment: Moment
    obstacle: Obstacle | None


class _Steps:
    """The silent progress of a search of some steps at most."""

    def __init__(self, progress: PlanProgress, number: int) -> None:
        self._progress = progress
        self._left = number

    def expect(self, total: int) -> None:
        """Tell nobody."""

    def __call__(self, done_count: int) -> None:
        """Tell nobody."""

    def stops(self) -> bool:
        """Return True after the last step."""
        self._left -= 1
        return self._left < 0 or self._progress.stops()


class Spreading:
    """Tries waves for schedulers that spread pods."""

    def __init__(
        self,
        placer: Placer,
        losses: NodeLosses,
        policies: Sequence[Policy],
        progress: PlanProgress,
    ) -> None:
        """Take the search that has found the waves.

        Args:
            placer: Places the pods.
            losses: The losses of nodes that waves are tried with.
            policies: The policies to search by.
            progress: Follows the search.
        """
        self._placer = placer
        self._losses = losses
        self._policies = policies
        self._progress = progress
        self._packed = WaveSearch(placer, policies[-1], losses, progress.stops)
        self._by_devices = devices_search(placer, policies[-1], progress)

    def steadier(self, searched: SearchedWaves) -> SearchedWaves:
        """Return waves of the same nodes and parts that fit with spread pods, too; else these, with notes on those that do not."""
        tried = self._try(searched)
        if not any(wave.obstacle for wave in tried) or self._progress.stops():
            return searched
        other = self._searched_anew(searched, tried)
        if other is not None and not self._progress.stops():
            again = self._try(other)
            if not any(wave.obstacle for wave in again):
                searched, tried = other, again
        waves = tuple(
            (moment, msgspec.structs.replace(attempt, spread_note=self._note(attempt, wave)))
            for (moment, attempt), wave in zip(searched.waves, tried, strict=True)
        )
        return msgspec.structs.replace(searched, waves=waves)

    def _try(self, searched: SearchedWaves) -> list[SpreadWave]:
        """Return the waves with all moving pods spread; after one that does not fit its pods are as the plan has them."""
        tried: list[SpreadWave] = []
        placement: Placement | None = None
        for planned, attempt in searched.waves:
            moment = _spread_moment(planned, placement)
            repeated = self._by_devices.repeat(moment, attempt.nodes, attempt.parts)
            obstacle = None
            if repeated is None:
                obstacle = self._by_devices.check_wave(moment, _names(attempt), attempt.parts)
            tried.append(SpreadWave(moment, obstacle))
            placement = (repeated or attempt).after
        return tried

    def _searched_anew(
        self, searched: SearchedWaves, tried: Sequence[SpreadWave]
    ) -> SearchedWaves | None:
        """Return waves that are searched with spread pods, and fit with packed ones, too; None if something has none then.

        They differ from some waves before the first one that does not fit with spread pods.

        Args:
            searched: The waves.
            tried: The same waves with spread pods.
        """
        first = next(number for number, wave in enumerate(tried) if wave.obstacle)
        start = max(0, first - _BEFORE)
        changing = searched.waves[start:]
        moment = with_those_of(searched.waves[start][0], changing)
        # Idle devices are kept by those that are packed.
        policies = [msgspec.structs.replace(policy, keep_free=0) for policy in self._policies]
        steps = _Steps(self._progress, _STEPS // max(1, len(self._placer.pods)))
        begin = with_those_of(_spread_moment(tried[start].moment), changing)
        spread = search_policies(self._placer, self._losses, begin, policies, steps)
        waves: list[tuple[Moment, Attempt]] = []
        for _, attempt in spread.waves:
            names = _names(attempt)
            nodes = tuple(entry for entry in moment.nodes if entry.node.name in names)
            repeated = self._packed.repeat(moment, nodes, attempt.parts)
            if repeated is None:
                break
            obstacles = tuple(map(_with_spread, attempt.obstacles))
            waves.append((moment, msgspec.structs.replace(repeated, obstacles=obstacles)))
            moment = moment.following(repeated)
        further = search_policies(self._placer, self._losses, moment, self._policies, steps)
        if not further.is_whole():
            return None
        other = msgspec.structs.replace(
            searched,
            waves=(
                *searched.waves[:start],
                *(
                    (with_left(moment, searched.end), attempt)
                    for moment, attempt in (*waves, *further.waves)
                ),
            ),
            end=with_left(further.end, searched.end),
        )
        return completed(other, self._placer, self._packed, self._policies[-1].wave_nodes)

    def _note(self, attempt: Attempt, wave: SpreadWave) -> str:
        """Return the note of a wave; empty for one that fits."""
        if (obstacle := wave.obstacle) is None:
            return ""
        names = _names(attempt)
        left = _left_over(self._placer, attempt, obstacle, wave.moment)
        when = obstacle.moment.format(join_names(obstacle.nodes))
        enough = find_relief(self._placer, self._by_devices, wave.moment, names, attempt.parts)
        text = enough.text(join_names(enough.nodes))
        end = _ENOUGH.format(text) if text else _AGAIN
        return f"{_NOTE.format(left, when, obstacle.problem)}{end}"


def devices_search(placer: Placer, policy: Policy, progress: PlanProgress) -> WaveSearch:
    """Return a search by devices alone, without those to keep free, and without losses."""
    devices_alone = Policy(wave_nodes=policy.wave_nodes, keep_free=0)
    return WaveSearch(placer, devices_alone, NodeLosses.none(placer), progress.stops)


class Relief(NamedTuple):
    """The pods to scale down, as text, or the nodes to add one like each of; empty without any.

    Attributes:
        taken_back: The sentences on the systems that take back the scale of these pods.
    """

    pods: str = ""
    nodes: tuple[str, ...] = ()
    taken_back: str = ""

    def text(self, like: str) -> str:
        """Return both as text; empty without any.

        Args:
            like: The text about the nodes that those to add are like.
        """
        added = f"add {count_text(len(self.nodes), 'node')} like {like}" if self.nodes else ""
        return ", or ".join(filter(None, (self.pods, added))) + self.taken_back


def find_relief(
    placer: Placer,
    search: WaveSearch,
    moment: Moment,
    names: frozenset[str],
    parts: tuple[Part, ...],
) -> Relief:
    """Return pods to scale down, or nodes to add, so that a wave fits.

    Args:
        placer: Places the pods.
        search: A search by devices alone.
        moment: The moment before the wave.
        names: The nodes of the wave.
        parts: Its parts.
    """
    obstacle = search.check_wave(moment, names, parts)
    if obstacle is None or not obstacle.missing:
        return Relief()
    gone = _pods_to_end(search, moment, names, parts)
    pods = _scaled_down(placer, gone)
    workloads = {key.workload for key in gone} if pods else set[str]()
    return Relief(
        pods=pods,
        nodes=_nodes_to_add(placer, moment, obstacle),
        taken_back=moment.taken_back.replicas_text(workloads),
    )


def _pods_to_end(
    search: WaveSearch, moment: Moment, names: frozenset[str], parts: tuple[Part, ...]
) -> frozenset[PodKey]:
    """Return pods to end so that the others fit; none without such pods."""
    gone = frozenset[PodKey]()
    for _ in range(_ROUNDS):
        obstacle = search.check_wave(_without(moment, gone), names, parts)
        if obstacle is None:
            return gone
        if not obstacle.missing - gone:
            break
        gone |= obstacle.missing
    return frozenset()


def _without(moment: Moment, gone: frozenset[PodKey]) -> Moment:
    """Return a moment without some pods."""
    placement = msgspec.structs.replace(
        _emptied(moment.placement, gone), ended=moment.placement.ended | gone
    )
    return msgspec.structs.replace(moment, placement=placement)


def _emptied(placement: Placement, gone: Iterable[PodKey]) -> Placement:
    """Return a placement without the places of some pods."""
    gone = frozenset(gone)
    return msgspec.structs.replace(
        placement,
        nodes={key: node for key, node in placement.nodes.items() if key not in gone},
        claims={key: claims for key, claims in placement.claims.items() if key not in gone},
    )


def _nodes_to_add(placer: Placer, moment: Moment, obstacle: Obstacle) -> tuple[str, ...]:
    """Return the nodes of a drain to add an empty one like each of; none without such nodes."""
    stage, before = obstacle.stage, obstacle.before
    if stage is None or before is None:
        return ()
    for number in range(1, min(len(stage.draining), _MORE_NODES) + 1):
        # An empty node beside a drained one is the drained one once its pods have left it.
        added = frozenset(sorted(stage.draining)[:number])
        own = [key for key, node in before.nodes.items() if node in added]
        larger = msgspec.structs.replace(stage, draining=stage.draining - added)
        placement = placer.place(larger, _emptied(before, own))
        if not missing_pods(moment, placement):
            return tuple(sorted(added))
    return ()


def _scaled_down(placer: Placer, gone: frozenset[PodKey]) -> str:
    """Return the text about pods to scale down; empty without any, and with some of no workload with replicas."""
    if any(key.workload.startswith(_WITHOUT_REPLICAS) for key in gone):
        return ""
    numbers = Counter(key.workload for key in gone)
    keys = {key.workload: key for key in gone}
    pods = [
        f"{count_text(number, 'pod')} of {name}{_amounts(placer, keys[name])}"
        for name, number in sorted(numbers.items())
    ]
    return f"scale down {join_names(pods)}" if pods else ""


def _amounts(placer: Placer, key: PodKey) -> str:
    """Return the amounts of a pod's shares in brackets; empty for whole devices."""
    amounts = [
        f"{amount} of {name}"
        for request in placer.requested(key)
        for name, amount in sorted(request.amounts.items())
    ]
    return f" ({', '.join(amounts)} each)" if amounts else ""


def _left_over(placer: Placer, attempt: Attempt, obstacle: Obstacle, moment: Moment) -> str:
    """Return the devices and the capacity left for the pods of an obstacle with packed pods."""
    stage = obstacle.stage
    if stage is None or not obstacle.missing:
        return "too little"
    placement = attempt.after if attempt.during is None or not stage.draining else attempt.during
    pods = {key.workload: key for key in obstacle.missing}.values()
    capacities = {name for key in pods for entry in placer.requested(key) for name in entry.amounts}
    free = [
        device
        for node, devices in placer.free_devices(stage, placement).items()
        if any(
            node in moment.usable.get(key.workload, ()) and placer.serves(stage, key, node)
            for key in pods
        )
        for device in devices
    ]
    return join_names(list(_texts(free, capacities))) or count_text(len(free), "device")


def _texts(free: Sequence[Mapping[str, Quantity]], capacities: Iterable[str]) -> Iterator[str]:
    for name in sorted(capacities):
        amounts = [device.get(name, ZERO) for device in free]
        devices = count_text(sum(1 for amount in amounts if amount), "device")
        yield f"{sum(amounts, ZERO)} of {name} on {devices}, {max(amounts, default=ZERO)} at most on one"


def _spread_moment(moment: Moment, placement: Placement | None = None) -> Moment:
    """Return a moment with pods spread from it on, and their places until then; None for those of the moment."""
    return msgspec.structs.replace(
        moment,
        stage=msgspec.structs.replace(moment.stage, spreads=True),
        placement=placement or moment.placement,
    )


def _with_spread(obstacle: Obstacle) -> Obstacle:
    return msgspec.structs.replace(obstacle, problem=f"{obstacle.problem}, {_SPREAD}")


def _names(attempt: Attempt) -> frozenset[str]:
    return frozenset(entry.node.name for entry in attempt.nodes)
