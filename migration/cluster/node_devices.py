"""The devices of each node, as its legacy system or its ResourceSlices describe them.

A device plugin tells only a number, so labels of GPU feature discovery tell model and memory. HAMi
registers devices in an annotation of the node, Koordinator in a Device object of the node's name.

Sources: HAMi v2.6 pkg/device (DeviceInfo), and v2.4 (comma-separated); koordinator v1.6
apis/scheduling/v1alpha1 Device; NVIDIA/k8s-device-plugin docs/gpu-feature-discovery.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from kube.api.core import Node
from kube.api.resource import ResourceSlice
from kube.manifests.source import SourceObject
from kube.quantity import ZERO, Quantity
from migration.cluster.evidence import mapping_at, text_map
from translation.model.intents import DeviceKind
from translation.profiles.profile import Profile
from translation.reading.arbiter import is_nic
from translation.reading.claim_blind_objects import MAX_KEYS
from translation.reading.untranslated_keys import is_device_key
from translation.vocabularies.hami.keys import NODE_REGISTER
from translation.vocabularies.nvidia import (
    GKE_CLIENTS,
    GKE_PARTITION,
    GKE_STRATEGY,
    MIG_PREFIX,
    MIG_PRODUCT,
    is_replica_name,
)

PRODUCT: Final = "nvidia.com/gpu.product"
MEMORY: Final = "nvidia.com/gpu.memory"
GPU: Final = "nvidia.com/gpu"
COUNT: Final = ".count"
"""The end of the label with the number of devices of a resource name, such as `nvidia.com/gpu.count`."""
REPLICAS: Final = ".replicas"
"""The end of the label with the number of times that each of them is offered."""
SHARING: Final = "nvidia.com/gpu.sharing-strategy"
MAX_PER_NODE: Final = 1024
"""Devices of one node that are read; a node has tens, and an annotation is anybody's."""

_KOORDINATOR_DEVICE: Final = ("scheduling.koordinator.sh/v1alpha1", "Device")
_SHARED: Final = "-SHARED"
"""The end of a product name where the device plugin hands out each GPU several times."""
_NUMBER: Final = re.compile("[0-9]{1,15}")
"""A number of an annotation. Python reads no number of more than 4,300 digits."""


class Source(StrEnum):
    """The system that hands out the devices of a node."""

    DEVICE_PLUGIN = "devicePlugin"
    HAMI = "hami"
    KOORDINATOR = "koordinator"
    DRA = "dra"
    MIXED = "mixed"


class LegacyDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device of a node.

    Attributes:
        key: The resource name that stands for it, such as `nvidia.com/gpu`.
        model: The model's name in the legacy system; empty if it has none there.
        memory: The memory in bytes; None if it is not known.
        cores: The compute share in percent; None if it is not divided.
        minor: The number by which Koordinator gives it to pods; None without one.
        pcie_root: Its PCIe root, such as `pci0000:3a`; empty if it is not known.
    """

    key: str
    uuid: str = ""
    model: str = ""
    memory: Quantity | None = None
    cores: int | None = None
    minor: int | None = None
    pcie_root: str = ""


class NodeDevices(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of a node.

    Attributes:
        source: None for a node without devices.
        legacy: The devices that a legacy system hands out.
        published: The number of devices in the node's own ResourceSlices; 0 where none of their drivers serves the
            legacy ones, as with NICs beside the GPUs of a device plugin.
        is_unreadable: HAMi has registered devices that cannot be read, so nothing is known of them.
        replicas: The times that its device plugin offers each GPU under the name of whole ones.
        mig_size: The size of the MIG devices that its device plugin offers under that name, such as `1g.5gb`; empty if
            these are GPUs.
        is_doubled: A legacy system and a DRA driver both hand out its devices, be they NICs of Koordinator. koord-scheduler
            does so while there is a Device object, from which koord-manager derives the amounts of the node, too.
        nic_drivers: The drivers of NICs that Koordinator hands out, too; empty where other devices are doubled.
        has_own_names: Koordinator hands out its GPUs by names of its own alone, without `nvidia.com/gpu`.
    """

    node: str
    source: Source | None
    legacy: tuple[LegacyDevice, ...] = ()
    published: int = 0
    is_unreadable: bool = False
    replicas: int = 1
    mig_size: str = ""
    is_doubled: bool = False
    nic_drivers: tuple[str, ...] = ()
    has_own_names: bool = False


OFFERING_NONE: Final = "offering no devices"
"""The state of a node with devices that its device plugin offers none of."""


