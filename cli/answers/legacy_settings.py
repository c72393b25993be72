"""The settings of HAMi and Koordinator, as settings of ours; what has no target is named.

Sources: Project-HAMi/HAMi 4707fb0, charts/hami (values.yaml, templates/scheduler/device-configmap.yaml,
templates/scheduler/configmap.yaml, templates/device-plugin/configmap.yaml) and pkg/device/nvidia/device.go;
koordinator-sh/koordinator a7a1b76, config/manager/scheduler-config.yaml and
pkg/scheduler/apis/config/v1/types.go; koordinator-sh/charts a1963c5, versions/v1.8.0/values.yaml.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from cli.inputs.legacy_settings import (
    DEVICE_CONFIG,
    NODE_CONFIG,
    SCHEDULER_KIND,
    LegacyDocument,
)
from findings.text import printable, quote_text
from kube.names import DEFAULT_SCHEDULER_NAME
from translation.renamed_keys import renaming_fault
from translation.vocabularies.hami import keys as hami

RENAMED_KEYS: Final = "renamedKeys"
KOORDINATOR_SCHEDULER: Final = "koord-scheduler"
"""The chart has no other name."""

_GPU_OWNER: Final = ("defaultGpuOwner",)

_Values = Mapping[str, Any]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of ours, and where it comes from.

    Attributes:
        path: In the section `translation`, such as ("hami", "defaultCores").
    """

    path: tuple[str, ...]
    value: str | int
    source: str

    @property
    def subject(self) -> object:
        """What has one setting: a field, or the key of a vocabulary that is renamed."""
        return (self.path[0], self.value) if self.path[0] == RENAMED_KEYS else self.path

    def line(self) -> str:
        """Return field and value."""
        return f"{'.'.join(self.path)}: {self.value}"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that has no target."""

    source: str
    field: str
    text: str

    def line(self) -> str:
        """Return one line, without control characters."""
        return printable(f"{self.field} ({self.source}): {self.text}")


class ImportedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that were read.

    Attributes:
        translation: The section `translation` of a settings file.
        sources: The documents that had settings.
        notes: What has no target, in the order of the documents.
    """

    translation: Mapping[str, Any]
    sources: tuple[str, ...]
    notes: tuple[Note, ...]


_Read = Iterator[Setting | Note]


