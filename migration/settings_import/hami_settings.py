"""The settings of HAMi: of its ConfigMaps and of its chart.

Source: Project-HAMi/HAMi 4707fb0, charts/hami (values.yaml, templates/scheduler/device-configmap.yaml,
templates/device-plugin/configmap.yaml) and pkg/device/nvidia/device.go.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from findings.text import printable
from migration.settings_import.legacy_documents import LegacyDocument
from migration.settings_import.legacy_values import (
    Note,
    Read,
    Setting,
    Values,
    adopted_scheduler,
    read_names,
    section_of,
    setting_text,
)
from translation.model.npu_chips import CHIPS, NpuChip
from translation.vocabularies.hami import keys as hami

GPU_OWNER: Final = ("defaultGpuOwner",)
NVIDIA_NAMES: Final = {
    "resourceCountName": hami.COUNT,
    "resourceMemoryName": hami.MEMORY_MIB,
    "resourceMemoryPercentageName": hami.MEMORY_PERCENT,
    "resourceCoreName": hami.CORES_PERCENT,
    "resourcePriorityName": hami.PRIORITY,
}
_HYGON_NAMES: Final = {
    "resourceCountName": "hygon.com/dcunum",
    "resourceMemoryName": "hygon.com/dcumem",
    "resourceCoreName": "hygon.com/dcucores",
}
NVIDIA_CHART_NAMES: Final = {
    "resourceName": hami.COUNT,
    "resourceMem": hami.MEMORY_MIB,
    "resourceMemPercentage": hami.MEMORY_PERCENT,
    "resourceCores": hami.CORES_PERCENT,
    "resourcePriority": hami.PRIORITY,
}
_CHART_NAMES: Final = {
    **NVIDIA_CHART_NAMES,
    "dcuResourceName": "hygon.com/dcunum",
    "dcuResourceMem": "hygon.com/dcumem",
    "dcuResourceCores": "hygon.com/dcucores",
}
_ASCEND_SUFFIXES: Final = {
    "resourceName": "",
    "resourceMemoryName": "-memory",
    "resourceCoreName": "-core",
}
_CHIP_FIELDS: Final = (
    "memoryAllocatable",
    "memoryCapacity",
    "aiCore",
    "superPod",
    "templates",
)
_TEMPLATE_FIELDS: Final = ("name", "memory", "aiCore")
_TRANSLATED: Final = frozenset({"nvidia", "hygon", "vnpus", "amd", "awsneuron"})
"""The sections of a device config whose names some vocabulary has."""
_DEFAULTS: Final = {
    "defaultGPUNum": ("defaultCount", 1),
    "defaultMemory": ("defaultMemory", 0),
    "defaultCores": ("defaultCores", 0),
    "memoryFactor": ("memoryFactor", 1),
}
"""Field of HAMi's to ours, and the default of both."""
_WITHOUT_TARGET: Final[Mapping[str, tuple[tuple[Any, ...], str]]] = {
    "deviceSplitCount": (
        (None,),
        "a driver bounds the shares of a device by its memory and cores, not by their number",
    ),
    "deviceMemoryScaling": (
        (None, 1),
        "drivers publish the memory that a device has; requests that count on more must be smaller",
    ),
    "deviceCoreScaling": (
        (None, 1),
        "drivers publish 100 percent of the cores; shares that limit nothing request no cores",
    ),
    "preConfiguredDeviceMemory": ((None, 0), "drivers publish the memory that a device has"),
    "overwriteEnv": (
        (None, False, "false"),
        "set NVIDIA_VISIBLE_DEVICES=none in images that must not see GPUs",
    ),
    "runtimeClassName": ((None, ""), "claims need no runtime class: devices come by CDI"),
    "enableNumaTopology": (
        (None, False),
        "the kubelet's topology manager does not see claims; nvidia.com/numa-bind aligns devices",
    ),
    "disableCoreLimit": ((None, False, "false"), "set translation.hami.corePolicy to disable"),
    "libCudaLogLevel": ((None, 1), "set LIBCUDA_LOG_LEVEL in the container"),
}
"""Field to the values that need no note, and the note on others."""


def read_device_config(document: LegacyDocument) -> Read:
    """Read the devices of a scheduler."""
    values = document.values
    nvidia = section_of(values, "nvidia")
    yield from read_names(nvidia, NVIDIA_NAMES, document, "nvidia.")
    yield from read_defaults(nvidia, document)
    yield from read_without_target(nvidia, document, "nvidia.")
    if nvidia.get("resourceCountName", hami.COUNT) == hami.COUNT:
        yield gpu_owner(document)
    hygon = section_of(values, "hygon")
    yield from read_names(hygon, _HYGON_NAMES, document, "hygon.")
    yield from _read_memory_factor(hygon, document, "hygon")
    vnpus = values.get("vnpus")
    chips = vnpus.get("configs") if isinstance(vnpus, Mapping) else vnpus
    yield from read_chips(chips, document, "vnpus")
    others = sorted(str(name) for name in values if name not in _TRANSLATED)
    if others:
        yield Note(
            source=document.source,
            field=", ".join(others),
            text="no DRA driver is known for these devices; pods that request them stay as they are",
        )


