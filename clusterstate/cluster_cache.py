"""The allocator's view of a cluster, kept up to date change by change.

Changes come in batches, and between two batches the view stands still. Claims and classes are applied
at once, slices and nodes in parts, if the caller wants none to take long. The view is built anew for
DeviceCompatibilityPolicies, which every verdict depends on, and for batches so large that building is
cheaper. A pool that many nodes see waits for a view that the caller builds, if it wants so.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from allocator.cluster.cluster import Cluster
from allocator.compatibility.compile import compile_policy
from allocator.features.consumer_limits import ConsumerLimit
from allocator.model.devices import pool_of
from allocator.model.feature_gates import Features
from allocator.model.taint_rules import apply_taint_rules
from allocator.pods.claims import Name, allocation_of
from allocator.search.attempt import AllocatorOptions
from clusterstate.kinds import Changes, Kind
from clusterstate.tombstones import TombstoneIndex, Tombstones
from clusterstate.waiting_changes import Unit, WaitingChanges
from kube.api.extended_resources import extended_resources
from kube.api.policy import effective_policies
from kube.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)

MAX_BATCH: Final = 256
"""Changes of slices and nodes that are applied one by one; more are cheaper together."""
MAX_CHEAP: Final = 32
"""Changes of claims that are applied in a few milliseconds."""

_IN_PARTS: Final = (Kind.NODE, Kind.SLICE)


class ClusterCache:
    """A cluster as the allocator sees it. Not for several threads at once.

    Attributes:
        version: Grows with every batch that changes something.
        cluster: The cluster for queries; another object after some changes.
        classes: All classes by name; replaced when one changes.
        extended_resources: Name of an extended resource to name of the class that maps it.
    """

    def __init__(
        self,
        features: Features,
        uniform_config_drivers: frozenset[str] = frozenset(),
        consumer_limits: Mapping[str, ConsumerLimit] = MappingProxyType({}),
        *,
        tombstones: Tombstones = MappingProxyType({}),
        max_part: int | None = None,
        max_nodes: int | None = None,
    ) -> None:
        """Begin with an empty cluster. The first batch is applied as a whole.

        Args:
            features: Gates of the cluster's scheduler.
            uniform_config_drivers: The drivers of `AllocatorOptions.uniform_config_drivers`.
            consumer_limits: The limits of `AllocatorOptions.consumer_limits`.
            tombstones: The remembered devices in use that are no longer published.
            max_part: Slices that change, and nodes that are laid out, with one batch; more only for a
                pool that is all of the part. Further changes wait for the next batches. None applies
                all of them, as is cheapest.
            max_nodes: The largest number of nodes that see a pool; changes of larger pools wait for
                another view, see `awaits_build`. None for any number.
        """
        self.version = 0
        self.classes: Mapping[str, DeviceClass] = {}
        self.extended_resources: Mapping[str, str] = {}
        self._features = features
        self._uniform_config_drivers = uniform_config_drivers
        self._consumer_limits = dict(consumer_limits)
        self._max_part = max_part
        self._max_nodes = max_nodes
        self._objects: dict[Kind, dict[Name, Any]] = {kind: {} for kind in Kind}
        # As the view has them, with the taints of rules.
        self._published: dict[Name, ResourceSlice] = {}
        self._tombstones = TombstoneIndex(tombstones)
        self._waiting = WaitingChanges()
        self.cluster = self._new_cluster()
        self._is_new = True

    def fork(self, consumer_limits: Mapping[str, ConsumerLimit]) -> "ClusterCache":
        """Return a cache of the same objects under other limits; its first batch builds its view."""
        cache = self._other(
            consumer_limits, self._objects, max_part=self._max_part, max_nodes=self._max_nodes
        )
        cache.version = self.version
        return cache

    def successor(
        self,
        consumer_limits: Mapping[str, ConsumerLimit],
        *,
        max_part: int | None = None,
        max_nodes: int | None = None,
    ) -> "ClusterCache":
        """Return a cache without objects; its first batch must have all of them.

        It remembers the devices in use that vanished before, and those that vanish with that batch or
        with slices that wait here.
        """
        return self._other(consumer_limits, {}, max_part=max_part, max_nodes=max_nodes)

    def _other(
        self,
        consumer_limits: Mapping[str, ConsumerLimit],
        objects: Mapping[Kind, Mapping[Name, Any]],
        *,
        max_part: int | None,
        max_nodes: int | None,
    ) -> "ClusterCache":
        # A device that vanishes meanwhile, on another thread, is in one of both.
        published_slices = dict(self._published)
        cache = ClusterCache(
            self._features,
            self._uniform_config_drivers,
            consumer_limits,
            tombstones=self.tombstones,
            max_part=max_part,
            max_nodes=max_nodes,
        )
        cache._objects = {kind: dict(objects.get(kind, {})) for kind in Kind}
        # Devices that vanish with slices that wait are remembered by the build.
        cache._published = published_slices
        return cache

    @property
    def claims(self) -> Mapping[Name, ResourceClaim]:
        """All claims."""
        return self._objects[Kind.CLAIM]

    @property
    def templates(self) -> Mapping[Name, ResourceClaimTemplate]:
        """All templates."""
        return self._objects[Kind.TEMPLATE]

    @property
    def tombstones(self) -> Tombstones:
        """The remembered devices in use that are no longer published."""
        return self._tombstones.tombstones

    @property
    def is_behind(self) -> bool:
        """True if changes of slices and nodes wait for the next batch, though that may be empty."""
        return len(self._waiting) > 0

    @property
    def awaits_build(self) -> bool:
        """Return True if changes wait that no batch applies, but a fork would have."""
        return self._waiting.has_wide_pools

    @property
    def slices(self) -> Iterable[ResourceSlice]:
        """The latest slices, including those with changes that wait."""
        return self._objects[Kind.SLICE].values()

    @property
    def size(self) -> int:
        """The number of slices and nodes; it decides on the time to build the view."""
        return sum(len(self._objects[kind]) for kind in _IN_PARTS)

    def is_cheap(self, changes: Changes) -> bool:
        """Return True if a batch is applied within a few milliseconds: a few changes of claims."""
        count = len(changes.get(Kind.CLAIM, ()))
        is_current = not self._is_new and not self.is_behind
        return is_current and changes.keys() <= {Kind.CLAIM} and count <= MAX_CHEAP

    def apply(self, changes: Changes) -> None:
        """Apply a batch of changes, and a part of those that wait."""
        if not (any(changes.values()) or self.is_behind or self._is_new):
            return
        self.version += 1
        before = {
            kind: {key: self._objects[kind].get(key) for key in objects}
            for kind, objects in changes.items()
        }
        for kind, objects in changes.items():
            for key, new in objects.items():
                put(self._objects[kind], key, new)
        count = sum(len(changes.get(kind, ())) for kind in _IN_PARTS)
        is_large = self._max_part is None and count > MAX_BATCH
        if self._is_new or is_large or changes.get(Kind.POLICY):
            self._build()
            return
        if changes.get(Kind.CLASS):
            self._read_classes()
            self.cluster.replace_classes(self.classes)
        for key, claim in changes.get(Kind.CLAIM, {}).items():
            self._replace_claim(before[Kind.CLAIM][key], claim)
        for _, name in changes.get(Kind.NODE, ()):
            self._waiting.put_node(name)
        self._wait_for_slices(changes.get(Kind.SLICE, ()))
        if rules := changes.get(Kind.TAINT_RULE):
            changed_rules = (*before[Kind.TAINT_RULE].values(), *rules.values())
            self._wait_for_slices(self._slices_in_scope(changed_rules))
        self._apply_part()
        self._forget_unused()

    def _wait_for_slices(self, names: Iterable[Name]) -> None:
        """Have slices wait that changed, or may have got other taints."""
        for name in names:
            slices = (self._published.get(name), self._objects[Kind.SLICE].get(name))
            pools = [pool_of(slice_) for slice_ in slices if slice_ is not None]
            self._waiting.put_slice(name, pools)

    def _slices_in_scope(self, rules: Iterable[DeviceTaintRule | None]) -> Iterator[Name]:
        """Yield the slices that some of the rules may concern."""
        selectors = [
            selector
            for rule in rules
            if rule is not None and (selector := rule.spec.device_selector) is not None
        ]
        scopes = {(selector.driver, selector.pool) for selector in selectors}
        for key, slice_ in self._objects[Kind.SLICE].items():
            driver, pool = slice_.spec.driver, slice_.spec.pool.name
            if not scopes.isdisjoint(((driver, pool), (driver, None), (None, pool), (None, None))):
                yield key

    def _apply_part(self) -> None:
        """Apply changes of slices and nodes that wait, up to as many as one batch may."""
        part = self._waiting.take_part(
            self._count_nodes, max_size=self._max_part, max_nodes=self._max_nodes
        )
        self._replace_slices(part.slices)
        for name in part.nodes:
            self.cluster.replace_node(name, self._objects[Kind.NODE].get(("", name)))

    def _count_nodes(self, unit: Unit) -> int:
        """Return the number of nodes laid out for pools: all nodes, if one slice names none."""
        slices = self._objects[Kind.SLICE]
        names = {
            slice_.spec.node_name
            for pool in unit.pools
            for slice_ in self._tombstones.slices_of(pool)
        }
        names |= {slices[name].spec.node_name for name in unit.slices if name in slices}
        return len(names) if all(names) else len(self._objects[Kind.NODE])

    def _replace_slices(self, names: Iterable[Name]) -> None:
        slices = self._objects[Kind.SLICE]
        published_slices = self._with_taints(
            {name: slices[name] for name in names if name in slices}
        )
        changes = [
            (name, old, new)
            for name in names
            if (old := self._published.get(name)) != (new := published_slices.get(name))
        ]
        self._tombstones.replace_slices(changes)
        self._show_tombstones()
        for name, _, new in changes:
            put(self._published, name, new)
        if changes:
            self.cluster.replace_slices([(old, new) for _, old, new in changes])

    def _show_tombstones(self) -> None:
        """Have policies count remembered devices; called before one leaves its slice."""
        if self.cluster.options.tombstones is not self.tombstones:
            self.cluster.replace_tombstones(self.tombstones)

    def _forget_unused(self) -> None:
        self._tombstones.forget_unused(self.cluster.usage)
        self._show_tombstones()

    def _replace_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        before, after = (None if claim is None else allocation_of(claim) for claim in (old, new))
        if before == after:
            return
        if old is not None and before is not None:
            self._tombstones.release(old)
            self.cluster.release(old)
        if new is not None and after is not None:
            self._tombstones.allocate(new)
            self._show_tombstones()
            self.cluster.allocate(new)

    def _read_classes(self) -> None:
        classes = self._objects[Kind.CLASS].items()
        self.classes = {name: device_class for (_, name), device_class in classes}
        if self._features.extended_resources:
            self.extended_resources = extended_resources(self.classes.values())

    def _build(self) -> None:
        """Build the view of all objects anew."""
        self._is_new = False
        self._waiting.clear()
        self._read_classes()
        before, self._published = self._published, self._with_taints(self._objects[Kind.SLICE])
        self._tombstones = TombstoneIndex(self.tombstones, before)
        self._tombstones.replace_slices(
            (name, before.get(name), self._published.get(name))
            for name in before | self._published
            if before.get(name) is not self._published.get(name)
        )
        for claim in self._objects[Kind.CLAIM].values():
            self._tombstones.allocate(claim)
        self.cluster = self._new_cluster()
        self._forget_unused()

    def _new_cluster(self) -> Cluster:
        policies = effective_policies(self._objects[Kind.POLICY].values()).values()
        return Cluster(
            slices=self._published.values(),
            nodes=self._objects[Kind.NODE].values(),
            claims=self._objects[Kind.CLAIM].values(),
            classes=self.classes,
            options=AllocatorOptions(
                features=self._features,
                policies=tuple(map(compile_policy, policies)),
                tombstones=self.tombstones,
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
