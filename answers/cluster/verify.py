"""Contradictions between allocations, now or at any moment of an audit log. Pure.

Allocations are replayed in the order of their writes. Each is compared with those that stand at that
moment, by the constraints of the search: devices and shares, capacity, counters, compatibility groups and
policies. Besides, claims that are reserved for pods that do not exist are reported.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.devices import DeviceId, PoolId
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason
from allocator.model.usage import Usage, with_claim, without_claim
from allocator.pods.claims import Name, allocation_of, claim_name, consuming_pods
from allocator.search.attempt import AllocatorOptions
from allocator.search.recheck import find_conflict
from answers.cluster.devices import published_devices
from answers.model.cluster_state import ClusterState
from kube.api.resource import ResourceClaim

ORPHANED_RESERVATION: Final = "orphanedReservation"
"""A claim is reserved for a pod that does not exist."""


class ClaimWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A claim as a write left it.

    Attributes:
        time: RFC 3339, as the audit log has it.
        user: The user who wrote it.
    """

    time: str
    user: str
    claim: ResourceClaim


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """Two allocations that contradict each other, or a reservation without its pod.

    Attributes:
        code: The reason why the device would be rejected, or `ORPHANED_RESERVATION`.
        claim: `namespace/name` of the later allocation.
        device: `driver/pool/device`; empty for a reservation.
        others: `namespace/name` of the claims that use the device.
        message: The description of the violation.
        time: The time of the write; empty for the present state.
        user: The user who wrote it; empty for the present state.
    """

    code: str
    claim: str
    device: str
    others: tuple[str, ...]
    message: str
    time: str = ""
    user: str = ""


class UnpublishedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a claim has, and that no complete pool publishes now.

    Its driver may be restarting, its node may be gone, or the device is broken.

    Attributes:
        claim: `namespace/name`.
        device: `driver/pool/device`.
    """

    claim: str
    device: str


class VerifyAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document of `drawbridge verify -o json`.

    Attributes:
        allocations: The number of allocations that were compared.
        violations: The violations in the order of their writes, or by claim.
        unpublished: The allocated devices that nothing publishes, by claim, which are no violation; none for
            an audit log.
        doubled_nodes: The nodes with devices that a device plugin and a DRA driver both hand out, and that new pods with
            devices may come to.
        cordoned_doubled_nodes: Further such nodes, which are cordoned.
    """

    allocations: int
    violations: tuple[Violation, ...]
    unpublished: tuple[UnpublishedDevice, ...] = ()
    doubled_nodes: tuple[str, ...] = ()
    cordoned_doubled_nodes: tuple[str, ...] = ()


class Verification:
    """Allocations that are added one after the other, each compared with those that stand."""

    def __init__(self, state: ClusterState, features: Features) -> None:
        """Begin without allocations.

        Args:
            state: Its slices, policies and nodes count; its claims do not.
        """
        self._features = features
        self._options: AllocatorOptions = state.rules(features)
        self._cluster: Cluster = msgspec.structs.replace(state, claims={}).cluster(features)
        self._nodes = _nodes_by_pool(self._cluster)
        self._usage = Usage()
        self._allocated: dict[Name, ResourceClaim] = {}
        self.allocations = 0

    def replace(self, write: ClaimWrite) -> Violation | None:
        """Record a written claim; return the violation that its allocation causes."""
        claim, name = write.claim, claim_name(write.claim)
        before = self._allocated.get(name)
        if before is not None and allocation_of(before) == allocation_of(claim):
            return None
        if before is not None:
            self._usage = without_claim(self._usage, before, self._features)
            del self._allocated[name]
        if allocation_of(claim) is None:
            return None
        self.allocations += 1
        violation = self._contradiction(write)
        self._usage = with_claim(self._usage, claim, self._features)
        self._allocated[name] = claim
        return violation

    def _contradiction(self, write: ClaimWrite) -> Violation | None:
        claim = write.claim
        node = self._node_of(claim)
        conflict = (
            find_conflict(claim, self._cluster.node_devices(node), self._usage, self._options)
            if node is not None
            else None
        )
        if conflict is None or conflict.rejection.reason is Reason.NO_DEVICES:
            # What is not published is compared by its name alone.
            return self._used_twice(write)
        rejection = conflict.rejection
        return _violation(
            write,
            rejection.reason.value,
            conflict.device,
            tuple(f"{consumer.namespace}/{consumer.claim}" for consumer in conflict.consumers),
            rejection.detail or "in use",
        )

    def _used_twice(self, write: ClaimWrite) -> Violation | None:
        allocation = allocation_of(write.claim)
        for result in (allocation.devices.results if allocation is not None else None) or ():
            device = DeviceId(result.driver, result.pool, result.device)
            use = self._usage.of(device)
            if use is None or result.admin_access:
                continue
            shares = {consumer.share_id for consumer in use.consumers}
            if result.share_id is None or None in shares or result.share_id in shares:
                others = tuple(
                    f"{consumer.namespace}/{consumer.claim}" for consumer in use.consumers
                )
                return _violation(write, Reason.ALLOCATED.value, device, others, "in use")
        return None

    def _node_of(self, claim: ResourceClaim) -> str | None:
        """Return a node that sees the pools of an allocation; the fewest nodes see a local one."""
        allocation = allocation_of(claim)
        results = (allocation.devices.results if allocation is not None else None) or ()
        result_nodes = [
            self._nodes[pool]
            for result in results
            if (pool := PoolId(result.driver, result.pool)) in self._nodes
        ]
        return min(result_nodes, key=lambda nodes: nodes[1])[0] if result_nodes else None


