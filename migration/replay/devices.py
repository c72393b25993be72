"""The devices that nodes would offer by ResourceSlices after a migration.

Nodes without slices offer what their device plugin, HAMi or the recorded driver says of them, in the layout of the driver
that serves the keys then.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from allocator.model.slice_index import SliceChange
from answers.model.cluster_state import build_state
from answers.model.findings import DEFAULT_NAMESPACE
from answers.model.kinds import STATE_KINDS
from answers.model.objects import NamespacedObject, decode_objects
from kube.api.core import Node, NodeStatus
from kube.api.resource import Device, DeviceClass, ResourceSlice
from kube.manifests.source import SourceObject
from migration.assessment.assumed import (
    Target,
    assume_inventory,
    find_target,
    whole_device_keys,
)
from migration.cluster.node_devices import GPU, LegacyDevice, NodeDevices, Source, read_nodes
from translation.model.intents import DeviceKind
from translation.profiles.profile import DeviceProfile, Profile
from translation.vocabularies.nvidia import MIG_PREFIX

_KINDS: Final = (DeviceKind.GPU, DeviceKind.MIG)


class NodeOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The slices of a node, and the resource names that they replace."""

    slices: Mapping[str, ResourceSlice] = {}
    replaced_keys: frozenset[str] = frozenset()


class OfferedDevices:
    """The slices that nodes offer after a migration.

    Attributes:
        classes: The DeviceClasses that they need and that the cluster did not have.
    """

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        drivers: Mapping[str, str],
        moved: Mapping[str, str],
        known_classes: frozenset[str],
    ) -> None:
        """Begin without nodes.

        Args:
            profiles: Driver to profile.
            drivers: Vocabulary to the driver that serves it.
            moved: Recorded driver to the driver that serves its vocabularies instead.
            known_classes: Names of the DeviceClasses that exist.
        """
        self.classes: dict[str, DeviceClass] = {}
        self._profiles = profiles
        self._drivers = drivers
        self._moved = moved
        self._known_classes = known_classes
        self._keys = whole_device_keys(profiles.values())
        self._nodes: dict[str, Node] = {}
        self._published: dict[str, ResourceSlice] = {}
        self._offers: dict[str, NodeOffer] = {}

    def is_moved(self, slice_: ResourceSlice) -> bool:
        """Return True if a slice is of a driver that another one replaces."""
        return slice_.spec.driver in self._moved

    def begin(
        self, nodes: Iterable[Node], slices: Iterable[ResourceSlice]
    ) -> tuple[tuple[Node, ...], tuple[ResourceSlice, ...]]:
        """Return the first nodes and slices as they would be."""
        self._nodes = {node.metadata.name: node for node in nodes}
        self._published = {slice_.metadata.name: slice_ for slice_ in slices}
        for name, offer in self._evaluate(self._nodes).items():
            self._offers[name] = offer
        remaining = (slice_ for slice_ in self._published.values() if not self.is_moved(slice_))
        offered = (slice_ for offer in self._offers.values() for slice_ in offer.slices.values())
        return tuple(map(self._without_keys, self._nodes.values())), (*remaining, *offered)

    def change(
        self, nodes: Mapping[str, Node | None], slices: Sequence[SliceChange]
    ) -> tuple[Mapping[str, Node | None], Sequence[SliceChange]]:
        """Return changes of nodes and slices as they would be."""
        touched = set(nodes)
        for before, after in slices:
            for slice_ in filter(None, (before, after)):
                self._published.pop(slice_.metadata.name, None)
                touched.add(slice_.spec.node_name or "")
            if after is not None:
                self._published[after.metadata.name] = after
        for name, node in nodes.items():
            self._nodes.pop(name, None)
            if node is not None:
                self._nodes[name] = node
        changes = [
            (before, after)
            for before, after in slices
            if not any(map(self.is_moved, filter(None, (before, after))))
        ]
        offers = self._evaluate(sorted(touched & {*self._nodes, *self._offers}))
        for name, offer in offers.items():
            changes += _differences(self._offers.get(name, NodeOffer()), offer)
            self._offers[name] = offer
        changed_nodes = {
            name: None if node is None else self._without_keys(node) for name, node in nodes.items()
        }
        return changed_nodes, changes

    def _evaluate(self, names: Iterable[str]) -> Mapping[str, NodeOffer]:
        """Return the slices of nodes; none for those that are gone."""
        names = tuple(names)
        evaluated = {*names}
        by_node: dict[str, list[ResourceSlice]] = {}
        for slice_ in self._published.values():
            if slice_.spec.node_name in evaluated:
                by_node.setdefault(slice_.spec.node_name or "", []).append(slice_)
        present = [self._nodes[name] for name in names if name in self._nodes]
        offers = dict.fromkeys(names, NodeOffer())
        unmoved: list[ResourceSlice] = []
        moved_nodes: set[str] = set()
        for name, own in by_node.items():
            moved = self._moved_devices(filter(self.is_moved, own))
            unmoved += (slice_ for slice_ in own if not self.is_moved(slice_))
            if moved:
                moved_nodes.add(name)
                offers[name] = self._moved_offer(name, moved)
        others = [node for node in present if node.metadata.name not in moved_nodes]
        target_of = partial(find_target, profiles=self._profiles, drivers=self._drivers)
        profiles = self._profiles.values()
        for devices in read_nodes(others, unmoved, {}, self._keys, profiles):
            offers[devices.node] = self._offer(devices, target_of)
        return offers

    def _moved_offer(self, node: str, moved: Mapping[str, Sequence[LegacyDevice]]) -> NodeOffer:
        """Return the offer of a node in place of the devices of recorded drivers, given by their new driver."""
        slices: dict[str, ResourceSlice] = {}
        for driver, legacy in moved.items():
            devices = NodeDevices(node=node, source=Source.DRA, legacy=tuple(legacy))
            target_of = partial(_target_in, profile=self._profiles[driver])
            slices |= self._offer(devices, target_of).slices
        return NodeOffer(slices=slices)

    def _offer(
        self, devices: NodeDevices, target_of: Callable[[LegacyDevice, Source], Target | None]
    ) -> NodeOffer:
        state = build_state(_views(assume_inventory([devices], target_of, self._known_classes)))
        self.classes |= state.classes
        if not state.slices:
            return NodeOffer()
        return NodeOffer(
            slices={slice_.metadata.name: slice_ for slice_ in state.slices},
            replaced_keys=frozenset(device.key for device in devices.legacy),
        )

    def _moved_devices(
        self, slices: Iterable[ResourceSlice]
    ) -> Mapping[str, Sequence[LegacyDevice]]:
        """Return the driver that serves devices instead to these devices."""
        devices: dict[str, list[LegacyDevice]] = {}
        for slice_ in slices:
            profile = self._profiles.get(slice_.spec.driver)
            if profile is not None:
                moved = devices.setdefault(self._moved[slice_.spec.driver], [])
                moved += _legacy_devices(slice_, profile)
        return devices

    def _without_keys(self, node: Node) -> Node:
        """Return a node without the resources of device plugins that its slices replace."""
        keys = self._offers.get(node.metadata.name, NodeOffer()).replaced_keys
        allocatable = node.status.allocatable
        if not keys or allocatable is None or keys.isdisjoint(allocatable):
            return node
        remaining = {name: amount for name, amount in allocatable.items() if name not in keys}
        status: NodeStatus = msgspec.structs.replace(node.status, allocatable=remaining)
        return msgspec.structs.replace(node, status=status)