def read_chips(chips: object, document: LegacyDocument, place: str) -> Read:
    """Yield the renamed keys of Ascend's chips, and the chips that differ from those of HAMi's chart."""
    for chip in chips if isinstance(chips, list) else ():
        if isinstance(chip, Mapping) and isinstance(chip.get("commonWord"), str):
            name = f"huawei.com/{chip['commonWord']}"
            names = {field: name + suffix for field, suffix in _ASCEND_SUFFIXES.items()}
            yield from read_names(chip, names, document, f"{place}.{chip['commonWord']}.")
            yield from _read_chip(chip, document, f"{place}.{chip['commonWord']}")


def _read_chip(chip: Values, document: LegacyDocument, place: str) -> Read:
    """Yield the memory, cores and templates of a chip that differ from those of HAMi's chart."""
    name = str(chip["commonWord"])
    yield from _read_memory_factor(chip, document, place)
    if "templates" not in chip:
        return  # HAMi-DRA's configuration has names only.
    try:
        known_chip = msgspec.convert(_chip_fields(chip), NpuChip)
    except msgspec.ValidationError as fault:
        yield Note(source=document.source, field=place, text=printable(str(fault)))
        return
    if known_chip != CHIPS.get(name):
        value = msgspec.to_builtins(known_chip)
        yield Setting(path=("ascendChips", name), value=value, source=document.source)


def _read_memory_factor(values: Values, document: LegacyDocument, place: str) -> Read:
    """Yield a note on a factor of memory of devices other than GPUs."""
    if values.get("memoryFactor") not in (None, 0, 1):
        text = "HAMi multiplies amounts of memory by it; write the products into the manifests"
        yield Note(source=document.source, field=f"{place}.memoryFactor", text=text)


def _chip_fields(chip: Values) -> Values:
    """Return the fields that settings have."""
    fields = {field: chip[field] for field in _CHIP_FIELDS if field in chip}
    templates = chip["templates"]
    if isinstance(templates, list):
        fields["templates"] = [
            {field: template[field] for field in _TEMPLATE_FIELDS if field in template}
            if isinstance(template, Mapping)
            else template
            for template in templates
        ]
    return fields


def gpu_owner(document: LegacyDocument) -> Setting:
    """Return the setting that makes `nvidia.com/gpu` HAMi's key."""
    return Setting(path=GPU_OWNER, value="hami", source=document.source)


def read_defaults(nvidia: Values, document: LegacyDocument) -> Read:
    """Yield the defaults of shares."""
    for field, (own_field, default) in _DEFAULTS.items():
        value = nvidia.get(field, default)
        if isinstance(value, int) and not isinstance(value, bool) and value != default:
            yield Setting(path=("hami", own_field), value=value, source=document.source)
    policy = nvidia.get("gpuCorePolicy")
    if isinstance(policy, str) and policy in {"force", "disable"}:
        yield Setting(path=("hami", "corePolicy"), value=policy, source=document.source)
    elif policy not in ("", "default", None):
        yield Note(
            source=document.source,
            field="nvidia.gpuCorePolicy",
            text=f"{setting_text(policy)} is not a policy of HAMi: default, force, disable",
        )


def read_without_target(values: Values, document: LegacyDocument, place: str) -> Read:
    """Yield a note for each setting that no driver has."""
    for field, (silent, text) in _WITHOUT_TARGET.items():
        value = values.get(field)
        if value not in silent:
            yield Note(
                source=document.source, field=f"{place}{field} {setting_text(value)}", text=text
            )


def read_node_config(document: LegacyDocument) -> Read:
    """Yield a note for each node with settings of its own."""
    for node in document.values["nodeconfig"]:
        if not isinstance(node, Mapping) or node.get("name") in (None, "", "your-node-name"):
            continue
        fields = sorted(str(field) for field in node if field != "name")
        yield Note(
            source=document.source,
            field=f"nodeconfig of {setting_text(node['name'])}",
            text=f"{', '.join(fields)}: settings of one node have no target; its driver publishes what "
            "the node has",
        )


def read_hami_chart(document: LegacyDocument) -> Read:
    """Read the values of HAMi's chart."""
    values = document.values
    yield from read_names(values, _CHART_NAMES, document, "")
    if values.get("resourceName", hami.COUNT) == hami.COUNT:
        yield gpu_owner(document)
    nvidia = section_of(section_of(values, "devices"), "nvidia")
    yield from read_defaults(nvidia, document)
    yield from read_without_target(nvidia, document, "devices.nvidia.")
    yield from read_without_target(section_of(values, "devicePlugin"), document, "devicePlugin.")
    if isinstance(values.get("schedulerName"), str):
        yield adopted_scheduler(values["schedulerName"], document)
    scheduler = section_of(values, "scheduler")
    for field, policy in sorted(section_of(scheduler, "defaultSchedulerPolicy").items()):
        yield Note(
            source=document.source,
            field=f"scheduler.defaultSchedulerPolicy.{field} {setting_text(policy)}",
            text="a claim has no preference; with the bridge, a class or a pod chooses a strategy by "
            "drawbridge.internal/strategy",
        )
    if section_of(scheduler, "admissionWebhook").get("whitelistNamespaces"):
        yield Note(
            source=document.source,
            field="scheduler.admissionWebhook.whitelistNamespaces",
            text='label a namespace drawbridge.internal/translate: "false" to leave its pods alone',
        )
