"""The memory sizes of published partitions, in the denial of a key that requests another part of a device.

The advice of a profile cannot name them, since they are those of a cluster.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from findings.finding import Code, Finding
from findings.text import join_names, printable
from translation.model.intents import Intent
from translation.preflight.model.inputs import PreflightInput
from translation.profiles.device_facts import UNKNOWN
from translation.profiles.profile import DeviceProfile
from translation.record.derive import provider

_MAX_NAMES: Final = 8


def with_published_sizes(finding: Finding, inputs: PreflightInput) -> Finding:
    """Return the error for a key that a profile rejects with the partitions to request; others unchanged."""
    if finding.code is not Code.CANNOT_EXPRESS or not finding.fix:
        return finding
    for vocabulary, reading in inputs.readings.items():
        for intent in reading.intents:
            names = (
                tuple(_published_names(intent, vocabulary, inputs))
                if intent.path("count") == finding.path
                else ()
            )
            if names:
                return replace(
                    finding, fix=f"{finding.fix}; published are {join_names(names, _MAX_NAMES)}"
                )
    return finding


def _published_names(intent: Intent, vocabulary: str, inputs: PreflightInput) -> Iterator[str]:
    """Yield the resource names of published devices with their memory, if a profile rejects the name of an intent."""
    profile = provider(intent, vocabulary, inputs.providers)
    resource = intent.filter.resource
    if profile is None or resource is None:
        return
    device = profile.devices[intent.kind]
    rejected = device.find_resource(resource)
    if rejected is None or not isinstance(rejected[1].rejected, str):
        return
    facts = inputs.snapshot.facts.get(profile.driver, {}).get(intent.kind, UNKNOWN)
    domain = resource.partition("/")[0]
    for name, sizes in sorted(facts.named_sizes.items()):
        if _is_requested_by(f"{domain}/{name}", device):
            yield f"{printable(domain)}/{printable(name)} ({' or '.join(map(str, sizes))})"


def _is_requested_by(resource: str, device: DeviceProfile) -> bool:
    """Return True if a resource name requests devices by their own name."""
    match = device.find_resource(resource)
    return match is not None and match[1].short_name is not None
