"""Keys with a DeviceClass that gives other devices than they mean."""

from collections.abc import Iterable

from findings.finding import Finding
from translation.cluster.native_allocation import find_wide_mappings
from translation.preflight.model.inputs import PreflightInput


def check_wide_mappings(inputs: PreflightInput) -> Iterable[Finding]:
    """Return a warning for each key with a DeviceClass that gives other devices than it means."""
    return find_wide_mappings(inputs.legacy, inputs.snapshot, inputs.options)
