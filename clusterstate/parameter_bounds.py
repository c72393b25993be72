"""A bound on the opaque parameters that are kept of a claim; real ones have some ten values.

A value takes up to 25 times the memory of its text, so that users could fill the memory with few claims.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, TypeVar

import msgspec

from kube.api.resource import (
    DeviceAllocationConfiguration,
    DeviceClaimConfiguration,
    ResourceClaim,
    ResourceClaimSpec,
)

MAX_PARAMETER_VALUES: Final = 1000
"""The largest number of values in all opaque parameters of a claim."""
DROPPED_PARAMETERS: Final[dict[str, Any]] = {}
"""The mark of dropped parameters, compared by identity and never modified."""

_Configuration = TypeVar("_Configuration", DeviceClaimConfiguration, DeviceAllocationConfiguration)


def bounded_spec(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    """Return the spec of a claim without parameters of too many values."""
    config = bounded_config(spec.devices.config)
    devices = msgspec.structs.replace(spec.devices, config=config)
    return msgspec.structs.replace(spec, devices=devices)


def bounded_config(
    config: tuple[_Configuration, ...] | None,
) -> tuple[_Configuration, ...] | None:
    """Return the entries in order, with `DROPPED_PARAMETERS` once all together have too many values."""
    if config is None:
        return None
    remaining_values, bounded_entries = MAX_PARAMETER_VALUES, []
    for entry in config:
        if entry.opaque is None:
            bounded_entries.append(entry)
            continue
        values = _count_values(entry.opaque.parameters, remaining_values + 1)
        if values <= remaining_values:
            remaining_values -= values
            bounded_entries.append(entry)
        else:
            opaque = msgspec.structs.replace(entry.opaque, parameters=DROPPED_PARAMETERS)
            bounded_entries.append(msgspec.structs.replace(entry, opaque=opaque))
    return tuple(bounded_entries)


def has_dropped_parameters(claim: ResourceClaim) -> bool:
    """Return True if the spec of a projected claim is without parameters that it has."""
    return any(
        entry.opaque is not None and entry.opaque.parameters is DROPPED_PARAMETERS
        for entry in claim.spec.devices.config or ()
    )


def _count_values(parameters: Mapping[str, Any], limit: int) -> int:
    """Return the number of values in parameters, or a larger one than the limit."""
    count = 0
    containers: list[Collection[Any]] = [parameters.values()]
    while containers and count <= limit:
        values = containers.pop()
        count += len(values)
        containers += [
            value.values() if isinstance(value, dict) else value
            for value in values
            if isinstance(value, dict | list) and value
        ]
    return count
