"""Findings that depend on published memory sizes: denials that name partitions, and all memory of a device.

Neither the advice of a profile nor a record has them, since they are those of a cluster.
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


def holds_for_sizes(finding: Finding, inputs: PreflightInput) -> bool:
    """Return False for a warning about the rest of a device if no published device has a rest.

    An amount that is all memory of each device with as much leaves none: whatever requests memory finds another device.
    """
    if finding.code is not Code.NOT_EXCLUSIVE:
        return True
    return not any(
        intent.path("cores") == finding.path and _takes_all_memory(intent, vocabulary, inputs)
        for vocabulary, reading in inputs.readings.items()
        for intent in reading.intents
    )


def _takes_all_memory(intent: Intent, vocabulary: str, inputs: PreflightInput) -> bool:
    """Return True if an intent's amount is all memory of each published device with as much, and there is one."""
    profile, amount = provider(intent, vocabulary, inputs.providers), intent.memory
    if profile is None or amount is None:
        return False
    facts = inputs.snapshot.facts.get(profile.driver, {}).get(intent.kind, UNKNOWN)
    sizes = [memory.size for memory in facts.sizes or () if memory.size >= amount]
    return bool(sizes) and all(size == amount for size in sizes)


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
