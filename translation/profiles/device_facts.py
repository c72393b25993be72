"""Facts of published devices for the translation: memory sizes, sharing, devices per PCIe root.

Each ResourceSlice is reduced to a small summary when it arrives, so that the inventory of a large
cluster needs little memory; the summaries of a driver are merged into its facts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from kube.api.resource import MAX_RESULTS, Device, DeviceCapacity, ResourceSlice
from kube.quantity import ZERO, Format, Quantity
from translation.model.intents import DeviceKind
from translation.model.share_amounts import lower_ascii
from translation.profiles.profile import DeviceProfile, Profile


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of a translation record; unknown fields are an error."""


MAX_REPLICAS: Final = 2**31 - 1
MAX_COMPUTE_UNITS: Final = 2**31 - 1
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
"""The attribute that devices of different drivers have in common. Source: KEP-4381."""


class MemorySize(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """A memory size of devices, and the valid shares of it.

    Attributes:
        min: The smallest share; None when any amount is valid.
        step: Shares are `min` plus a multiple of this.
        values: The only valid shares, ascending; empty when `min` and `step` apply.

    Raises:
        ValueError: An amount is not a number of bytes; claims would repeat it to the API server.
    """

    size: Quantity
    min: Quantity | None = None
    step: Quantity | None = None
    values: tuple[Quantity, ...] = ()

    def __post_init__(self) -> None:
        size_ranges = ((value, 0) for value in self.values)
        for amount, least in ((self.size, 1), (self.min, 0), (self.step, 1), *size_ranges):
            if amount is not None and not (amount.is_whole and least <= int(amount) < 2**63):
                raise ValueError(f"{amount} is not a number of bytes")


class Facts(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """Facts of the devices of one kind.

    Attributes:
        sizes: Distinct memory sizes, ascending; None when no device is known.
        shared: Some device allows multiple allocations; None when no device is known.
        default_is_part: True if on some device a claim without an amount of memory gets only part
            of it.
        replicas: Distinct numbers of replicas that devices publish, ascending; empty when they
            publish none, None when no device is known.
        per_root: Distinct numbers of devices under one PCIe root, that of most nodes first. Where
            they matter, empty when known devices publish no root; else None.
        mixed: Some node has devices of several memory sizes.
        mixed_profiles: The same of MIG devices, of which older records have `mixed` without an effect.
        partitions: Distinct numbers of devices in a partition, ascending. Where they matter, empty
            when known devices publish none; else None.
        compute_units: Distinct numbers of compute units, ascending. Where they matter, empty when known
            devices publish none; else None.
        bandwidth: Some device publishes a bandwidth. In no record, since no claim depends on it.
        models: Distinct product names, in lower-case ASCII letters. In no record, either.
        mig_profiles: MIG profile to the largest number of its devices on one node. In no record, either.
        node_counts: Distinct numbers of devices of a node, ascending, as devices publish them that a node
            gives only all together. In no record, either.
        named_sizes: Name of devices, as resource names end with it, or MIG profile, to their distinct memory
            sizes, ascending. In records only of MIG devices that count with the memory in their names.
    """

    sizes: tuple[MemorySize, ...] | None = None
    mixed: bool = False
    mixed_profiles: bool = False
    shared: bool | None = None
    default_is_part: bool = False
    replicas: tuple[Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)], ...] | None = None
    per_root: tuple[Annotated[int, msgspec.Meta(ge=1, le=MAX_RESULTS)], ...] | None = None
    partitions: tuple[Annotated[int, msgspec.Meta(ge=1, le=MAX_RESULTS)], ...] | None = None
    compute_units: tuple[Annotated[int, msgspec.Meta(ge=1, le=MAX_COMPUTE_UNITS)], ...] | None = (
        None
    )
    bandwidth: bool = False
    models: tuple[str, ...] = ()
    mig_profiles: Mapping[str, int] = {}
    node_counts: tuple[int, ...] = ()
    named_sizes: Mapping[str, tuple[Quantity, ...]] = {}


UNKNOWN = Facts()


class SliceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one ResourceSlice.

    Attributes:
        roots: Device kind to PCIe root to number of devices; kinds without any are left out.
    """

    driver: str
    pool: str
    generation: int
    facts: Mapping[DeviceKind, Facts]
    roots: Mapping[DeviceKind, Mapping[str, int]] = {}


def summary(resource_slice: ResourceSlice, profiles: Mapping[str, Profile]) -> SliceSummary | None:
    """Return the facts of a slice; None when no profile is for its driver."""
    profile = profiles.get(resource_slice.spec.driver)
    if profile is None:
        return None
    return SliceSummary(
        driver=resource_slice.spec.driver,
        pool=resource_slice.spec.pool.name,
        generation=resource_slice.spec.pool.generation,
        facts={
            kind: merge_facts(
                _facts(device, kind_profile, profile.driver)
                for device in resource_slice.spec.devices or ()
                if is_of_kind(device, kind_profile, profile)
            )
            for kind, kind_profile in profile.devices.items()
        },
        roots={
            kind: roots
            for kind, kind_profile in profile.devices.items()
            if (roots := _roots(resource_slice.spec.devices or (), kind_profile, profile))
        },
    )


def count_devices(slices: Iterable[ResourceSlice], profile: Profile) -> Mapping[DeviceKind, int]:
    """Return kind of device to the number of devices, in the newest generation of every pool."""
    newest: dict[str, list[ResourceSlice]] = {}
    for slice_ in slices:
        pool = newest.setdefault(slice_.spec.pool.name, [])
        if pool and pool[0].spec.pool.generation < slice_.spec.pool.generation:
            pool.clear()
        if not pool or pool[0].spec.pool.generation == slice_.spec.pool.generation:
            pool.append(slice_)
    devices = [
        device
        for pool in newest.values()
        for slice_ in pool
        for device in slice_.spec.devices or ()
    ]
    return {
        kind: sum(is_of_kind(device, kind_profile, profile) for device in devices)
        for kind, kind_profile in profile.devices.items()
    }


def facts_by_driver(
    summaries: Iterable[SliceSummary],
) -> Mapping[str, Mapping[DeviceKind, Facts]]:
    """Return driver name to device kind to facts, of the newest generation of every pool."""
    newest: dict[tuple[str, str], list[SliceSummary]] = {}
    for slice_summary in summaries:
        pool = newest.setdefault((slice_summary.driver, slice_summary.pool), [])
        if pool and pool[0].generation < slice_summary.generation:
            pool.clear()
        if not pool or pool[0].generation == slice_summary.generation:
            pool.append(slice_summary)
    by_driver: dict[str, dict[DeviceKind, list[Facts]]] = {}
    for (driver, _), parts in newest.items():
        kinds = by_driver.setdefault(driver, {})
        for part in parts:
            for kind, facts in part.facts.items():
                kinds.setdefault(kind, []).append(facts)
    per_root = _per_root(newest)
    mixed = _mixed(newest)
    mig_profiles = _mig_profiles(newest)
    return {
        driver: {
            kind: msgspec.structs.replace(
                merge_facts(facts),
                mixed=kind is not DeviceKind.MIG and (driver, kind) in mixed,
                mixed_profiles=kind is DeviceKind.MIG and (driver, kind) in mixed,
                per_root=per_root.get((driver, kind)),
                mig_profiles=mig_profiles.get((driver, kind), {}),
            )
            for kind, facts in kinds.items()
        }
        for driver, kinds in by_driver.items()
    }


def _mixed(
    pools: Mapping[tuple[str, str], Sequence[SliceSummary]],
) -> frozenset[tuple[str, DeviceKind]]:
    """Return the drivers and kinds with several memory sizes in some pool, that is on a node."""
    mixed: set[tuple[str, DeviceKind]] = set()
    for (driver, _), parts in pools.items():
        sizes: dict[DeviceKind, set[Quantity]] = {}
        for part in parts:
            for kind, facts in part.facts.items():
                sizes.setdefault(kind, set()).update(size.size for size in facts.sizes or ())
        mixed.update((driver, kind) for kind, distinct in sizes.items() if len(distinct) > 1)
    return frozenset(mixed)


def _per_root(
    pools: Mapping[tuple[str, str], Iterable[SliceSummary]],
) -> Mapping[tuple[str, DeviceKind], tuple[int, ...]]:
    """Return driver and kind to the numbers of devices under one PCIe root, most frequent first.

    A pool is a node, and its number is that of most of its roots, so a broken GPU changes nothing.
    Of two equally frequent numbers the smaller comes first.
    """
    nodes: dict[tuple[str, DeviceKind], Counter[int]] = {}
    for (driver, _), parts in pools.items():
        roots: dict[DeviceKind, Counter[str]] = {}
        for part in parts:
            for kind, devices_by_root in part.roots.items():
                roots.setdefault(kind, Counter()).update(devices_by_root)
        for kind, devices_of_root in roots.items():
            sizes = Counter(min(count, MAX_RESULTS) for count in devices_of_root.values())
            nodes.setdefault((driver, kind), Counter())[_most_frequent_first(sizes)[0]] += 1
    return {key: _most_frequent_first(sizes) for key, sizes in nodes.items()}


def _mig_profiles(
    pools: Mapping[tuple[str, str], Iterable[SliceSummary]],
) -> Mapping[tuple[str, DeviceKind], Mapping[str, int]]:
    """Return driver and kind to MIG profile to the largest number of its devices in a pool, that is on a node."""
    largest: dict[tuple[str, DeviceKind], Counter[str]] = {}
    for (driver, _), parts in pools.items():
        of_pool: dict[DeviceKind, list[Mapping[str, int]]] = {}
        for part in parts:
            for kind, facts in part.facts.items():
                of_pool.setdefault(kind, []).append(facts.mig_profiles)
        for kind, counts in of_pool.items():
            # The union of counters has the larger number of both.
            largest[driver, kind] = largest.get((driver, kind), Counter()) | _sum_counts(counts)
    return largest


def _sum_counts(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for numbers in counts:
        total.update(numbers)
    return total


def _most_frequent_first(counter: Counter[int]) -> tuple[int, ...]:
    return tuple(sorted(counter, key=lambda number: (-counter[number], number)))


def merge_facts(parts: Iterable[Facts]) -> Facts:
    """Merge facts; their order does not matter."""
    known_parts = [part for part in parts if part != UNKNOWN]
    if not known_parts:
        return UNKNOWN
    sizes = {size for part in known_parts for size in part.sizes or ()}
    return Facts(
        sizes=tuple(sorted(sizes, key=_by_size)),
        shared=any(part.shared for part in known_parts),
        default_is_part=any(part.default_is_part for part in known_parts),
        replicas=tuple(sorted({count for part in known_parts for count in part.replicas or ()})),
        partitions=tuple(sorted({size for part in known_parts for size in part.partitions or ()}))
        or None,
        compute_units=tuple(
            sorted({units for part in known_parts for units in part.compute_units or ()})
        )
        or None,
        bandwidth=any(part.bandwidth for part in known_parts),
        models=tuple(sorted({model for part in known_parts for model in part.models})),
        mig_profiles=dict(_sum_counts(part.mig_profiles for part in known_parts)),
        node_counts=tuple(sorted({count for part in known_parts for count in part.node_counts})),
        named_sizes=_merge_sizes(part.named_sizes for part in known_parts),
    )


def _merge_sizes(
    parts: Iterable[Mapping[str, tuple[Quantity, ...]]],
) -> Mapping[str, tuple[Quantity, ...]]:
    merged: dict[str, set[Quantity]] = {}
    for part in parts:
        for name, sizes in part.items():
            merged.setdefault(name, set()).update(sizes)
    return {name: tuple(sorted(sizes)) for name, sizes in merged.items()}


def _by_size(memory: MemorySize) -> tuple[Quantity, Quantity, Quantity, tuple[Quantity, ...]]:
    return memory.size, memory.min or ZERO, memory.step or ZERO, memory.values


def is_of_kind(device: Device, kind: DeviceProfile, profile: Profile) -> bool:
    """Return True if a published device is of a kind of a profile."""
    attributes = device.attributes or {}
    for name, value in kind.where.items():
        attribute = attributes.get(name) or attributes.get("/".join(profile.qualified_name(name)))
        if attribute is None or attribute.string != value:
            return False
    return not any(
        name in attributes or "/".join(profile.qualified_name(name)) in attributes
        for name in kind.lacks
    )


def _roots(devices: Iterable[Device], kind: DeviceProfile, profile: Profile) -> Mapping[str, int]:
    """Return PCIe root to number of devices; without a root, drivers may publish an empty string."""
    counts: Counter[str] = Counter()
    for device in devices:
        root = (device.attributes or {}).get(PCIE_ROOT)
        if root is not None and root.string and is_of_kind(device, kind, profile):
            counts[root.string] += 1
    return dict(counts)


def _facts(device: Device, kind: DeviceProfile, driver: str) -> Facts:
    capacities = device.capacity or {}
    memory = capacities.get(kind.memory) if kind.memory else None
    policy = memory.request_policy if memory else None
    default = policy.default if policy else None
    return Facts(
        sizes=_sizes(memory) if memory else (),
        shared=bool(device.allow_multiple_allocations),
        default_is_part=memory is not None and default is not None and default < memory.value,
        replicas=_replicas(capacities.get(kind.replicas or "")),
        partitions=_partitions(device, kind, driver),
        compute_units=_compute_units(capacities, kind, driver),
        bandwidth=isinstance(kind.bandwidth, str)
        and not capacities.keys().isdisjoint((kind.bandwidth, f"{driver}/{kind.bandwidth}")),
        models=tuple(map(lower_ascii, _text(device, kind.attributes.model, driver))),
        mig_profiles=dict.fromkeys(_text(device, kind.attributes.mig_profile, driver), 1),
        node_counts=_node_counts(device, kind, driver),
        named_sizes=_named_sizes(device, kind, driver),
    )


def _text(device: Device, name: str | None, driver: str) -> tuple[str, ...]:
    """Return the text of an attribute of a device; none if it has none."""
    attributes = device.attributes or {}
    if name is None:
        return ()
    attribute = attributes.get(name) or attributes.get(f"{driver}/{name}")
    return () if attribute is None or not attribute.string else (attribute.string,)


def _node_counts(device: Device, kind: DeviceProfile, driver: str) -> tuple[int, ...]:
    """Return the number of devices of the node, as a device publishes it; none if it publishes none."""
    attributes = device.attributes or {}
    names = {named_devices.count_attribute for named_devices in (kind.resources or {}).values()}
    values = (
        attributes.get(name) or attributes.get(f"{driver}/{name}")
        for name in names
        if isinstance(name, str)
    )
    return tuple(value.int_ for value in values if value is not None and value.int_ is not None)


def _named_sizes(
    device: Device, kind: DeviceProfile, driver: str
) -> Mapping[str, tuple[Quantity, ...]]:
    """Return the name of a device, of a MIG device its profile, and its memory; empty without both."""
    memory = (device.capacity or {}).get(kind.memory) if kind.memory else None
    attributes = {named_devices.short_name for named_devices in (kind.resources or {}).values()}
    attributes.add(kind.attributes.mig_profile)
    sizes = tuple(size.size for size in _sizes(memory)) if memory else ()
    names = (name for attribute in attributes for name in _text(device, attribute, driver))
    return dict.fromkeys(names, sizes) if sizes else {}


def _partitions(device: Device, kind: DeviceProfile, driver: str) -> tuple[int, ...]:
    """Return the sizes of the partitions that a device belongs to, by the names of attributes."""
    prefix = kind.attributes.partition
    if not isinstance(prefix, str):
        return ()
    names = (name.removeprefix(f"{driver}/") for name in device.attributes or {})
    texts = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    sizes = {int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 3}
    return tuple(sorted(size for size in sizes if 1 <= size <= MAX_RESULTS))


def _compute_units(
    capacities: Mapping[str, DeviceCapacity], kind: DeviceProfile, driver: str
) -> tuple[int, ...]:
    """Return the number of compute units of a device; none if it publishes no valid one."""
    name = kind.compute_units
    if not isinstance(name, str):
        return ()
    capacity = capacities.get(name) or capacities.get(f"{driver}/{name}")
    if capacity is None or not capacity.value.is_whole:
        return ()
    units = int(capacity.value)
    return (units,) if 1 <= units <= MAX_COMPUTE_UNITS else ()


def _replicas(capacity: DeviceCapacity | None) -> tuple[int, ...]:
    if capacity is None or not capacity.value.is_whole:
        return ()
    count = int(capacity.value)
    return (count,) if 1 <= count <= MAX_REPLICAS else ()


def _sizes(memory: DeviceCapacity) -> tuple[MemorySize, ...]:
    policy = memory.request_policy
    valid_range = policy.valid_range if policy else None
    try:
        return (
            MemorySize(
                size=_canonical(memory.value),
                min=_canonical(valid_range.min)
                if valid_range and valid_range.min is not None
                else None,
                step=_canonical(valid_range.step)
                if valid_range and valid_range.step is not None
                else None,
                values=tuple(map(_canonical, (policy.valid_values if policy else None) or ())),
            ),
        )
    except ValueError:
        return ()  # A device with an invalid amount counts as one without memory.


def _canonical(amount: Quantity) -> Quantity:
    """Return the amount in the notation that claims use.

    Drivers publish 80Gi as 80Gi or as 85899345920; a template's name must not depend on which of
    two equal sizes came first.
    """
    return Quantity.from_nanos(amount.nanos, Format.BINARY)
