"""Comparison of the devices in use, counted change by change, with those of the claims."""

from collections.abc import Mapping

from allocator.model.devices import PoolId
from allocator.model.usage import DeviceUse, Usage
from kube.quantity import Quantity

_Amounts = frozenset[tuple[str, int]] | None
"""Capacity and amount in nanos; None where none is recorded."""
_User = tuple[str, str, str, str, tuple[tuple[str, int], ...]]
_Use = tuple[bool, frozenset[str], _Amounts, tuple[_User, ...]]


def differs(counted: Usage, expected: Usage) -> bool:
    """Return True if two usages differ beyond the order of the counted claims."""
    return _normalise(counted) != _normalise(expected)


def _normalise(usage: Usage) -> Mapping[PoolId, Mapping[str, _Use]]:
    return {
        pool: {device: _users(use) for device, use in devices.items()}
        for pool, devices in usage.pools.items()
        if devices
    }


def _users(use: DeviceUse) -> _Use:
    users = sorted(
        (
            user.namespace,
            user.claim,
            user.request,
            user.share_id or "",
            tuple(sorted(_amounts(user.consumed) or ())),
        )
        for user in use.consumers
    )
    return use.exclusive, use.share_ids, _amounts(use.capacity), tuple(users)


def _amounts(capacity: Mapping[str, Quantity] | None) -> _Amounts:
    if capacity is None:
        return None
    return frozenset((name, amount.nanos) for name, amount in capacity.items())
