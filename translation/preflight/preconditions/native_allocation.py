"""Leave pods untranslated if Kubernetes itself allocates their devices."""

from findings.finding import Code, Finding, info
from translation.cluster.native_allocation import find_wide_mappings, is_native
from translation.cluster.snapshot import TranslationSnapshot
from translation.model.intents import LegacyPod
from translation.preflight.model.inputs import PodInput, Stop


def stop_at_native_allocation(inputs: PodInput) -> Stop | None:
    """Stop at a pod with keys that DeviceClasses map, with a warning for each class that gives more."""
    legacy, snapshot, options = inputs.legacy, inputs.snapshot, inputs.options
    if not inputs.passes_through or not is_native(legacy, snapshot, options):
        return None
    wide_mappings = find_wide_mappings(legacy, snapshot, options)
    # Keys of pools that stay with their device plugin are told all the same.
    return Stop((_native_finding(legacy, snapshot), *wide_mappings, *inputs.network_findings))


def _native_finding(legacy: LegacyPod, snapshot: TranslationSnapshot) -> Finding:
    container = next(container for container in legacy.containers if container.limits)
    key = min(container.limits)
    device_class = snapshot.extended_resources[key]
    return info(
        Code.PASSED_THROUGH,
        container.limit_path(key),
        f"DeviceClass {device_class} maps {key}: Kubernetes allocates it without translation",
    )
