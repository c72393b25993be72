"""The devices that are published, and the amounts that claims take of them, as a history goes on."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final

from e2e.checker.devices import Device, Result, devices_of, results_of
from e2e.checker.history import DELETED, Event, Object, uid_of

Identity = tuple[str, str, str]
_MIB: Final = 1024**2


class Published:
    """Follows ResourceSlices and ResourceClaims.

    Attributes:
        devices: The devices by identity.
        by_node: Node to the devices that are published for it.
    """

    def __init__(self) -> None:
        self.devices: dict[Identity, Device] = {}
        self.by_node: defaultdict[str, dict[Identity, Device]] = defaultdict(dict)
        self._of_slice: dict[str, list[Device]] = {}
        self._of_claim: dict[str, list[Result]] = {}
        self._claims: defaultdict[Identity, dict[str, list[Result]]] = defaultdict(dict)

    def see(self, event: Event) -> None:
        """Take an event in."""
        if event.kind == "resourceslices":
            self._slice(event)
        elif event.kind == "resourceclaims":
            self._claim(event)

    def taken(self, identity: Identity) -> Mapping[str, Decimal] | None:
        """Return the amounts that claims take of a device, by capacity; None without a claim."""
        claims = self._claims.get(identity)
        if not claims:
            return None
        total: defaultdict[str, Decimal] = defaultdict(Decimal)
        for results in claims.values():
            for result in results:
                for name, amount in result.consumed.items():
                    total[name] += amount
        return total

    def overcommitted(self, claim: Object) -> Iterator[Identity]:
        """Yield the devices of a claim that have been given more often than they can be."""
        for result in results_of(claim):
            device = self.devices.get(result.identity)
            if device is None:
                continue
            if not device.is_shared and len(self._claims[result.identity]) > 1:
                yield result.identity
            amounts = self.taken(result.identity) or {}
            if any(amount > device.capacity.get(name, amount) for name, amount in amounts.items()):
                yield result.identity

    def describe(self, result: Result) -> str:
        """Return a device of a claim with its size, for people."""
        device = self.devices.get(result.identity)
        if device is None:
            return f"{'/'.join(result.identity)}, which is not published"
        memory = result.consumed.get("memory", device.capacity.get("memory", Decimal(0)))
        kind = f"MIG {device.profile}" if device.profile else "GPU"
        return f"{'/'.join(result.identity)} ({kind}, {memory / _MIB:.0f} MiB)"

    def _slice(self, event: Event) -> None:
        for device in self._of_slice.pop(uid_of(event.object), ()):
            self.devices.pop(device.identity, None)
            self.by_node[device.node].pop(device.identity, None)
        if event.type == DELETED:
            return
        devices = list(devices_of(event.object))
        self._of_slice[uid_of(event.object)] = devices
        for device in devices:
            self.devices[device.identity] = device
            self.by_node[device.node][device.identity] = device

    def _claim(self, event: Event) -> None:
        uid = uid_of(event.object)
        for result in self._of_claim.pop(uid, ()):
            self._claims[result.identity].pop(uid, None)
        if event.type == DELETED:
            return
        self._of_claim[uid] = results_of(event.object)
        for result in self._of_claim[uid]:
            self._claims[result.identity].setdefault(uid, []).append(result)
