"""What a cluster has: devices by driver, what is free of them, and which classes select them. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from allocator.cluster import Cluster
from allocator.core.inventory import Failure, chain
from allocator.core.model import (
    DeviceUse,
    Expression,
    Pool,
    PoolId,
    PoolState,
    PublishedDevice,
)
from kube.api.resource import DeviceClass, ResourceSlice
from kube.quantity import Quantity

_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})
_TYPE: Final = "type"
"""The attribute by which drivers tell whole devices, partitions and the like apart."""


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """A sum over devices; of tainted ones nothing is free."""

    total: Quantity
    free: Quantity


class DriverStock(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one driver.

    Attributes:
        nodes: That can reach some of them.
        used: Held as a whole.
        shared: Of which shares are held.
        tainted: In nobody's use, and kept from requests without a toleration.
        free: The rest; partitions may exclude each other all the same.
        capacity: Of devices that take nothing from shared counters.
        counters: Of counter sets, from which partitions take.
    """

    driver: str
    nodes: int
    devices: int
    used: int
    shared: int
    tainted: int
    free: int
    capacity: Mapping[str, Amount]
    counters: Mapping[str, Amount]


class ClassStock(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that one DeviceClass selects.

    Attributes:
        error: Why its selectors cannot be judged; empty when they can.
    """

    name: str
    drivers: tuple[str, ...] = ()
    devices: int = 0
    free: int = 0
    error: str = ""


class BrokenPool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool that gives nothing: incomplete, or at odds with itself."""

    driver: str
    pool: str
    state: str
    why: str


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A class worth having: it would select devices that have no class to themselves."""

    name: str
    expression: str
    devices: int


class Stock(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All of it, each part sorted by name.

    Attributes:
        unreachable: ResourceSlices with devices that no node sees: their nodes are not there, or a
            newer generation of the pool replaced them.
    """

    drivers: tuple[DriverStock, ...]
    classes: tuple[ClassStock, ...]
    broken_pools: tuple[BrokenPool, ...]
    suggestions: tuple[Suggestion, ...]
    unreachable: tuple[str, ...]


def stock_of(
    cluster: Cluster, classes: Mapping[str, DeviceClass], slices: Iterable[ResourceSlice]
) -> Stock:
    """Return what a cluster has.

    Args:
        classes: By name.
        slices: All that are published.
    """
    pools = _pools(cluster)
    devices = published_devices(cluster)
    selected = {name: _selected(each, devices) for name, each in sorted(classes.items())}
    seen = {each.slice.metadata.name for pool in pools.values() for each in _all(pool)}
    broken = {pool.id: pool for pool in pools.values() if pool.state is not PoolState.COMPLETE}
    return Stock(
        drivers=tuple(_drivers(cluster, pools.values(), devices)),
        classes=tuple(_class(name, found, cluster) for name, found in selected.items()),
        broken_pools=tuple(
            BrokenPool(driver=id_.driver, pool=id_.pool, state=pool.state.value, why=pool.why)
            for id_, pool in sorted(broken.items())
        ),
        suggestions=tuple(_suggestions(devices, selected)),
        unreachable=tuple(
            sorted(
                each.metadata.name
                for each in slices
                if each.spec.devices
                and each.metadata.name not in seen
                and PoolId(each.spec.driver, each.spec.pool.name) not in broken
            )
        ),
    )


def published_devices(cluster: Cluster) -> tuple[PublishedDevice, ...]:
    """Return every device that some node can be given, each once, sorted."""
    found = {each.id: each for name in cluster.nodes for each in cluster.node_devices(name).devices}
    return tuple(found[device] for device in sorted(found))


def _pools(cluster: Cluster) -> dict[PoolId, Pool]:
    return {pool.id: pool for name in cluster.nodes for pool in cluster.node_devices(name).pools}


def _all(pool: Pool) -> Iterator[PublishedDevice]:
    yield from pool.devices
    yield from pool.elsewhere


# --- drivers --------------------------------------------------------------------------------------


def _drivers(
    cluster: Cluster, pools: Iterable[Pool], devices: Iterable[PublishedDevice]
) -> Iterator[DriverStock]:
    by_driver: dict[str, list[PublishedDevice]] = {}
    for each in devices:
        by_driver.setdefault(each.id.driver, []).append(each)
    nodes: dict[str, int] = {}
    for name in cluster.nodes:
        for driver in {pool.id.driver for pool in cluster.node_devices(name).pools}:
            nodes[driver] = nodes.get(driver, 0) + 1
    pools_of: dict[str, list[Pool]] = {}
    for pool in pools:
        pools_of.setdefault(pool.id.driver, []).append(pool)
    for driver in sorted(nodes):
        found = by_driver.get(driver, [])
        uses = [cluster.usage.of(each.id) for each in found]
        taken = [use is not None and use.exclusive for use in uses]
        shared = [use is not None and not use.exclusive for use in uses]
        tainted = [use is None and _is_tainted(each) for each, use in zip(found, uses, strict=True)]
        yield DriverStock(
            driver=driver,
            nodes=nodes[driver],
            devices=len(found),
            used=sum(taken),
            shared=sum(shared),
            tainted=sum(tainted),
            free=len(found) - sum(taken) - sum(shared) - sum(tainted),
            capacity=_capacity(found, uses),
            counters=_counters(cluster, pools_of[driver]),
        )


def _is_tainted(published: PublishedDevice) -> bool:
    return any(taint.effect in _BLOCKING for taint in published.device.taints or ())


def _capacity(
    devices: Sequence[PublishedDevice], uses: Sequence[DeviceUse | None]
) -> dict[str, Amount]:
    sums: dict[str, tuple[Quantity, Quantity]] = {}
    for published, use in zip(devices, uses, strict=True):
        if published.device.consumes_counters:
            continue
        for name, capacity in (published.device.capacity or {}).items():
            held = Quantity(0)
            if _is_tainted(published) or (use is not None and use.exclusive):
                held = capacity.value
            elif use is not None:
                held = (use.capacity or {}).get(name, held)
            _add(sums, name, capacity.value, held)
    return _amounts(sums)


def _counters(cluster: Cluster, pools: Iterable[Pool]) -> dict[str, Amount]:
    sums: dict[str, tuple[Quantity, Quantity]] = {}
    for pool in pools:
        for each in pool.counter_sets.values():
            for name, counter in (each.counters or {}).items():
                _add(sums, name, counter.value, Quantity(0))
        for published in _all(pool):
            if cluster.usage.of(published.id) is not None:
                for consumed in published.device.consumes_counters or ():
                    for name, counter in (consumed.counters or {}).items():
                        _add(sums, name, Quantity(0), counter.value)
    return _amounts(sums)


def _add(
    sums: dict[str, tuple[Quantity, Quantity]], name: str, total: Quantity, held: Quantity
) -> None:
    before = sums.get(name)
    sums[name] = (total, held) if before is None else (before[0] + total, before[1] + held)


def _amounts(sums: Mapping[str, tuple[Quantity, Quantity]]) -> dict[str, Amount]:
    return {
        name: Amount(total=total, free=max(total - held, Quantity(0)))
        for name, (total, held) in sorted(sums.items())
    }


# --- classes --------------------------------------------------------------------------------------

_Selected = tuple[PublishedDevice, ...] | str
"""The devices of a class, or why nobody knows."""


def _selected(device_class: DeviceClass, devices: Iterable[PublishedDevice]) -> _Selected:
    expressions = tuple(
        Expression(text=each.cel.expression, origin=f"selector #{number}")
        for number, each in enumerate(device_class.spec.selectors or ())
        if each.cel is not None
    )
    judge = chain(expressions)
    found = []
    for published in devices:
        verdict = judge.verdict(published)
        if isinstance(verdict, Failure):
            return verdict.message
        if verdict:
            found.append(published)
    return tuple(found)


def _class(name: str, found: _Selected, cluster: Cluster) -> ClassStock:
    if isinstance(found, str):
        return ClassStock(name=name, error=found)
    return ClassStock(
        name=name,
        drivers=tuple(sorted({each.id.driver for each in found})),
        devices=len(found),
        free=sum(cluster.usage.of(each.id) is None and not _is_tainted(each) for each in found),
    )


def _suggestions(
    devices: Iterable[PublishedDevice], selected: Mapping[str, _Selected]
) -> Iterator[Suggestion]:
    """Yield a class for every driver, and type of device of a driver, that none is just about."""
    groups: dict[tuple[str, str], set[PublishedDevice]] = {}
    for each in devices:
        groups.setdefault((each.id.driver, _type(each)), set()).add(each)
    whole: dict[str, set[PublishedDevice]] = {}
    for (driver, _), members in groups.items():
        whole.setdefault(driver, set()).update(members)
    known = [set(found) for found in selected.values() if not isinstance(found, str)]
    for (driver, kind), members in sorted(groups.items()):
        if members in known or (members == whole[driver] and whole[driver] in known):
            continue
        is_all = members == whole[driver]
        expression = f'device.driver == "{driver}"'
        if not is_all and kind:
            expression += f' && device.attributes["{driver}"].?{_TYPE}.orValue("") == "{kind}"'
        elif not is_all:
            continue
        yield Suggestion(
            name=driver if is_all else f"{kind}.{driver}",
            expression=expression,
            devices=len(members),
        )


def _type(published: PublishedDevice) -> str:
    attributes = published.device.attributes or {}
    found = attributes.get(_TYPE) or attributes.get(f"{published.id.driver}/{_TYPE}")
    text = found.string if found is not None else None
    return text if text is not None and text.isidentifier() else ""
