"""An inventory that a cluster would publish after a migration, assumed from its legacy systems.

The devices of a node become slices in the layout of the driver that would serve them, as its profile names
attributes and capacities, unless a driver of their kind publishes some there. Each object carries an annotation that
says so.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kube.manifests.source import SourceObject
from kube.names import GROUP
from migration.cluster.node_devices import GPU, LegacyDevice, NodeDevices, Source
from translation.cluster.snapshot import (
    TranslationOptions,
    WideMapping,
    vocabularies_in_force,
)
from translation.model.intents import DeviceKind
from translation.profiles.device_facts import PCIE_ROOT
from translation.profiles.profile import (
    AttributeValue,
    DeviceProfile,
    NamedDevices,
    Profile,
    Sharing,
)
from translation.reading.arbiter import VOCABULARIES
from translation.reading.kept_keys import is_kept
from translation.vocabularies.nvidia import MIG_PREFIX
from translation.vocabularies.resources import NAME as RESOURCES

ASSUMED: Final = f"{GROUP}/assumed"
_PER_SLICE: Final = 64
_API_VERSION: Final = "resource.k8s.io/v1"
_HAMI: Final = "hami"
_NVIDIA: Final = "nvidia"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The driver and the kind of device that a legacy device becomes."""

    profile: Profile
    kind: DeviceKind
    named: NamedDevices | None = None

    @property
    def device(self) -> DeviceProfile:
        """The kind of device in the profile."""
        return self.profile.devices[self.kind]

    @property
    def class_name(self) -> str:
        """The DeviceClass that selects the device."""
        return (self.named.class_name if self.named else None) or self.device.class_name


def find_target(
    device: LegacyDevice,
    source: Source,
    profiles: Mapping[str, Profile],
    drivers: Mapping[str, str],
) -> Target | None:
    """Return the target of a legacy device; None if no profile serves it.

    Args:
        profiles: Driver to profile.
        drivers: Vocabulary to driver.
    """
    if device.key == GPU or device.key.startswith(MIG_PREFIX):
        vocabulary = _HAMI if source in {Source.HAMI, Source.KOORDINATOR} else _NVIDIA
        profile = profiles.get(drivers.get(vocabulary, ""))
        kind = DeviceKind.GPU if device.key == GPU else DeviceKind.MIG
        return Target(profile=profile, kind=kind) if profile and kind in profile.devices else None
    preferred_driver = drivers.get(RESOURCES)
    for profile in sorted(
        profiles.values(), key=lambda profile: (profile.driver != preferred_driver, profile.driver)
    ):
        entry = profile.devices.get(DeviceKind.DEVICE)
        match = entry.find_resource(device.key) if entry is not None else None
        if match is not None and not isinstance(match[1].rejected, str):
            return Target(profile=profile, kind=DeviceKind.DEVICE, named=match[1])
    return None


def kept_device_keys(
    profiles: Mapping[str, Profile], options: TranslationOptions
) -> tuple[str, ...]:
    """Return the resource names of devices that stay with their device plugin; `*` ends a prefix.

    A name of several vocabularies is translated as long as one of them is in force.

    Args:
        profiles: Driver to profile.
        options: The options with the names that stay.
    """
    if not options.kept:
        return ()
    in_force = vocabularies_in_force(options, profiles).values()
    of_any_vendor = frozenset(_names_of_any_vendor(profiles.values()))
    vocabularies = (VOCABULARIES[name] for name in options.kept if name in VOCABULARIES)
    names = (
        name
        for name in (
            *whole_device_keys(profiles.values()),
            *sorted({key for vocabulary in vocabularies for key in vocabulary.keys}),
        )
        for key in [name.removesuffix("*")]
        if (is_kept(key, options.kept) or (RESOURCES in options.kept and name in of_any_vendor))
        and not any(vocabulary.handles(key) for vocabulary in in_force)
    )
    return tuple(dict.fromkeys((*names, *(name for name in sorted(options.kept) if "/" in name))))


