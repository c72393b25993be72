"""What allocated claims hold, gathered once and then kept by adding and removing single claims.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources,
allocateddevices.go; k8s.io/dynamic-resource-allocation v0.37.1, structured/schedulerapi/types.go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from allocator.core.model import DeviceUse, Features, Holder, PoolId, PoolUse, Usage
from kube.api.resource import (
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from kube.quantity import Format, Quantity


def gathered(claims: Iterable[ResourceClaim], features: Features) -> Usage:
    """Return what claims hold together; those without an allocation hold nothing.

    Admin access holds nothing either. A result with a share id holds that share, and any other
    the device.
    """
    holders: dict[PoolId, dict[str, list[Holder]]] = {}
    for claim in claims:
        for pool, device, holder in _held(claim, features):
            holders.setdefault(pool, {}).setdefault(device, []).append(holder)
    return Usage(
        pools={
            pool: {device: _use(tuple(found)) for device, found in devices.items()}
            for pool, devices in holders.items()
        }
    )


def with_claim(usage: Usage, claim: ResourceClaim, features: Features) -> Usage:
    """Return the usage after one more claim; costs what it holds and a shallow copy."""
    changed: dict[PoolId, dict[str, DeviceUse]] = {}
    for pool, device, holder in _held(claim, features):
        uses = _copied(pool, changed, usage)
        before = uses[device].holders if device in uses else ()
        uses[device] = _use((*before, holder))
    return _merged(usage, changed)


def without_claim(usage: Usage, claim: ResourceClaim, features: Features) -> Usage:
    """Return the usage after one claim less: what `with_claim` started from.

    Args:
        claim: As it was counted. What it does not hold is ignored.
    """
    changed: dict[PoolId, dict[str, DeviceUse]] = {}
    for pool, device, holder in reversed(tuple(_held(claim, features))):
        uses = _copied(pool, changed, usage)
        if device not in uses:
            continue
        rest = _without_last(uses[device].holders, holder)
        if rest:
            uses[device] = _use(rest)
        else:
            del uses[device]
    return _merged(usage, changed)


def _copied(
    pool: PoolId, changed: dict[PoolId, dict[str, DeviceUse]], usage: Usage
) -> dict[str, DeviceUse]:
    """Return the pool's copy that may be changed."""
    if pool not in changed:
        changed[pool] = dict(usage.pools.get(pool, {}))
    return changed[pool]


def _merged(usage: Usage, changed: Mapping[PoolId, PoolUse]) -> Usage:
    if not changed:
        return usage
    pools = dict(usage.pools)
    for pool, uses in changed.items():
        if uses:
            pools[pool] = uses
        else:
            pools.pop(pool, None)
    return Usage(pools=pools)


def _without_last(holders: tuple[Holder, ...], gone: Holder) -> tuple[Holder, ...]:
    for index in range(len(holders) - 1, -1, -1):
        if holders[index] == gone:
            return holders[:index] + holders[index + 1 :]
    return holders


def _use(holders: tuple[Holder, ...]) -> DeviceUse:
    return DeviceUse(
        exclusive=any(holder.share_id is None for holder in holders),
        share_ids=frozenset(holder.share_id for holder in holders if holder.share_id is not None),
        capacity=_sums([holder.consumed for holder in holders if holder.consumed is not None]),
        holders=holders,
    )


def _sums(parts: Sequence[Mapping[str, Quantity]]) -> Mapping[str, Quantity] | None:
    """Return the sum of each capacity; None when nobody tells one."""
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    nanos: dict[str, int] = {}
    formats: dict[str, Format] = {}
    for part in parts:
        for key, amount in part.items():
            nanos[key] = nanos.get(key, 0) + amount.nanos
            formats.setdefault(key, amount.format)
    return {key: Quantity.from_nanos(sum_, formats[key]) for key, sum_ in nanos.items()}


def _held(claim: ResourceClaim, features: Features) -> Iterator[tuple[PoolId, str, Holder]]:
    """Yield pool and name of each device that a claim holds, and how it does."""
    if claim.status is None or (allocation := claim.status.allocation) is None:
        return
    for result in allocation.devices.results or ():
        if result.admin_access:
            continue
        share_id = result.share_id if features.consumable_capacity else None
        yield (
            PoolId(result.driver, result.pool),
            result.device,
            Holder(
                namespace=claim.metadata.namespace,
                claim=claim.metadata.name,
                request=result.request,
                parameters=_parameters(result, allocation.devices.config or ()),
                share_id=share_id,
                consumed=result.consumed_capacity if share_id is not None else None,
            ),
        )


def _parameters(
    result: DeviceRequestAllocationResult, config: Iterable[DeviceAllocationConfiguration]
) -> tuple[Mapping[str, object], ...]:
    """Return what the device's driver is told for the request; later entries override earlier."""
    names = {result.request, result.request.partition("/")[0]}
    return tuple(
        one.opaque.parameters
        for one in config
        if one.opaque is not None
        and one.opaque.driver == result.driver
        and (not one.requests or not names.isdisjoint(one.requests))
    )
