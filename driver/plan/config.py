"""Opaque parameters of the driver, as DeviceClasses and claims carry them.

Of several entries for a request, later ones override earlier ones field by field; an allocation lists
those of the class first. An entry for a request with alternatives is for whichever was chosen.

Source: k8s.io/api v0.37.1, resource/v1/types.go, DeviceAllocationConfiguration.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from driver.model.strict import Part, read_strictly
from kube.api.resource import DeviceAllocationConfiguration
from kube.errors import FieldError
from kube.names import GROUP

API_VERSION: Final = f"{GROUP}/v1alpha1"
KIND: Final = "DeviceConfig"
MAX_SHOWN: Final = 63
"""Characters of a text of others in a message."""


class TimeSlice(StrEnum):
    """The time that one container computes before another one on the same device."""

    DEFAULT = "Default"
    SHORT = "Short"
    MEDIUM = "Medium"
    LONG = "Long"


class Sharing(Part, frozen=True, kw_only=True):
    """The sharing of a device; all consumers of a device have to configure the same.

    Attributes:
        time_slice: Told to containers, which have to keep to it.
    """

    time_slice: TimeSlice | None = None


class DeviceConfig(Part, frozen=True, kw_only=True):
    """The parameters."""

    api_version: str
    kind: str
    sharing: Sharing | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one request, from all parameters that apply to it."""

    time_slice: TimeSlice | None = None


def settings_for(
    request: str, driver: str, config: Iterable[DeviceAllocationConfiguration]
) -> Settings | FieldError:
    """Return the settings of a request in an allocation, or their fault.

    Args:
        request: The request's name in the allocation result: `name` or `parent/name`.
        driver: Parameters of other drivers are theirs to validate.
        config: The allocation's configuration.
    """
    settings = Settings()
    for index, entry in enumerate(config):
        if entry.opaque is None or not applies_to(entry, request, driver):
            continue
        device_config = read_config(entry.opaque.parameters)
        if isinstance(device_config, FieldError):
            place = f"allocation.devices.config[{index}].opaque.parameters"
            path = f"{place}.{device_config.path}" if device_config.path else place
            return msgspec.structs.replace(device_config, path=path)
        if device_config.sharing is not None and device_config.sharing.time_slice is not None:
            settings = msgspec.structs.replace(
                settings, time_slice=device_config.sharing.time_slice
            )
    return settings


def applies_to(entry: DeviceAllocationConfiguration, request: str, driver: str) -> bool:
    """Return True if an entry has parameters of a driver for a request of an allocation result."""
    if entry.opaque is None or entry.opaque.driver != driver:
        return False
    return not entry.requests or not {request, request.partition("/")[0]}.isdisjoint(entry.requests)


def read_config(parameters: Mapping[str, Any]) -> DeviceConfig | FieldError:
    """Return parameters as a struct, or the first fault in them."""
    head = (parameters.get("apiVersion"), parameters.get("kind"))
    if head != (API_VERSION, KIND):
        kind, version = map(_describe, (head[1], head[0]))
        message = f"is {kind} of {version}, which this driver does not know"
        return FieldError(path="", message=message, fix=f"write {KIND} of {API_VERSION}")
    config = read_strictly(parameters, DeviceConfig)
    return config if isinstance(config, DeviceConfig) else _shorten(config[0])


def _describe(value: object) -> str:
    """Return a value of others for a message; lists and objects may be of any size and depth."""
    return repr(value)[:MAX_SHOWN] if value is None or isinstance(value, str) else "no text"


def _shorten(fault: FieldError) -> FieldError:
    """Return a fault with a field name that a message can show."""
    if len(fault.path) <= MAX_SHOWN:
        return fault
    return msgspec.structs.replace(fault, path=f"{fault.path[:MAX_SHOWN]}...")
