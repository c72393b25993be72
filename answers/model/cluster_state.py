"""The state of a cluster for the allocator, by kind. Pure; `cli.reading.options` reads it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.compatibility.compile import compile_policy
from allocator.declarations.collect import PodGroups, collect_groups
from allocator.declarations.group_claims import share_claims
from allocator.declarations.pod_group import PodGroup
from allocator.declarations.priorities import Priorities, PriorityClass, read_priorities
from allocator.declarations.schedulers import without_ignored_groups
from allocator.features.consumer_limits import consumer_limits
from allocator.model.feature_gates import Features
from allocator.model.taint_rules import apply_taint_rules
from allocator.nodes.node_resources import NodeResources, node_resources, with_unnamed_resources
from allocator.nodes.pod_requests import PodRequest, pod_request
from allocator.pods.claims import Name, allocated_drivers
from allocator.search.attempt import AllocatorOptions
from allocator.strategies.by_node_pool import PoolStrategies, pool_strategies
from allocator.strategies.capacity_weights import CapacityWeights, driver_weights
from answers.model.objects import NamespacedObject, of_kind
from kube.api.core import FINISHED_PHASES, Namespace, Node, Pod, ResourceQuota
from kube.api.device_quota import DeviceQuota
from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.ownership import AllocatorOwnership, bridge_scheduler, driver_settings
from kube.api.policy import DeviceCompatibilityPolicy, effective_policies
from kube.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from kube.api.urls import POD_GROUPS
from quotas.resource_quotas.usage import OBJECT_COUNTS

T = TypeVar("T", bound=ApiStruct)
N = TypeVar("N", Pod, PodGroup, ResourceClaim, ResourceClaimTemplate, ResourceQuota)


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a cluster. Pods, claims and templates have their namespace in `metadata`.

    Pods name the claims that they share by a PodGroup, and those of PodGroups without any yet are among the claims.

    Attributes:
        has_nodes: Nodes are known; else `nodes` are those that slices name, without labels.
        taint_rules: Not applied to the slices yet.
        pod_groups: The PodGroups of Kubernetes and of other schedulers, with their namespace.
        quotas: DeviceQuotas.
        resource_quotas: Kubernetes' own quotas, with their namespace.
        namespaces: Namespace to its labels.
        uncreated: Names of the claims of PodGroups that do not exist yet.
        priority_classes: The PriorityClasses.
    """

    nodes: tuple[Node, ...]
    has_nodes: bool
    pods: Mapping[Name, Pod]
    claims: Mapping[Name, ResourceClaim]
    templates: Mapping[Name, ResourceClaimTemplate]
    classes: Mapping[str, DeviceClass]
    slices: tuple[ResourceSlice, ...]
    taint_rules: tuple[DeviceTaintRule, ...]
    policies: tuple[DeviceCompatibilityPolicy, ...]
    ownerships: tuple[AllocatorOwnership, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    quotas: tuple[DeviceQuota, ...] = ()
    resource_quotas: tuple[ResourceQuota, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    priority_classes: tuple[PriorityClass, ...] = ()
    uncreated: frozenset[Name] = frozenset()

    @property
    def created_objects(self) -> "ClusterState":
        """Return the state without the claims that do not exist yet."""
        claims = {name: claim for name, claim in self.claims.items() if name not in self.uncreated}
        return msgspec.structs.replace(self, claims=claims, uncreated=frozenset())

    @property
    def allocated_claims(self) -> Mapping[Name, frozenset[str]]:
        """Return the allocated claims with the drivers of their devices."""
        drivers = {name: allocated_drivers(claim) for name, claim in self.claims.items()}
        return {name: of_claim for name, of_claim in drivers.items() if of_claim is not None}

    @property
    def bridge_scheduler(self) -> str:
        """Return the schedulerName of the bridge."""
        return bridge_scheduler(self.ownerships)

    @property
    def priorities(self) -> Priorities:
        """Return the priorities that the API server gives to new pods and PodGroups."""
        return read_priorities(self.priority_classes)

    @property
    def claim_quotas(self) -> tuple[ResourceQuota, ...]:
        """Return Kubernetes' own quotas that count claims, or their templates."""
        return tuple(
            quota
            for quota in self.resource_quotas
            if not OBJECT_COUNTS.isdisjoint(quota.spec.hard or quota.status.hard or ())
        )

    @property
    def kubernetes_groups(self) -> Mapping[Name, PodGroup]:
        """Return the PodGroups of Kubernetes with their priorities, by namespace and name."""
        priorities = self.priorities
        return {
            (group.metadata.namespace, group.metadata.name): priorities.of_group(group)
            for group in self.pod_groups
            if group.group == POD_GROUPS.group
        }

    def admitted(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """Return pods with priorities, and entries that name the claims of their PodGroups."""
        pods = map(self.priorities.of_pod, pods)
        groups = [group for group in self.kubernetes_groups.values() if group.spec.resource_claims]
        return (
            share_claims(pods, groups, self.claims, self.templates).pods if groups else tuple(pods)
        )

    def under(self, features: Features) -> "ClusterState":
        """Return the state as an API server with these gates has it: without names that classes may not map."""
        if features.extended_resources:
            return self
        classes = {
            name: msgspec.structs.replace(
                device_class,
                spec=msgspec.structs.replace(device_class.spec, extended_resource_name=None),
            )
            for name, device_class in self.classes.items()
        }
        return msgspec.structs.replace(self, classes=classes)

    def declared_groups(self, waiting: Sequence[Pod], held_back: Iterable[Pod] = ()) -> PodGroups:
        """Return the groups of pods that wait for a node, as they declare them.

        Args:
            waiting: The pods; those of the state belong to the groups if they run.
            held_back: Further pods for which a quota leaves too little.
        """
        priorities = self.priorities
        return collect_groups(
            tuple(map(priorities.of_pod, waiting)),
            map(priorities.of_pod, filter(is_running, self.pods.values())),
            map(priorities.of_group, self.pod_groups),
            self.bridge_scheduler,
            held_back,
        )

    def groups(
        self, waiting: Sequence[Pod], held_back: Iterable[Pod] = (), *, are_new: bool = False
    ) -> PodGroups:
        """Return the groups of pods that wait for a node, as their schedulers read them.

        Args:
            waiting: The pods, as in `declared_groups`.
            held_back: Further pods, as there.
            are_new: They have not been admitted, so that the gangs of the bridge's pods will be adopted.
        """
        readers = without_ignored_groups(waiting, self.bridge_scheduler, are_adopted=are_new)
        return self.declared_groups(readers, held_back)

    def rules(
        self,
        features: Features,
        uniform_config_drivers: Collection[str] = (),
        *,
        with_policies: bool = True,
    ) -> AllocatorOptions:
        """Return the feature gates, the policies in force, and the drivers of uniform configs."""
        policies = effective_policies(self.policies).values() if with_policies else ()
        return AllocatorOptions(
            features=features,
            policies=tuple(map(compile_policy, policies)),
            uniform_config_drivers=frozenset(uniform_config_drivers),
        )

    @property
    def weights(self) -> CapacityWeights:
        """Return the weights of capacities in loads, as the bridge counts them."""
        return driver_weights(driver_settings(self.ownerships))

    @property
    def pool_strategies(self) -> PoolStrategies:
        """Return the default strategies of the bridge's pools of nodes."""
        return pool_strategies(driver_settings(self.ownerships))

    def tainted_slices(self, features: Features) -> tuple[ResourceSlice, ...]:
        """Return the slices with the taints that rules add under these gates."""
        has_rules = features.device_taints and features.device_taint_rules
        return apply_taint_rules(self.slices, self.taint_rules) if has_rules else self.slices

    def node_resources(self, without: Collection[Name] = ()) -> Mapping[str, NodeResources]:
        """Return node to its CPU, memory and other counted resources, with the pods that run there.

        Args:
            without: Namespace and name of pods that do not count.
        """
        requests: dict[str, list[PodRequest]] = {node.metadata.name: [] for node in self.nodes}
        for name, pod in self.pods.items():
            if is_running(pod) and pod.spec.node_name in requests and name not in without:
                requests[pod.spec.node_name].append(pod_request(pod))
        return {
            node.metadata.name: node_resources(
                with_unnamed_resources(node), requests[node.metadata.name]
            )
            for node in self.nodes
        }

    def cluster(
        self,
        features: Features,
        uniform_config_drivers: Collection[str] = (),
        *,
        with_policies: bool = True,
    ) -> Cluster:
        """Return the cluster as the allocator sees it.

        Args:
            features: Feature gates.
            with_policies: Evaluate DeviceCompatibilityPolicies and the limits of owned drivers, which
                kube-scheduler ignores.
            uniform_config_drivers: Drivers that reject contradicting sharing configurations; none
                for the verdicts of kube-scheduler, which does not compare configurations.
        """
        limits = consumer_limits(driver_settings(self.ownerships)) if with_policies else {}
        options = self.rules(features, uniform_config_drivers, with_policies=with_policies)
        return Cluster(
            slices=self.tainted_slices(features),
            nodes=self.nodes,
            claims=self.claims.values(),
            classes=self.classes,
            options=msgspec.structs.replace(options, consumer_limits=limits),
        )


def build_state(objects: Sequence[NamespacedObject]) -> ClusterState:
    """Return the state of a cluster with these objects; there must be no namesakes."""
    nodes = tuple(node for _, node in of_kind(objects, Node))
    slices = tuple(slice_ for _, slice_ in of_kind(objects, ResourceSlice))
    pod_groups = tuple(
        with_namespace(namespace, group) for namespace, group in of_kind(objects, PodGroup)
    )
    claims = _by_name(of_kind(objects, ResourceClaim))
    templates = _by_name(of_kind(objects, ResourceClaimTemplate))
    pods = _by_name(of_kind(objects, Pod))
    groups = [group for group in pod_groups if group.spec.resource_claims]
    sharing_pods = tuple(pods.values())
    shared_claims: Mapping[Name, ResourceClaim] = {}
    if groups:
        native = (group for group in groups if group.group == POD_GROUPS.group)
        sharing_pods, shared_claims = share_claims(pods.values(), native, claims, templates)
    return ClusterState(
        nodes=nodes or tuple(_nodes_of(slices)),
        has_nodes=bool(nodes),
        pods=dict(zip(pods, sharing_pods, strict=True)),
        claims={**claims, **shared_claims},
        templates=templates,
        classes={
            device_class.metadata.name: device_class
            for _, device_class in of_kind(objects, DeviceClass)
        },
        slices=slices,
        taint_rules=tuple(rule for _, rule in of_kind(objects, DeviceTaintRule)),
        policies=tuple(policy for _, policy in of_kind(objects, DeviceCompatibilityPolicy)),
        ownerships=tuple(ownership for _, ownership in of_kind(objects, AllocatorOwnership)),
        pod_groups=pod_groups,
        quotas=tuple(quota for _, quota in of_kind(objects, DeviceQuota)),
        resource_quotas=tuple(
            with_namespace(namespace, quota) for namespace, quota in of_kind(objects, ResourceQuota)
        ),
        namespaces={
            namespace.metadata.name: namespace.metadata.labels or {}
            for _, namespace in of_kind(objects, Namespace)
        },
        uncreated=frozenset(shared_claims),
        priority_classes=tuple(value for _, value in of_kind(objects, PriorityClass)),
    )


def is_pending(pod: Pod) -> bool:
    """Return True if a pod has no node and has not ended."""
    phase = pod.status.phase if pod.status is not None else ""
    return not pod.spec.node_name and phase not in FINISHED_PHASES


def is_running(pod: Pod) -> bool:
    """Return True if a pod has a node and has not ended, so that it uses the node's resources."""
    phase = pod.status.phase if pod.status is not None else ""
    return bool(pod.spec.node_name) and phase not in FINISHED_PHASES


def with_namespace(namespace: str, value: N) -> N:
    """Return an object with its namespace in `metadata`."""
    if value.metadata.namespace == namespace:
        return value
    metadata = msgspec.structs.replace(value.metadata, namespace=namespace)
    return msgspec.structs.replace(value, metadata=metadata)


def _by_name(objects: Iterable[tuple[str, N]]) -> dict[Name, N]:
    return {
        (namespace, object_.metadata.name or object_.metadata.generate_name): with_namespace(
            namespace, object_
        )
        for namespace, object_ in objects
    }


def _nodes_of(slices: Iterable[ResourceSlice]) -> Iterable[Node]:
    """Yield a node without labels for each name in slices and their devices."""
    names = {slice_.spec.node_name for slice_ in slices}
    names |= {device.node_name for slice_ in slices for device in slice_.spec.devices or ()}
    for name in sorted(name for name in names if name):
        yield Node(metadata=ObjectMeta(name=name))
