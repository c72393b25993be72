"""Amounts of memory that devices give only rounded up."""

from collections.abc import Iterator

from findings.finding import Code, Finding, info
from translation.compiling.memory_shares import granted_amounts
from translation.model.intents import DeviceKind
from translation.preflight.model.inputs import PreflightInput
from translation.profiles.device_facts import UNKNOWN
from translation.profiles.profile import Sharing
from translation.record.derive import provider


def check_rounded_memory(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a finding for each amount of memory that devices give only rounded up.

    Koordinator divides a total in bytes among devices, which rarely gives whole MiB. Where nothing is
    published, steps of 1 MiB are assumed.
    """
    for vocabulary, reading in inputs.readings.items():
        for intent in reading.intents:
            profile = provider(intent, vocabulary, inputs.providers)
            if (
                profile is None
                or intent.memory is None
                or intent.exclusive
                or intent.through_mps
                or intent.kind is DeviceKind.MIG
            ):
                continue
            facts = inputs.snapshot.facts.get(profile.driver, {}).get(intent.kind, UNKNOWN)
            device = profile.devices[intent.kind]
            is_shared = device.sharing is Sharing.ALWAYS or bool(facts.shared)
            if device.memory is None or not is_shared:
                continue
            granted = granted_amounts(facts.sizes, intent.memory)
            if any(amount > intent.memory for amount in granted):
                yield info(
                    Code.AMOUNT_ROUNDED_UP,
                    intent.path("memory"),
                    f"{intent.memory} for each device becomes {max(granted)}: {profile.driver} divides "
                    "memory in larger steps",
                    "request an amount for each device that is a multiple of 1Mi"
                    if not facts.sizes
                    else "request that amount, if the limit matters",
                )
