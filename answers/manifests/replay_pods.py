"""The pods of a replay from manifests, or drawn from those of a cluster. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.declarations.model import DeclaredGroup
from allocator.pods.claims import Name, allocation_of, claim_name, pod_claims, pod_name
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
        notes: Pods that are left out, and why, and claims that are shared.
    """

    pods: tuple[ReplayPod, ...]
    state: ClusterState
    notes: tuple[str, ...] = ()


def manifest_pods(pods: Iterable[Pod], state: ClusterState) -> ArrivingPods:
    """Return the unbound pods of manifests, each with claims of its own, and with its group.

    Args:
        pods: The pods, after their translation.
        state: The cluster, with the claims and templates of the manifests.
    """
    builder = ReplayPodBuilder(state)
    arriving: list[ReplayPod] = []
    left_out: dict[str, list[str]] = {}
    users: Counter[Name] = Counter()
    pods = tuple(pods)
    # A replay asks what other schedulers would do, so every declaration counts, and one places all pods.
    declared = state.declared_groups(tuple(map(_without_scheduler, pods)))
    group_of = {
        (pod.metadata.namespace, pod.metadata.name): _replay_group(group)
        for group in declared.groups
        for pod in group.waiting
    }
    for pod in pods:
        claims = pod_claims(pod, state.claims, state.templates)
        name = (pod.metadata.namespace, pod.metadata.name)
        fault = declared.faults.get(name)
        if fault is not None:
            left_out.setdefault(fault.message, []).append(_reference(pod))
        elif claims.missing:
            left_out.setdefault(claims.missing[0].message, []).append(_reference(pod))
        elif claims.held:
            reason = "its claim is allocated already, so it has no choice of nodes"
            left_out.setdefault(reason, []).append(_reference(pod))
        else:
            users.update(map(claim_name, claims.open))
            built = builder.build(pod, claims.open)
            arriving.append(msgspec.structs.replace(built, group=group_of.get(name)))
    notes = (*_notes(left_out), *_sharing_notes(users))
    return ArrivingPods(pods=tuple(arriving), state=state, notes=notes)


def _sharing_notes(users: Mapping[Name, int]) -> Iterator[str]:
    """Yield a sentence for each claim of several pods."""
    for (namespace, name), count in users.items():
        if count > 1:
            yield (
                f"ResourceClaim {namespace}/{name} is shared by {count} pods; here each of them has a claim of "
                "its own, so that they need more devices than they would"
            )


def _without_scheduler(pod: Pod) -> Pod:
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

    The cluster is that without its pods, but for those of DaemonSets, which every node has.

    Args:
        state: The cluster.
        demand: The share of devices that is requested, 1.3 for 130 percent; a request counts as
            `allocator.replay.demand` says.
        seed: The seed of the draw.
    """
    running = [pod for pod in state.pods.values() if is_running(pod) and not _is_of_daemon_set(pod)]
    base = _without_pods(state, running)
    builder = ReplayPodBuilder(base)
    meter = DemandMeter(
        Cluster(
            slices=state.slices,
            nodes=state.nodes,
            claims=(),
            classes=state.classes,
            options=AllocatorOptions(),
        )
    )
    left_out: dict[str, list[str]] = {}
    kinds: list[tuple[Pod, tuple[ResourceClaim, ...]]] = []
    sizes: list[int] = []
    for pod in running:
        claims = pod_claims(pod, state.claims, state.templates)
        if claims.missing:
            left_out.setdefault(claims.missing[0].message, []).append(_reference(pod))
            continue
        own = tuple(map(unallocated, (*claims.held, *claims.open)))
        kinds.append((unbound(pod), own))
        # With the claim for its extended resources.
        sizes.append(meter.requested(builder.build(*kinds[-1]).claims).millionths)
    pods: list[ReplayPod] = []
    requested, chance = 0, TieBreaker(_DRAW_SEED + seed)
    enough = demand * meter.total_devices * DEVICE
    while any(sizes) and requested < enough and len(pods) < MAX_ROWS:
        number = chance.below(len(kinds))
        pod, own_claims = kinds[number]
        requested += sizes[number]
        metadata = msgspec.structs.replace(pod.metadata, name=f"{pod_name(pod)}-{len(pods)}")
        pods.append(builder.build(msgspec.structs.replace(pod, metadata=metadata), own_claims))
    return ArrivingPods(pods=tuple(pods), state=base, notes=tuple(_notes(left_out)))


class ReplayPodBuilder:
    """Pods with claims that no other pod uses, also for extended resources of classes."""

    def __init__(self, state: ClusterState) -> None:
        """Build pods for a cluster."""
        self._state = state
        self._mapping = extended_resources(state.classes.values())

    @cached_property
    def _offered(self) -> frozenset[str]:
        """The resources of device plugins on any node."""
        return frozenset[str]().union(*map(device_plugin_resources, self._state.nodes))

    def build(self, pod: Pod, claims: Sequence[ResourceClaim]) -> ReplayPod:
        """Return a pod with these claims; they get names of their own."""
        resources = mapped_resources(pod, self._mapping)
        # Where a device plugin offers one, kube-scheduler would leave it to that on this node alone.
        if resources and resources - self._offered:
            own = extended_resource_claim(pod, resources - self._offered, self._mapping)
            claims = (*claims, own)
        renamed = [
            msgspec.structs.replace(
                claim,
                metadata=msgspec.structs.replace(
                    claim.metadata, name=f"{pod_name(pod)}-{number}", owner_references=None
                ),
            )
            for number, claim in enumerate(claims)
        ]
        return ReplayPod(pod=pod, claims=tuple(renamed), priority=pod.spec.priority or 0)


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