def verify_state(state: ClusterState, features: Features) -> VerifyAnswer:
    """Return the violations in the allocations and reservations of a cluster."""
    verification = Verification(state, features)
    writes = [
        ClaimWrite(time="", user="", claim=claim) for _, claim in sorted(state.claims.items())
    ]
    violations = [violation for write in writes if (violation := verification.replace(write))]
    return VerifyAnswer(
        allocations=verification.allocations,
        violations=(*violations, *orphaned_reservations(state)),
        unpublished=tuple(_unpublished(state, features)),
    )


def _unpublished(state: ClusterState, features: Features) -> Iterator[UnpublishedDevice]:
    """Yield the allocated devices that no complete pool publishes, by claim."""
    device_ids = {device.id for device in published_devices(state.cluster(features))}
    for (namespace, name), claim in sorted(state.claims.items()):
        allocation = allocation_of(claim)
        results = (allocation.devices.results if allocation is not None else None) or ()
        for result in results:
            device = DeviceId(result.driver, result.pool, result.device)
            if device not in device_ids:
                yield UnpublishedDevice(claim=f"{namespace}/{name}", device=_device_text(device))


def verify_history(
    writes: Iterable[ClaimWrite], state: ClusterState, features: Features
) -> VerifyAnswer:
    """Return the violations by allocations at the moments of their writes.

    Args:
        writes: The writes in their order.
        state: The objects published at the time, as far as known.
    """
    verification = Verification(state, features)
    violations = [violation for write in writes if (violation := verification.replace(write))]
    return VerifyAnswer(allocations=verification.allocations, violations=tuple(violations))


def orphaned_reservations(state: ClusterState) -> Iterator[Violation]:
    """Yield the claims that are reserved for pods that do not exist."""
    for (namespace, name), claim in sorted(state.claims.items()):
        for consumer in consuming_pods(claim):
            pod = state.pods.get((namespace, consumer.name))
            if pod is None or (consumer.uid and pod.metadata.uid != consumer.uid):
                yield Violation(
                    code=ORPHANED_RESERVATION,
                    claim=f"{namespace}/{name}",
                    device="",
                    others=(),
                    message=f"reserved for pod {namespace}/{consumer.name}, which does not exist",
                )


def has_orphans(answer: VerifyAnswer) -> bool:
    """Return True if some reservation has no pod."""
    return any(violation.code == ORPHANED_RESERVATION for violation in answer.violations)


def confirm_orphans(answer: VerifyAnswer, later: VerifyAnswer) -> VerifyAnswer:
    """Return an answer with only those orphaned reservations that a later one has, too."""
    return msgspec.structs.replace(
        answer,
        violations=tuple(
            violation
            for violation in answer.violations
            if violation.code != ORPHANED_RESERVATION or violation in later.violations
        ),
    )


def _violation(
    write: ClaimWrite, code: str, device: DeviceId, others: tuple[str, ...], message: str
) -> Violation:
    namespace, name = claim_name(write.claim)
    return Violation(
        code=code,
        claim=f"{namespace}/{name}",
        device=_device_text(device),
        others=tuple(dict.fromkeys(others)),
        message=message,
        time=write.time,
        user=write.user,
    )


def _device_text(device: DeviceId) -> str:
    return f"{device.driver}/{device.pool}/{device.device}"


def _nodes_by_pool(cluster: Cluster) -> Mapping[PoolId, tuple[str, int]]:
    """Return each pool with the first node that sees it, and the number of nodes that do."""
    nodes: dict[PoolId, tuple[str, int]] = {}
    for name in sorted(cluster.nodes):
        for pool in cluster.node_devices(name).pools:
            first, count = nodes.get(pool.id, (name, 0))
            nodes[pool.id] = (first, count + 1)
    return nodes
