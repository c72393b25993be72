"""Causes that keep every device of a pool from use, although it is published.

Source: k8s.io/dynamic-resource-allocation v0.37.1, structured/internal/experimental,
pools_experimental.go: slices that a disabled feature gate hides, pools that are incomplete or
invalid, and slices whose devices are ignored beside sharedCounters.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from allocator.model.devices import DeviceId, Pool, PoolId, PoolState, PublishedDevice
from allocator.model.feature_gates import Features
from allocator.model.gated_pools import disabled_gate_cause
from allocator.model.selectors import SelectorChain
from kube.api.resource import ResourceSlice

MAX_LISTED: Final = 2
"""Pools in one message."""


class Remedy(Enum):
    """A change that would make the devices usable; the value completes "since ..."."""

    GATE = "the feature gate may be enabled"
    SLICES = "the driver may publish the pool again"
    NODE = "the node may be added"


class UnusablePool(NamedTuple):
    """A pool with selected devices that are all unusable.

    Attributes:
        devices: Number of selected devices.
        cause: A phrase, such as "invalid (duplicate device name gpu-0)".
    """

    pool: PoolId
    devices: int
    cause: str
    remedy: Remedy


def explain_unusable_pool(
    pool: PoolId,
    slices: Sequence[ResourceSlice],
    visible: Pool | None,
    *,
    nodes: Collection[str],
    features: Features,
    selectors: SelectorChain,
) -> UnusablePool | None:
    """Return the reason selected devices of a pool cannot be used; None if none is selected.

    It is None, too, where a node sees all devices of the pool: then the search knows of them.

    Args:
        slices: Published slices of the newest generation.
        visible: The pool as some node sees it; None if no node does.
        nodes: Names of the existing nodes.
        selectors: Selectors of a request and its class.
    """
    if _shows_all(visible, slices):
        return None  # The search has seen all of its devices.
    counts = [_selected_count(pool, slice_, selectors) for slice_ in slices]
    selecting = [slice_ for slice_, count in zip(slices, counts, strict=True) if count]
    if not selecting:
        return None
    cause, remedy = (
        _gate_cause(slices, features)
        or _mixed_cause(selecting)
        or _visibility_cause(selecting, visible, nodes)
    )
    return UnusablePool(pool, sum(counts), cause, remedy)


def describe_unusable_pools(pools: Sequence[UnusablePool]) -> str:
    """Return one phrase for pools, those of one cause together.

    >>> one = UnusablePool(PoolId("d.example.com", "a"), 4, "incomplete", Remedy.SLICES)
    >>> describe_unusable_pools([one, one._replace(pool=PoolId("d.example.com", "b"))])
    'pools a and b of driver d.example.com: incomplete'
    """
    by_cause: dict[tuple[str, str], list[str]] = {}
    for unusable in pools:
        by_cause.setdefault((unusable.cause, unusable.pool.driver), []).append(unusable.pool.pool)
    parts = [
        f"{_pools(names)} of driver {driver}: {cause}"
        for (cause, driver), names in by_cause.items()
    ]
    more = len(parts) - MAX_LISTED
    return "; ".join([*parts[:MAX_LISTED], *([f"{more} more causes"] if more > 0 else [])])


def _pools(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"pool {names[0]}"
    if len(names) == 2:
        return f"pools {names[0]} and {names[1]}"
    return f"pools {names[0]} and {len(names) - 1:,} more"


def _shows_all(visible: Pool | None, slices: Sequence[ResourceSlice]) -> bool:
    """Return True if some node sees every device of a pool."""
    return (
        visible is not None
        and visible.state is PoolState.COMPLETE
        and len(visible.devices) == sum(len(slice_.spec.devices or ()) for slice_ in slices)
    )


def _selected_count(pool: PoolId, slice_: ResourceSlice, selectors: SelectorChain) -> int:
    devices = [
        PublishedDevice(
            id=DeviceId(pool.driver, pool.pool, device.name), device=device, slice=slice_
        )
        for device in slice_.spec.devices or ()
    ]
    return selectors.verdicts(devices).count(True)


def _gate_cause(slices: Iterable[ResourceSlice], features: Features) -> tuple[str, Remedy] | None:
    """Return the disabled feature gate that hides a slice, and with it the pool."""
    causes = (disabled_gate_cause(slice_, features) for slice_ in slices)
    cause = next(filter(None, causes), "")
    return (cause, Remedy.GATE) if cause else None


def _mixed_cause(selecting: Iterable[ResourceSlice]) -> tuple[str, Remedy] | None:
    """Return the cause for devices beside counters: the scheduler reads only the counters."""
    for slice_ in selecting:
        if slice_.spec.shared_counters:
            name = slice_.metadata.name
            cause = f"slice {name} has sharedCounters, so the scheduler ignores its devices"
            return cause, Remedy.SLICES
    return None


def _visibility_cause(
    selecting: Sequence[ResourceSlice], visible: Pool | None, nodes: Collection[str]
) -> tuple[str, Remedy]:
    if visible is not None and visible.state is not PoolState.COMPLETE:
        return f"{visible.state.value} ({visible.why})", Remedy.SLICES
    names = sorted(
        {name for slice_ in selecting if (name := slice_.spec.node_name) not in nodes and name}
    )
    if names:
        which = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"
        return f"node {which} does not exist" if len(
            names
        ) == 1 else f"nodes {which} do not exist", Remedy.NODE
    return "no node matches its nodeSelector", Remedy.NODE
