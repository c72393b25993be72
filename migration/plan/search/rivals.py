"""Pods without devices at a moment, the pods that wait today and have devices in their place, and held nodes with some. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from findings.text import count_text, join_names
from migration.assessment.unserved import stay_fix
from migration.cluster.owners import kind_of
from migration.plan.search.moments import CheckedMoment, Moment, Obstacle
from migration.plan.stage.placement import Placer
from migration.plan.stage.stage import PodKey, Stage
from migration.plan.stage.stage_allocator import Placement

_FREE_DEVICES: Final = (
    "free devices for these pods first: scale down, add a node, or wait for Jobs to end; then plan again "
    "from a new snapshot"
)
_WITHOUT_REPLICAS: Final = frozenset({"CronJob", "DaemonSet", "Job", "Pod"})
_LEFT_WITH_KEYS: Final = "device keys on a node without a device plugin"
_CLOSED: Final = "{}; held nodes do not count here, though they may have devices for such pods: {}"
_ON_CLOSED: Final = "{} ({})"
_APART: Final = "{}; other nodes have some, and take no such pod beside those there: {}"
_PREFER: Final = "let {} only prefer that (preferredDuringSchedulingIgnoredDuringExecution, or ScheduleAnyway) until the last wave, or {}"
_UNCORDON: Final = "uncordon {}, if they may take pods, or {}"
_OPEN_FIRST: Final = "solve what holds {}, or {}"
OPT_IN_FIRST: Final = (
    "solve what holds its namespace, so that it is opted in with this node at the latest, or keep the "
    "DaemonSet from this node; then plan again from a new snapshot"
)
"""The fix of a DaemonSet's pods that get no claims with their node."""


class Misfit(NamedTuple):
    """Pods without devices in a wave.

    Attributes:
        reason: The moment, and the pods.
        awaited: The pods that wait before the wave already, and that it has to have devices for; empty without any.
    """

    reason: str
    awaited: str


def misfit_of(obstacle: Obstacle, awaited: frozenset[PodKey]) -> Misfit:
    """Return the misfit of an obstacle to a wave that has to have devices for awaited pods.

    In a drain these do not count, so pods that lack devices then would lack them without these, too.
    """
    is_drain = obstacle.stage is not None and bool(obstacle.stage.draining)
    return Misfit(obstacle.reason, "" if is_drain else _by_workload(awaited))


def awaited_pods(
    moment: Moment, scheduled: Mapping[str, int], live: Collection[PodKey]
) -> frozenset[PodKey]:
    """Return the pods that wait at a moment in the place of those that had a node once.

    Args:
        moment: The moment.
        scheduled: Workload to the number of its pods that had one.
        live: The pods that have one now.
    """
    missing = Counter(scheduled)
    missing.subtract(key.workload for key in {*moment.placement.nodes, *live})
    awaited = set[PodKey]()
    for key in sorted(moment.pending.difference(live)):
        if missing[key.workload] > 0:
            missing[key.workload] -= 1
            awaited.add(key)
    return frozenset(awaited)


def missing_pods(moment: Moment, placement: Placement) -> frozenset[PodKey]:
    """Return the pods that have no devices, though they have some today."""
    return placement.unplaced - moment.pending


def pods_obstacle(moment: Moment, placement: Placement, when: CheckedMoment) -> Obstacle | None:
    """Return the obstacle in the pods that a placement leaves without devices; None without such pods.

    Args:
        moment: The moment before the wave.
        placement: The placement.
        when: The moment of the placement.
    """
    text, nodes = when.text, tuple(sorted(when.nodes))
    stranded = placement.stranded - moment.pending
    if stranded:
        problem = pods_have(stranded, _LEFT_WITH_KEYS)
        return Obstacle(moment=text, nodes=nodes, problem=problem, fix=OPT_IN_FIRST)
    if missing := missing_pods(moment, placement):
        return Obstacle(
            moment=text,
            nodes=nodes,
            problem=pods_have(missing, "no devices"),
            fix=_FREE_DEVICES,
            missing=missing,
            stage=when.stage,
            before=when.before,
        )
    return None


