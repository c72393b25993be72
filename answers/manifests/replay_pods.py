"""The pods of a replay from manifests, or drawn from those of a cluster. Pure."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.declarations.collect import PodGroups
from allocator.declarations.model import DeclaredGroup
from allocator.declarations.read import OWN_SYSTEMS
from allocator.pods.claims import (
    Name,
    allocation_of,
    claim_name,
    pod_claims,
    pod_name,
    pod_place,
)
from allocator.pods.extended_resource_claim import (
    device_plugin_resources,
    extended_resource_claim,
    mapped_resources,
)
from allocator.replay.csv_pods import MAX_ROWS
from allocator.replay.demand import DEVICE, DemandMeter
from allocator.replay.tie_breaker import TieBreaker
from allocator.replay.workload import ReplayGroup, ReplayPod
from allocator.search.attempt import AllocatorOptions
from answers.model.cluster_state import ClusterState, is_running
from findings.text import join_names
from kube.api.core import Pod, PodSpec
from kube.api.extended_resources import extended_resources
from kube.api.resource import ResourceClaim

_DRAW_SEED: Final = 0xD2A3
"""Added to the seed of the draw, which is the same for all strategies and seeds of a replay."""
_NAMED: Final = 3


class ArrivingPods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of a replay, and the cluster before the first one.

    Attributes:
        pods: The pods, in the order in which they arrive.
        state: The cluster.
        notes: Pods that are left out, and why.
    """

    pods: tuple[ReplayPod, ...]
    state: ClusterState
    notes: tuple[str, ...] = ()


class _Kind(NamedTuple):
    """A pod without a node, its claims without an allocation, its group, and its claims with an allocation."""

    pod: Pod
    claims: tuple[ResourceClaim, ...]
    group: ReplayGroup | None
    allocated: tuple[ResourceClaim, ...] = ()


def manifest_pods(pods: Iterable[Pod], state: ClusterState) -> ArrivingPods:
    """Return the unbound pods of manifests, each with its claims and its group.

    Args:
        pods: The pods, after their translation.
        state: The cluster, with the claims and templates of the manifests.
    """
    pods = tuple(pods)
    declared = _declared_groups(pods, state)
    group_of = _groups_of_pods(declared)
    kinds: list[_Kind] = []
    left_out: dict[str, list[str]] = {}
    for pod in pods:
        claims = pod_claims(pod, state.claims, state.templates)
        name = pod_place(pod)
        fault = declared.faults.get(name)
        if fault is not None:
            left_out.setdefault(fault.message, []).append(_reference(pod))
        elif claims.missing:
            left_out.setdefault(claims.missing[0].message, []).append(_reference(pod))
        else:
            kinds.append(_Kind(pod, claims.open, group_of.get(name), claims.held))
    builder = ReplayPodBuilder(state)
    shared = {name: f"{name[1]}~0" for name in _shared_claims(kinds)}
    arriving = tuple(
        msgspec.structs.replace(
            builder.build(kind.pod, kind.claims, shared),
            group=kind.group,
            allocated=kind.allocated,
        )
        for kind in kinds
    )
    return ArrivingPods(pods=arriving, state=state, notes=tuple(_notes(left_out)))


def _shared_claims(kinds: Iterable[_Kind]) -> frozenset[Name]:
    """Return the claims that several pods name."""
    users = Counter(claim_name(claim) for kind in kinds for claim in kind.claims)
    return frozenset(name for name, count in users.items() if count > 1)


def _declared_groups(pods: Iterable[Pod], state: ClusterState) -> PodGroups:
    """Return the groups of pods without a node.

    A replay asks what other schedulers would do, so every declaration counts, and one places all pods.
    """
    return state.declared_groups(tuple(map(_without_scheduler, pods)))


def _groups_of_pods(declared: PodGroups) -> Mapping[Name, ReplayGroup]:
    """Return the group of each pod that has one without a fault."""
    return {
        pod_place(pod): _replay_group(group)
        for group in declared.groups
        if group.fault is None
        for pod in group.waiting
    }


def _without_scheduler(pod: Pod) -> Pod:
    """Return a pod of no scheduler; one with a declaration of its own scheduler as it is."""
    if pod.spec.scheduler_name in OWN_SYSTEMS and not pod.spec.scheduling_group:
        return pod
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduler_name=""))


