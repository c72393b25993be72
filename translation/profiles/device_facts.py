"""Facts of published devices for the translation: memory sizes, sharing, devices per PCIe root.

Each ResourceSlice is reduced to a small summary when it arrives, so that the inventory of a large
cluster needs little memory; the summaries of a driver are merged into its facts. Any node may publish its
devices again at any time, and the next review waits for the facts: so those of each pool are kept, and pools
with equal facts, such as those of nodes of one model, are merged once.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Annotated, Final, NamedTuple

import msgspec

from kube.api.meta import encode
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


def _sum_counts(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for numbers in counts:
        total.update(numbers)
    return total


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


DriverFacts = Mapping[DeviceKind, Facts]


class PoolFacts(msgspec.Struct, frozen=True):
    """The facts of one pool, that is of the devices of one driver on a node.

    Attributes:
        facts: Device kind to the facts of its devices; of MIG profiles, the number of devices.
        mixed: The kinds with several memory sizes.
        per_root: Device kind to the number of devices under one PCIe root, as most of its roots have it, so
            a broken GPU changes nothing; kinds without any root are left out.
    """

    facts: DriverFacts
    mixed: tuple[DeviceKind, ...]
    per_root: Mapping[DeviceKind, int]


class EqualPools(NamedTuple):
    """The pools of a driver with the same facts.

    Attributes:
        number: The number of pools.
    """

    facts: PoolFacts
    number: int


class PublishedFacts:
    """The facts of the devices of all slices, kept up to date at the cost of the pools that change."""

    def __init__(self) -> None:
        """Begin without slices."""
        self._slices: dict[_PoolName, dict[Hashable, SliceSummary]] = {}
        self._stale: set[_PoolName] = set()
        self._pools: dict[_PoolName, PoolFacts] = {}
        self._equal_pools: dict[str, dict[bytes, EqualPools]] = {}
        self._by_driver: Mapping[str, DriverFacts] = {}

    def replace(self, name: Hashable, old: SliceSummary | None, new: SliceSummary | None) -> None:
        """Take over the summary of a slice; None for one that was not there, or is gone."""
        if old == new:
            return
        if old is not None:
            pool = _PoolName(old.driver, old.pool)
            self._slices.get(pool, {}).pop(name, None)
            self._stale.add(pool)
        if new is not None:
            pool = _PoolName(new.driver, new.pool)
            self._slices.setdefault(pool, {})[name] = new
            self._stale.add(pool)

    def by_driver(self) -> Mapping[str, DriverFacts]:
        """Return driver name to device kind to facts; the same object while they are equal."""
        changed_drivers = {pool.driver for pool in self._stale if self._take_in(pool)}
        self._stale.clear()
        by_driver = dict(self._by_driver)
        for driver in changed_drivers:
            if pools := self._equal_pools.get(driver):
                by_driver[driver] = _driver_facts(pools.values())
            else:
                by_driver.pop(driver, None)
        if by_driver != self._by_driver:
            self._by_driver = by_driver
        return self._by_driver

    def _take_in(self, pool: "_PoolName") -> bool:
        """Count a pool with its facts of now; return True if they differ."""
        slices = self._slices.get(pool)
        if not slices:
            self._slices.pop(pool, None)
        facts = _pool_facts(slices.values()) if slices else None
        old_facts = self._pools.get(pool)
        if facts == old_facts:
            return False
        # The old ones are uncounted as they were counted: equal facts may be encoded in another order.
        if old_facts is not None:
            self._count(pool.driver, old_facts, -1)
            del self._pools[pool]
        if facts is not None:
            self._count(pool.driver, facts, 1)
            self._pools[pool] = facts
        return True

    def _count(self, driver: str, facts: PoolFacts, number: int) -> None:
        """Count so many more pools with these facts. They are forgotten with the last one."""
        equal_pools, key = self._equal_pools.setdefault(driver, {}), encode(facts)
        total = number + (equal_pools[key].number if key in equal_pools else 0)
        if total:
            equal_pools[key] = EqualPools(facts, total)
        else:
            del equal_pools[key]


class _PoolName(NamedTuple):
    driver: str
    pool: str


def facts_by_driver(summaries: Iterable[SliceSummary]) -> Mapping[str, DriverFacts]:
    """Return driver name to device kind to facts, of the newest generation of every pool."""
    all_facts = PublishedFacts()
    for number, slice_summary in enumerate(summaries):
        all_facts.replace(number, None, slice_summary)
    return all_facts.by_driver()


def _pool_facts(slices: Iterable[SliceSummary]) -> PoolFacts:
    """Return the facts of the newest generation of a pool."""
    all_slices = list(slices)
    newest = max(part.generation for part in all_slices)
    parts = [part for part in all_slices if part.generation == newest]
    facts_of_kind: dict[DeviceKind, list[Facts]] = {}
    roots_of_kind: dict[DeviceKind, Counter[str]] = {}
    for part in parts:
        for kind, facts in part.facts.items():
            facts_of_kind.setdefault(kind, []).append(facts)
        for kind, devices_by_root in part.roots.items():
            roots_of_kind.setdefault(kind, Counter()).update(devices_by_root)
    # Those of one slice are merged already.
    merged_facts = {
        kind: facts[0] if len(facts) == 1 else merge_facts(facts)
        for kind, facts in facts_of_kind.items()
    }
    return PoolFacts(
        facts=merged_facts,
        mixed=tuple(
            kind
            for kind, facts in merged_facts.items()
            if len({size.size for size in facts.sizes or ()}) > 1
        ),
        per_root={
            kind: _most_frequent_first(
                Counter(min(count, MAX_RESULTS) for count in devices_by_root.values())
            )[0]
            for kind, devices_by_root in roots_of_kind.items()
        },
    )


def _driver_facts(pools: Iterable[EqualPools]) -> DriverFacts:
    """Return the facts of all pools of a driver.

    Numbers of devices under one root are in order, that of most pools first, and of two equally frequent
    ones the smaller first. A MIG profile has the largest number of its devices in a pool.
    """
    facts_of_kind: dict[DeviceKind, list[Facts]] = {}
    mixed: set[DeviceKind] = set()
    per_root: dict[DeviceKind, Counter[int]] = {}
    mig_profiles: dict[DeviceKind, Counter[str]] = {}
    for pool, number in pools:
        mixed.update(pool.mixed)
        for kind, facts in pool.facts.items():
            facts_of_kind.setdefault(kind, []).append(facts)
            # The union of counters has the larger number of both.
            mig_profiles[kind] = mig_profiles.get(kind, Counter()) | Counter(facts.mig_profiles)
        for kind, devices in pool.per_root.items():
            per_root.setdefault(kind, Counter())[devices] += number
    return {
        kind: msgspec.structs.replace(
            merge_facts(facts),
            mixed=kind is not DeviceKind.MIG and kind in mixed,
            mixed_profiles=kind is DeviceKind.MIG and kind in mixed,
            per_root=_most_frequent_first(per_root[kind]) if kind in per_root else None,
            mig_profiles=dict(mig_profiles[kind]),
        )
        for kind, facts in facts_of_kind.items()
    }


def _most_frequent_first(counter: Counter[int]) -> tuple[int, ...]:
    return tuple(sorted(counter, key=lambda number: (-counter[number], number)))


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
