"""The allocator's view of a cluster, kept up to date change by change.

Changes come in batches, and between two batches the view stands still. Most changes are applied to the
view. It is built anew for those that concern all nodes and for large batches, which also bounds the
memory of the allocator's caches.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from allocator.cluster.cluster import Cluster
from allocator.compatibility.compile import compile_policy
from allocator.features.consumer_limits import ConsumerLimit
from allocator.model.feature_gates import Features
from allocator.model.taint_rules import apply_taint_rules
from allocator.pods.claims import Name, allocation_of
from allocator.search.attempt import AllocatorOptions
from clusterstate.kinds import Changes, Kind
from kube.api.extended_resources import extended_resources
from kube.api.policy import effective_policies
from kube.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice

MAX_BATCH: Final = 256
"""Changes of slices and nodes that are applied one by one; more are cheaper together."""
MAX_APPLIED: Final = 100_000
"""Changes after which the view is built anew."""
MAX_CHEAP: Final = 32
"""Changes of claims that are applied in a few milliseconds."""

_CLUSTER_WIDE: Final = (Kind.CLASS, Kind.TAINT_RULE, Kind.POLICY)
"""Kinds that concern all nodes; there are few of them, and they hardly change."""


class ClusterCache:
    """A cluster as the allocator sees it. Not for several threads at once.

    Attributes:
        version: Grows with every batch that changes something.
        cluster: For queries; another object after some changes.
        extended_resources: Name of an extended resource to name of the class that maps it.
    """

    def __init__(
        self,
        features: Features,
        uniform_config_drivers: frozenset[str] = frozenset(),
        consumer_limits: Mapping[str, ConsumerLimit] = MappingProxyType({}),
    ) -> None:
        """Begin with an empty cluster.

        Args:
            features: Gates of the cluster's scheduler.
            uniform_config_drivers: See `AllocatorOptions`.
            consumer_limits: See `AllocatorOptions`.
        """
        self.version = 0
        self.extended_resources: Mapping[str, str] = {}
        self._features = features
        self._uniform_config_drivers = uniform_config_drivers
        self._consumer_limits = dict(consumer_limits)
        self._objects: dict[Kind, dict[Name, Any]] = {kind: {} for kind in Kind}
        self._published: dict[Name, ResourceSlice] = {}
        self._applied = 0
        self.cluster = self._build()

    @property
    def claims(self) -> Mapping[Name, ResourceClaim]:
        """All claims."""
        return self._objects[Kind.CLAIM]

    @property
    def templates(self) -> Mapping[Name, ResourceClaimTemplate]:
        """All templates."""
        return self._objects[Kind.TEMPLATE]

    @property
    def classes(self) -> Mapping[str, DeviceClass]:
        """All classes by name."""
        return {name: device_class for (_, name), device_class in self._objects[Kind.CLASS].items()}

    def is_cheap(self, changes: Changes) -> bool:
        """Return whether a batch is applied within a few milliseconds: a few changes of claims."""
        count = len(changes.get(Kind.CLAIM, ()))
        return (
            changes.keys() <= {Kind.CLAIM}
            and count <= MAX_CHEAP
            and self._applied + count <= MAX_APPLIED
        )

    def apply(self, changes: Changes) -> None:
        """Apply a batch of changes."""
        count = sum(map(len, changes.values()))
        if not count:
            return
        self.version += 1
        self._applied += count
        batch = sum(len(changes.get(kind, ())) for kind in (Kind.NODE, Kind.SLICE))
        is_large = batch > MAX_BATCH or self._applied > MAX_APPLIED
        before = {
            kind: {key: self._objects[kind].get(key) for key in objects}
            for kind, objects in changes.items()
        }
        for kind, objects in changes.items():
            for key, new in objects.items():
                put(self._objects[kind], key, new)
        if is_large or any(map(changes.get, _CLUSTER_WIDE)):
            self.cluster = self._build()
            return
        for (_, name), node in changes.get(Kind.NODE, {}).items():
            self.cluster.replace_node(name, node)
        for key, new in changes.get(Kind.SLICE, {}).items():
            self._replace_slice(key, new)
        for key, claim in changes.get(Kind.CLAIM, {}).items():
            self._replace_claim(before[Kind.CLAIM][key], claim)

    def _replace_slice(self, key: Name, new: ResourceSlice | None) -> None:
        old = self._published.get(key)
        tainted_slice = self._with_taints({key: new})[key] if new is not None else None
        put(self._published, key, tainted_slice)
        self.cluster.replace_slice(old, tainted_slice)

    def _replace_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        before, after = (None if claim is None else allocation_of(claim) for claim in (old, new))
        if before == after:
            return
        if old is not None and before is not None:
            self.cluster.release(old)
        if new is not None and after is not None:
            self.cluster.allocate(new)

    def _build(self) -> Cluster:
        self._applied = 0
        self._published = self._with_taints(self._objects[Kind.SLICE])
        self.extended_resources = extended_resources(self.classes.values())
        policies = effective_policies(self._objects[Kind.POLICY].values()).values()
        return Cluster(
            slices=self._published.values(),
            nodes=self._objects[Kind.NODE].values(),
            claims=self._objects[Kind.CLAIM].values(),
            classes=self.classes,
            options=AllocatorOptions(
                features=self._features,
                policies=tuple(map(compile_policy, policies)),
                uniform_config_drivers=self._uniform_config_drivers,
                consumer_limits=self._consumer_limits,
            ),
        )

    def _with_taints(self, slices: Mapping[Name, ResourceSlice]) -> dict[Name, ResourceSlice]:
        """Return slices with the taints that rules add."""
        features = self._features
        if not (features.device_taints and features.device_taint_rules):
            return dict(slices)
        rules = self._objects[Kind.TAINT_RULE].values()
        return dict(zip(slices, apply_taint_rules(slices.values(), rules), strict=True))


def put(objects: dict[Name, Any], key: Name, new: object) -> None:
    """Store an object under its key; None removes it."""
    if new is None:
        objects.pop(key, None)
    else:
        objects[key] = new