def _replay_group(group: DeclaredGroup) -> ReplayGroup:
    return ReplayGroup(
        name=str(group.name),
        min_count=group.min_count,
        placed=group.placed,
        domain=group.domain,
        needs_one_domain=group.needs_one_domain,
    )


def drawn_pods(state: ClusterState, demand: float, seed: int = 0) -> ArrivingPods:
    """Return pods drawn by chance from those that run, until they request a share of all devices.

    Pods that share a claim, and those of a group, are drawn together: each copy of them has a copy of the claim. The
    cluster is that without its pods, but for those of DaemonSets, which every node has.

    Args:
        state: The cluster.
        demand: The share of devices that is requested, 1.3 for 130 percent; a request counts as
            `allocator.replay.demand` says.
        seed: The seed of the draw.
    """
    running = [pod for pod in state.pods.values() if is_running(pod) and not _is_of_daemon_set(pod)]
    base = _without_pods(state, running)
    left_out: dict[str, list[str]] = {}
    claims_of: list[tuple[Pod, tuple[ResourceClaim, ...]]] = []
    for pod in running:
        claims = pod_claims(pod, state.claims, state.templates)
        if claims.missing:
            left_out.setdefault(claims.missing[0].message, []).append(_reference(pod))
        else:
            own = tuple(map(unallocated, (*claims.held, *claims.open)))
            claims_of.append((unbound(pod), own))
    group_of = _groups_of_pods(_declared_groups((pod for pod, _ in claims_of), base))
    kinds = [_Kind(pod, claims, group_of.get(pod_place(pod))) for pod, claims in claims_of]
    draw = _Draw(kinds, base)
    pods: list[ReplayPod] = []
    requested, chance = 0, TieBreaker(_DRAW_SEED + seed)
    enough = demand * draw.total_devices * DEVICE
    while any(draw.sizes) and requested < enough and len(pods) < MAX_ROWS:
        number = chance.below(len(draw.sizes))
        requested += draw.sizes[number]
        pods += draw.copy(number, len(pods))
    return ArrivingPods(pods=tuple(pods), state=base, notes=tuple(_notes(left_out)))


class _Draw:
    """The pods of a cluster, those that belong together as one.

    Attributes:
        total_devices: The devices of the cluster.
        sizes: The devices that pods which belong together request, in millionths.
    """

    def __init__(self, kinds: Sequence[_Kind], state: ClusterState) -> None:
        """Take the pods, and the cluster without them."""
        self._builder = ReplayPodBuilder(state)
        self._shared = _shared_claims(kinds)
        self._units = tuple(_units(kinds, self._shared))
        meter = DemandMeter(
            Cluster(
                slices=state.slices,
                nodes=state.nodes,
                claims=(),
                classes=state.classes,
                options=AllocatorOptions(),
            )
        )
        self.total_devices = meter.total_devices
        self.sizes: list[int] = []
        for number in range(len(self._units)):
            pods = tuple(self.copy(number, 0))
            shared = {claim_name(claim): claim for pod in pods for claim in pod.shared}
            claims = [*(pod.claims for pod in pods), *((claim,) for claim in shared.values())]
            self.sizes.append(sum(meter.requested(own).millionths for own in claims))

    def copy(self, number: int, first: int) -> Iterator[ReplayPod]:
        """Yield copies of pods that belong together, with names of their own.

        Args:
            number: Their place in `sizes`.
            first: The number of the first copy, which the names end in.
        """
        unit = self._units[number]
        shared = {
            name: f"{name[1]}~{first}"
            for kind in unit
            for name in map(claim_name, kind.claims)
            if name in self._shared
        }
        members = Counter(kind.group for kind in unit)
        for place, (pod, claims, group, _) in enumerate(unit, start=first):
            metadata = msgspec.structs.replace(pod.metadata, name=f"{pod_name(pod)}-{place}")
            renamed = msgspec.structs.replace(pod, metadata=metadata)
            built = self._builder.build(renamed, claims, shared)
            if group is not None:
                needed = min(group.min_count, members[group])
                name = f"{group.name}~{first}"
                built = msgspec.structs.replace(
                    built, group=msgspec.structs.replace(group, name=name, min_count=needed)
                )
            yield built


