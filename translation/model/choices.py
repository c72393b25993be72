"""The operator's choices for behavior of the legacy system that a claim cannot express in full.

They are part of the translation record, since claims derive from it alone.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import msgspec

from translation.model.npu_chips import NpuChip

MAX_MEMORY_MIB = 2**31 - 1
"""HAMi counts memory in 32 bits."""


class Exclusivity(StrEnum):
    """The requests that make a share a whole device, so that nobody else can use it."""

    ALWAYS = "always"
    """The requests of `policies`, and all cores with a part of the memory: HAMi needs an unused
    GPU."""
    POLICIES = "policies"
    """HAMi's policy `mutex` and Koordinator's exclusivePolicy `DeviceLevel`."""
    NEVER = "never"
    """No requests: a share is a share."""


class InitContainers(StrEnum):
    """The devices of an init container that needs more than every app container."""

    LARGEST = "largest"
    """The devices of an app container, whose amounts become the larger of both: the pod reserves as
    much as in the legacy system, and the app container may use more."""
    SEPARATE = "separate"
    """The init container's own devices, for the lifetime of the pod: the pod reserves the sum of
    both."""


class CorePolicy(StrEnum):
    """HAMi's gpuCorePolicy: when HAMi-core limits the cores of a container."""

    DEFAULT = "default"
    """Limited where the container shares its GPU."""
    FORCE = "force"
    DISABLE = "disable"


class MemoryUnit(StrEnum):
    """The unit of `aliyun.com/gpu-mem`: the flag memory-unit of the device plugin."""

    DETECTED = "detected"
    """GiB, but MiB where a pod would have more than any GPU has."""
    GIB = "GiB"
    MIB = "MiB"


class HamiDefaults(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """The settings of HAMi that decide the meaning of its keys. Defaults are those of its chart.

    Attributes:
        count: GPUs of a container that has other keys only; 0 for none.
        memory: MiB of a share without memory; 0 for all of it.
        cores: Percent of a share without cores.
        memory_factor: MiB that 1 of `gpumem` stands for.

    Source:
        Project-HAMi/HAMi 4707fb0, pkg/device/nvidia/device.go, NvidiaConfig.
    """

    count: Annotated[int, msgspec.Meta(ge=0, le=32)] = 1
    memory: Annotated[int, msgspec.Meta(ge=0, le=MAX_MEMORY_MIB)] = 0
    cores: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    memory_factor: Annotated[int, msgspec.Meta(ge=1, le=MAX_MEMORY_MIB)] = 1
    core_policy: CorePolicy = CorePolicy.DEFAULT


class Choices(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """The choices that a translation depends on. Defaults are those of records without any.

    Attributes:
        renamed_keys: Resource name in pods to the name that it has in its vocabulary.
        ascend_chips: Name to chip, for those that differ from HAMi's chart.
        volcano_memory_factor: MiB that 1 of `vgpu-memory` stands for.
    """

    exclusivity: Exclusivity = Exclusivity.POLICIES
    init_containers: InitContainers = InitContainers.SEPARATE
    renamed_keys: Mapping[str, str] = {}
    hami: HamiDefaults = HamiDefaults()
    ascend_chips: Mapping[str, NpuChip] = {}
    aliyun_memory_unit: MemoryUnit = MemoryUnit.DETECTED
    volcano_memory_factor: Annotated[int, msgspec.Meta(ge=1, le=MAX_MEMORY_MIB)] = 1
