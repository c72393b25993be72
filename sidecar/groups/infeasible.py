"""The groups that do not fit on an idle cluster, remembered until devices, nodes, classes or the group change."""

import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from allocator.cluster.cluster import Cluster
from allocator.model.devices import NodeDevices
from allocator.pods.claims import allocation_of
from kube.api.core import Node
from kube.api.meta import encode
from kube.api.resource import DeviceClass
from kube.collections.least_recently_used import LeastRecentlyUsed
from sidecar.groups.candidates import find_candidates
from sidecar.model.protocol import GroupRequest
from sidecar.model.rejections import Rejection
from sidecar.plan.pod_claims import claim_names
from sidecar.plan.snapshot import Snapshot

MAX_GROUPS: Final = 1024
"""Groups that are remembered."""
DIGEST_BYTES: Final = 16


class Circumstances(NamedTuple):
    """The parts of a cluster that count for a group while no device is in use.

    Attributes:
        cluster: The cluster, which is another one after a change of policies or settings.
        nodes: Its nodes by name, in order.
        devices: Their devices; a change of them makes another object.
        classes: The DeviceClasses.
        drivers: The drivers whose devices may be given.
    """

    cluster: Cluster
    nodes: tuple[Node, ...]
    devices: tuple[NodeDevices, ...]
    classes: Mapping[str, DeviceClass]
    drivers: frozenset[str]


class InfeasibleGroups:
    """The groups that do not fit on an idle cluster, as it is now."""

    def __init__(self) -> None:
        """Begin without a group."""
        self._circumstances: Circumstances | None = None
        self._digests = LeastRecentlyUsed[str, bytes](MAX_GROUPS)

    def has(self, request: GroupRequest, snapshot: Snapshot) -> bool:
        """Return True if a group is known not to fit."""
        digest = self._digests.get(request.group.uid)
        return (
            digest is not None
            and self._circumstances == _circumstances(snapshot)
            and digest == _digest(request, snapshot)
        )

    def add(self, request: GroupRequest, snapshot: Snapshot) -> None:
        """Remember a group that does not fit; one with pods that may get a chance is asked about again."""
        candidates = find_candidates(request, snapshot)
        if isinstance(candidates, Rejection) or candidates.rejections:
            return
        circumstances = _circumstances(snapshot)
        if circumstances != self._circumstances:
            self._circumstances = circumstances
            self._digests = LeastRecentlyUsed(MAX_GROUPS)
        self._digests[request.group.uid] = _digest(request, snapshot)


def _circumstances(snapshot: Snapshot) -> Circumstances:
    cluster = snapshot.cluster
    return Circumstances(
        cluster=cluster,
        nodes=tuple(cluster.nodes[name] for name in cluster.names),
        devices=tuple(cluster.node_devices(name) for name in cluster.names),
        classes=snapshot.classes,
        drivers=snapshot.drivers,
    )


def _digest(request: GroupRequest, snapshot: Snapshot) -> bytes:
    """Return a digest of a group and its claims, in any order of its pods."""
    pods = sorted(request.pods, key=lambda pod: pod.metadata.uid)
    names = sorted({name for pod in pods for name in claim_names(pod)})
    claims = [snapshot.claims.get(name) for name in names]
    parts = (
        request.group,
        [(pod.metadata.uid, pod.spec) for pod in pods],
        sorted(encode(placed) for placed in request.placed),
        sorted(request.excluded.items()),
        request.topology,
        names,
        [
            (claim.metadata.uid, claim.metadata.resource_version, allocation_of(claim) is None)
            for claim in claims
            if claim is not None
        ],
    )
    return hashlib.blake2b(encode(parts), digest_size=DIGEST_BYTES).digest()
