"""The types of cards in annotations: device plugins write a prefix before the name of the driver.

Source: `NVIDIA-` in Project-HAMi/HAMi, pkg/device-plugin/nvidiadevice, and in
Project-HAMi/volcano-vgpu-device-plugin, pkg/plugin/vgpu/register.go; `DCU-` in Project-HAMi/dcu-vgpu-device-plugin,
internal/pkg/dcu/server.go.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from findings.finding import Code, Finding, error
from findings.text import quote_text
from translation.model.intents import DeviceFilter, annotation_path
from translation.model.share_amounts import list_items, listed_devices, lower_ascii

NVIDIA_PREFIXES: Final = ("nvidia-",)
HYGON_PREFIXES: Final = ("dcu-", "hcu-")


def wanted_models(
    annotations: Mapping[str, str], key: str, prefixes: Sequence[str], findings: list[Finding]
) -> tuple[str, ...] | None:
    """Return the models that an annotation lists, in lower case; None if every card will do."""
    items = listed_devices(annotations, key, findings)
    if items is None or any(is_every_card(item, prefixes) for item in items):
        return None
    return tuple(model_of(item, prefixes) for item in items)


def excluded_models(
    annotations: Mapping[str, str], key: str, prefixes: Sequence[str], findings: list[Finding]
) -> tuple[str, ...]:
    """Return the models that an annotation excludes, in lower case."""
    text = annotations.get(key, "")
    items = list_items(text)
    if any(is_every_card(item, prefixes) for item in items):
        findings.append(excludes_every_card(key, text, "device"))
    return tuple(model_of(item, prefixes) for item in items)


def excludes_every_card(key: str, text: str, device: str) -> Finding:
    """Return the error that a list of excluded types leaves no device.

    Args:
        device: The word for a device, such as GPU.
    """
    return error(
        Code.EMPTY_DEVICE_LIST,
        annotation_path(key),
        f"{quote_text(text)} excludes every {device}, so none would match",
        "name the types to exclude",
    )


def is_every_card(item: str, prefixes: Sequence[str]) -> bool:
    """Return True if a type is part of the name of every card.

    >>> is_every_card("NVIDIA", NVIDIA_PREFIXES), is_every_card("NVIDIA A10", NVIDIA_PREFIXES)
    (True, False)
    """
    return any(lower_ascii(item) in {prefix, prefix.rstrip("-")} for prefix in prefixes)


def model_of(item: str, prefixes: Sequence[str]) -> str:
    """Return a type in lower case, without the prefix of a device plugin.

    >>> model_of("NVIDIA-Tesla V100", NVIDIA_PREFIXES), model_of("K100_AI", HYGON_PREFIXES)
    ('tesla v100', 'k100_ai')
    """
    lowered_name = lower_ascii(item)
    for prefix in prefixes:
        if lowered_name.startswith(prefix):
            return lowered_name.removeprefix(prefix) or lowered_name
    return lowered_name


WHOLE_OR_PART: Final = "the product name is it, where it begins with `NVIDIA ` or `Tesla `; it contains any other, ignoring case"
_WHOLE_NAMES: Final = ("NVIDIA ", "Tesla ")


def filter_of_model(name: str) -> DeviceFilter:
    """Return the filter of a model by its whole product name, or by a part of one.

    tensor-fusion compares whole names: as a part `NVIDIA L4` would also select `NVIDIA L40S`.

    Source: NexusGPU/tensor-fusion 3e0a490, internal/gpuallocator/filter/gpu_model_filter.go.
    """
    if name.startswith(_WHOLE_NAMES):
        return DeviceFilter(model_name=name)
    return DeviceFilter(models=(lower_ascii(name),))