class _Registered(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of HAMi's annotation; memory in MiB."""

    id: str = ""
    type: str = ""
    devmem: int = 0
    devcore: int = 100


_REGISTERED: Final = msgspec.json.Decoder(list[_Registered])


def koordinator_devices(objects: Iterable[object]) -> dict[str, Mapping[str, Any]]:
    """Return node name to Koordinator's Device object of that name."""
    return {
        source.name: source.document
        for source in objects
        if isinstance(source, SourceObject)
        and (source.api_version, source.kind) == _KOORDINATOR_DEVICE
    }


def read_nodes(
    nodes: Iterable[Node],
    slices: Iterable[ResourceSlice],
    koordinator: Mapping[str, Mapping[str, Any]],
    whole_device_keys: Sequence[str],
    profiles: Collection[Profile],
    *,
    renamed_keys: Mapping[str, str] = {},
) -> list[NodeDevices]:
    """Return the nodes that have devices, by name.

    Args:
        koordinator: Node to its Device object.
        whole_device_keys: Resource names of whole devices; one that ends in `*` is a prefix.
        profiles: The profiles of all drivers.
        renamed_keys: Resource name in pods to the name that it stands for.
    """
    gpu_names = with_renamed((GPU,), renamed_keys)
    device_counts: dict[str, dict[str, int]] = {}
    for slice_ in slices:
        node, driver = slice_.spec.node_name, slice_.spec.driver
        if node:
            by_driver = device_counts.setdefault(node, {})
            by_driver[driver] = by_driver.get(driver, 0) + len(slice_.spec.devices or ())
    assessed_nodes = (
        _node(
            *(node, device_counts.get(node.metadata.name, {}), koordinator, whole_device_keys),
            profiles,
            gpu_names=gpu_names,
            renamed_keys=renamed_keys,
        )
        for node in sorted(nodes, key=lambda node: node.metadata.name)
    )
    return [devices for devices in assessed_nodes if devices.source is not None]


def _node(
    node: Node,
    device_counts: Mapping[str, int],
    koordinator: Mapping[str, Mapping[str, Any]],
    whole_device_keys: Sequence[str],
    profiles: Collection[Profile],
    *,
    gpu_names: Sequence[str],
    renamed_keys: Mapping[str, str],
) -> NodeDevices:
    name = node.metadata.name
    registered = _hami(node)
    if registered is None and not _count_published((GPU,), device_counts, profiles):
        # What its plugin offers are shares of cards: neither a number of devices nor what each one has.
        return NodeDevices(node=name, source=Source.HAMI, is_unreadable=True)
    source: Source | None = None
    legacy: tuple[LegacyDevice, ...] = ()
    for candidate, devices in (
        (Source.HAMI, registered or ()),
        (Source.KOORDINATOR, _koordinator(koordinator.get(name, {}))),
        (Source.DEVICE_PLUGIN, _device_plugin(node, whole_device_keys)),
    ):
        legacy = tuple(devices)
        if legacy:
            source = candidate
            break
    device_count = sum(device_counts.values())
    if legacy:
        # A driver for other devices, such as NICs, takes none over from a legacy system.
        device_count = _count_published({device.key for device in legacy}, device_counts, profiles)
    allocatable = node.status.allocatable or {}
    if device_count:
        if source is Source.HAMI and not any(allocatable.get(key, ZERO) for key in gpu_names):
            legacy = ()  # HAMi has left the node, and its annotation stays.
        source = Source.MIXED if legacy else Source.DRA
    offering = {*gpu_names, *(device.key for device in legacy)} if legacy else set[str]()
    keys = {device.key for device in legacy} if source is Source.DEVICE_PLUGIN else set[str]()
    replicated_keys = {
        meaning if meaning.startswith(MIG_PREFIX) else GPU
        for key, amount in allocatable.items()
        for meaning in [renamed_keys.get(key, key)]
        if amount and is_replica_name(meaning)
    }
    return NodeDevices(
        node=name,
        source=source,
        legacy=legacy,
        published=device_count,
        replicas=max((read_replicas(node.labels, key) for key in keys), default=1),
        mig_size=read_mig_size(node.labels) if GPU in keys else "",
        has_own_names=source is Source.KOORDINATOR
        and not any(allocatable.get(key, ZERO) for key in gpu_names),
        is_doubled=(
            device_count > 0
            and (
                any(allocatable.get(key, ZERO) for key in offering)
                or any(device.uuid for device in _koordinator(koordinator.get(name, {})))
            )
        )
        or _count_published(replicated_keys, device_counts, profiles) > 0,
    )


def _count_published(
    keys: Iterable[str], device_counts: Mapping[str, int], profiles: Collection[Profile]
) -> int:
    """Return the number of published devices of drivers that could serve a legacy device.

    Not only those of the present settings: an earlier plan may have had others, and its devices would count twice.

    Args:
        keys: The resource names of legacy devices.
        device_counts: Driver to the number of devices that it publishes for the node.
        profiles: The profiles of all drivers.
    """
    drivers = {profile.driver for key in keys for profile in profiles if _serves(profile, key)}
    return sum(number for driver, number in device_counts.items() if driver in drivers)


def _serves(profile: Profile, key: str) -> bool:
    """Return True if a driver has the kind of devices that a resource name stands for."""
    if key == GPU:
        return DeviceKind.GPU in profile.devices
    if key.startswith(MIG_PREFIX):
        return DeviceKind.MIG in profile.devices
    entry = profile.devices.get(DeviceKind.DEVICE)
    return entry is not None and entry.find_resource(key) is not None


def doubled_nodes(devices: Iterable[NodeDevices]) -> tuple[str, ...]:
    """Return the nodes of a device plugin and a DRA driver that both hand out the same devices."""
    return tuple(entry.node for entry in devices if entry.is_doubled)


def read_replicas(labels: Mapping[str, str], key: str = GPU) -> int:
    """Return the number of times that a device plugin offers each device of a name; 1 by default.

    Source: GKE's labels of nodes with GPUs that pods share, of which the plugin offers each to so many clients.
    """
    texts = [labels.get(f"{key}{REPLICAS}", "")]
    if key == GPU and labels.get(GKE_STRATEGY):
        texts.append(labels.get(GKE_CLIENTS, ""))
    numbers = [int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 10]
    return max([1, *numbers])


def read_mig_size(labels: Mapping[str, str]) -> str:
    """Return the size of the MIG devices that a device plugin offers as `nvidia.com/gpu`; empty if it offers GPUs.

    Source: NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery (MIG strategy `single`), and GKE's label of nodes whose
    GPUs are partitioned.
    """
    size = labels.get(PRODUCT, "").removesuffix(_SHARED).partition(MIG_PRODUCT)[2]
    # A product may have the letters in its own name.
    return labels.get(GKE_PARTITION, "") or (size if size[:1].isdigit() else "")


def labels_of_sharing(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the labels of a node about the sharing of its devices.

    GPU feature discovery sets them by its own configuration, so they may stay when the plugin leaves. They change as soon
    as that configuration shares none.
    """
    names = [
        key
        for key in labels
        if key.endswith(REPLICAS) and read_replicas(labels, key.removesuffix(REPLICAS)) > 1
    ]
    if labels.get(PRODUCT, "").endswith(_SHARED):
        names.append(PRODUCT)
    if labels.get(SHARING, "none") != "none":
        names.append(SHARING)
    return tuple(sorted(names))


def with_renamed(names: Sequence[str], renamed_keys: Mapping[str, str]) -> tuple[str, ...]:
    """Return resource names and the new names for them in pods; a kubelet may offer either.

    Args:
        names: The names of vocabularies; one that ends in `*` is a prefix.
        renamed_keys: Resource name in pods to the name that it stands for.

    >>> with_renamed(["nvidia.com/gpu"], {"hami.io/vgpu": "nvidia.com/gpu", "hami.io/mem": "nvidia.com/gpumem"})
    ('nvidia.com/gpu', 'hami.io/vgpu')
    """
    in_pods = (name for name, own_name in sorted(renamed_keys.items()) if _matches(own_name, names))
    return tuple(dict.fromkeys((*names, *in_pods)))


def unknown_device_keys(
    nodes: Iterable[Node], planned_nodes: Collection[str], kept_names: Sequence[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Return the unknown devices that device plugins offer, by node, such as shares by time.

    NICs are not among them: their plugin goes on beside a DRA driver for other devices. Beside known devices only
    replicas are: the plugin of both leaves at once, while other names may be amounts of the known devices.

    Args:
        nodes: All nodes of the cluster.
        planned_nodes: The nodes whose devices are known.
        kept_names: Resource names that stay with their device plugin; one that ends in `*` is a prefix.
    """
    keys_of: dict[str, tuple[str, ...]] = {}
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        keys = tuple(
            key
            for key, amount in sorted((node.status.allocatable or {}).items())
            if amount
            and is_device_key(key)
            and not is_nic(key)
            and not _matches(key, kept_names)
            and (node.metadata.name not in planned_nodes or is_replica_name(key))
        )
        if keys:
            keys_of[node.metadata.name] = keys[:MAX_KEYS]
    return keys_of


def nodes_offering_none(
    objects: Iterable[SourceObject], whole_device_keys: Sequence[str], other_nodes: Collection[str]
) -> tuple[str, ...]:
    """Return the nodes with devices that their device plugin offers none of, by name: their amount is 0.

    The plugin may not run there, or have found all of them unhealthy. Pods there keep theirs.

    Args:
        objects: The cluster's objects.
        whole_device_keys: Resource names of whole devices, as for `read_nodes`.
        other_nodes: The nodes with other devices, and those that stay with their device plugin.
    """
    return tuple(
        sorted(
            source.name
            for source in objects
            if (source.api_version, source.kind) == ("v1", "Node")
            and source.name not in other_nodes
            and _offers_none(source.document, whole_device_keys)
        )
    )


def _offers_none(node: Mapping[str, Any], whole_device_keys: Sequence[str]) -> bool:
    """Return True if a node has devices, as its capacity or its label of their number says, and none is offered."""
    capacity, labels = mapping_at(node, "status", "capacity"), text_map(node, "metadata", "labels")
    amounts = {
        key: str(amount)
        for key, amount in mapping_at(node, "status", "allocatable").items()
        if is_device_key(key) and not is_nic(key)
    }
    return all(amount == "0" for amount in amounts.values()) and any(
        _matches(key, whole_device_keys)
        and (str(capacity.get(key, "0")) != "0" or labels.get(f"{key}{COUNT}", "0") != "0")
        for key in amounts
    )


def _hami(node: Node) -> tuple[LegacyDevice, ...] | None:
    """Return the devices of HAMi's annotation; None if it is malformed."""
    text = (node.metadata.annotations or {}).get(NODE_REGISTER, "")
    if not text.strip():
        return ()
    try:
        entries = _REGISTERED.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        entries = list(_comma_separated(text))
        if not entries:
            return None
    return tuple(
        LegacyDevice(
            key=GPU,
            uuid=entry.id,
            model=entry.type,
            memory=_mebibytes(entry.devmem),
            cores=entry.devcore,
        )
        for entry in entries[:MAX_PER_NODE]
    )


def _comma_separated(text: str) -> Iterator[_Registered]:
    """Yield the entries of the older form: `id,count,memory,cores,type,numa,health:`."""
    for entry in text.split(":"):
        fields = entry.split(",")
        if len(fields) >= 7 and _NUMBER.fullmatch(fields[2]):
            cores = int(fields[3]) if _NUMBER.fullmatch(fields[3]) else 100
            yield _Registered(id=fields[0], devmem=int(fields[2]), devcore=cores, type=fields[4])


def _koordinator(device: Mapping[str, Any]) -> Iterator[LegacyDevice]:
    """Yield the GPUs of a Device object."""
    spec = device.get("spec")
    entries = spec.get("devices") if isinstance(spec, Mapping) else None
    for entry in entries[:MAX_PER_NODE] if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping) or entry.get("type") != "gpu":
            continue
        resources = entry.get("resources")
        labels = entry.get("labels")
        topology = entry.get("topology")
        memory = resources.get("koordinator.sh/gpu-memory") if isinstance(resources, Mapping) else 0
        minor = entry.get("minor")
        yield LegacyDevice(
            key=GPU,
            uuid=str(entry.get("id", "")),
            model=str(labels.get("node.koordinator.sh/gpu-model", ""))
            if isinstance(labels, Mapping)
            else "",
            memory=_quantity(memory),
            cores=100,
            minor=minor if isinstance(minor, int) else None,
            pcie_root=str(topology.get("pcieID", "")) if isinstance(topology, Mapping) else "",
        )


def _device_plugin(node: Node, whole_device_keys: Sequence[str]) -> Iterator[LegacyDevice]:
    """Yield the whole devices that a node's plugins offer."""
    for key, amount in sorted((node.status.allocatable or {}).items()):
        if not _matches(key, whole_device_keys) or is_replica_name(key) or not amount.is_whole:
            continue
        count = min(int(amount), MAX_PER_NODE)
        labels = node.labels
        is_gpu = key == GPU
        physical = labels.get(f"{key}{COUNT}", "")
        # With time slicing the plugin offers each device several times.
        if _NUMBER.fullmatch(physical):
            count = min(count, int(physical))
        else:
            count = -(-count // read_replicas(labels, key))
        memory = labels.get(MEMORY, "") if is_gpu else ""
        for index in range(count):
            yield LegacyDevice(
                key=key,
                uuid=f"{key.rpartition('/')[2]}-{index}",
                model=labels.get(PRODUCT, "").removesuffix(_SHARED)
                if is_gpu or key.startswith(MIG_PREFIX)
                else "",
                memory=_mebibytes(int(memory))
                if memory.isascii() and memory.isdigit() and len(memory) < 12
                else None,
            )


def _matches(key: str, names: Sequence[str]) -> bool:
    return any(
        key.startswith(name.removesuffix("*")) if name.endswith("*") else key == name
        for name in names
    )


def _mebibytes(amount: int) -> Quantity | None:
    return Quantity(f"{amount}Mi") if 0 < amount < 2**40 else None


def _quantity(value: object) -> Quantity | None:
    try:
        amount = Quantity(str(value))
    except ValueError:
        return None
    return amount if amount > ZERO else None
