"""Claims whose sharing configurations contradict each other never meet on one device.

A device has one time-slice interval and one MPS server, however many claims share it; yet each of
them may bring opaque parameters of its own, of which upstream knows nothing. The driver finds out
when it prepares the second claim, and that pod stays in ContainerCreating. Unlike upstream, this
rule tells while there still is another device; it is asked for, and off otherwise.

Two configurations contradict when they are of the same apiVersion and kind and differ in what
configures the device: `sharing` for kinds that are known to keep it there, all they say for others.
Of several of one kind the last counts, as for drivers. Saying nothing of a kind contradicts
nothing, since what a driver takes for granted is its own business; so does another kind. Two
requests of one claim can contradict each other like two claims.

Source: what claims can say is opaque to upstream; the kinds that we know are GpuConfig and
MigDeviceConfig of kubernetes-sigs/dra-driver-nvidia-gpu, GpuConfig of kubernetes-sigs/
dra-example-driver.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from allocator.core.model import Asked, DeviceUse, Features, NodeDevices, PoolUse, Request, Usage
from allocator.core.outcome import Reason, Refusal
from allocator.core.tracker import Ahead
from kube.api.resource import OpaqueDeviceConfiguration

_SHARING: Final = frozenset(
    {
        ("resource.nvidia.com", "GpuConfig"),
        ("resource.nvidia.com", "MigDeviceConfig"),
        ("gpu.resource.example.com", "GpuConfig"),
    }
)
"""API group and kind of parameters that configure a shared device by their member `sharing`."""

_NOT_IN_USE: Final[PoolUse] = {}

Kind = tuple[str, str]
"""apiVersion and kind of opaque parameters."""


def tracker(node: NodeDevices, usage: Usage, asked: Asked, features: Features) -> "Sharing | None":
    """Return the tracker of an attempt; None when no claim configures what could be shared."""
    if not features.consumable_capacity:
        return None
    shared = {each.id.driver for each in node.devices if each.device.allow_multiple_allocations}
    applied = {
        (request, driver): said
        for request in _alternatives(asked)
        for driver in shared
        if (said := settings(_applying(asked, request, driver)))
    }
    return Sharing(node, usage, applied) if applied else None


def settings(parameters: Iterable[Mapping[str, Any]]) -> dict[Kind, bytes]:
    """Return what opaque parameters settle of a device that is shared, by their kind.

    Args:
        parameters: For one driver and request, in order; later ones override earlier ones.
    """
    settled = {}
    for each in parameters:
        api_version, kind = str(each.get("apiVersion", "")), str(each.get("kind", ""))
        if (api_version.partition("/")[0], kind) in _SHARING:
            said = each.get("sharing")
        else:
            said = {name: value for name, value in each.items() if name not in _HEAD}
        settled[api_version, kind] = msgspec.json.encode(said, order="deterministic")
    return settled


_HEAD: Final = frozenset({"apiVersion", "kind"})


class Sharing:
    """What the tenants of each device that can be shared have settled."""

    def __init__(
        self,
        node: NodeDevices,
        usage: Usage,
        applied: Mapping[tuple[Request, str], Mapping[Kind, bytes]],
    ) -> None:
        """Read what present tenants have settled.

        Args:
            applied: Request and driver to what it settles of the driver's devices.
        """
        self._bits: dict[tuple[Kind, bytes], int] = {}
        self._drivers = [each.id.driver for each in node.devices]
        self._shared = [bool(each.device.allow_multiple_allocations) for each in node.devices]
        uses = [usage.pools.get(pool.id, _NOT_IN_USE) for pool in node.pools]
        self._settled = [
            self._held(uses[pool].get(each.id.device)) if shared else 0
            for each, pool, shared in zip(node.devices, node.pool_of, self._shared, strict=True)
        ]
        settling = {key: self._mask(said) for key, said in applied.items()}
        self._settling = {key: (mask, self._contradicting(mask)) for key, mask in settling.items()}
        self._before: list[int] = []
        self._sees: list[Hashable] = [
            (driver, settled) if shared else None
            for driver, settled, shared in zip(
                self._drivers, self._settled, self._shared, strict=True
            )
        ]

    def sees(self, position: int) -> Hashable:
        """Return the driver of a device and what its tenants settled; None if nobody shares it."""
        return self._sees[position]

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:  # noqa: ARG002
        """Put a tenant on a device if it contradicts none of those who are there."""
        if not self._shared[position]:
            return True
        mine = self._settling.get((request, self._drivers[position]))
        if mine is None:
            return True
        settled = self._settled[position]
        if settled & mine[1]:
            return False
        self._before.append(settled)
        self._settled[position] = settled | mine[0]
        return True

    def undo(self, request: Request, position: int, *, further_share: bool) -> None:  # noqa: ARG002
        """Restore what was settled before the latest `add`."""
        if self._shared[position] and (request, self._drivers[position]) in self._settling:
            self._settled[position] = self._before.pop()

    def state(self) -> Hashable:
        """Return what is settled of each device."""
        return tuple(self._settled)

    def outlook(self, ahead: Ahead) -> Hashable:
        """Return what is settled of the devices ahead."""
        positions = ahead.positions
        return tuple(
            [
                (place, one)
                for place, one in enumerate(self._settled)
                if one and positions >> place & 1
            ]
        )

    def refusal(self, request: Request, position: int, *, further_share: bool) -> Refusal | None:  # noqa: ARG002
        """Return which kind of configuration a request contradicts."""
        mine = self._settling.get((request, self._drivers[position]))
        against = self._settled[position] & mine[1] if mine is not None else 0
        for ((_, kind), _), bit in self._bits.items():
            if against & bit:
                detail = f"its {kind or 'configuration'} contradicts that of another tenant"
                return Refusal(reason=Reason.CONFIGURATION, detail=detail)
        return None

    def _held(self, use: DeviceUse | None) -> int:
        mask = 0
        for holder in use.holders if use is not None else ():
            mask |= self._mask(settings(holder.parameters))
        return mask

    def _mask(self, settled: Mapping[Kind, bytes]) -> int:
        mask = 0
        for each in settled.items():
            mask |= self._bits.setdefault(each, 1 << len(self._bits))
        return mask

    def _contradicting(self, mask: int) -> int:
        """Return all that is known of the same kinds and said otherwise."""
        kinds = {kind for (kind, _), bit in self._bits.items() if mask & bit}
        others = sum(bit for (kind, _), bit in self._bits.items() if kind in kinds)
        return others & ~mask


def _alternatives(asked: Asked) -> Iterator[Request]:
    return (
        request for claim in asked.requests for alternatives in claim for request in alternatives
    )


def _applying(asked: Asked, request: Request, driver: str) -> Iterator[Mapping[str, Any]]:
    """Yield the parameters that a driver would be given for a request: class first, then claim."""
    names = {request.parent or request.name, request.full_name}
    opaque: list[OpaqueDeviceConfiguration | None] = [
        each.opaque for each in request.device_class.spec.config or ()
    ]
    for each in asked.claims[request.claim].spec.devices.config or ():
        if not each.requests or not names.isdisjoint(each.requests):
            opaque.append(each.opaque)
    return (each.parameters for each in opaque if each is not None and each.driver == driver)
