"""The settings of HAMi-DRA, HAMi's own converter of pods, for the listed vendors only.

Source: Project-HAMi/HAMi-DRA 052848d, charts/hami-dra/values.yaml and
charts/hami-dra/templates/webhook/device-config.yaml.
"""

from collections.abc import Sequence
from typing import Final

from migration.settings_import.hami_settings import (
    NVIDIA_CHART_NAMES,
    NVIDIA_NAMES,
    gpu_owner,
    read_chips,
    read_defaults,
    read_without_target,
)
from migration.settings_import.legacy_documents import LegacyDocument
from migration.settings_import.legacy_values import (
    Note,
    Read,
    Values,
    list_of,
    read_names,
    section_of,
    setting_text,
)
from translation.vocabularies.hami import keys as hami

_HCU_NAMES: Final = {
    "resourceCountName": "hygon.com/hcunum",
    "resourceMemoryName": "hygon.com/hcumem",
    "resourceCoreName": "hygon.com/hcucores",
}
_HCU_CHART_NAMES: Final = {
    "hcuResourceName": "hygon.com/hcunum",
    "hcuResourceMem": "hygon.com/hcumem",
    "hcuResourceCores": "hygon.com/hcucores",
}
_DRA_VENDORS: Final = frozenset({"nvidia", "hygon", "ascend"})
_DRA_CLASSES: Final = {
    "nvidia": ("hami-core-gpu.project-hami.io", "hami"),
    "hygon": ("dra.hygon.com", "hygon"),
    "ascend": ("hami-vnpu-core.project-hami.io", "ascend"),
}
"""Vendor to the DeviceClass of its driver, and the vocabulary."""


def read_hami_dra(document: LegacyDocument) -> Read:
    """Read the config of the converter."""
    values = document.values
    vendors = [vendor for vendor in list_of(values, "vendors") if isinstance(vendor, str)]
    nvidia = section_of(values, "nvidia")
    if "nvidia" in vendors:
        yield from read_names(nvidia, NVIDIA_NAMES, document, "nvidia.")
        yield from read_defaults(nvidia, document)
        yield from read_without_target(nvidia, document, "nvidia.")
        if nvidia.get("resourceCountName", hami.COUNT) == hami.COUNT:
            yield gpu_owner(document)
    if "hygon" in vendors:
        hygon = section_of(values, "hygon")
        yield from read_names(hygon, _HCU_NAMES, document, "hygon.")
        yield from _read_compute_units(hygon.get("referenceComputeUnits"), document)
    if "ascend" in vendors:
        ascend = section_of(values, "ascend")
        yield from read_chips(ascend.get("devices"), document, "ascend.devices")
    for vendor in vendors:
        if vendor in _DRA_VENDORS:
            yield from _read_class(vendor, section_of(values, vendor), document)
    yield from _read_unknown_vendors(vendors, document)


def _read_class(vendor: str, section: Values, document: LegacyDocument) -> Read:
    class_name, vocabulary = _DRA_CLASSES[vendor]
    name = section.get("deviceClassName")
    if isinstance(name, str) and name not in {"", class_name}:
        yield Note(
            source=document.source,
            field=f"{vendor}.deviceClassName {setting_text(name)}",
            text=f"a profile says which DeviceClass a driver has: copy the one of {vocabulary} below "
            "profilesDirectory with this class, and this driver where it has another name",
        )


def _read_compute_units(units: object, document: LegacyDocument) -> Read:
    if isinstance(units, int) and not isinstance(units, bool) and units:
        yield Note(
            source=document.source,
            field=f"hygon.referenceComputeUnits {units}",
            text=f"say it in a profile of dra.hygon.com as cores: {{capacity: cores, whole: {units}}}; "
            "without it a percentage of cores is rejected",
        )


def _read_unknown_vendors(vendors: Sequence[str], document: LegacyDocument) -> Read:
    unknown = sorted(set(vendors) - _DRA_VENDORS)
    if unknown:
        yield Note(
            source=document.source,
            field=f"vendors {setting_text(', '.join(unknown))}",
            text="HAMi's converter knows nvidia, hygon and ascend",
        )


def read_hami_dra_chart(document: LegacyDocument) -> Read:
    """Read the values of the converter's chart."""
    values = document.values
    vendors = [vendor for vendor in list_of(values, "deviceVendors") if isinstance(vendor, str)]
    if "nvidia" in vendors:
        yield from read_names(values, NVIDIA_CHART_NAMES, document, "")
        if values.get("resourceName", hami.COUNT) == hami.COUNT:
            yield gpu_owner(document)
    if "hygon" in vendors:
        yield from read_names(values, _HCU_CHART_NAMES, document, "")
        yield from _read_compute_units(values.get("hcuReferenceComputeUnits"), document)
    if "ascend" in vendors:
        yield from read_chips(values.get("ascendDevices"), document, "ascendDevices")
    for vendor, prefix in (("hygon", "hcu"), ("ascend", "ascend")):
        if vendor in vendors:
            section = {"deviceClassName": values.get(f"{prefix}DeviceClassName")}
            yield from _read_class(vendor, section, document)
    scope = section_of(section_of(section_of(values, "webhook"), "config"), "scope")
    namespaces = [name for name in list_of(scope, "excludedNamespaces") if name != "kube-system"]
    if namespaces:
        yield Note(
            source=document.source,
            field="webhook.config.scope.excludedNamespaces",
            text='label a namespace drawbridge.internal/translate: "false" to leave its pods alone',
        )
    yield from _read_unknown_vendors(vendors, document)
