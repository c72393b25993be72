"""The state of one pool under one policy during a search: devices in use, and reasons for exclusions."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from allocator.compatibility.compile import CompiledPolicy
from allocator.compatibility.pairs import (
    Cause,
    Clause,
    Occupancy,
    PolicyPool,
    Site,
    counter_sets_of,
    describe_site,
)
from allocator.model.devices import DeviceId, Pool, PublishedDevice
from allocator.model.outcome import Reason, RejectionReason, Verb
from allocator.model.usage import PoolUse
from kube.api.resource import CounterSet
from kube.quantity import Quantity

_MAX_NAMED: Final = 3
_POOLS: Final = 8192


@lru_cache(maxsize=_POOLS)
def policy_pool(policy: CompiledPolicy, pool: Pool) -> PolicyPool:
    """Return a pool as a policy sees it; the same object for the same pool."""
    return PolicyPool(policy, (*pool.devices, *pool.elsewhere))


class PoolState:
    """One policy on one pool: the devices in use there, vanished ones included."""

    def __init__(
        self,
        policy: CompiledPolicy,
        pool: Pool,
        use: PoolUse,
        tombstones: Mapping[DeviceId, PublishedDevice],
    ) -> None:
        """Begin with the devices of allocated claims.

        Args:
            tombstones: The last state of devices that may be allocated and no longer published.
        """
        self.policy = policy
        self._pool = pool
        self._use = use
        self._policy_pool = policy_pool(policy, pool)
        unpublished_ids = [
            DeviceId(pool.id.driver, pool.id.pool, name)
            for name in sorted(use.keys() - self._policy_pool.devices.keys())
        ]
        self._unknown = [device for device in unpublished_ids if device not in tombstones]
        self._vanished = [tombstones[device] for device in unpublished_ids if device in tombstones]
        if self._vanished:
            published_devices = self._policy_pool.devices.values()
            self._policy_pool = PolicyPool(policy, (*published_devices, *self._vanished))
        self._occupancy = Occupancy(self._policy_pool)
        devices = self._policy_pool.devices
        self._tenants = [devices[name] for name in sorted(use) if name in devices]
        for tenant in self._tenants:
            self._occupancy.add(tenant)
        self._inconsistent = self._inconsistent_sites()

    def _inconsistent_sites(self) -> dict[Site, tuple[DeviceId, ...]]:
        """Return the sites that have tenants violating the policy, and these tenants."""
        sites = {site for tenant in self._tenants for site in self._sites(tenant)}
        violating = {
            site: tuple(dict.fromkeys(self._occupancy.inconsistent(site))) for site in sorted(sites)
        }
        return {site: tenants for site, tenants in violating.items() if tenants}

    def equivalence_key(self, device: PublishedDevice) -> Hashable:
        """Return all that verdicts on a device of this pool depend on."""
        kind = self._policy_pool.policy_device(device).kind
        consumed_amounts = _consumed_amounts(device) if self._vanished else None
        return (self._pool.id, kind, device.id.device in self._use, consumed_amounts)

    def add(self, device: PublishedDevice) -> None:
        """Count a device as in use."""
        self._tenants.append(device)
        self._occupancy.add(device)

    def remove(self, device: PublishedDevice) -> None:
        """Undo the latest `add`; it must have added this device."""
        self._tenants.pop()
        self._occupancy.remove(device)

    def excludes(self, device: PublishedDevice) -> bool:
        """Return True if a device may not be used now."""
        return next(self.causes(device), None) is not None

    def causes(self, published_device: PublishedDevice) -> Iterator[Cause]:
        """Yield the causes that exclude a device now."""
        yield from self._occupancy.causes(published_device)
        for device in self._unknown:
            why = f"device {device.device} is allocated and no longer published"
            yield Cause(
                clause=Clause.UNKNOWN,
                message=f"{why}, so its rules are unknown",
                rejection=RejectionReason(
                    reason=Reason.POLICY,
                    verb=Verb.CO_LOCATED,
                    subject="device",
                    value=device.device,
                    remark="allocated and no longer published, so its rules are unknown",
                ),
                others=(device,),
            )
        yield from self._exhausted_counters(published_device)
        if self._inconsistent:
            for site in sorted(self._sites(published_device) & self._inconsistent.keys()):
                where = describe_site(site, self._pool.id.pool)
                yield Cause(
                    clause=Clause.INCONSISTENT,
                    message=f"devices in use on {where} already violate the policy",
                    rejection=RejectionReason(
                        reason=Reason.POLICY,
                        verb=Verb.ARE_ON,
                        subject=where,
                        remark="devices in use there already violate the policy",
                    ),
                    others=self._inconsistent[site],
                )

    def causes_without(
        self, published_device: PublishedDevice, later: Sequence[PublishedDevice]
    ) -> list[Cause]:
        """Return the causes for a chosen device before it and later ones were chosen."""
        for device in reversed(later):
            self.remove(device)
        try:
            return list(self.causes(published_device))
        finally:
            for device in later:
                self.add(device)

    def users(
        self,
        devices: Iterable[DeviceId],
        namespace: str,
        chosen_users: Mapping[DeviceId, Sequence[str]],
    ) -> str:
        """Return the users of devices: `used by claim a`; never a name of another namespace.

        Args:
            namespace: The namespace of the claim to which the result is shown.
            chosen_users: The users of devices that are chosen in this attempt.
        """
        names: list[str] = []
        foreign: set[tuple[str, str]] = set()
        for device in devices:
            use = self._use.get(device.device)
            for consumer in use.consumers if use is not None else ():
                if consumer.namespace == namespace:
                    names.append(f"claim {consumer.claim}")
                else:
                    foreign.add((consumer.namespace, consumer.claim))
            names += chosen_users.get(device, ())
        unique_names = list(dict.fromkeys(names))
        if len(unique_names) > _MAX_NAMED:
            unique_names = [*unique_names[:_MAX_NAMED], f"{len(unique_names) - _MAX_NAMED} more"]
        if foreign:
            claims = f"{len(foreign)} claims in other namespaces"
            unique_names.append("a claim in another namespace" if len(foreign) == 1 else claims)
        return f"used by {', '.join(unique_names)}" if unique_names else ""

    def _sites(self, device: PublishedDevice) -> frozenset[Site]:
        return self._policy_pool.policy_device(device).sites

    def _exhausted_counters(self, device: PublishedDevice) -> Iterator[Cause]:
        """Yield the counters that a device would exhaust together with vanished devices.

        Unlike upstream, where a device that is no longer published consumes nothing: its claim
        still runs on the hardware.
        """
        if not self._vanished:
            return
        vanished_sets = {name for device in self._vanished for name in counter_sets_of(device)}
        tenants = {tenant.id: tenant for tenant in self._tenants if tenant.id != device.id}
        for consumption in device.device.consumes_counters or ():
            counter_set = self._pool.counter_sets.get(consumption.counter_set)
            if counter_set is None or consumption.counter_set not in vanished_sets:
                continue
            for name, needed_amount in (consumption.counters or {}).items():
                free = _free(counter_set, name, tenants.values())
                if free is not None and free < needed_amount.value:
                    yield Cause(
                        clause=Clause.COUNTERS,
                        message=f"counter {name} of counter set {counter_set.name} has {free} free, "
                        f"{needed_amount.value} needed",
                        rejection=RejectionReason(
                            reason=Reason.COUNTERS,
                            verb=Verb.NEED,
                            subject=f"counter {name}",
                            value=str(needed_amount.value),
                            remark=f"{free} free in counter set {counter_set.name}",
                        ),
                        others=tuple(device.id for device in self._vanished),
                    )


def _consumed_amounts(device: PublishedDevice) -> Hashable:
    """Return the counters that a device consumes, with amounts."""
    return frozenset(
        (consumption.counter_set, name, amount.value)
        for consumption in device.device.consumes_counters or ()
        for name, amount in (consumption.counters or {}).items()
    )


def _free(
    counter_set: CounterSet, counter: str, tenants: Iterable[PublishedDevice]
) -> Quantity | None:
    """Return the amount of a counter that tenants leave free; None when the set lacks the counter."""
    total = (counter_set.counters or {}).get(counter)
    if total is None:
        return None
    used = sum(
        consumption.counters[counter].value.nanos
        for tenant in tenants
        for consumption in tenant.device.consumes_counters or ()
        if consumption.counter_set == counter_set.name
        and consumption.counters
        and counter in consumption.counters
    )
    return Quantity.from_nanos(max(total.value.nanos - used, 0), total.value.format)
