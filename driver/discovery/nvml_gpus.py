"""NVIDIA GPUs, MIG instances that exist, and their faults, from NVML.

The library is passed in, so that a test can pass one of its own. A node without NVIDIA's driver has no
GPUs; the source says so and looks again.

Source: nvidia-ml-py 13 (pynvml); NVML API reference, docs.nvidia.com/deploy/nvml-api.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from driver.model.health import Fault
from driver.model.inventory import Inventory
from driver.model.pci import PciLocation, is_pci_address, locate
from driver.model.xids import is_of_gpu
from driver.plan.gpus import ALWAYS, Gpu, GpuOptions, MigInstance, gpu_pool, mig_name
from kube.logs import get_logger

EVENT_S: Final = 300.0
"""Seconds for which an event counts as a fault: NVML reports that something has happened, never
that it is over."""
_WAIT_MS: Final = 0
_MOST_EVENTS: Final = 64
"""The maximum number of events of a GPU read at once, so that a flood of them does not delay it."""
_CAPABILITIES: Final = "driver/nvidia/capabilities"
_MIB: Final = 2**20
_GIB: Final = 2**30

log = get_logger()


class _RecentFault(msgspec.Struct, frozen=True, kw_only=True):
    fault: Fault
    until_s: float


class NvmlGpus:
    """The GPUs of this node, and their faults."""

    def __init__(
        self,
        nvml: Any,
        *,
        sysfs: Path,
        dev: Path,
        proc: Path,
        vendor_devices: Callable[[], frozenset[str]],
        is_shared: bool,
        period_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Initialize the source.

        Args:
            nvml: The module pynvml, or what has its functions.
            sysfs: /sys of the node, for what NVML does not know of the PCI bus.
            dev: /dev of the node; only what exists there is given to containers.
            proc: /proc of the node, where MIG instances have their capabilities.
            vendor_devices: Returns the names of devices in the CDI specs of others.
            is_shared: Several claims may have a GPU at the same time.
            period_s: Seconds between reads of the devices.
            clock: Monotonic seconds.
        """
        self._nvml = nvml
        self._sysfs = sysfs
        self._dev = dev
        self._proc = proc
        self._vendor_devices = vendor_devices
        self._is_shared = is_shared
        self._period_s = period_s
        self._clock = clock
        self._gpus: tuple[Gpu, ...] = ()
        self._problem = ""
        self._is_open = False
        # All by the index of the GPU. They are replaced as a whole, since two threads read them.
        self._event_sets: Mapping[int, Any] = {}
        self._unmonitored_gpus: Mapping[int, Fault] = {}
        self._unread_gpus: Mapping[int, Fault] = {}
        self._lost_gpus: Mapping[int, Fault] = {}
        self._recent_faults: dict[str, _RecentFault] = {}

    # --- devices --------------------------------------------------------------------------------

    def discover(self) -> Inventory:
        """Return the devices that are there now; those seen last if NVML does not answer."""
        try:
            self._open()
            self._watch_events()
            self._read_all()
        except self._nvml.NVMLError as error:
            self._report(f"NVML: {error}")
        options = GpuOptions(
            is_shared=self._is_shared,
            vendor_devices=self._vendor_devices(),
            paths=self._paths(),
        )
        return Inventory(pools=(gpu_pool(self._gpus, options),))

    async def run(self, on_change: Callable[[Inventory], None]) -> None:
        """Look again and again; ends only by cancellation."""
        while True:
            await asyncio.sleep(self._period_s)
            on_change(await asyncio.to_thread(self.discover))

    def problem(self) -> str:
        """Return the reason NVML does not answer; empty when it does."""
        return self._problem

    def _open(self) -> None:
        if not self._is_open:
            self._nvml.nvmlInit()
            self._is_open = True

    def _read_all(self) -> None:
        """Read all GPUs, each on its own: an error of one hides no other."""
        version = str(self._nvml.nvmlSystemGetDriverVersion())
        gpus = {gpu.index: gpu for gpu in self._gpus}
        lost_gpus: dict[int, Fault] = {}
        unread_gpus: dict[int, Fault] = {}
        indexes = range(self._nvml.nvmlDeviceGetCount())
        for index in indexes:
            try:
                gpus[index] = self._gpu(index, version)
            except self._nvml.NVMLError_GpuIsLost as error:
                # It stays published, with a taint, so that whoever has it is told.
                lost_gpus[index] = Fault(kind="lost", message=str(error))
            except self._nvml.NVMLError as error:
                message = f"NVML cannot read GPU {index}: {error}"
                unread_gpus[index] = Fault(kind="readFailed", message=message)
        self._gpus = tuple(gpus[index] for index in indexes if index in gpus)
        self._lost_gpus, self._unread_gpus = lost_gpus, unread_gpus
        self._report("; ".join(fault.message for fault in unread_gpus.values()))

    def _gpu(self, index: int, driver_version: str) -> Gpu:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        has_mig_mode = self._has_mig_mode(handle)
        minor = nvml.nvmlDeviceGetMinorNumber(handle)
        total_bytes = nvml.nvmlDeviceGetMemoryInfo(handle).total
        mig = self._mig_instances(handle, minor, total_bytes) if has_mig_mode else ()
        return Gpu(
            index=index,
            minor=minor,
            uuid=nvml.nvmlDeviceGetUUID(handle),
            model=nvml.nvmlDeviceGetName(handle),
            memory_bytes=total_bytes,
            location=self._locate(nvml.nvmlDeviceGetPciInfo(handle)),
            driver_version=driver_version,
            compute_capability=self._value_or_none(nvml.nvmlDeviceGetCudaComputeCapability, handle),
            has_mig_mode=has_mig_mode,
            mig=tuple(mig),
        )

    def _has_mig_mode(self, handle: Any) -> bool:
        mode = self._value_or_none(self._nvml.nvmlDeviceGetMigMode, handle)
        return mode is not None and bool(mode[0] == self._nvml.NVML_DEVICE_MIG_ENABLE)

    def _mig_instances(self, parent: Any, minor: int, total_bytes: int) -> Iterator[MigInstance]:
        nvml = self._nvml
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(parent)):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, index)
            except (nvml.NVMLError_NotFound, nvml.NVMLError_InvalidArgument):
                continue
            size = nvml.nvmlDeviceGetAttributes(handle)
            gpu_instance = nvml.nvmlDeviceGetGpuInstanceId(handle)
            compute_instance = nvml.nvmlDeviceGetComputeInstanceId(handle)
            yield MigInstance(
                uuid=nvml.nvmlDeviceGetUUID(handle),
                profile=_profile(size, total_bytes),
                memory_bytes=size.memorySizeMB * _MIB,
                index=index,
                gpu_instance=gpu_instance,
                compute_instance=compute_instance,
                device_nodes=self._capabilities(minor, gpu_instance, compute_instance),
            )

    def _value_or_none(self, ask: Callable[[Any], Any], handle: Any) -> Any:
        """Return the GPU's answer; None if it has none."""
        try:
            return ask(handle)
        except self._nvml.NVMLError_NotSupported:
            return None

    def _locate(self, pci: Any) -> PciLocation:
        address = pci_address(pci)
        devices = (self._sysfs / "devices").resolve()
        link = self._sysfs / "bus" / "pci" / "devices" / address
        real = link.resolve()
        below = real.relative_to(devices).as_posix() if real.is_relative_to(devices) else ""
        return locate(address, below, _text(link / "numa_node"))

    def _capabilities(
        self, minor: int, gpu_instance: int, compute_instance: int
    ) -> tuple[str, ...]:
        """Return the device nodes that a container needs for a MIG instance.

        Source: NVIDIA MIG user guide, "Device nodes and capabilities".
        """
        part = self._proc / _CAPABILITIES / f"gpu{minor}" / "mig" / f"gi{gpu_instance}"
        files = (part / "access", part / f"ci{compute_instance}" / "access")
        numbers = (_field(_text(file), "DeviceFileMinor") for file in files)
        return tuple(f"/dev/nvidia-caps/nvidia-cap{number}" for number in numbers if number)

    def _paths(self) -> frozenset[str]:
        names = [
            *(f"/dev/nvidia{gpu.minor}" for gpu in self._gpus),
            *ALWAYS,
            *(path for gpu in self._gpus for mig in gpu.mig for path in mig.device_nodes),
        ]
        return frozenset(
            name for name in names if (self._dev / name.removeprefix("/dev/")).exists()
        )

    def _report(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.warning("gpus.not_read", error=problem)
        self._problem = problem

    # --- faults ---------------------------------------------------------------------------------

    def read(self) -> Mapping[str, Fault]:
        """Return the faults of the GPUs that were discovered last."""
        now_s = self._clock()
        for event_set in self._event_sets.values():
            self._read_events(event_set, now_s)
        self._recent_faults = {
            name: fault for name, fault in self._recent_faults.items() if fault.until_s > now_s
        }
        event_faults = {name: event.fault for name, event in self._recent_faults.items()}
        return {
            **self._by_name(self._unmonitored_gpus),
            **self._by_name(self._unread_gpus),
            **event_faults,
            **self._by_name(self._lost_gpus),
        }

    def _by_name(self, faults: Mapping[int, Fault]) -> Mapping[str, Fault]:
        """Return device to the fault of its GPU."""
        faulty_gpus = [gpu for gpu in self._gpus if gpu.index in faults]
        return {name: faults[gpu.index] for gpu in faulty_gpus for name in _names(gpu)}

    def _watch_events(self) -> None:
        """Register the GPUs without an event set; failures are tried again with the next discovery."""
        nvml = self._nvml
        event_sets = dict(self._event_sets)
        unmonitored_gpus: dict[int, Fault] = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                if index not in event_sets:
                    event_sets[index] = self._event_set(index)
            except nvml.NVMLError as error:
                message = f"NVML has no events of this GPU: {error}"
                unmonitored_gpus[index] = Fault(kind="unmonitored", message=message)
        self._event_sets, self._unmonitored_gpus = event_sets, unmonitored_gpus

    def _event_set(self, index: int) -> Any:
        """Return a set with the events of one GPU.

        Each GPU has its own: after an unknown error the state of the set is undefined.

        Source: NVML API reference, nvmlDeviceRegisterEvents.
        """
        nvml = self._nvml
        kinds = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        event_types = nvml.nvmlDeviceGetSupportedEventTypes(handle)
        event_set = nvml.nvmlEventSetCreate()
        try:
            nvml.nvmlDeviceRegisterEvents(handle, kinds & event_types, event_set)
        except nvml.NVMLError:
            nvml.nvmlEventSetFree(event_set)
            raise
        return event_set

    def _read_events(self, event_set: Any, now_s: float) -> None:
        nvml = self._nvml
        for _ in range(_MOST_EVENTS):
            try:
                event = nvml.nvmlEventSetWait_v2(event_set, _WAIT_MS)
            except nvml.NVMLError_Timeout:
                return
            except nvml.NVMLError as error:
                self._report(f"NVML: {error}")
                return
            self._add_event(event, now_s)

    def _add_event(self, event: Any, now_s: float) -> None:
        fault = self._fault(event)
        if fault is None:
            return
        try:
            uuid = self._nvml.nvmlDeviceGetUUID(event.device)
        except self._nvml.NVMLError:
            uuid = ""  # Nobody knows which; then it is all of them.
        for gpu in self._gpus:
            if uuid in {"", gpu.uuid}:
                for name in _names(gpu, event.gpuInstanceId):
                    self._recent_faults[name] = _RecentFault(fault=fault, until_s=now_s + EVENT_S)

    def _fault(self, event: Any) -> Fault | None:
        if event.eventType == self._nvml.nvmlEventTypeDoubleBitEccError:
            return Fault(kind="ecc", message="uncorrectable memory error")
        if is_of_gpu(event.eventData):
            return Fault(kind="xid", message=f"Xid {event.eventData}")
        return None


def _names(gpu: Gpu, gpu_instance: int | None = None) -> tuple[str, ...]:
    """Return the devices of a GPU that a fault is about: those of one GPU instance, or all."""
    partitions = [mig for mig in gpu.mig if mig.gpu_instance == gpu_instance] or gpu.mig
    return tuple(mig_name(gpu, mig) for mig in partitions) if gpu.has_mig_mode else (gpu.name,)


def pci_address(pci: Any) -> str:
    """Return the address of a GPU as Linux writes it; NVML writes eight digits of the domain."""
    text = pci.busId.decode() if isinstance(pci.busId, bytes) else str(pci.busId)
    domain, _, rest = text.lower().partition(":")
    address = f"{domain[-4:]}:{rest}"
    return address if is_pci_address(address) else text.lower()


def _profile(size: Any, total_bytes: int) -> str:
    """Return the profile of a MIG instance, as `nvidia-smi` writes it: `1g.10gb`, `1c.3g.40gb`.

    An instance has some less than the eighths of the memory that its name tells.

    Source: NVIDIA/go-nvlib v0.7, pkg/nvlib/device/mig_profile.go, getMigMemorySizeGB.
    """
    eighths = -(-size.memorySizeMB * _MIB * 8 // total_bytes)
    memory = round(eighths * -(-total_bytes // _GIB) / 8)
    slices, compute = size.gpuInstanceSliceCount, size.computeInstanceSliceCount
    prefix = f"{compute}c." if compute != slices else ""
    return f"{prefix}{slices}g.{memory}gb"


def _field(text: str, name: str) -> str:
    """Return the value of a line `name: value`; empty if there is none."""
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
