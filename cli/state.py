"""The state of a cluster for the allocator: what files or a cluster hold, by kind.

Pure: reading is in `cli.inputs`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from allocator.cluster import Cluster
from allocator.core.model import Features
from allocator.core.pools import tainted
from allocator.core.problem import Rules
from allocator.core.rules import compiled
from allocator.pod_claims import Name
from cli.objects import Placed, of_kind
from kube.api.core import Node, Pod
from kube.api.meta import ApiStruct, ObjectMeta
from kube.api.policy import DeviceCompatibilityPolicy, in_force
from kube.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)

T = TypeVar("T", bound=ApiStruct)
N = TypeVar("N", Pod, ResourceClaim, ResourceClaimTemplate)

_FINISHED: Final = frozenset({"Succeeded", "Failed"})


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster holds. Pods, claims and templates say their namespace.

    Attributes:
        has_nodes: Nodes were given; else they are those that slices name, without labels.
        taint_rules: Not merged into the slices.
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

    def rules(self, features: Features) -> Rules:
        """Return what decides beside claims and inventory, under these gates."""
        counting = in_force(self.policies).values()
        return Rules(features=features, policies=tuple(map(compiled, counting)))

    def published(self, features: Features) -> tuple[ResourceSlice, ...]:
        """Return the slices with the taints that rules add under these gates."""
        has_rules = features.device_taints and features.device_taint_rules
        return tainted(self.slices, self.taint_rules) if has_rules else self.slices

    def cluster(self, features: Features) -> Cluster:
        """Return a cluster to be asked."""
        return Cluster(
            slices=self.published(features),
            nodes=self.nodes,
            claims=self.claims.values(),
            classes=self.classes,
            rules=self.rules(features),
        )


def state_of(objects: Sequence[Placed]) -> State:
    """Return the state that these objects make; there are no two namesakes among them."""
    nodes = tuple(node for _, node in of_kind(objects, Node))
    slices = tuple(one for _, one in of_kind(objects, ResourceSlice))
    return State(
        nodes=nodes or tuple(_named_by(slices)),
        has_nodes=bool(nodes),
        pods=_by_name(of_kind(objects, Pod)),
        claims=_by_name(of_kind(objects, ResourceClaim)),
        templates=_by_name(of_kind(objects, ResourceClaimTemplate)),
        classes={one.metadata.name: one for _, one in of_kind(objects, DeviceClass)},
        slices=slices,
        taint_rules=tuple(one for _, one in of_kind(objects, DeviceTaintRule)),
        policies=tuple(one for _, one in of_kind(objects, DeviceCompatibilityPolicy)),
    )


def is_waiting(pod: Pod) -> bool:
    """Return whether a pod has no node yet, and has not ended."""
    phase = pod.status.phase if pod.status is not None else ""
    return not pod.spec.node_name and phase not in _FINISHED


def housed(namespace: str, value: N) -> N:
    """Return an object that says its namespace."""
    if value.metadata.namespace == namespace:
        return value
    metadata = msgspec.structs.replace(value.metadata, namespace=namespace)
    return msgspec.structs.replace(value, metadata=metadata)


def _by_name(objects: Iterable[tuple[str, N]]) -> dict[Name, N]:
    return {
        (namespace, each.metadata.name or each.metadata.generate_name): housed(namespace, each)
        for namespace, each in objects
    }


def _named_by(slices: Iterable[ResourceSlice]) -> Iterable[Node]:
    """Yield a node for each name that slices and their devices give."""
    names = {one.spec.node_name for one in slices}
    names |= {device.node_name for one in slices for device in one.spec.devices or ()}
    for name in sorted(name for name in names if name):
        yield Node(metadata=ObjectMeta(name=name))
