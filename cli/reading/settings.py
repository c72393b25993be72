"""The settings of the cluster's processes, as far as commands decide by them, too.

A command reads the file that the processes read, so that its answer is that of the cluster.
"""

from pathlib import Path
from typing import Any, Final

from clusterstate.settings import ValidationSettings
from kube.api.meta import ApiStruct, decode
from kube.errors import ConfigError
from kube.manifests.plain_yaml import MAX_BYTES
from process.model.settings import ProcessSettings, parse_settings
from process.profiles.translation import TranslationSettings

CONFIG_MAP: Final = "drawbridge-settings"
"""The ConfigMap, in the namespace of Drawbridge, that the processes of a cluster mount."""
KEY: Final = "settings.yaml"


class SharedSettings(ProcessSettings, frozen=True, kw_only=True):
    """The sections of the file that commands read."""

    translation: TranslationSettings = TranslationSettings()
    validation: ValidationSettings = ValidationSettings()


class _ConfigMap(ApiStruct, frozen=True, kw_only=True):
    data: dict[str, str] | None = None


def read_settings(path: str) -> SharedSettings:
    """Read a settings file.

    Raises:
        ConfigError: The file cannot be read, or makes no sense.
    """
    return settings_of(read_settings_text(path), path)


def read_settings_text(path: str) -> bytes:
    """Read the content of a settings file, at most as much as shows that it is too large.

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as fault:
        raise ConfigError(f"{path}: {fault.strerror}") from fault


def settings_in_config_map(raw: bytes) -> SharedSettings:
    """Return the settings in the ConfigMap of a cluster.

    Raises:
        ConfigError: They make no sense.
    """
    text = (decode(raw, _ConfigMap).data or {}).get(KEY, "")
    return settings_of(text, f"ConfigMap {CONFIG_MAP}")


def settings_of(text: bytes | str, source: str) -> SharedSettings:
    """Return the settings in a text.

    Raises:
        ConfigError: They make no sense.
    """
    nothing: dict[str, Any] = {}
    return parse_settings(text, source, nothing, kind=SharedSettings, variables={})