def whole_device_keys(
    profiles: Iterable[Profile], kept_names: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the resource names with amounts that are numbers of devices; `*` ends a prefix.

    Args:
        profiles: The profiles of all drivers.
        kept_names: Names that stay with their device plugin, and are left out.
    """
    names = (GPU, f"{MIG_PREFIX}*", *_names_of_any_vendor(profiles))
    return tuple(name for name in names if name not in kept_names)


def _names_of_any_vendor(profiles: Iterable[Profile]) -> Iterator[str]:
    return (
        name
        for profile in profiles
        for name, resource in (
            (profile.devices[DeviceKind.DEVICE].resources or {}).items()
            if DeviceKind.DEVICE in profile.devices
            else ()
        )
        if "/" in name and not isinstance(resource.rejected, str)
    )


def assume_inventory(
    nodes: Iterable[NodeDevices],
    target_of: Callable[[LegacyDevice, Source], Target | None],
    known_classes: frozenset[str],
) -> list[SourceObject]:
    """Return the missing DeviceClasses, and the slices of nodes without published devices of their kinds.

    Args:
        target_of: A function like `find_target`.
        known_classes: Names of the DeviceClasses that exist.
    """
    targets: dict[str, Target] = {}
    slices: list[SourceObject] = []
    for node in nodes:
        if node.published or node.source is None:
            continue
        by_driver: dict[str, list[Mapping[str, Any]]] = {}
        counts = Counter(device.key for device in node.legacy)
        for index, device in enumerate(node.legacy):
            target = target_of(device, node.source)
            if target is None:
                continue
            targets.setdefault(target.class_name, target)
            by_driver.setdefault(target.profile.driver, []).append(
                _device(device, target, index, counts[device.key])
            )
        for driver, devices in sorted(by_driver.items()):
            slices += _slices(node.node, driver, devices)
    classes = [
        _device_class(name, target)
        for name, target in sorted(targets.items())
        if name not in known_classes
    ]
    return [*classes, *slices]


def other_drivers(drivers: Iterable[str], profiles: Mapping[str, Profile]) -> frozenset[str]:
    """Return the drivers of NICs, and those without a profile."""
    return frozenset(
        driver
        for driver in drivers
        if driver not in profiles or profiles[driver].devices.keys() <= {DeviceKind.NIC}
    )


def without_nodes(objects: Iterable[SourceObject], names: Collection[str]) -> list[SourceObject]:
    """Return assumed objects without the slices of some nodes."""
    return [source for source in objects if source.document["spec"].get("nodeName") not in names]


def without_mappings(
    objects: Iterable[SourceObject], mappings: Iterable[WideMapping]
) -> tuple[SourceObject, ...]:
    """Return objects after a preparation: the classes of wide mappings map no resource name."""
    names = {mapping.device_class for mapping in mappings}
    return tuple(
        _without_mapping(source)
        if source.kind == "DeviceClass" and source.name in names
        else source
        for source in objects
    )


def device_name(index: int) -> str:
    """Return the name of a node's device in the inventory, by its place among those of the legacy system."""
    return f"device-{index}"


def _without_mapping(source: SourceObject) -> SourceObject:
    spec = {
        key: value
        for key, value in source.document["spec"].items()
        if key != "extendedResourceName"
    }
    return msgspec.structs.replace(source, document={**source.document, "spec": spec})


def _slices(node: str, driver: str, devices: list[Mapping[str, Any]]) -> Iterator[SourceObject]:
    pages = range(0, len(devices), _PER_SLICE)
    for number, first in enumerate(pages):
        yield _object(
            "ResourceSlice",
            f"assumed-{node}-{driver}-{number}",
            {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": len(pages)},
                "devices": devices[first : first + _PER_SLICE],
            },
        )


def _device(device: LegacyDevice, target: Target, index: int, count: int) -> Mapping[str, Any]:
    """Return a device as its driver would publish it.

    Args:
        index: The place among the devices of its node.
        count: The number of devices of its name on the node.
    """
    profile = target.device
    attributes: dict[str, Any] = {name: {"string": text} for name, text in profile.where.items()}
    attributes |= _named_attributes(device, target.named, count)
    if profile.unique is not None:
        attributes[profile.unique] = {"string": device.uuid[:64] or f"device-{index}"}
    if profile.attributes.model is not None and device.model:
        attributes[profile.attributes.model] = {"string": device.model[:64]}
    if device.pcie_root:
        # HAMi's and NVIDIA's driver publish it. Koordinator's may be a switch below it: no pod fits here that would not then.
        attributes[PCIE_ROOT] = {"string": device.pcie_root[:64]}
    if target.kind is DeviceKind.MIG and profile.attributes.mig_profile is not None:
        size = device.key.removeprefix(MIG_PREFIX)
        attributes[profile.attributes.mig_profile] = {"string": size[:64]}
    is_shared = profile.sharing is Sharing.ALWAYS
    return {
        "name": device_name(index),
        "attributes": attributes,
        "capacity": _capacity(device, profile, is_shared=is_shared),
        **({"allowMultipleAllocations": True} if is_shared else {}),
    }


def _named_attributes(
    device: LegacyDevice, named_devices: NamedDevices | None, count: int
) -> Mapping[str, Any]:
    """Return the attributes that requests of a name select by, for a driver of any vendor."""
    if named_devices is None:
        return {}
    attributes = {name: _attribute(value) for name, value in named_devices.where.items()}
    if isinstance(named_devices.count_attribute, str):
        attributes[named_devices.count_attribute] = _attribute(count)
    for name, text in (
        (named_devices.short_name, device.key.partition("/")[2]),
        (named_devices.full_name, device.key),
    ):
        if name is not None:
            attributes[name] = _attribute(text[:64])
    return attributes


def _attribute(value: AttributeValue) -> Mapping[str, AttributeValue]:
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return {kind: value}


def _capacity(
    device: LegacyDevice, profile: DeviceProfile, *, is_shared: bool
) -> Mapping[str, Any]:
    amounts = {}
    if profile.memory is not None and device.memory is not None:
        amounts[profile.memory] = (str(device.memory), "1Mi")
    if profile.cores is not None and device.cores is not None:
        amounts[profile.cores.capacity] = (str(device.cores), "1")
    return {
        name: {
            "value": value,
            **(
                {
                    "requestPolicy": {
                        "default": value,
                        "validRange": {"min": "0", "max": value, "step": step},
                    }
                }
                if is_shared
                else {}
            ),
        }
        for name, (value, step) in amounts.items()
    }


def _device_class(name: str, target: Target) -> SourceObject:
    """Return the class of a driver's chart, as far as the profile tells it."""
    driver = target.profile.driver
    conditions = [f"device.driver == '{driver}'"] + [
        f"device.attributes['{driver}'].{attribute} == '{text}'"
        for attribute, text in target.device.where.items()
    ]
    expression = " && ".join(conditions)
    return _object("DeviceClass", name, {"selectors": [{"cel": {"expression": expression}}]})


def _object(kind: str, name: str, spec: Mapping[str, Any]) -> SourceObject:
    metadata = {"name": name, "annotations": {ASSUMED: "true"}}
    return SourceObject(
        document={"apiVersion": _API_VERSION, "kind": kind, "metadata": metadata, "spec": spec},
        source="the assumed inventory",
        line=0,
    )
