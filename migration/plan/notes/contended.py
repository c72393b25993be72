"""Evicted pods in competition with a later wave for devices. Pure.

The plan places an evicted pod where it leaves room for later waves; kube-scheduler does not know of these.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Final, NamedTuple

import msgspec

from allocator.nodes.node_resources import NodeResources
from allocator.nodes.pod_requests import PodRequest, pod_request
from allocator.nodes.resources_fit import most_equal_pods
from findings.text import count_text, join_names
from kube.api.core import Pod
from kube.api.workloads import DAEMON_SET
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.outcomes import AssessedWorkload, Outcome, devices_of_pod
from migration.plan.model.plan import Wave
from migration.plan.search.device_map import NodeState, NodeUse, WaveDetails

_NAMES: Final = 4
"""The most workloads, nodes and needs that a note names."""
_UNLIMITED: Final = NodeResources()


class _PodShape(NamedTuple):
    """The demands of one pod of a workload on its node.

    Attributes:
        devices: The number of its devices.
        request: Its CPU, memory and other counted resources.
        keys: The resource names of its devices, which nodes with a DRA driver need not offer.
    """

    devices: int
    request: PodRequest
    keys: frozenset[str]


class _Need(NamedTuple):
    """The need of a wave for the devices of some nodes.

    Attributes:
        number: The number of the wave.
        workload: The workload that may use no others.
        size: The devices of one of its pods, which come from one node.
        spare: The pods of this size that the nodes could still take while the wave's are drained.
    """

    number: int
    workload: str
    nodes: frozenset[str]
    size: int
    spare: int


class _Contest(NamedTuple):
    """A need, and the evicted workloads that may together take more than it leaves."""

    need: _Need
    takers: tuple[str, ...]


def with_contended(
    waves: Sequence[Wave],
    details: Sequence[WaveDetails],
    cluster: AssessedCluster,
    usable: Mapping[str, frozenset[str]],
    *,
    bound_pods: frozenset[tuple[str, str]] = frozenset(),
) -> Iterator[Wave]:
    """Yield the waves, each with a note on evicted pods that may take the devices of a later one.

    Only pods of whole devices are looked at, which both systems serve by the same key.

    Args:
        waves: The waves, in order.
        details: The details of each of them.
        cluster: The cluster.
        usable: Workload, as `Kind/namespace/name`, to the nodes that its pods may use.
        bound_pods: Namespace and name of the pods with a volume of one node, which wait for that node.
    """
    shapes = {
        workload.key.reference: _shape(workload, cluster)
        for workload in cluster.workloads
        if workload.outcome is Outcome.NATIVE
        and usable.get(workload.key.reference)
        and workload.members.isdisjoint(bound_pods)
    }
    places = [_places(entry) for entry in details]
    # Workloads that may use the same nodes have the same need, and a wave has many of them.
    needs = {
        (need.number, need.nodes, need.size): need
        for wave, entry, own_places in zip(waves, details, places, strict=True)
        for need in _needs(wave.wave, entry, own_places, shapes, usable)
    }
    contests: dict[tuple[int, str], dict[frozenset[str], _Contest]] = {}
    # Of needs for the same nodes the tightest remains.
    for need in sorted(needs.values(), key=lambda need: (-need.spare, -need.number)):
        earlier = zip(details[: need.number], places, strict=False)
        takers = _takers(need, earlier, shapes, usable)
        if sum(pods for _, pods in takers.values()) > need.spare:
            for reference, (number, _) in takers.items():
                contest = _Contest(need, tuple(takers))
                contests.setdefault((number, reference), {})[need.nodes] = contest
    for wave in waves:
        names_by_needs: dict[tuple[_Contest, ...], list[str]] = {}
        for (number, reference), by_nodes in sorted(contests.items()):
            if number == wave.wave:
                tightest = sorted(
                    by_nodes.values(), key=lambda own: (own.need.spare, own.need.number)
                )
                names_by_needs.setdefault(tuple(tightest[:_NAMES]), []).append(reference)
        notes = tuple(_note(own, names) for own, names in names_by_needs.items())
        yield msgspec.structs.replace(wave, notes=(*wave.notes, *notes))


def _shape(workload: AssessedWorkload, cluster: AssessedCluster) -> _PodShape:
    """Return the demands of a pod of a workload; those on CPU and memory of one that runs, nothing without such a pod."""
    running = (cluster.state.pods.get(name) for name in sorted(workload.members))
    return _PodShape(
        devices=max(1, devices_of_pod(workload).total()),
        request=pod_request(next(filter(None, running), Pod())),
        keys=frozenset(workload.classes),
    )


def _needs(
    number: int,
    details: WaveDetails,
    places: Mapping[str, Sequence[str]],
    shapes: Mapping[str, _PodShape],
    usable: Mapping[str, frozenset[str]],
) -> Iterator[_Need]:
    """Yield the needs of a wave's evicted pods."""
    drained = {name for name, use in details.during.items() if use.state is NodeState.DRAINED}
    for reference, shape in shapes.items():
        # Pods of a DaemonSet look for devices of their own node only.
        moving = _moving(details, reference, len(places.get(reference, ())))
        if moving and not reference.startswith(f"{DAEMON_SET}/"):
            nodes = usable[reference]
            spare = _room(details.during, nodes - drained, shape.devices)
            yield _Need(number, reference, nodes, shape.devices, spare)