def _units(kinds: Sequence[_Kind], shared: Collection[Name]) -> Iterable[Sequence[_Kind]]:
    """Return the pods that belong together, in the order of their first one."""
    leaders: dict[Hashable, Hashable] = {}

    def leader(key: Hashable) -> Hashable:
        while (next_key := leaders.setdefault(key, key)) != key:
            key = next_key
        return key

    for number, (_, claims, group, _) in enumerate(kinds):
        names = {claim_name(claim) for claim in claims} & set(shared)
        keys: list[Hashable] = [*sorted(names)]
        if group is not None:
            keys.append(group.name)
        for key in keys:
            leaders[leader(number)] = leader(key)
    units: dict[Hashable, list[_Kind]] = {}
    for number, kind in enumerate(kinds):
        units.setdefault(leader(number), []).append(kind)
    return units.values()


class ReplayPodBuilder:
    """Pods with claims, also for extended resources of classes."""

    def __init__(self, state: ClusterState) -> None:
        """Build pods for a cluster."""
        self._state = state
        self._priorities = state.priorities
        self._mapping = extended_resources(state.classes.values())

    @cached_property
    def _offered(self) -> frozenset[str]:
        """The resources of device plugins on any node."""
        return frozenset[str]().union(*map(device_plugin_resources, self._state.nodes))

    def build(
        self,
        pod: Pod,
        claims: Sequence[ResourceClaim],
        shared: Mapping[Name, str] = MappingProxyType({}),
    ) -> ReplayPod:
        """Return a pod with these claims; they get names of their own.

        Args:
            shared: Claims that other pods use, too, with their names in the replay.
        """
        names = [shared.get(claim_name(claim)) for claim in claims]
        shared_claims = tuple(
            _renamed(claim, name)
            for claim, name in zip(claims, names, strict=True)
            if name is not None
        )
        claims = [claim for claim, name in zip(claims, names, strict=True) if name is None]
        resources = mapped_resources(pod, self._mapping)
        # Where a device plugin offers one, kube-scheduler would leave it to that on this node alone.
        if resources and resources - self._offered:
            own = extended_resource_claim(pod, resources - self._offered, self._mapping)
            claims = (*claims, own)
        own_names = (f"{pod_name(pod)}-{number}" for number in range(len(claims)))
        renamed = [
            _renamed(claim, f"{name}~" if name in names else name)
            for claim, name in zip(claims, own_names, strict=True)
        ]
        return ReplayPod(
            pod=pod,
            claims=tuple(renamed),
            shared=shared_claims,
            priority=self._priorities.of_pod(pod).spec.priority or 0,
        )


def _renamed(claim: ResourceClaim, name: str) -> ResourceClaim:
    metadata = msgspec.structs.replace(claim.metadata, name=name, owner_references=None)
    return msgspec.structs.replace(claim, metadata=metadata)


def unbound(pod: Pod) -> Pod:
    """Return a pod as it came, without a node and a status."""
    spec: PodSpec = msgspec.structs.replace(pod.spec, node_name="")
    return msgspec.structs.replace(pod, spec=spec, status=None)


def unallocated(claim: ResourceClaim) -> ResourceClaim:
    """Return a claim as it came, without a status."""
    return msgspec.structs.replace(claim, status=None)


def _is_of_daemon_set(pod: Pod) -> bool:
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references or ())


def _without_pods(state: ClusterState, pods: Iterable[Pod]) -> ClusterState:
    """Return a cluster without pods and their claims."""
    names: set[Name] = {(pod.metadata.namespace, pod.metadata.name) for pod in pods}
    used: set[Name] = set()
    for pod in pods:
        own = pod_claims(pod, state.claims, state.templates)
        used |= {claim_name(claim) for claim in (*own.held, *own.open)}
    # What waits in the cluster is no part of the mix.
    claims = {
        key: claim
        for key, claim in state.claims.items()
        if key not in used and allocation_of(claim) is not None
    }
    return msgspec.structs.replace(
        state,
        pods={key: pod for key, pod in state.pods.items() if key not in names},
        claims=claims,
    )


def _reference(pod: Pod) -> str:
    return f"Pod/{pod.metadata.namespace}/{pod_name(pod)}"


def _notes(left_out: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for reason, names in left_out.items():
        yield f"left out: {join_names(names, _NAMED)}: {reason}"
