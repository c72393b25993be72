"""Sharing configurations of co-tenants; some drivers require them to agree.

A device has one time-slice interval and one MPS daemon, however many claims share it. Yet each claim
may bring opaque parameters of its own, which upstream does not read. Drivers in
`UNIFORM_CONFIG_DRIVERS` compare the parameters when they prepare the second claim, and reject it if
they contradict; its pod then stays in ContainerCreating. Unlike upstream, the constraint rejects such
a device while there may be another one, for the drivers that the options name
(docs/adr/0016-configurations-of-co-tenants.md).

Two configurations contradict if they have the same apiVersion and kind, and differ in what configures
the device: in `sharing` for kinds that are known to keep it there, in all other members for other
kinds. Of several of one kind the last counts, as it does for drivers. No configuration of a kind
contradicts nothing, since the driver's default is unknown. Two requests of one claim can contradict
each other like two claims.

Source: kubernetes-sigs/dra-driver-nvidia-gpu, cmd/gpu-kubelet-plugin/consumable_shares.go, and
api/nvidia.com/resource/v1beta1/gpuconfig.go, Normalize; kubernetes-sigs/dra-example-driver, GpuConfig.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from allocator.model.constraint import RemainingDemand
from allocator.model.devices import DeviceId, NodeDevices
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason, RejectionReason, Verb
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims, Request
from allocator.model.usage import Consumer, DeviceUse, PoolUse, Usage
from kube.api.resource import OpaqueDeviceConfiguration
from kube.names import GROUP

UNIFORM_CONFIG_DRIVERS: Final = frozenset({f"gpu.{GROUP}", "gpu.nvidia.com"})
"""Drivers that are known to reject contradicting configurations when they prepare a claim."""

_SHARING: Final = frozenset(
    {
        ("resource.nvidia.com", "GpuConfig"),
        ("resource.nvidia.com", "MigDeviceConfig"),
        ("gpu.resource.example.com", "GpuConfig"),
        (GROUP, "DeviceConfig"),
    }
)
"""API group and kind of parameters that configure a shared device by their member `sharing`."""

_DEFAULTS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "TimeSlicing": ("timeSlicingConfig", {"interval": "Default"}),
    "MPS": ("mpsConfig", {}),
}
"""Sharing strategy to the member that drivers add if it is missing, and its value."""

_TYPE: Final = frozenset({"apiVersion", "kind"})
_NOT_IN_USE: Final[PoolUse] = {}

Kind = tuple[str, str]
"""apiVersion and kind of opaque parameters."""


class Contradiction(msgspec.Struct, frozen=True, kw_only=True):
    """A shared device with co-tenants that have contradicting configurations.

    Attributes:
        kind: Kind of the contradicting parameters; empty if they have none.
        consumers: The claims that use the device with a configuration of that kind.
    """

    device: DeviceId
    kind: str
    consumers: tuple[Consumer, ...] = ()


def device_settings(parameters: Iterable[Mapping[str, Any]]) -> dict[Kind, bytes]:
    """Return the settings of a shared device in opaque parameters, by their kind.

    Args:
        parameters: The opaque parameters for one driver and request, in order; later ones override
            earlier ones.
    """
    settings = {}
    for entry in parameters:
        api_version, kind = str(entry.get("apiVersion", "")), str(entry.get("kind", ""))
        if (api_version.partition("/")[0], kind) in _SHARING:
            value = _with_defaults(entry.get("sharing"))
        else:
            value = {name: member for name, member in entry.items() if name not in _TYPE}
        settings[api_version, kind] = msgspec.json.encode(value, order="deterministic")
    return settings


def find_contradictions(usage: Usage, drivers: Collection[str]) -> tuple[Contradiction, ...]:
    """Return the contradictions between claims that are allocated already, by device.

    Args:
        usage: Usage by allocated claims.
        drivers: Drivers that require configurations to agree.
    """
    contradictions: list[Contradiction] = []
    for pool, pool_use in usage.pools.items():
        if pool.driver not in drivers:
            continue
        for name, use in pool_use.items():
            device = DeviceId(pool.driver, pool.pool, name)
            contradictions += contradictions_on(device, use)
    return tuple(
        sorted(contradictions, key=lambda contradiction: (contradiction.device, contradiction.kind))
    )


def audit_plan(
    plan: Plan,
    node: NodeDevices,
    usage: Usage,
    pending: PendingClaims,
    *,
    drivers: Collection[str],
    features: Features,
) -> tuple[Contradiction, ...]:
    """Return the contradictions that a plan of a scheduler without this constraint would cause.

    Args:
        plan: The plan for the claims on the node.
        node: Devices of the node.
        usage: Usage by allocated claims, without the plan.
        pending: The claims.
        drivers: Drivers that require configurations to agree.
        features: Feature gates.
    """
    constraint = build_constraint(node, usage, pending, drivers, features)
    if constraint is None:
        return ()
    contradictions = []
    for choice in (choice for claim in plan.choices for choice in claim):
        position = node.positions[choice.device.id]
        if not constraint.add(choice.request, position, further_share=False):
            kind = constraint.contradicting_kind(choice.request, position) or ""
            contradictions.append(Contradiction(device=choice.device.id, kind=kind))
    return tuple(contradictions)


def build_constraint(
    node: NodeDevices,
    usage: Usage,
    pending: PendingClaims,
    drivers: Collection[str],
    features: Features,
) -> "CoTenantConfigConstraint | None":
    """Build the constraint of an attempt; None if no claim configures a device that can be shared.

    Args:
        node: Devices of the node.
        usage: Usage by allocated claims.
        pending: The claims.
        drivers: Drivers that require configurations to agree.
        features: Feature gates.
    """
    if not features.consumable_capacity or not drivers:
        return None
    shareable = {
        device.id.driver
        for device in node.devices
        if device.device.allow_multiple_allocations and device.id.driver in drivers
    }
    requested_settings = {
        (request, driver): settings
        for request in _alternatives(pending)
        for driver in shareable
        if (settings := device_settings(_parameters(pending, request, driver)))
    }
    return (
        CoTenantConfigConstraint(node, usage, drivers, requested_settings)
        if requested_settings
        else None
    )


class CoTenantConfigConstraint:
    """The settings by the consumers of each device that can be shared."""

    def __init__(
        self,
        node: NodeDevices,
        usage: Usage,
        drivers: Collection[str],
        requested_settings: Mapping[tuple[Request, str], Mapping[Kind, bytes]],
    ) -> None:
        """Read the settings by present consumers.

        Args:
            node: Devices of the node.
            usage: Usage by allocated claims.
            drivers: Drivers that require configurations to agree.
            requested_settings: Request and driver to the settings for devices of the driver.
        """
        self._bits: dict[tuple[Kind, bytes], int] = {}
        self._drivers = [device.id.driver for device in node.devices]
        self._shareable = [
            bool(device.device.allow_multiple_allocations) and device.id.driver in drivers
            for device in node.devices
        ]
        uses = [usage.pools.get(pool.id, _NOT_IN_USE) for pool in node.pools]
        self._settings = [
            self._used_settings(uses[pool].get(device.id.device)) if shareable else 0
            for device, pool, shareable in zip(
                node.devices, node.pool_of, self._shareable, strict=True
            )
        ]
        masks = {key: self._mask(settings) for key, settings in requested_settings.items()}
        self._requested = {key: (mask, self._contradicting(mask)) for key, mask in masks.items()}
        self._before: list[int] = []
        self._keys: list[Hashable] = [
            (driver, settings) if shareable else None
            for driver, settings, shareable in zip(
                self._drivers, self._settings, self._shareable, strict=True
            )
        ]

    def equivalence_key(self, position: int) -> Hashable:
        """Return driver and settings of a device; None if it cannot be shared."""
        return self._keys[position]

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:
        """Add a consumer to a device if its settings contradict no co-tenant's."""
        if not self._shareable[position]:
            return True
        requested_settings = self._requested.get((request, self._drivers[position]))
        if requested_settings is None:
            return True
        own, contradicting = requested_settings
        settings = self._settings[position]
        if settings & contradicting:
            return False
        self._before.append(settings)
        self._settings[position] = settings | own
        return True

    def remove(self, request: Request, position: int, *, further_share: bool) -> None:
        """Restore the settings from before the latest `add`."""
        if self._shareable[position] and (request, self._drivers[position]) in self._requested:
            self._settings[position] = self._before.pop()

    def state_key(self) -> Hashable:
        """Return the settings of each device."""
        return tuple(self._settings)

    def residual_key(self, remaining: RemainingDemand) -> Hashable:
        """Return the settings of the remaining devices."""
        positions = remaining.positions
        return tuple(
            [
                (position, settings)
                for position, settings in enumerate(self._settings)
                if settings and positions >> position & 1
            ]
        )

    def rejection(
        self, request: Request, position: int, *, further_share: bool
    ) -> RejectionReason | None:
        """Return the kind of configuration that a request would contradict."""
        kind = self.contradicting_kind(request, position)
        if kind is None:
            return None
        return RejectionReason(
            reason=Reason.CONFLICTING_SHARING_CONFIG,
            verb=Verb.HAVE,
            subject="a co-tenant with a conflicting",
            value=kind or "configuration",
        )

    def contradicting_kind(self, request: Request, position: int) -> str | None:
        """Return the kind of configuration that a request would contradict; None if there is none."""
        if not self._shareable[position]:
            return None
        _, contradicting = self._requested.get((request, self._drivers[position]), (0, 0))
        conflict = self._settings[position] & contradicting
        return next((kind for ((_, kind), _), bit in self._bits.items() if conflict & bit), None)

    def _used_settings(self, use: DeviceUse | None) -> int:
        mask = 0
        for consumer in use.consumers if use is not None else ():
            mask |= self._mask(device_settings(consumer.parameters))
        return mask

    def _mask(self, settings: Mapping[Kind, bytes]) -> int:
        mask = 0
        for setting in settings.items():
            mask |= self._bits.setdefault(setting, 1 << len(self._bits))
        return mask

    def _contradicting(self, mask: int) -> int:
        """Return a mask of all known settings of the same kinds with another value."""
        kinds = {kind for (kind, _), bit in self._bits.items() if mask & bit}
        same_kinds = sum(bit for (kind, _), bit in self._bits.items() if kind in kinds)
        return same_kinds & ~mask


