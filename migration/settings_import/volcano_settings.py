"""The settings of Volcano's vGPU device plugin: of its ConfigMap and of its chart.

Its ConfigMap has the key and the sections of HAMi's, and other names in them.

Source: Project-HAMi/volcano-vgpu-device-plugin 4fb76ba, deployments/helm/volcano-vgpu-device-plugin (values.yaml,
templates/configmap-device.yaml).
"""

from typing import Final

from migration.settings_import.hami_settings import read_chips, read_without_target
from migration.settings_import.legacy_documents import LegacyDocument
from migration.settings_import.legacy_values import Read, Setting, Values, read_names, section_of
from translation.vocabularies import volcano

_NAMES: Final = {
    "resourceCountName": volcano.COUNT,
    "resourceMemoryName": volcano.MEMORY_MIB,
    "resourceMemoryPercentageName": volcano.MEMORY_PERCENT,
    "resourceCoreName": volcano.CORES_PERCENT,
}
_FACTOR: Final = "gpuMemoryFactor"


def is_of_volcano(nvidia: Values) -> bool:
    """Return True for a section of NVIDIA's devices that Volcano's plugin reads."""
    return _FACTOR in nvidia or nvidia.get("resourceCountName") == volcano.COUNT


def read_volcano_config(document: LegacyDocument) -> Read:
    """Read the devices of Volcano's scheduler and its device plugin."""
    values = document.values
    yield from _read_nvidia(section_of(values, "nvidia"), document, "nvidia.")
    vnpus = values.get("vnpus")
    yield from read_chips(vnpus, document, "vnpus")


def read_volcano_chart(document: LegacyDocument) -> Read:
    """Read the values of the chart of Volcano's device plugin."""
    nvidia = section_of(section_of(document.values, "deviceConfig"), "nvidia")
    yield from _read_nvidia(nvidia, document, "deviceConfig.nvidia.")


def _read_nvidia(nvidia: Values, document: LegacyDocument, place: str) -> Read:
    yield from read_names(nvidia, _NAMES, document, place)
    factor = nvidia.get(_FACTOR)
    if isinstance(factor, int) and not isinstance(factor, bool) and factor > 1:
        yield Setting(path=("volcano", "memoryFactor"), value=factor, source=document.source)
    yield from read_without_target(nvidia, document, place)
