"""What published devices tell a translation: memory sizes, sharing, and devices per PCIe root.

Each ResourceSlice becomes a small summary when it arrives, so that the inventory of a large cluster
costs little to keep; the summaries of a driver are merged into its facts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from kube.api.resource import MAX_RESULTS, Device, DeviceCapacity, ResourceSlice
from kube.quantity import Format, Quantity
from webhook.intents import DeviceKind
from webhook.profile import DeviceProfile, Profile


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of what request annotations say: only what we write is read."""


MAX_REPLICAS: Final = 2**31 - 1
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
"""The one attribute by which devices of different drivers can be matched. Source: KEP-4381."""


class MemorySize(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """A memory size that devices have, and which amounts of it may be asked for.

    Attributes:
        min: The smallest share; None when any amount is one.
        step: Shares are `min` plus a multiple of this.
        values: The only shares that there are, ascending; empty when `min` and `step` say.

    Raises:
        ValueError: An amount is no number of bytes; claims would repeat it to the API server.
    """

    size: Quantity
    min: Quantity | None = None
    step: Quantity | None = None
    values: tuple[Quantity, ...] = ()

    def __post_init__(self) -> None:
        listed = ((value, 0) for value in self.values)
        for amount, least in ((self.size, 1), (self.min, 0), (self.step, 1), *listed):
            if amount is not None and not (amount.is_whole and least <= int(amount) < 2**63):
                raise ValueError(f"{amount} is no number of bytes")


class Facts(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of the devices of one kind.

    Attributes:
        sizes: Distinct memory sizes, ascending; None when no device is known.
        shared: Some device allows several allocations; None when no device is known.
        default_is_part: On some device a claim that names no memory gets less than all of it.
        replicas: Distinct numbers of replicas that devices publish, ascending; empty when they
            publish none, None when no device is known.
        per_root: Distinct numbers of devices under one PCIe root, that of most nodes first. Where
            they count, empty when devices are known and publish no root; else None.
    """

    sizes: tuple[MemorySize, ...] | None = None
    shared: bool | None = None
    default_is_part: bool = False
    replicas: tuple[Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)], ...] | None = None
    per_root: tuple[Annotated[int, msgspec.Meta(ge=1, le=MAX_RESULTS)], ...] | None = None


UNKNOWN = Facts()


class SliceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What one slice adds to the facts of its driver.

    Attributes:
        roots: PCIe root to the number of devices under it; kinds without any are left out.
    """

    driver: str
    pool: str
    generation: int
    facts: Mapping[DeviceKind, Facts]
    roots: Mapping[DeviceKind, Mapping[str, int]] = {}


def summary(published: ResourceSlice, profiles: Mapping[str, Profile]) -> SliceSummary | None:
    """Return what the slice tells; None when no profile is about its driver."""
    profile = profiles.get(published.spec.driver)
    if profile is None:
        return None
    return SliceSummary(
        driver=published.spec.driver,
        pool=published.spec.pool.name,
        generation=published.spec.pool.generation,
        facts={
            kind: merged(
                _facts(device, kind_profile)
                for device in published.spec.devices or ()
                if _is_of(device, kind_profile, profile)
            )
            for kind, kind_profile in profile.devices.items()
        },
        roots={
            kind: roots
            for kind, kind_profile in profile.devices.items()
            if (roots := _roots(published.spec.devices or (), kind_profile, profile))
        },
    )


def facts_by_driver(
    summaries: Iterable[SliceSummary],
) -> Mapping[str, Mapping[DeviceKind, Facts]]:
    """Return driver to kind to facts, of the newest generation of every pool."""
    newest: dict[tuple[str, str], list[SliceSummary]] = {}
    for one in summaries:
        known = newest.setdefault((one.driver, one.pool), [])
        if known and known[0].generation < one.generation:
            known.clear()
        if not known or known[0].generation == one.generation:
            known.append(one)
    by_driver: dict[str, dict[DeviceKind, list[Facts]]] = {}
    for (driver, _), parts in newest.items():
        kinds = by_driver.setdefault(driver, {})
        for part in parts:
            for kind, facts in part.facts.items():
                kinds.setdefault(kind, []).append(facts)
    per_root = _per_root(newest)
    return {
        driver: {
            kind: msgspec.structs.replace(merged(facts), per_root=per_root.get((driver, kind)))
            for kind, facts in kinds.items()
        }
        for driver, kinds in by_driver.items()
    }


def _per_root(
    pools: Mapping[tuple[str, str], Iterable[SliceSummary]],
) -> Mapping[tuple[str, DeviceKind], tuple[int, ...]]:
    """Return driver and kind to the numbers of devices under one PCIe root, most usual first.

    A pool is a node, whose number is that of most of its roots, so a broken GPU changes nothing. Of
    two numbers that are as usual the smaller comes first.
    """
    nodes: dict[tuple[str, DeviceKind], Counter[int]] = {}
    for (driver, _), parts in pools.items():
        roots: dict[DeviceKind, Counter[str]] = {}
        for part in parts:
            for kind, found in part.roots.items():
                roots.setdefault(kind, Counter()).update(found)
        for kind, counted in roots.items():
            usual = _usual(Counter(min(count, MAX_RESULTS) for count in counted.values()))[0]
            nodes.setdefault((driver, kind), Counter())[usual] += 1
    return {key: _usual(counted) for key, counted in nodes.items()}


def _usual(counted: Counter[int]) -> tuple[int, ...]:
    return tuple(sorted(counted, key=lambda number: (-counted[number], number)))


def merged(parts: Iterable[Facts]) -> Facts:
    """Return what the parts tell together; the order does not matter."""
    known = [part for part in parts if part != UNKNOWN]
    if not known:
        return UNKNOWN
    sizes = {size for part in known for size in part.sizes or ()}
    return Facts(
        sizes=tuple(sorted(sizes, key=_by_size)),
        shared=any(part.shared for part in known),
        default_is_part=any(part.default_is_part for part in known),
        replicas=tuple(sorted({count for part in known for count in part.replicas or ()})),
    )


def _by_size(memory: MemorySize) -> tuple[Quantity, Quantity, Quantity, tuple[Quantity, ...]]:
    zero = Quantity(0)
    return memory.size, memory.min or zero, memory.step or zero, memory.values


def _is_of(device: Device, kind: DeviceProfile, profile: Profile) -> bool:
    attributes = device.attributes or {}
    for name, wanted in kind.where.items():
        found = attributes.get(name) or attributes.get("/".join(profile.qualified(name)))
        if found is None or found.string != wanted:
            return False
    return not any(
        name in attributes or "/".join(profile.qualified(name)) in attributes for name in kind.lacks
    )


def _roots(devices: Iterable[Device], kind: DeviceProfile, profile: Profile) -> Mapping[str, int]:
    """Return PCIe root to devices of the kind; drivers that know none may publish an empty text."""
    counted: Counter[str] = Counter()
    for device in devices:
        root = (device.attributes or {}).get(PCIE_ROOT)
        if root is not None and root.string and _is_of(device, kind, profile):
            counted[root.string] += 1
    return dict(counted)


def _facts(device: Device, kind: DeviceProfile) -> Facts:
    capacities = device.capacity or {}
    memory = capacities.get(kind.memory) if kind.memory else None
    policy = memory.request_policy if memory else None
    default = policy.default if policy else None
    return Facts(
        sizes=_sizes(memory) if memory else (),
        shared=bool(device.allow_multiple_allocations),
        default_is_part=memory is not None and default is not None and default < memory.value,
        replicas=_replicas(capacities.get(kind.replicas or "")),
    )


def _replicas(capacity: DeviceCapacity | None) -> tuple[int, ...]:
    if capacity is None or not capacity.value.is_whole:
        return ()
    count = int(capacity.value)
    return (count,) if 1 <= count <= MAX_REPLICAS else ()


def _sizes(memory: DeviceCapacity) -> tuple[MemorySize, ...]:
    policy = memory.request_policy
    span = policy.valid_range if policy else None
    try:
        return (
            MemorySize(
                size=_spelled(memory.value),
                min=_spelled(span.min) if span and span.min is not None else None,
                step=_spelled(span.step) if span and span.step is not None else None,
                values=tuple(map(_spelled, (policy.valid_values if policy else None) or ())),
            ),
        )
    except ValueError:
        return ()  # A device that says nonsense is a device without memory.


def _spelled(amount: Quantity) -> Quantity:
    """Return the amount in the one spelling that claims use.

    Drivers publish 80Gi as 80Gi or as 85899345920; a template's name must not depend on which of
    two equal sizes was seen first.
    """
    return Quantity.from_nanos(amount.nanos, Format.BINARY)
