"""NVML without a GPU: the functions of pynvml that the driver calls, on machines that a test describes.

Errors and constants are the library's own. tests/driver compares the signatures with pynvml's.
"""

# ruff: noqa: N802, N803, N815 - names and arguments are pynvml's

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pynvml

GIB: Final = 2**30


class FakeMig(msgspec.Struct, kw_only=True):
    """A MIG device; its handle is the value itself."""

    uuid: str
    slices: int
    memory_mib: int
    gpu_instance: int
    compute_instance: int = 0
    compute_slices: int | None = None


class FakeGpu(msgspec.Struct, kw_only=True):
    """A GPU; its handle is the value itself.

    Attributes:
        mig: None where the GPU cannot do MIG; else its instances by index, with gaps.
        has_events: NVML tells its events.
        is_lost: It has fallen off the bus.
        error: The code of the error that NVML has for it; 0 if none.
        events_error: The code of the error of a registration for its events; 0 if none.
    """

    uuid: str
    minor: int
    bus_id: str
    name: str = "NVIDIA H100 80GB HBM3"
    memory_bytes: int = 80 * GIB
    capability: tuple[int, int] | None = (9, 0)
    mig: Sequence[FakeMig | None] | None = None
    has_events: bool = True
    is_lost: bool = False
    error: int = 0
    events_error: int = 0


class FakeEventSet:
    """A set of the events of some GPUs; its handle is the value itself."""

    def __init__(self) -> None:
        self.gpus: list[FakeGpu] = []
        self.is_defined = True


def _raise(code: int) -> Any:
    raise pynvml.NVMLError(code)


class FakeNvml:
    """A machine's NVML.

    Attributes:
        gpus: The GPUs by index.
        is_loaded: NVIDIA's driver is there.
        events: The events that were not yet waited for.
    """

    NVMLError = pynvml.NVMLError
    NVMLError_GpuIsLost = pynvml.NVMLError_GpuIsLost
    NVMLError_InvalidArgument = pynvml.NVMLError_InvalidArgument
    NVMLError_NotFound = pynvml.NVMLError_NotFound
    NVMLError_NotSupported = pynvml.NVMLError_NotSupported
    NVMLError_Timeout = pynvml.NVMLError_Timeout
    NVML_DEVICE_MIG_ENABLE = pynvml.NVML_DEVICE_MIG_ENABLE
    nvmlEventTypeDoubleBitEccError = pynvml.nvmlEventTypeDoubleBitEccError
    nvmlEventTypeXidCriticalError = pynvml.nvmlEventTypeXidCriticalError

    def __init__(self, *gpus: FakeGpu, version: str = "580.65.06") -> None:
        self.gpus = list(gpus)
        self.is_loaded = True
        self.events: list[Any] = []
        self._version = version
        self._is_open = False

    def tell(self, gpu: FakeGpu, kind: int, data: int = 0, gpu_instance: int = 2**32 - 1) -> None:
        """Have an event happen."""
        self.events.append(
            SimpleNamespace(device=gpu, eventType=kind, eventData=data, gpuInstanceId=gpu_instance)
        )

    # --- as pynvml has them ----------------------------------------------------------------------

    def nvmlInit(self) -> None:
        if not self.is_loaded:
            _raise(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
        self._is_open = True

    def nvmlSystemGetDriverVersion(self) -> str:
        return self._version

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus) if self._is_open else _raise(pynvml.NVML_ERROR_UNINITIALIZED)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        gpu = self.gpus[index]
        if gpu.error:
            _raise(gpu.error)
        return _raise(pynvml.NVML_ERROR_GPU_IS_LOST) if gpu.is_lost else gpu

    def nvmlDeviceGetUUID(self, handle: FakeGpu | FakeMig) -> str:
        return handle.uuid

    def nvmlDeviceGetName(self, handle: FakeGpu) -> str:
        return handle.name

    def nvmlDeviceGetMinorNumber(self, handle: FakeGpu) -> int:
        return handle.minor

    def nvmlDeviceGetMemoryInfo(self, handle: FakeGpu, version: Any = None) -> Any:
        return SimpleNamespace(total=handle.memory_bytes)

    def nvmlDeviceGetPciInfo(self, handle: FakeGpu) -> Any:
        return SimpleNamespace(busId=handle.bus_id)

    def nvmlDeviceGetCudaComputeCapability(self, handle: FakeGpu) -> tuple[int, int]:
        return handle.capability or _raise(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetMigMode(self, device: FakeGpu) -> list[int]:
        if device.mig is None:
            _raise(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [pynvml.NVML_DEVICE_MIG_ENABLE, pynvml.NVML_DEVICE_MIG_ENABLE]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: FakeGpu) -> int:
        return len(device.mig or ())

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: FakeGpu, index: int) -> FakeMig:
        return (device.mig or ())[index] or _raise(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetAttributes(self, device: FakeMig) -> Any:
        return SimpleNamespace(
            memorySizeMB=device.memory_mib,
            gpuInstanceSliceCount=device.slices,
            computeInstanceSliceCount=device.compute_slices or device.slices,
        )

    def nvmlDeviceGetGpuInstanceId(self, device: FakeMig) -> int:
        return device.gpu_instance

    def nvmlDeviceGetComputeInstanceId(self, device: FakeMig) -> int:
        return device.compute_instance

    def nvmlEventSetCreate(self) -> FakeEventSet:
        return FakeEventSet()

    def nvmlEventSetFree(self, eventSet: FakeEventSet) -> None:
        eventSet.is_defined = False

    def nvmlDeviceGetSupportedEventTypes(self, handle: FakeGpu) -> int:
        if not handle.has_events:
            _raise(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return int(pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError)

    def nvmlDeviceRegisterEvents(
        self, handle: FakeGpu, eventTypes: int, eventSet: FakeEventSet
    ) -> None:
        if handle.events_error:
            eventSet.is_defined = False
            _raise(handle.events_error)
        eventSet.gpus.append(handle)

    def nvmlEventSetWait_v2(self, eventSet: FakeEventSet, timeoutms: int) -> Any:
        if not eventSet.is_defined:
            _raise(pynvml.NVML_ERROR_UNKNOWN)
        events = [event for event in self.events if event.device in eventSet.gpus]
        if not events:
            _raise(pynvml.NVML_ERROR_TIMEOUT)
        self.events.remove(events[0])
        return events[0]