def pods_have(pods: frozenset[PodKey], what: str) -> str:
    """Return the text about pods that have something, or have `no devices`, with their workloads."""
    verb = "has" if len(pods) == 1 else "have"
    return f"{count_text(len(pods), 'pod')} {verb} {what}: {_by_workload(pods)}"


class _Unserved(NamedTuple):
    """The stage of an obstacle, and its placement with pods that lack devices.

    Attributes:
        before: The placement before the stage.
        placement: The placement of the stage.
        missing: The pods without devices in it.
    """

    stage: Stage
    before: Placement
    placement: Placement
    missing: frozenset[PodKey]


def explained(placer: Placer, moment: Moment, obstacle: Obstacle) -> Obstacle:
    """Return an obstacle with the pods in the place of others, with held nodes, and with the rules that keep pods apart.

    Args:
        placer: Places the pods.
        moment: The moment at which the obstacle was met.
    """
    stage, before = obstacle.stage, obstacle.before
    if stage is None or before is None:
        return obstacle
    placement = placer.place(stage, before)
    unserved = _Unserved(stage, before, placement, missing_pods(moment, placement))
    for explain in (_with_rivals, _with_closed_nodes, _with_cordoned_nodes, _with_separation):
        obstacle = explain(placer, moment, obstacle, unserved)
    return obstacle


def _with_rivals(
    placer: Placer, moment: Moment, obstacle: Obstacle, unserved: _Unserved
) -> Obstacle:
    """Return an obstacle with the waiting pods in the place of those without devices, and with the ways to help these.

    Without them fewer pods lack devices. Where they are left out, others that wait may come in their place, so these
    are named, too.
    """
    stage, before, placement, first = unserved
    missing = first
    usable = _usable_nodes(placer, moment, missing)
    text = moment.taken_back.replicas_text(_replicated(usable, placement, missing))
    obstacle = msgspec.structs.replace(obstacle, fix=f"{obstacle.fix}{text}")
    if (fix := stay_fix(_staying_nodes(moment, usable, unserved), obstacle.fix)) != obstacle.fix:
        obstacle = msgspec.structs.replace(obstacle, fix=fix, missing=frozenset())
    rivals: frozenset[PodKey] = frozenset()
    while missing and (
        served := _served_instead(moment, placement.nodes, _usable_nodes(placer, moment, missing))
        - rivals
    ):
        rivals |= served
        workloads = {key.workload for key in rivals}
        left_out = frozenset(key for key in moment.pending if key.workload in workloads)
        placement = placer.place(stage, before, left_out)
        missing = missing_pods(moment, placement)
    if len(missing) >= len(first):
        return obstacle
    problem = f"{obstacle.problem}, while pods that wait today have some: {_by_workload(rivals)}"
    return msgspec.structs.replace(obstacle, problem=problem, missing=frozenset())


def _with_closed_nodes(
    placer: Placer, moment: Moment, obstacle: Obstacle, unserved: _Unserved
) -> Obstacle:
    """Return an obstacle with the held nodes that would have devices for its pods, if they took any."""
    stage, before, _, missing = unserved
    closed = moment.closed_reasons.keys() - stage.draining
    if not closed:
        return obstacle
    opened = msgspec.structs.replace(stage, closed=stage.closed - closed)
    placement = placer.place(opened, before)
    if len(missing_pods(moment, placement)) >= len(missing):
        return obstacle
    nodes = sorted(
        {node for key, node in placement.nodes.items() if node != before.nodes.get(key)} & closed
    )
    texts = _by_reason({name: moment.closed_reasons[name] for name in nodes})
    return msgspec.structs.replace(
        obstacle,
        problem=_CLOSED.format(obstacle.problem, texts),
        fix=_OPEN_FIRST.format(join_names(nodes), obstacle.fix),
        missing=frozenset(),
    )


