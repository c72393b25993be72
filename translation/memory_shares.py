"""Percentages of memory as amounts that published devices accept."""

from collections.abc import Iterable, Mapping, Sequence

from kube.api.resource import (
    CapacityRequirements,
)
from kube.quantity import Quantity
from translation.device_facts import MemorySize


def shares_by_size(sizes: Iterable[MemorySize], percent: int) -> dict[Quantity, Quantity]:
    """Return size to the share of it, rounded down to a valid amount, sizes ascending."""
    shares: dict[Quantity, Quantity] = {}
    for memory in sizes:
        share = _rounded_down(memory, percent)
        other = shares.get(memory.size)
        shares[memory.size] = share if other is None else min(other, share)
    return dict(sorted(shares.items()))


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
