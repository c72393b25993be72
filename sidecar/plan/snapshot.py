"""The values of one moment that an answer depends on beside the pod."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.pods.claims import Name
from allocator.pods.eligible_nodes import EligibleNodes
from allocator.strategies import registry
from allocator.strategies.capacity_weights import NO_WEIGHTS, CapacityWeights
from kube.api.core import Pod
from kube.api.resource import DeviceClass, ResourceClaim
from sidecar.commit.binding import NEVER


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A cluster as the scheduler beside us has to see it.

    Attributes:
        cluster: Devices and their usage, what is promised included.
        claims: With the devices that are promised to them.
        classes: By name.
        extended_resources: Name of an extended resource to the class that maps it.
        pods: By UID, those with claims.
        nominated: By UID, those of them that wait for a node that was cleared for them.
        terminating: By UID, those of them that are bound and being deleted.
        claims_of: UID of a pod to the claims that are reserved for it.
        releasing: Claims that are allocated for pods that are all gone.
        lowest_priority: Of the pods that have devices; None if none has.
        exhausted_namespaces: Those that have as many devices held back as a namespace may.
        drivers: Drivers whose devices may be given.
        eligible_nodes: Whether pods may use nodes.
        default_strategy: Where neither the pod nor a class names one.
        weights: Of the capacities in loads.
        binding_cutoff: See `binding_state`.
    """

    cluster: Cluster
    claims: Mapping[Name, ResourceClaim]
    classes: Mapping[str, DeviceClass]
    extended_resources: Mapping[str, str]
    pods: Mapping[str, Pod]
    nominated: Mapping[str, Pod] = {}
    terminating: Mapping[str, Pod] = {}
    claims_of: Mapping[str, frozenset[Name]] = {}
    releasing: frozenset[Name] = frozenset()
    lowest_priority: int | None = None
    exhausted_namespaces: frozenset[str] = frozenset()
    drivers: frozenset[str]
    eligible_nodes: EligibleNodes = msgspec.field(default_factory=EligibleNodes)
    default_strategy: str = registry.DEFAULT
    weights: CapacityWeights = NO_WEIGHTS
    binding_cutoff: datetime = NEVER