def _with_cordoned_nodes(
    placer: Placer, moment: Moment, obstacle: Obstacle, unserved: _Unserved
) -> Obstacle:
    """Return an obstacle with the cordoned nodes that would have devices for its pods, if they took any."""
    stage, before, placement, missing = unserved
    if not placer.cordoned - stage.draining:
        return obstacle
    opened = placer.place(msgspec.structs.replace(stage, uncordons=True), before)
    if len(missing_pods(moment, opened)) >= len(missing):
        return obstacle
    own = {node for key, node in opened.nodes.items() if node != placement.nodes.get(key)}
    counts = placer.device_counts()
    texts = [
        f"{name} ({count_text(counts[name] - placement.in_use.get(name, 0), 'free device')})"
        for name in sorted(own & placer.cordoned)
    ]
    fix = _UNCORDON.format(join_names(texts), obstacle.fix)
    return msgspec.structs.replace(obstacle, fix=fix, missing=frozenset())


def _with_separation(
    placer: Placer, moment: Moment, obstacle: Obstacle, unserved: _Unserved
) -> Obstacle:
    """Return an obstacle with the rules between pods that keep its pods from nodes with devices."""
    stage, before, _, missing = unserved
    rules = {
        name: rules
        for name in sorted({key.workload for key in missing})
        if (rules := placer.separation.rules(name))
    }
    joined = msgspec.structs.replace(stage, joins=True)
    if not rules or len(missing_pods(moment, placer.place(joined, before))) >= len(missing):
        return obstacle
    texts = [_ON_CLOSED.format(name, ", ".join(own)) for name, own in rules.items()]
    return msgspec.structs.replace(
        obstacle,
        problem=_APART.format(obstacle.problem, join_names(texts)),
        fix=_PREFER.format(join_names(list(rules)), obstacle.fix),
        missing=frozenset(),
    )


def _by_reason(reasons: Mapping[str, str]) -> str:
    """Return nodes with their reasons, those with the same one together."""
    nodes: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        nodes.setdefault(reason, []).append(name)
    return "; ".join(_ON_CLOSED.format(join_names(own), reason) for reason, own in nodes.items())


def _staying_nodes(
    moment: Moment, usable: frozenset[str], unserved: _Unserved
) -> dict[str, Collection[str]]:
    """Return workload to its nodes that stay, for missing pods, and for those that have left them for devices in their reach.

    Args:
        moment: The moment.
        usable: The nodes that some of the missing pods may use.
        unserved: The placement, and these pods.
    """
    names = {key.workload for key in unserved.missing}.union(
        key.workload
        for key, node in unserved.placement.nodes.items()
        if node in usable and node not in moment.staying.get(key.workload, ())
    )
    return {name: own for name, own in sorted(moment.staying.items()) if name in names}


def _replicated(
    usable: frozenset[str], placement: Placement, missing: frozenset[PodKey]
) -> frozenset[str]:
    """Return the workloads of missing pods, and those with pods on nodes that these may use, as far as they have replicas."""
    keys = (*missing, *(key for key, node in placement.nodes.items() if node in usable))
    return frozenset(key.workload for key in keys if kind_of(key.workload) not in _WITHOUT_REPLICAS)


def _served_instead(
    moment: Moment, nodes: Mapping[PodKey, str], usable: frozenset[str]
) -> frozenset[PodKey]:
    """Return the pods that wait today, and have devices on a node that some of the missing pods may use."""
    return frozenset(key for key in moment.pending if nodes.get(key) in usable)


def _usable_nodes(placer: Placer, moment: Moment, pods: frozenset[PodKey]) -> frozenset[str]:
    """Return the nodes that some pods may use, with devices of the models that they select."""
    nothing = frozenset[str]()
    alike = {key.workload: key for key in sorted(pods)}
    return nothing.union(
        *(placer.card_nodes(key, moment.usable.get(name, nothing)) for name, key in alike.items())
    )


def _by_workload(pods: frozenset[PodKey]) -> str:
    """Return the number of pods of each workload."""
    workloads = Counter(key.workload for key in pods)
    return join_names([f"{count} of {name}" for name, count in sorted(workloads.items())])
