"""The values of one moment that an answer depends on beside the pod."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.declarations.pod_group import PodGroup
from allocator.pods.claims import Name
from allocator.pods.eligible_nodes import EligibleNodes
from allocator.strategies import registry
from allocator.strategies.by_node_pool import NO_POOL_STRATEGIES, PoolStrategies
from allocator.strategies.capacity_weights import NO_WEIGHTS, CapacityWeights
from kube.api.core import Pod
from kube.api.resource import DeviceClass, ResourceClaim
from quotas.device_quotas.book import QuotaBook
from sidecar.commit.binding import NEVER
from sidecar.plan.group_claims import NO_PROMISED_ENTRIES, PromisedEntries
from sidecar.plan.occupancy import Keep, Occupancy
from sidecar.plan.room import Room


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A cluster as the scheduler beside us has to see it.

    Attributes:
        cluster: Devices and their usage, what is promised included.
        claims: The claims, with the devices that are promised to them.
        classes: The DeviceClasses by name.
        extended_resources: Name of an extended resource to the class that maps it.
        pods: The pods with claims, by UID.
        nominated: The pods with claims that wait for a node that was cleared for them, by UID.
        terminating: The pods with claims that are bound and being deleted, by UID.
        claims_of: UID of a pod to the claims that are reserved for it.
        releasing: Claims that are allocated for pods that are all gone.
        lowest_priority: The lowest priority of the pods that have devices; None if none has.
        exhausted_namespaces: The namespaces that have as many devices held back as a namespace may.
        drivers: Drivers whose devices may be given.
        quotas: The DeviceQuotas, and what is charged to them; None without any.
        eligible_nodes: A check whether a pod may use a node.
        default_strategy: The strategy if neither the pod nor a class names one, nor the node's pool has one.
        pool_strategies: The default strategies of pools of nodes.
        weights: The weights of the capacities in loads.
        room: The resources left on nodes beside devices.
        pod_groups: The PodGroups by namespace and name.
        promised_entries: The entries in claims of pods that are reserved, and may not be written yet.
        keeps: The devices that are kept for groups, the most important group first.
        binding_cutoff: The time before which allocated devices that are not ready yet have timed
            out.
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
    quotas: QuotaBook | None = None
    eligible_nodes: EligibleNodes = msgspec.field(default_factory=EligibleNodes)
    default_strategy: str = registry.DEFAULT
    pool_strategies: PoolStrategies = NO_POOL_STRATEGIES
    weights: CapacityWeights = NO_WEIGHTS
    room: Room = msgspec.field(default_factory=Room)
    pod_groups: Mapping[Name, PodGroup] = {}
    promised_entries: PromisedEntries = NO_PROMISED_ENTRIES
    keeps: tuple[Keep, ...] = ()
    binding_cutoff: datetime = NEVER

    @property
    def occupancy(self) -> Occupancy:
        """The present use."""
        return Occupancy(usage=self.cluster.usage)
