"""The devices of a cluster, and those that pods ask for.

What a pod asks for is read where a person wrote it, in the template of its owner: the pod itself may
have been changed on its way in.

Sources: NVIDIA/k8s-device-plugin (nvidia.com/gpu, nvidia.com/mig-PROFILE), Project-HAMi/HAMi (gpumem in
MiB, gpumem-percentage and gpucores in percent of each device; of both memories gpumem counts),
resource.k8s.io/v1.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from e2e.checker.history import (
    FINISHED,
    Object,
    State,
    controller_of,
    is_leaving,
    name_of,
    namespace_of,
    node_of,
    phase_of,
    quantity,
)

GPU: Final = "nvidia.com/gpu"
MEMORY: Final = "nvidia.com/gpumem"
MEMORY_PERCENT: Final = "nvidia.com/gpumem-percentage"
CORES: Final = "nvidia.com/gpucores"
MIG: Final = "nvidia.com/mig-"
HAMI_REGISTER: Final = "hami.io/node-nvidia-register"
HAMI_SCHEDULER: Final = "hami-scheduler"
MIB: Final = 1024**2
_OWNERS: Final = {
    "ReplicaSet": "replicasets",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "Job": "jobs",
}


class DeviceRequest(NamedTuple):
    """The devices that one container asks for.

    Attributes:
        key: Resource name whose amount is the number of devices.
        amount: The number of devices.
        profile: The profile of a MIG device; empty for others.
        memory: Bytes of each device, for a share; 0 without.
        memory_percent: Percent of each device's memory, for a share; 0 without, and beside bytes.
        cores: Percent of each device, for a share; 0 without.
    """

    key: str
    amount: int
    profile: str = ""
    memory: Decimal = Decimal(0)
    memory_percent: Decimal = Decimal(0)
    cores: Decimal = Decimal(0)

    @property
    def is_share(self) -> bool:
        """Return True if it is a part of a device."""
        return bool(self.memory or self.memory_percent or self.cores)

    def __str__(self) -> str:
        size = f" of {self.memory / MIB:.0f} MiB" if self.memory else ""
        if self.memory_percent:
            size = f" of {self.memory_percent} % of its memory"
        return f"{self.amount} {self.key}{size}"


class Device(NamedTuple):
    """A published device; its identity is driver, pool and name."""

    identity: tuple[str, str, str]
    node: str
    attributes: Mapping[str, object]
    capacity: Mapping[str, Decimal]
    is_shared: bool

    @property
    def profile(self) -> str:
        """The MIG profile; empty for others."""
        return str(self.attributes.get("profile", ""))

    def suits(self, request: DeviceRequest) -> bool:
        """Return True if it is of the kind and the size that is asked for, were it free."""
        if request.is_share:
            return self.is_shared and all(
                self.capacity.get(name, Decimal(0)) >= amount
                for name, amount in _amounts(request, self).items()
            )
        if request.profile:
            return self.profile == request.profile
        return not self.is_shared and not self.profile


class Result(NamedTuple):
    """A device that a claim has, with the part that it takes of a shared one."""

    identity: tuple[str, str, str]
    consumed: Mapping[str, Decimal]


def requests_of(pod: Object, state: State) -> list[DeviceRequest]:
    """Return the requests of a pod as in its owner's template; as in the pod without an owner."""
    owner = controller_of(pod)
    stored = None
    if owner is not None and owner["kind"] in _OWNERS:
        stored = state.find(_OWNERS[owner["kind"]], owner["uid"])
    spec = stored["spec"]["template"]["spec"] if stored is not None else pod["spec"]
    return [
        request for container in spec["containers"] for request in _container_requests(container)
    ]


def _container_requests(container: Object) -> Iterator[DeviceRequest]:
    resources = container.get("resources", {})
    amounts = {**resources.get("requests", {}), **resources.get("limits", {})}
    for key, amount in sorted(amounts.items()):
        count = int(quantity(amount)) if key == GPU or key.startswith(MIG) else 0
        if count and key == GPU:
            memory = quantity(amounts.get(MEMORY, 0)) * MIB
            yield DeviceRequest(
                key,
                count,
                memory=memory,
                memory_percent=Decimal(0) if memory else quantity(amounts.get(MEMORY_PERCENT, 0)),
                cores=quantity(amounts.get(CORES, 0)),
            )
        elif count:
            yield DeviceRequest(key, count, profile=key.removeprefix(MIG).removesuffix(".shared"))