def contradictions_on(device: DeviceId, use: DeviceUse) -> Iterator[Contradiction]:
    """Yield the contradictions between the claims that use a device."""
    consumers_of: dict[Kind, dict[bytes, list[Consumer]]] = {}
    for consumer in use.consumers:
        if consumer.share_id is not None:
            for type_, value in device_settings(consumer.parameters).items():
                consumers_of.setdefault(type_, {}).setdefault(value, []).append(consumer)
    for (_, kind), by_value in consumers_of.items():
        if len(by_value) > 1:
            consumers = tuple(consumer for same in by_value.values() for consumer in same)
            yield Contradiction(device=device, kind=kind, consumers=consumers)


def _with_defaults(sharing: object) -> object:
    """Return the member `sharing` with the defaults that drivers add."""
    if not isinstance(sharing, dict):
        return sharing
    present = {name: value for name, value in sharing.items() if value is not None}
    name, default = _DEFAULTS.get(str(present.get("strategy")), ("", {}))
    return {name: default, **present} if name else present


def _alternatives(pending: PendingClaims) -> Iterator[Request]:
    return (
        request
        for claim_requests in pending.requests
        for alternatives in claim_requests
        for request in alternatives
    )


def _parameters(
    pending: PendingClaims, request: Request, driver: str
) -> Iterator[Mapping[str, Any]]:
    """Yield the parameters of a request for a driver: those of the class, then of the claim."""
    names = {request.parent or request.name, request.full_name}
    opaque: list[OpaqueDeviceConfiguration | None] = [
        entry.opaque for entry in request.device_class.spec.config or ()
    ]
    for entry in pending.claims[request.claim].spec.devices.config or ():
        if not entry.requests or not names.isdisjoint(entry.requests):
            opaque.append(entry.opaque)
    return (
        configuration.parameters
        for configuration in opaque
        if configuration is not None and configuration.driver == driver
    )