def _room(uses: Mapping[str, NodeUse], nodes: Collection[str], size: int) -> int:
    """Return the pods of a number of devices that nodes could take, each on one of them."""
    return sum((uses[name].devices - uses[name].in_use) // size for name in nodes if name in uses)


def _places(details: WaveDetails) -> dict[str, list[str]]:
    """Return workload to the nodes of its pods after a wave."""
    places: dict[str, list[str]] = {}
    for key, node in details.places.items():
        places.setdefault(key.workload, []).append(node)
    return places


def _takers(
    need: _Need,
    details: Iterable[tuple[WaveDetails, Mapping[str, Sequence[str]]]],
    shapes: Mapping[str, _PodShape],
    usable: Mapping[str, frozenset[str]],
) -> dict[str, tuple[int, int]]:
    """Return the rivals of a need: workload to the first wave that evicts pods of it, and the room for these.

    Args:
        need: The need.
        details: The details of the waves up to its own, in order, each with workload to the nodes of its pods.
        shapes: Workload to the demands of one of its pods.
        usable: Workload to the nodes that its pods may use.
    """
    takers: dict[str, tuple[int, int]] = {}
    for number, (entry, places) in enumerate(details, 1):
        for reference in sorted(entry.evicted):
            own = usable.get(reference, frozenset())
            if reference not in shapes or own.isdisjoint(need.nodes) or own <= need.nodes:
                continue
            outside = sum(node not in need.nodes for node in places.get(reference, ()))
            pods = _moving(entry, reference, len(places.get(reference, ())))
            # A smaller pod may break the room of a larger one on another node of these than that of the plan.
            shape = shapes[reference]
            moving = pods if shape.devices < need.size else min(pods, outside)
            amount = min(
                moving * ceil(shape.devices / need.size),
                _most_taken(entry, need.nodes & own, need.size, shape),
            )
            if amount:
                first, most = takers.get(reference, (number, 0))
                takers[reference] = first, max(most, amount)
    return takers


def _moving(details: WaveDetails, reference: str, after: int) -> int:
    """Return the pods of a workload that a wave moves: those that end first need and take nothing.

    Args:
        details: The details of the wave.
        reference: The workload.
        after: The number of its pods with a node after the wave.
    """
    starting = sum(key.workload == reference for key in details.starting)
    ended = max(0, details.placed.get(reference, 0) - (after - starting))
    return max(0, details.evicted.get(reference, 0) - ended)


def _most_taken(details: WaveDetails, nodes: frozenset[str], size: int, taker: _PodShape) -> int:
    """Return the most room that evicted pods could take on nodes before, during or after a wave.

    Args:
        details: The details of the wave.
        nodes: The nodes.
        size: The devices of a pod that needs the room.
        taker: The demands of an evicted pod, which count on each node.
    """
    staying = frozenset(
        name
        for name in nodes
        if name in details.during and details.during[name].state is not NodeState.DRAINED
    )
    moments = zip(
        (details.before, details.during, details.after),
        (staying, staying, nodes),
        (*details.resources, details.resources_after),
        strict=True,
    )
    return max(
        sum(
            _lost_room(uses[name], resources.get(name, _UNLIMITED), size, taker)
            for name in names
            if name in uses
        )
        for uses, names, resources in moments
    )


def _lost_room(use: NodeUse, resources: NodeResources, size: int, taker: _PodShape) -> int:
    """Return the room for pods of a number of devices that is gone once a node is full of other pods."""
    free = use.devices - use.in_use
    pods = most_equal_pods(taker.request, resources, free // taker.devices, taker.keys)
    return free // size - (free - pods * taker.devices) // size


def _note(contests: Sequence[_Contest], names: Sequence[str]) -> str:
    places = "; or ".join(_contest_text(contest, names) for contest in contests)
    return (
        f"evicted pods of {join_names(names, _NAMES)} may also get {places}: before the first wave, give their templates a "
        "node affinity that leaves those nodes out, and plan again; or scale them down until the wave that needs the nodes "
        "is done; else their pods may find no devices"
    )


def _contest_text(contest: _Contest, names: Collection[str]) -> str:
    need = contest.need
    spare = f"{count_text(need.spare, 'device')} free"
    if need.size > 1:
        spare = f"room for {count_text(need.spare, 'more pod')} of {need.size} devices on one node"
    others = [name for name in contest.takers if name not in names]
    shared = (
        f" (evicted pods of {join_names(others, _NAMES)} may get them, too)"
        if others and need.spare
        else ""
    )
    return (
        f"{join_names(sorted(need.nodes), _NAMES)}, where wave {need.number} needs devices for {need.workload} and leaves "
        f"{spare}{shared}"
    )
