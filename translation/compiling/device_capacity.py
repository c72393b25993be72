"""The amounts of capacity that one intent requests of a device, and those that a driver lacks."""

from typing import Final

from findings.field_path import Key
from findings.finding import Code, Finding, error, warning
from findings.text import printable
from kube.api.resource import MAX_ALTERNATIVES
from kube.quantity import Quantity
from translation.compiling.device_configs import check_feature_gate
from translation.model.intents import DeviceKind, Intent
from translation.profiles.device_facts import Facts
from translation.profiles.profile import DeviceProfile, Profile, Sharing
from translation.vocabularies.nvidia import keep_setting

_MEBIBYTE: Final = Quantity("1Mi")
_MAX_SIZES: Final = 3
"""Sizes of memory for which a finding names the amount."""
_WITHOUT_MEMORY: Final = frozenset({DeviceKind.NIC, DeviceKind.FPGA})


class CapacityCompiler:
    """Compiles the amounts of one intent, and adds findings to a list."""

    def __init__(
        self,
        profile: Profile,
        device: DeviceProfile,
        facts: Facts,
        intent: Intent,
        findings: list[Finding],
        *,
        shared: bool,
    ) -> None:
        """Keep the values that decide the amounts.

        Args:
            shared: Several claims may be allocated a device.
        """
        self._profile = profile
        self._device = device
        self._facts = facts
        self._intent = intent
        self._findings = findings
        self._shared = shared
        self._unsupported = (
            Code.UNSUPPORTED_AS_PUBLISHED
            if device.sharing is Sharing.PUBLISHED
            else Code.CANNOT_EXPRESS
        )

    def capacity(self) -> dict[str, Quantity]:
        """Return the amounts that do not depend on the device's size."""
        intent = self._intent
        if intent.replica:
            return self._replica()
        if intent.through_mps:
            return self._through_mps()
        if intent.kind is DeviceKind.MIG:
            return {}
        if intent.kind in _WITHOUT_MEMORY and intent.cores_percent is not None:
            return self._part_of_other(intent.cores_percent)
        return self._all_of_it() if intent.exclusive else self._share()

    def _share(self) -> dict[str, Quantity]:
        """Return the requested amounts of memory and cores."""
        intent = self._intent
        capacity: dict[str, Quantity] = {}
        if not self._shared and intent.pool:
            self._warn(
                Code.ONE_OF_POOL,
                "count",
                f"the share of a pool, which reaches all its NICs and leaves them on the host, becomes "
                f"one NIC for this pod alone: {self._profile.driver} does not share its devices, and "
                "moves the interface out of the host",
            )
        if not self._shared and (intent.memory or intent.memory_percent or intent.cores_percent):
            self._warn_whole_device()
        if intent.memory is not None:
            if self._device.memory is None:
                self._fail(
                    Code.CANNOT_EXPRESS, "memory", f"{self._profile.driver} publishes no memory"
                )
            else:
                capacity[self._device.memory] = intent.memory
        if self._shared and intent.cores_percent == 100:
            # HAMi gives such a container a GPU of its own; a claim can only consume all its cores.
            self._warn(
                Code.NOT_EXCLUSIVE,
                "cores",
                "all cores and an amount of memory: unless it is all of the device's, containers without a "
                "limit of cores may get the rest",
            )
        if intent.bandwidth is not None and isinstance(self._device.bandwidth, str):
            capacity[self._device.bandwidth] = intent.bandwidth
        return capacity | self._cores() | self._tflops()

    def _tflops(self) -> dict[str, Quantity]:
        amount = self._intent.tflops
        if amount is None:
            return {}
        if isinstance(self._device.tflops, str) and self._shared:
            return {self._device.tflops: amount}
        if self._shared:
            self._warn(
                Code.NOT_PUBLISHED_BY_DRIVER,
                "tflops",
                f"{self._profile.driver} publishes no TFLOPS: the compute is neither reserved nor "
                "limited; a percentage is",
            )
        return {}

    def _part_of_other(self, percent: int) -> dict[str, Quantity]:
        """Return the share of a device without memory, such as a NIC."""
        if not self._shared:
            if percent < 100:
                self._warn_whole_device()
            return {}
        if self._device.cores is not None:
            return self._cores()
        if percent == 100:
            self._warn_not_exclusive()
        return {}

    def _cores(self) -> dict[str, Quantity]:
        percent = self._intent.cores_percent
        if percent is None:
            return {}
        if self._device.cores is None:
            if percent == 0 and self._shared and self._intent.kind is DeviceKind.HCU:
                self._warn(
                    Code.WHOLE_DEVICE,
                    "cores",
                    f"no cores are requested, and {self._profile.driver} gives all of them, so nobody else "
                    "gets any; a profile that says how cores are counted ends it",
                )
            if self._intent.takes_part_of_cores and isinstance(self._device.compute_units, str):
                self._check_compute_units()
                return {}
            # 0 is no limit, and an unshared device always has all of its cores.
            if percent and not (percent == 100 and not self._shared):
                self._fail(
                    self._unsupported if percent == 100 else Code.CANNOT_EXPRESS,
                    "cores",
                    f"{self._profile.driver} publishes no share of compute",
                    "remove the cores, or let a driver that shares them serve hami"
                    if self._intent.kind is DeviceKind.GPU
                    else "remove the cores, or say in a profile which capacity they are",
                )
            return {}
        # Explicitly, even for 0: the default of a capacity may be all of it. A small share must not
        # become 0, which is no limit.
        share = percent * self._device.cores.whole // 100
        return {self._device.cores.capacity: Quantity(max(share, min(percent, 1)))}

    def _check_compute_units(self) -> None:
        """Add an error if the cores are a percentage of an unknown number.

        Known numbers are amounts of the request's alternatives, not of the request.
        """
        intent, numbers = self._intent, self._facts.compute_units or ()
        takes_part_of_default = self._facts.default_is_part and intent.takes_all_memory
        if intent.memory_percent is not None or takes_part_of_default:
            self._fail(
                Code.CANNOT_EXPRESS,
                "cores",
                "the memory has an alternative per memory size of devices, and the cores would have one per "
                "number of compute units",
                "request an amount of memory, or say the number of compute units in a profile (cores.whole)",
            )
        elif not numbers:
            self._fail(
                Code.CANNOT_EXPRESS,
                "cores",
                f"{intent.cores_percent} percent of an unknown number of compute units: "
                f"{self._profile.driver} has published no device with one",
                "remove the cores, or provide the inventory (--snapshot), or say the number in a profile "
                "(cores.whole)",
            )
        elif len(numbers) > MAX_ALTERNATIVES:
            self._fail(
                Code.CANNOT_EXPRESS,
                "cores",
                f"devices with {len(numbers)} different numbers of compute units are published, and a request has "
                f"at most {MAX_ALTERNATIVES} alternatives",
                "remove the cores, or say one number in a profile (cores.whole)",
            )

    def _all_of_it(self) -> dict[str, Quantity]:
        # The memory is left out: the default is all of it, or `_alternatives` has every size.
        if not self._shared:
            return {}
        capacity: dict[str, Quantity] = {}
        if self._device.cores is not None:
            capacity[self._device.cores.capacity] = Quantity(self._device.cores.whole)
        counts = self._facts.replicas or ()
        if self._device.replicas is not None and len(counts) == 1:
            capacity[self._device.replicas] = Quantity(counts[0])
        elif counts or self._facts.default_is_part or not (capacity or self._device.memory):
            # Of a device without amounts, such as most NICs, a claim consumes nothing.
            self._warn_not_exclusive()
        return capacity

    def _replica(self) -> dict[str, Quantity]:
        name = self._device.replicas
        if name is None or self._facts.replicas == ():
            self._fail(
                Code.CANNOT_EXPRESS if name is None else Code.UNSUPPORTED_AS_PUBLISHED,
                "count",
                f"{self._profile.driver} publishes no replicas of a GPU",
                "run the driver with a number of consumable shares, or request a whole GPU (nvidia.com/gpu), or, where HAMi "
                "serves the nodes, a share with its memory (nvidia.com/gpu with nvidia.com/gpumem); or leave the key "
                f"with its device plugin ({keep_setting(self._name_of_count())})",
            )
            return {}
        if self._facts.replicas is None:
            self._warn(
                Code.NOT_PUBLISHED_BY_DRIVER,
                "count",
                f"no inventory shows that {self._profile.driver} publishes capacity {name}",
            )
        return {name: Quantity(1)}

    def _name_of_count(self) -> str:
        """Return the resource name that requests devices; empty if annotations do."""
        path = self._intent.paths.get("count")
        step = path.steps[-1] if path is not None and path.steps else None
        return step.name if isinstance(step, Key) else ""

    def _through_mps(self) -> dict[str, Quantity]:
        if self._device.mps is None:
            self._fail(Code.CANNOT_EXPRESS, "mode", f"{self._profile.driver} starts no MPS server")
        elif self._shared:
            self._fail(
                self._unsupported,
                "mode",
                f"{self._profile.driver} starts no MPS server on devices that it shares itself",
                "remove the vgpu-mode, or publish the devices without consumable shares",
            )
        elif self._intent.memory_percent is not None:
            self._fail(
                Code.MEMORY_AMOUNT_REQUIRED,
                "memory",
                f"in vgpu-mode mps an MPS server limits memory in bytes, and "
                f"{self._intent.memory_percent} percent is another amount on each type of GPU",
                self._amounts_of_percentage(self._intent.memory_percent)
                or "request an amount of memory, not a percentage",
            )
        else:
            self._warn(
                Code.SHARED_WITHIN_POD_ONLY,
                "mode",
                "the MPS server serves only this pod; other pods do not share its GPU",
            )
        if self._device.mps is not None and not self._shared:
            self._findings += check_feature_gate(self._intent, self._profile, self._device.mps)
        return {}

    def _amounts_of_percentage(self, percent: int) -> str:
        """Return the amount of each size of memory that devices have, in the key for amounts; empty if there is none."""
        path = self._intent.paths.get("amount")
        if path is None or not isinstance(path.steps[-1], Key):
            return ""
        key = printable(path.steps[-1].name)
        # Of equal amounts of MiB one is enough.
        amounts = {
            memory.size.nanos * percent // 100 // _MEBIBYTE.nanos: memory.size
            for memory in self._facts.sizes or ()
        }
        if not amounts:
            return f"write {key}, in MiB, in its place"
        texts = [
            f"{key}: {amount} for {percent} percent of {size}" for amount, size in amounts.items()
        ]
        return f"in its place write {' or '.join(texts[:_MAX_SIZES])}"

    # --- findings

    def _warn_whole_device(self) -> None:
        self._warn(
            Code.WHOLE_DEVICE,
            "count",
            f"{self._profile.driver} does not share its devices: the share becomes a whole device",
        )

    def _warn_not_exclusive(self) -> None:
        self._warn(
            Code.NOT_EXCLUSIVE,
            "count",
            "the driver allows any number of consumers: others may share the device",
        )

    def _fail(self, code: Code, aspect: str, message: str, fix: str = "") -> None:
        self._findings.append(error(code, self._intent.path(aspect), message, fix))

    def _warn(self, code: Code, aspect: str, message: str) -> None:
        self._findings.append(warning(code, self._intent.path(aspect), message))
