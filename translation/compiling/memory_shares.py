"""Percentages of memory as amounts that published devices accept."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from findings.finding import Code, Finding, warning
from kube.api.resource import (
    MAX_ALTERNATIVES,
    CapacityRequirements,
)
from kube.quantity import ZERO, Format, Quantity
from translation.model.intents import DeviceKind, Intent
from translation.profiles.device_facts import Facts, MemorySize
from translation.profiles.profile import DeviceProfile

MAX_COMBINATIONS: Final = 64
"""The limit on combinations of memory sizes of one container's devices, where they differ."""

_MIG_PROFILE: Final = re.compile(
    r"(?:[0-9]{1,2}c\.)?[0-9]{1,2}g\.([0-9]{1,4})gb(?:[+.-].*)?", re.ASCII
)
"""The published name of a MIG profile: `2g.20gb`, `1g.10gb+me`, `1c.2g.20gb`."""

_ASSUMED_SIZES: Final = (MemorySize(size=Quantity(2**63 - 1), step=Quantity("1Mi")),)


def shares_by_size(sizes: Iterable[MemorySize], percent: int) -> dict[Quantity, Quantity]:
    """Return size to the share of it, rounded down to a valid amount, sizes ascending."""
    shares: dict[Quantity, Quantity] = {}
    for memory in sizes:
        share = _rounded_down(memory, percent)
        other = shares.get(memory.size)
        shares[memory.size] = share if other is None else min(other, share)
    return dict(sorted(shares.items()))


def nominal_sizes(named_sizes: Mapping[str, Sequence[Quantity]]) -> dict[Quantity, Quantity]:
    """Return memory size of MIG devices to the largest in the names of its profiles.

    >>> nominal_sizes({"2g.20gb": [Quantity("19968Mi")], "other": [Quantity("9728Mi")]})
    {Quantity('19968Mi'): Quantity('20Gi')}
    """
    nominal: dict[Quantity, Quantity] = {}
    for name, sizes in named_sizes.items():
        match = _MIG_PROFILE.fullmatch(name)
        if match is not None:
            size_in_name = Quantity.from_int(int(match.group(1)) * 2**30, Format.BINARY)
            nominal |= {size: max(size_in_name, nominal.get(size, ZERO)) for size in sizes}
    return nominal


def merged_sizes(sizes: Sequence[Quantity], most: int) -> Sequence[tuple[Quantity, Quantity]]:
    """Return smallest and largest of each group of sizes, at most so many; the nearest are merged.

    Args:
        sizes: Ascending.

    >>> merged_sizes([Quantity("10Gi"), Quantity("11Gi"), Quantity("20Gi")], 2)
    [(Quantity('10Gi'), Quantity('11Gi')), (Quantity('20Gi'), Quantity('20Gi'))]
    """
    groups = [(size, size) for size in sizes]
    while len(groups) > most:
        # The one that loses the least share of its largest size.
        index = min(
            range(len(groups) - 1),
            key=lambda index: groups[index + 1][1].nanos * 1000 // groups[index][0].nanos,
        )
        groups[index : index + 2] = [(groups[index][0], groups[index + 1][1])]
    return groups