def _differences(before: NodeOffer, after: NodeOffer) -> Iterator[SliceChange]:
    for name in dict.fromkeys((*before.slices, *after.slices)):
        old, new = before.slices.get(name), after.slices.get(name)
        if old != new:
            yield old, new


def _views(objects: Sequence[SourceObject]) -> Sequence[NamespacedObject]:
    views, _ = decode_objects(objects, STATE_KINDS, DEFAULT_NAMESPACE)
    return views


def _target_in(device: LegacyDevice, _source: Source, profile: Profile) -> Target | None:
    """Return the target of a device in a profile; None if the profile has no such devices."""
    kind = DeviceKind.GPU if device.key == GPU else DeviceKind.MIG
    return Target(profile=profile, kind=kind) if kind in profile.devices else None


def _legacy_devices(slice_: ResourceSlice, profile: Profile) -> Iterator[LegacyDevice]:
    for device in slice_.spec.devices or ():
        legacy = _legacy_device(device, profile)
        if legacy is not None:
            yield legacy


def _legacy_device(device: Device, profile: Profile) -> LegacyDevice | None:
    """Return a device of a driver as a legacy system describes it; None for one that is no GPU and no part of one."""
    for kind in _KINDS:
        entry = profile.devices.get(kind)
        if entry is not None and _is_of(device, entry):
            size = _text(device, entry.attributes.mig_profile)
            capacity = device.capacity or {}
            memory = capacity.get(entry.memory or "")
            cores = capacity.get(entry.cores.capacity) if entry.cores is not None else None
            return LegacyDevice(
                key=f"{MIG_PREFIX}{size}" if kind is DeviceKind.MIG and size else GPU,
                uuid=_text(device, entry.unique) or _text(device, entry.attributes.uuid),
                model=_text(device, entry.attributes.model),
                memory=memory.value if memory is not None else None,
                cores=cores.value.round_up() if cores is not None else None,
            )
    return None


def _is_of(device: Device, entry: DeviceProfile) -> bool:
    attributes = device.attributes or {}
    return all(_text(device, name) == text for name, text in entry.where.items()) and not any(
        name in attributes for name in entry.lacks
    )


def _text(device: Device, name: str | None) -> str:
    attribute = (device.attributes or {}).get(name or "")
    return (attribute.string or "") if attribute is not None else ""
