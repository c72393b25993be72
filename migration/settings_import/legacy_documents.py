"""The documents that hold the settings of HAMi, Koordinator and Volcano: ConfigMaps and values of charts."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kube.errors import ConfigError
from kube.manifests.plain_yaml import PlainYamlError, load_yaml
from kube.manifests.source import SourceObject

DEVICE_CONFIG: Final = "device-config.yaml"
NODE_CONFIG: Final = "config.json"
SCHEDULER_KIND: Final = "KubeSchedulerConfiguration"
MAX_BYTES: Final = 128 * 1024
"""The maximum length of a text, in bytes; anyone who writes a ConfigMap anywhere may say that it is
one of these."""


class LegacyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document of settings.

    Attributes:
        source: The origin of the document, such as `ConfigMap kube-system/hami-scheduler-device`.
        name: The key in the ConfigMap; empty for the values of a chart.
        values: The parsed text.
    """

    source: str
    name: str = ""
    values: Mapping[str, Any]


def documents_of(objects: Iterable[SourceObject]) -> Iterator[LegacyDocument]:
    """Yield the texts in the ConfigMaps among objects."""
    for source_object in objects:
        if source_object.document.get("kind") == "ConfigMap":
            yield from texts_of(source_object.document)


def values_of(text: bytes, source: str) -> LegacyDocument:
    """Return the values of a chart.

    Raises:
        ConfigError: The text is not a YAML mapping.
    """
    values = _mapping(text.decode(errors="replace"))
    if values is None:
        raise ConfigError(f"{source}: not the values of a chart: no YAML mapping")
    return LegacyDocument(source=source, values=values)


def texts_of(config_map: Mapping[str, Any]) -> Iterator[LegacyDocument]:
    """Yield the YAML and JSON texts in a ConfigMap that are mappings."""
    metadata = config_map.get("metadata") or {}
    data = config_map.get("data")
    source = f"ConfigMap {metadata.get('namespace') or 'default'}/{metadata.get('name')}"
    for name, text in sorted(data.items()) if isinstance(data, dict) else ():
        if not isinstance(text, str) or not _may_have_settings(name, text):
            continue
        values = _mapping(text)
        if values is not None:
            yield LegacyDocument(source=source, name=str(name), values=values)


def _may_have_settings(name: str, text: str) -> bool:
    # Most texts of a cluster are of others, and some are large.
    return name in {DEVICE_CONFIG, NODE_CONFIG} or SCHEDULER_KIND in text


def _mapping(text: str) -> Mapping[str, Any] | None:
    try:
        values = load_yaml(text, MAX_BYTES)
    except PlainYamlError:
        return None
    return values if isinstance(values, dict) else None