def _rounded_down(memory: MemorySize, percent: int) -> Quantity:
    """Return the largest valid amount that does not exceed the percentage.

    So shares that add up to 100 percent fit on one device, unless they are below its minimum.

    Source: HAMi floors to MiB. KEP-5075 rounds requests up, to `min` and a multiple of `step`, or
    to one of the valid values.
    """
    if percent == 100:
        return memory.size
    exact = memory.size.nanos * percent // 100
    if memory.values:
        valid = [value for value in memory.values if value.nanos <= exact]
        return max(valid, default=min(memory.values))
    step = _coarsened_step(memory.step)
    least = memory.min or step
    return least + step * max(0, (exact - least.nanos) // step.nanos)


def granted_amounts(sizes: Sequence[MemorySize] | None, amount: Quantity) -> Sequence[Quantity]:
    """Return the amounts that devices of these sizes, without too small ones, give for an amount.

    Args:
        sizes: The devices' memory sizes. Without any, steps of 1 MiB are assumed.
    """
    granted = (_rounded_up(memory, amount) for memory in sizes or _ASSUMED_SIZES)
    return [share for share in granted if share is not None]


def _rounded_up(memory: MemorySize, amount: Quantity) -> Quantity | None:
    """Return the smallest valid amount that is enough; None if there is none.

    Source: KEP-5075, CapacityRequestPolicy.
    """
    if amount > memory.size:
        return None
    if memory.values:
        return min((value for value in memory.values if value >= amount), default=None)
    least = memory.min or ZERO
    if amount <= least:
        return least
    if memory.step is None or memory.step.nanos <= 0:
        return amount
    steps, rest = divmod(amount.nanos - least.nanos, memory.step.nanos)
    if not rest:
        return amount
    granted = least + memory.step * (steps + 1)
    return granted if granted <= memory.size else None


def _coarsened_step(step: Quantity | None) -> Quantity:
    """Return the smallest multiple of the step that is at least one MiB."""
    mebibyte = Quantity("1Mi")
    if step is None or step.nanos <= 0:
        return mebibyte
    return step * -(-mebibyte.nanos // step.nanos)


def size_name(size: Quantity) -> str:
    """Return the name of the alternative for devices of this size."""
    return f"memory-{str(size).lower().replace('.', '-')}"


def as_capacity(amounts: Mapping[str, Quantity]) -> CapacityRequirements | None:
    """Return amounts as the capacity of a request; None without any."""
    return CapacityRequirements(requests=dict(sorted(amounts.items()))) if amounts else None


def may_combine_sizes(intent: Intent, device: DeviceProfile, facts: Facts) -> bool:
    """Return True if shared devices of several memory sizes may serve an intent together.

    A request has one alternative for all of its devices, so each device needs a request of its own.
    The search tries their combinations, so there may be only a few.
    """
    if not (
        intent.count > 1
        and intent.kind is DeviceKind.GPU
        and intent.memory_percent is not None
        and facts.mixed
        and device.memory is not None
        and device.unique is not None
        and not (intent.through_mps or intent.every or intent.pool)
    ):
        return False
    return are_few_combinations(
        len(shares_by_size(facts.sizes or (), intent.memory_percent)), intent.count
    )


def are_few_combinations(sizes: int, count: int) -> bool:
    """Return True if each of so many devices can have a request with so many alternatives."""
    return 1 < sizes <= MAX_ALTERNATIVES and sizes**count <= MAX_COMBINATIONS


def merged_sizes_finding(intent: Intent, ranges: Iterable[tuple[Quantity, Quantity]]) -> Finding:
    """Return the finding that sizes share an alternative."""
    range_list = ", ".join(f"{least} to {most}" for least, most in ranges if least != most)
    return warning(
        Code.MEMORY_SIZES_MERGED,
        intent.path("memory"),
        f"a request has at most {MAX_ALTERNATIVES} alternatives: devices of {range_list} get the "
        "percentage of the smallest of them",
    )


def equal_sizes_finding(intent: Intent, sizes: int) -> Finding:
    """Return the finding that all devices of an intent must have one size."""
    return warning(
        Code.EQUAL_MEMORY_SIZES,
        intent.path("memory"),
        f"devices of {sizes} memory sizes are published, and the {intent.count} devices must "
        "have the same: devices of several sizes on one node are not combined",
    )


def nominal_memory_finding(
    intent: Intent, nominal: Quantity, enough: Sequence[Quantity]
) -> Finding:
    """Return the finding that the smallest MIG device has less memory than is requested.

    Args:
        nominal: The memory in the names of devices of the smallest size.
        enough: The sizes that are enough, ascending.
    """
    larger = f", or more than {nominal} for a larger device" if enough[-1] > nominal else ""
    return warning(
        Code.NOMINAL_MEMORY,
        intent.path("memory"),
        f"a MIG device counts with the memory in its profile's name: one of {enough[0]} is enough for {nominal}",
        f"request {enough[0]}{larger}",
    )
