"""The devices, shares and capacity that allocated claims use.

Usage is gathered once and then updated by adding and removing single claims.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources,
allocateddevices.go; k8s.io/dynamic-resource-allocation v0.37.1, structured/schedulerapi/types.go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from allocator.model.devices import DeviceId, PoolId
from allocator.model.feature_gates import Features
from kube.api.resource import (
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from kube.collections.layered_mapping import with_changes
from kube.quantity import Format, Quantity


class Consumer(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that uses a device or a share of it.

    Attributes:
        namespace: Namespace of the claim.
        claim: Name of the claim.
        request: Name of the request, as in the allocation result.
        parameters: Opaque parameters for the device's driver that apply to the request, in order.
        share_id: Id of its share; None if it uses the device alone.
        consumed: Consumption of each capacity by its share; None if that is not recorded.
    """

    namespace: str
    claim: str
    request: str
    parameters: tuple[Mapping[str, object], ...] = ()
    share_id: str | None = None
    consumed: Mapping[str, Quantity] | None = None


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """The use of one device by allocated claims; never empty.

    Attributes:
        exclusive: A result without a share id uses it (upstream: AllocatedDevices).
        share_ids: Ids of the shares in use (upstream: AllocatedSharedDeviceIDs).
        capacity: Sum of the consumption of its shares (upstream: AggregatedCapacity); None without
            an entry.
        consumers: The claims, in the order in which they were counted.
    """

    exclusive: bool = False
    share_ids: frozenset[str] = frozenset()
    capacity: Mapping[str, Quantity] | None = None
    consumers: tuple[Consumer, ...] = ()

    @property
    def is_shared(self) -> bool:
        """A share of it is in use, so a further share consumes no counters."""
        return bool(self.share_ids) or self.capacity is not None


PoolUse = Mapping[str, DeviceUse]
"""Device name to its use, for one pool; replaced and never changed, so identity reveals a change."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The use of all devices by allocated claims (upstream: AllocatedState).

    Attributes:
        pools: Pools with a device in use.
    """

    pools: Mapping[PoolId, PoolUse] = msgspec.field(default_factory=dict)

    def of(self, device: DeviceId) -> DeviceUse | None:
        """Return the use of a device; None if it is free."""
        return self.pools.get(PoolId(device.driver, device.pool), {}).get(device.device)


def gather_usage(claims: Iterable[ResourceClaim], features: Features) -> Usage:
    """Return the usage by these claims.

    Claims without an allocation and results with admin access use nothing. A result with a share
    id uses that share, any other result uses the device.
    """
    consumers: dict[PoolId, dict[str, list[Consumer]]] = {}
    for claim in claims:
        for pool, device, consumer in _device_uses(claim, features):
            consumers.setdefault(pool, {}).setdefault(device, []).append(consumer)
    return Usage(
        pools={
            pool: {device: _device_use(tuple(of_device)) for device, of_device in devices.items()}
            for pool, devices in consumers.items()
        }
    )


def with_claim(usage: Usage, claim: ResourceClaim, features: Features) -> Usage:
    """Return the usage with one more claim, at the cost of its devices alone."""
    changed_uses: dict[PoolId, dict[str, DeviceUse]] = {}
    for pool, device, consumer in _device_uses(claim, features):
        uses = _copy_uses(pool, changed_uses, usage)
        before = uses[device].consumers if device in uses else ()
        uses[device] = _device_use((*before, consumer))
    return _merge(usage, changed_uses)


def without_claim(usage: Usage, claim: ResourceClaim, features: Features) -> Usage:
    """Return the usage without one claim, the inverse of `with_claim`; arguments as of `without_claims`."""
    return without_claims(usage, (claim,), features)


def without_claims(usage: Usage, claims: Iterable[ResourceClaim], features: Features) -> Usage:
    """Return the usage without some claims, at the cost of their devices alone.

    Args:
        usage: The usage with the claims.
        claims: The claims as they were counted. Devices that they do not use are ignored.
        features: Feature gates.
    """
    changed_uses: dict[PoolId, dict[str, DeviceUse]] = {}
    for claim in claims:
        for pool, device, consumer in reversed(tuple(_device_uses(claim, features))):
            uses = _copy_uses(pool, changed_uses, usage)
            if device not in uses:
                continue
            rest = _remove_last(uses[device].consumers, consumer)
            if rest:
                uses[device] = _device_use(rest)
            else:
                del uses[device]
    return _merge(usage, changed_uses)


def _copy_uses(
    pool: PoolId, changed_uses: dict[PoolId, dict[str, DeviceUse]], usage: Usage
) -> dict[str, DeviceUse]:
    """Return a copy of the uses in a pool that may be changed."""
    if pool not in changed_uses:
        changed_uses[pool] = dict(usage.pools.get(pool, {}))
    return changed_uses[pool]


def _merge(usage: Usage, changed_uses: Mapping[PoolId, PoolUse]) -> Usage:
    if not changed_uses:
        return usage
    changes = {pool: uses or None for pool, uses in changed_uses.items()}
    return Usage(pools=with_changes(usage.pools, changes))


def _remove_last(consumers: tuple[Consumer, ...], consumer: Consumer) -> tuple[Consumer, ...]:
    for index in range(len(consumers) - 1, -1, -1):
        if consumers[index] == consumer:
            return consumers[:index] + consumers[index + 1 :]
    return consumers


def _device_use(consumers: tuple[Consumer, ...]) -> DeviceUse:
    return DeviceUse(
        exclusive=any(consumer.share_id is None for consumer in consumers),
        share_ids=frozenset(
            consumer.share_id for consumer in consumers if consumer.share_id is not None
        ),
        capacity=_sum_capacities(
            [consumer.consumed for consumer in consumers if consumer.consumed is not None]
        ),
        consumers=consumers,
    )


def _sum_capacities(parts: Sequence[Mapping[str, Quantity]]) -> Mapping[str, Quantity] | None:
    """Return the sum of each capacity; None without any."""
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


def _device_uses(
    claim: ResourceClaim, features: Features
) -> Iterator[tuple[PoolId, str, Consumer]]:
    """Yield pool, device name and consumer of each device that a claim uses."""
    if claim.status is None or (allocation := claim.status.allocation) is None:
        return
    for result in allocation.devices.results or ():
        if result.admin_access:
            continue
        share_id = result.share_id if features.consumable_capacity else None
        yield (
            PoolId(result.driver, result.pool),
            result.device,
            Consumer(
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
    """Return the opaque parameters for the device's driver; later entries override earlier ones."""
    names = {result.request, result.request.partition("/")[0]}
    return tuple(
        entry.opaque.parameters
        for entry in config
        if entry.opaque is not None
        and entry.opaque.driver == result.driver
        and (not entry.requests or not names.isdisjoint(entry.requests))
    )