def import_settings(documents: Iterable[LegacyDocument]) -> ImportedSettings:
    """Return the settings in the documents of legacy systems; others have none.

    Of two documents that differ, the first one decides, and a note says so.
    """
    settings: dict[object, Setting] = {}
    notes: list[Note] = []
    sources: list[str] = []
    for document in documents:
        reader = _reader_of(document)
        if reader is None:
            continue
        sources.append(document.source)
        for entry in reader(document):
            if isinstance(entry, Note):
                notes.append(entry)
                continue
            known_setting = settings.setdefault(entry.subject, entry)
            if known_setting != msgspec.structs.replace(entry, source=known_setting.source):
                text = f"{known_setting.line()} of {known_setting.source} is kept"
                notes.append(Note(source=entry.source, field=entry.line(), text=text))
    if any(setting.value == hami.COUNT for setting in settings.values()):
        # By its own name the key is the device plugin's then.
        settings.pop(_GPU_OWNER, None)
    return ImportedSettings(
        translation=_nest_settings(settings.values()),
        sources=tuple(dict.fromkeys(sources)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _nest_settings(settings: Iterable[Setting]) -> Mapping[str, Any]:
    section: dict[str, Any] = {}
    for setting in sorted(settings, key=lambda setting: setting.path):
        *parents, field = setting.path
        place = section
        for parent in parents:
            place = place.setdefault(parent, {})
        place[field] = setting.value
    return section


def _reader_of(document: LegacyDocument) -> Callable[[LegacyDocument], _Read] | None:
    values = document.values
    if document.name == DEVICE_CONFIG and _section(values, "nvidia"):
        return _read_device_config
    if document.name == NODE_CONFIG and isinstance(values.get("nodeconfig"), list):
        return _read_node_config
    if values.get("kind") == SCHEDULER_KIND:
        return _read_scheduler
    if not document.name and "resourceName" in values and "devicePlugin" in values:
        return _read_hami_chart
    if not document.name and "koordlet" in values:
        return _read_koordinator_chart
    return None


def _section(values: _Values, name: str) -> _Values:
    section = values.get(name)
    return section if isinstance(section, Mapping) else {}


# --- names ----------------------------------------------------------------------------------------

_NVIDIA_NAMES: Final = {
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
_CHART_NAMES: Final = {
    "resourceName": hami.COUNT,
    "resourceMem": hami.MEMORY_MIB,
    "resourceMemPercentage": hami.MEMORY_PERCENT,
    "resourceCores": hami.CORES_PERCENT,
    "resourcePriority": hami.PRIORITY,
    "dcuResourceName": "hygon.com/dcunum",
    "dcuResourceMem": "hygon.com/dcumem",
    "dcuResourceCores": "hygon.com/dcucores",
}
_ASCEND_SUFFIXES: Final = {
    "resourceName": "",
    "resourceMemoryName": "-memory",
    "resourceCoreName": "-core",
}
_TRANSLATED: Final = frozenset({"nvidia", "hygon", "vnpus", "amd", "awsneuron"})
"""The sections of a device config whose names some vocabulary has."""


def _read_names(
    values: _Values, names: Mapping[str, str], document: LegacyDocument, place: str
) -> _Read:
    for field, own_name in names.items():
        name = values.get(field)
        if not isinstance(name, str) or name in {"", own_name}:
            continue
        fault = renaming_fault(name, own_name)
        if fault is None:
            yield Setting(path=(RENAMED_KEYS, name), value=own_name, source=document.source)
        else:
            yield Note(
                source=document.source, field=f"{place}{field}", text=f"{quote_text(name)} {fault}"
            )


# --- HAMi -----------------------------------------------------------------------------------------

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


def _read_device_config(document: LegacyDocument) -> _Read:
    values = document.values
    nvidia = _section(values, "nvidia")
    yield from _read_names(nvidia, _NVIDIA_NAMES, document, "nvidia.")
    yield from _read_defaults(nvidia, document)
    yield from _read_without_target(nvidia, document, "nvidia.")
    if nvidia.get("resourceCountName", hami.COUNT) == hami.COUNT:
        yield _gpu_owner(document)
    yield from _read_names(_section(values, "hygon"), _HYGON_NAMES, document, "hygon.")
    vnpus = values.get("vnpus")
    chips = vnpus.get("configs") if isinstance(vnpus, Mapping) else vnpus
    for chip in chips if isinstance(chips, list) else ():
        if isinstance(chip, Mapping) and isinstance(chip.get("commonWord"), str):
            name = f"huawei.com/{chip['commonWord']}"
            names = {field: name + suffix for field, suffix in _ASCEND_SUFFIXES.items()}
            yield from _read_names(chip, names, document, f"vnpus.{chip['commonWord']}.")
    others = sorted(str(name) for name in values if name not in _TRANSLATED)
    if others:
        yield Note(
            source=document.source,
            field=", ".join(others),
            text="no DRA driver is known for these devices; pods that request them stay as they are",
        )


def _gpu_owner(document: LegacyDocument) -> Setting:
    return Setting(path=_GPU_OWNER, value="hami", source=document.source)


def _read_defaults(nvidia: _Values, document: LegacyDocument) -> _Read:
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
            text=f"{_setting_text(policy)} is not a policy of HAMi: default, force, disable",
        )


def _read_without_target(values: _Values, document: LegacyDocument, place: str) -> _Read:
    for field, (silent, text) in _WITHOUT_TARGET.items():
        value = values.get(field)
        if value not in silent:
            yield Note(
                source=document.source, field=f"{place}{field} {_setting_text(value)}", text=text
            )


def _setting_text(value: object) -> str:
    # The text of anything nested may be endless.
    if isinstance(value, str):
        return quote_text(value)
    return str(value) if isinstance(value, bool | int | float | None) else type(value).__name__


def _read_node_config(document: LegacyDocument) -> _Read:
    for node in document.values["nodeconfig"]:
        if not isinstance(node, Mapping) or node.get("name") in (None, "", "your-node-name"):
            continue
        fields = sorted(str(field) for field in node if field != "name")
        yield Note(
            source=document.source,
            field=f"nodeconfig of {_setting_text(node['name'])}",
            text=f"{', '.join(fields)}: settings of one node have no target; its driver publishes what "
            "the node has",
        )


def _read_hami_chart(document: LegacyDocument) -> _Read:
    values = document.values
    yield from _read_names(values, _CHART_NAMES, document, "")
    if values.get("resourceName", hami.COUNT) == hami.COUNT:
        yield _gpu_owner(document)
    nvidia = _section(_section(values, "devices"), "nvidia")
    yield from _read_defaults(nvidia, document)
    yield from _read_without_target(nvidia, document, "devices.nvidia.")
    yield from _read_without_target(_section(values, "devicePlugin"), document, "devicePlugin.")
    if isinstance(values.get("schedulerName"), str):
        yield _adopt_document(values["schedulerName"], document)
    scheduler = _section(values, "scheduler")
    for field, policy in sorted(_section(scheduler, "defaultSchedulerPolicy").items()):
        yield Note(
            source=document.source,
            field=f"scheduler.defaultSchedulerPolicy.{field} {_setting_text(policy)}",
            text="a claim has no preference; with the bridge, a class or a pod chooses a strategy by "
            "drawbridge.internal/strategy",
        )
    if _section(scheduler, "admissionWebhook").get("whitelistNamespaces"):
        yield Note(
            source=document.source,
            field="scheduler.admissionWebhook.whitelistNamespaces",
            text='label a namespace drawbridge.internal/translate: "false" to leave its pods alone',
        )


# --- schedulers -----------------------------------------------------------------------------------


def _adopt_document(name: str, document: LegacyDocument) -> Setting:
    return Setting(
        path=("adoptSchedulers", name), value=DEFAULT_SCHEDULER_NAME, source=document.source
    )


def _read_scheduler(document: LegacyDocument) -> _Read:
    values = document.values
    extends = any(
        isinstance(extender, Mapping) and extender.get("managedResources")
        for extender in _list_of(values, "extenders")
    )
    for profile in _list_of(values, "profiles"):
        if not isinstance(profile, Mapping):
            continue
        name = profile.get("schedulerName")
        shares_devices = "DeviceShare" in _enabled_plugins(_section(profile, "plugins"))
        if isinstance(name, str) and name and (extends or shares_devices):
            if name == DEFAULT_SCHEDULER_NAME:
                continue
            yield _adopt_document(name, document)
        for plugin in _list_of(profile, "pluginConfig"):
            if isinstance(plugin, Mapping) and plugin.get("name") == "DeviceShare":
                yield from _read_device_share(_section(plugin, "args"), document)


def _list_of(values: _Values, field: str) -> Sequence[Any]:
    items = values.get(field)
    return items if isinstance(items, list) else ()


def _enabled_plugins(plugins: _Values) -> frozenset[str]:
    return frozenset(
        str(plugin.get("name"))
        for point in plugins.values()
        if isinstance(point, Mapping)
        for plugin in _list_of(point, "enabled")
        if isinstance(plugin, Mapping)
    )


_DEVICE_SHARE: Final = {
    "scoringStrategy": "a claim has no preference; with the bridge, a class or a pod chooses a strategy "
    "by drawbridge.internal/strategy",
    "disableDeviceNUMATopologyAlignment": "claims are not aligned with CPUs; devices are, by the "
    "annotations of a pod",
    "gpuSharedResourceTemplatesConfig": "drivers publish the partitions of their devices",
    "gpuShareUnsupportedModels": "a model whose driver publishes no shares gets none",
}


def _read_device_share(args: _Values, document: LegacyDocument) -> _Read:
    for field, text in _DEVICE_SHARE.items():
        if args.get(field):
            yield Note(source=document.source, field=f"DeviceShare.{field}", text=text)


def _gates(values: _Values) -> Sequence[str]:
    gates = values.get("featureGates")
    return gates.split(",") if isinstance(gates, str) else ()


def _read_koordinator_chart(document: LegacyDocument) -> _Read:
    values = document.values
    scheduler = _section(values, "scheduler")
    yield _adopt_document(KOORDINATOR_SCHEDULER, document)
    gates = (_gates(values), _gates(scheduler))
    if not any("ReplaceResourcesTransformer=true" in gate_text for gate_text in gates):
        yield Note(
            source=document.source,
            field="scheduler.featureGates",
            text="ReplaceResourcesTransformer is off, so Koordinator ignores "
            "pod.koordinator.sh/replace-resources; it is read here: remove it from pods that have it",
        )
    yield from _read_device_share(_section(scheduler, "deviceShare"), document)
