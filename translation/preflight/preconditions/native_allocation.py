"""Leave pods untranslated if Kubernetes itself allocates their devices."""

from collections.abc import Mapping

from findings.finding import Code, Finding, info
from translation.cluster.native_allocation import find_wide_mappings, is_native
from translation.model.intents import LegacyPod
from translation.preflight.model.inputs import PodInput, Stop


def stop_at_native_allocation(inputs: PodInput) -> Stop | None:
    """Stop at a pod with keys that DeviceClasses map, with a warning for each class that gives more."""
    legacy, snapshot, options = inputs.legacy, inputs.snapshot, inputs.options
    if not inputs.passes_through or not is_native(legacy, snapshot, options):
        return None
    wide_mappings = find_wide_mappings(legacy, snapshot, options)
    # Keys of pools that stay with their device plugin are told all the same.
    finding = passed_through(legacy, snapshot.extended_resources)
    return Stop((finding, *wide_mappings, *inputs.network_findings))


def passed_through(legacy: LegacyPod, extended_resources: Mapping[str, str]) -> Finding:
    """Return the finding on a pod with keys that classes map.

    Args:
        legacy: The pod.
        extended_resources: Resource name to the DeviceClass that maps it.
    """
    container = next(container for container in legacy.containers if container.limits)
    key = min(container.limits)
    device_class = extended_resources[key]
    return info(
        Code.PASSED_THROUGH,
        container.limit_path(key),
        f"DeviceClass {device_class} maps {key}: Kubernetes allocates it without translation",
    )
