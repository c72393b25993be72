"""The settings of HAMi, Koordinator and Volcano, as settings of ours; those without a target are named.

Sources: those of each reader; koordinator-sh/koordinator a7a1b76, config/manager/scheduler-config.yaml and
pkg/scheduler/apis/config/v1/types.go; koordinator-sh/charts a1963c5, versions/v1.8.0/values.yaml.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kube.names import DEFAULT_SCHEDULER_NAME
from migration.settings_import.hami_dra_settings import read_hami_dra, read_hami_dra_chart
from migration.settings_import.hami_settings import (
    GPU_OWNER,
    read_device_config,
    read_hami_chart,
    read_node_config,
)
from migration.settings_import.legacy_documents import (
    DEVICE_CONFIG,
    NODE_CONFIG,
    SCHEDULER_KIND,
    LegacyDocument,
)
from migration.settings_import.legacy_values import (
    Note,
    Read,
    Setting,
    Values,
    adopted_scheduler,
    list_of,
    section_of,
)
from migration.settings_import.volcano_settings import (
    is_of_volcano,
    read_volcano_chart,
    read_volcano_config,
)
from translation.vocabularies.hami import keys as hami

KOORDINATOR_SCHEDULER: Final = "koord-scheduler"
"""The chart has no other name."""


class ImportedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that were read.

    Attributes:
        translation: The section `translation` of a settings file.
        sources: The documents that had settings.
        notes: The notes on settings without a target, in the order of the documents.
    """

    translation: Mapping[str, Any]
    sources: tuple[str, ...]
    notes: tuple[Note, ...]


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
        settings.pop(GPU_OWNER, None)
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


def _reader_of(document: LegacyDocument) -> Callable[[LegacyDocument], Read] | None:
    values = document.values
    if document.name == DEVICE_CONFIG and isinstance(values.get("vendors"), list):
        return read_hami_dra
    if document.name == DEVICE_CONFIG and is_of_volcano(section_of(values, "nvidia")):
        return read_volcano_config
    if document.name == DEVICE_CONFIG and section_of(values, "nvidia"):
        return read_device_config
    if document.name == NODE_CONFIG and isinstance(values.get("nodeconfig"), list):
        return read_node_config
    if values.get("kind") == SCHEDULER_KIND:
        return _read_scheduler
    if not document.name and "resourceName" in values and "devicePlugin" in values:
        return read_hami_chart
    if not document.name and "resourceName" in values and "deviceVendors" in values:
        return read_hami_dra_chart
    if not document.name and is_of_volcano(
        section_of(section_of(values, "deviceConfig"), "nvidia")
    ):
        return read_volcano_chart
    if not document.name and "koordlet" in values:
        return _read_koordinator_chart
    return None


# --- schedulers -----------------------------------------------------------------------------------


def _read_scheduler(document: LegacyDocument) -> Read:
    values = document.values
    extends = any(
        isinstance(extender, Mapping) and extender.get("managedResources")
        for extender in list_of(values, "extenders")
    )
    for profile in list_of(values, "profiles"):
        if not isinstance(profile, Mapping):
            continue
        name = profile.get("schedulerName")
        shares_devices = "DeviceShare" in _enabled_plugins(section_of(profile, "plugins"))
        if isinstance(name, str) and name and (extends or shares_devices):
            if name == DEFAULT_SCHEDULER_NAME:
                continue
            yield adopted_scheduler(name, document)
        for plugin in list_of(profile, "pluginConfig"):
            if isinstance(plugin, Mapping) and plugin.get("name") == "DeviceShare":
                yield from _read_device_share(section_of(plugin, "args"), document)


def _enabled_plugins(plugins: Values) -> frozenset[str]:
    return frozenset(
        str(plugin.get("name"))
        for point in plugins.values()
        if isinstance(point, Mapping)
        for plugin in list_of(point, "enabled")
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


def _read_device_share(args: Values, document: LegacyDocument) -> Read:
    for field, text in _DEVICE_SHARE.items():
        if args.get(field):
            yield Note(source=document.source, field=f"DeviceShare.{field}", text=text)


def _gates(values: Values) -> Sequence[str]:
    gates = values.get("featureGates")
    return gates.split(",") if isinstance(gates, str) else ()


def _read_koordinator_chart(document: LegacyDocument) -> Read:
    values = document.values
    scheduler = section_of(values, "scheduler")
    yield adopted_scheduler(KOORDINATOR_SCHEDULER, document)
    gates = (_gates(values), _gates(scheduler))
    if not any("ReplaceResourcesTransformer=true" in gate_text for gate_text in gates):
        yield Note(
            source=document.source,
            field="scheduler.featureGates",
            text="ReplaceResourcesTransformer is off, so Koordinator ignores "
            "pod.koordinator.sh/replace-resources; it is read here: remove it from pods that have it",
        )
    yield from _read_device_share(section_of(scheduler, "deviceShare"), document)
