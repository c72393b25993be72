"""The charge of a pod that requests devices by keys of device plugins or other schedulers, and not by claims.

During a migration such pods and claims of a tenant count together. What one of a key is of a limit's amount,
the quota says (`limits[].legacyKeys`), so that nothing of the key's vocabulary has to be known here.

Source: k8s.io/component-helpers, resource, PodRequests, for what init containers add.
"""

from collections.abc import Collection, Iterator

from kube.api.core import Container, PodSpec
from kube.api.device_quota import LegacyKey
from kube.quantity import Quantity
from quotas.device_quotas.limits import Limit

_NANOS = 10**9


def legacy_charge(pod: PodSpec, limit: Limit, mapped: Collection[str] = ()) -> int:
    """Return the charge of a pod for its keys, in nano-units.

    Args:
        mapped: Keys that count by a claim, since a DeviceClass maps them.
    """
    return sum(_effective(pod, key) for key in _counted_keys(pod, limit, mapped))


def largest_legacy_request(
    pod: PodSpec, limit: Limit, mapped: Collection[str] = ()
) -> tuple[int, int]:
    """Return the largest charge of a container for one of its keys, and for one of its devices, in nano-units.

    A container asks for its devices at once, as a request of a claim does.

    Args:
        mapped: The same keys as in `legacy_charge`.
    """
    request, device = 0, 0
    for key in _counted_keys(pod, limit, mapped):
        for container in (*(pod.init_containers or ()), *(pod.containers or ())):
            request = max(request, _of_container(container, key))
            if key.multiplied_by:
                device = max(device, _of_device(container, key))
    return request, device


def _counted_keys(pod: PodSpec, limit: Limit, mapped: Collection[str]) -> Iterator[LegacyKey]:
    if not limit.legacy_keys:
        return
    names = frozenset(_names(pod))
    for key in limit.legacy_keys:
        if (
            key.name in names
            and key.name not in mapped
            and (not key.only_with or not names.isdisjoint(key.only_with))
            and names.isdisjoint(key.without or ())
        ):
            yield key


def _names(pod: PodSpec) -> Iterator[str]:
    """Yield the resources with a request above zero in some container."""
    for container in (*(pod.init_containers or ()), *(pod.containers or ())):
        for name, amount in (*container.limits.items(), *container.requests.items()):
            if amount.nanos > 0:
                yield name


def _effective(pod: PodSpec, key: LegacyKey) -> int:
    """Return the amount that the containers of a pod have at a time, in nano-units of the limit."""
    sidecars, largest_init = 0, 0
    for container in pod.init_containers or ():
        amount = _of_container(container, key)
        if container.restart_policy == "Always":
            sidecars += amount
        else:
            largest_init = max(largest_init, sidecars + amount)
    running = sum(_of_container(container, key) for container in pod.containers or ())
    return max(sidecars + running, largest_init)


def _of_container(container: Container, key: LegacyKey) -> int:
    number = _requested(container, key.multiplied_by) if key.multiplied_by else None
    devices = _NANOS if number is None else number.nanos
    return max(0, _of_device(container, key) * devices // _NANOS)


def _of_device(container: Container, key: LegacyKey) -> int:
    amount = _requested(container, key.name)
    if amount is None:
        return 0
    unit = _NANOS if key.per_unit is None else key.per_unit.nanos
    return max(0, amount.nanos * unit // _NANOS)


def _requested(container: Container, name: str) -> Quantity | None:
    # The API server fills requests in from limits; files have not been there.
    amount = container.requests.get(name)
    return container.limits.get(name) if amount is None else amount
