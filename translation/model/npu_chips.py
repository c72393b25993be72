"""Ascend chips as HAMi's configuration describes them: memory, cores, and the templates of a hard split.

Source: Project-HAMi/HAMi v2.10, charts/hami/templates/scheduler/device-configmap.yaml, `vnpus`, and
pkg/device/ascend/device.go, trimMemory.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Final

import msgspec

_MIB = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_CORES = Annotated[int, msgspec.Meta(ge=1, le=4096)]


class NpuTemplate(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A virtual NPU of a hard split.

    Attributes:
        memory: Its memory in MiB.
        ai_core: Its number of cores.
    """

    name: str
    memory: _MIB
    ai_core: _CORES


class NpuChip(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A chip.

    Attributes:
        memory_allocatable: The memory in MiB that a whole NPU has for containers.
        memory_capacity: The largest amount of memory in MiB that may be requested.
        ai_core: The number of cores.
        super_pod: NPUs are allocated in modules of two.
        templates: The virtual NPUs that it can be divided into, in any order.
    """

    memory_allocatable: _MIB
    memory_capacity: _MIB
    ai_core: _CORES
    super_pod: bool = False
    templates: tuple[NpuTemplate, ...] = ()

    def template(self, memory: int) -> NpuTemplate | None:
        """Return the smallest template with that much memory; None if only a whole NPU has it.

        >>> CHIPS["Ascend310P"].template(2000).memory
        3072
        """
        sufficient = (template for template in self.templates if template.memory >= memory)
        return min(sufficient, key=lambda template: template.memory, default=None)

    def template_of_cores(self, ai_core: int) -> NpuTemplate | None:
        """Return the smallest template with that number of cores; None if there is none.

        >>> CHIPS["Ascend310P"].template_of_cores(2).memory
        6144
        """
        equal = (template for template in self.templates if template.ai_core == ai_core)
        return min(equal, key=lambda template: template.memory, default=None)

    def percent_of_cores(self, ai_core: int) -> int:
        """Return cores as a percentage of all, rounded down, at least 1."""
        return max(1, min(100, ai_core * 100 // self.ai_core))

    def percent_of_memory(self, memory: int) -> int:
        """Return memory as a percentage of all, rounded down, at least 1."""
        return max(1, min(100, memory * 100 // self.memory_allocatable))


def _chip(
    memory: int, ai_core: int, *, capacity: int = 0, super_pod: bool = False, **templates: int
) -> NpuChip:
    """Return a chip.

    Args:
        templates: Name, which says the number of cores after `vir`, to MiB.
    """
    return NpuChip(
        memory_allocatable=memory,
        memory_capacity=capacity or memory,
        ai_core=ai_core,
        super_pod=super_pod,
        templates=tuple(
            NpuTemplate(name=name, memory=size, ai_core=int(name[3:5]))
            for name, size in templates.items()
        ),
    )


CHIPS: Final[Mapping[str, NpuChip]] = {
    "Ascend910A": _chip(32768, 30, vir02=2184, vir04=4369, vir08=8738, vir16=17476),
    "Ascend910B2": _chip(65536, 24, vir03_1c_8g=8192, vir06_1c_16g=16384, vir12_3c_32g=32768),
    "Ascend910B3": _chip(65536, 20, vir05_1c_16g=16384, vir10_3c_32g=32768),
    "Ascend910B4-1": _chip(65536, 20, vir05_1c_16g=16384, vir10_3c_32g=32768),
    "Ascend910B4": _chip(32768, 20, vir05_1c_8g=8192, vir10_3c_16g=16384),
    "Ascend310P": _chip(21527, 8, capacity=24576, vir01=3072, vir02=6144, vir04=12288),
    "Ascend910C": _chip(65536, 20, super_pod=True, vir05_1c_16g=16384, vir10_3c_32g=32768),
}
"""The chips of HAMi's chart by name."""


def present_chips(
    keys: Collection[str], chips: Mapping[str, NpuChip], prefix: str
) -> Mapping[str, NpuChip]:
    """Return the chips that keys name.

    Args:
        prefix: The part of a key before the name of its chip.
    """
    return {name: chip for name, chip in sorted(chips.items()) if prefix + name in keys}