def devices_of(piece: Object) -> Iterator[Device]:
    """Yield the devices of a ResourceSlice."""
    spec = piece["spec"]
    for device in spec.get("devices", ()):
        yield Device(
            (spec["driver"], spec["pool"]["name"], device["name"]),
            spec.get("nodeName", ""),
            {_short(name): _value(value) for name, value in device.get("attributes", {}).items()},
            {
                _short(name): quantity(entry["value"])
                for name, entry in device.get("capacity", {}).items()
            },
            bool(device.get("allowMultipleAllocations")),
        )


def results_of(claim: Object) -> list[Result]:
    """Return the devices that a claim has."""
    allocation = claim.get("status", {}).get("allocation") or {}
    return [
        Result(
            (result["driver"], result["pool"], result["device"]),
            {
                _short(name): quantity(amount)
                for name, amount in result.get("consumedCapacity", {}).items()
            },
        )
        for result in allocation.get("devices", {}).get("results", ())
    ]


def claims_of(pod: Object, state: State) -> list[Object]:
    """Return the claims of a pod, those that Kubernetes made for a resource name among them."""
    status = pod.get("status", {})
    names = {
        entry["resourceClaimName"]
        for entry in (
            *pod["spec"].get("resourceClaims", ()),
            *status.get("resourceClaimStatuses", ()),
        )
        if entry.get("resourceClaimName")
    }
    if extended := status.get("extendedResourceClaimStatus"):
        names.add(extended["resourceClaimName"])
    return [
        claim
        for claim in state.objects("resourceclaims")
        if name_of(claim) in names and namespace_of(claim) == namespace_of(pod)
    ]


def is_given(result: Result, device: Device, request: DeviceRequest) -> bool:
    """Return True if a result is one of the devices that are asked for: not smaller, and not far larger.

    All of a shared device is a whole one, as of HAMi's driver for a pod that names no memory.
    """
    if device.is_shared and not request.is_share and not request.profile:
        parts = device.capacity.items()
        return all(result.consumed.get(name, Decimal(0)) >= amount for name, amount in parts)
    if not device.suits(request):
        return False
    return all(
        amount <= result.consumed.get(name, Decimal(0)) <= 2 * amount
        for name, amount in _amounts(request, device).items()
    )


def has_room(device: Device, request: DeviceRequest, taken: Mapping[str, Decimal] | None) -> bool:
    """Return True if a device can be given.

    Args:
        taken: The amounts that claims take of it; None without a claim.
    """
    if taken is None or not device.suits(request):
        return device.suits(request)
    return request.is_share and all(
        device.capacity[name] - taken.get(name, Decimal(0)) >= amount
        for name, amount in _amounts(request, device).items()
    )


def offered(node: Object, request: DeviceRequest) -> int:
    """Return the number of requested devices that the device plugin of a node offers."""
    if offers_other_kind(node, request):
        return 0
    return int(quantity(node.get("status", {}).get("allocatable", {}).get(request.key, 0)))


def offers_other_kind(node: Object, request: DeviceRequest) -> bool:
    """Return True if a node offers shares of GPUs under the name of requested whole ones, or the other way round."""
    of_hami = HAMI_REGISTER in node["metadata"].get("annotations", {})
    return request.key == GPU and of_hami is not request.is_share


def has_whole_card_of_hami(pod: Object, node: Object) -> bool:
    """Return True if a pod got whole cards from HAMi's own scheduler, as it gives if no memory is asked for."""
    is_placed_by_hami = pod["spec"].get("schedulerName") == HAMI_SCHEDULER
    return is_placed_by_hami and HAMI_REGISTER in node["metadata"].get("annotations", {})


def used_by_keys(node: str, key: str, state: State) -> int:
    """Return the number of devices of a plugin that the pods of a node have."""
    return sum(
        int(quantity(container.get("resources", {}).get("limits", {}).get(key, 0)))
        for pod in state.objects("pods")
        if node_of(pod) == node
        and phase_of(pod) not in FINISHED
        and not is_leaving(pod)
        and not pod["spec"].get("resourceClaims")
        and not pod.get("status", {}).get("extendedResourceClaimStatus")
        for container in pod["spec"]["containers"]
    )


def _amounts(request: DeviceRequest, device: Device) -> Mapping[str, Decimal]:
    """Return the amounts of a share; a percentage of a device's memory is whole MiB, rounded down."""
    percent_mib = device.capacity.get("memory", Decimal(0)) * request.memory_percent / 100 // MIB
    named = {"memory": request.memory or percent_mib * MIB, "cores": request.cores}
    return {name: amount for name, amount in named.items() if amount}


def _short(name: str) -> str:
    """Return the name of an attribute without its domain."""
    return name.rpartition("/")[2]


def _value(attribute: Mapping[str, Any]) -> object:
    return next(iter(attribute.values()), None)
