"""Shares of Koordinator that the driver limits, and koordlet would not."""

from collections.abc import Iterator

from findings.finding import Code, Finding, info
from translation.model.intents import Intent
from translation.preflight.model.inputs import PreflightInput
from translation.profiles.profile import Sharing
from translation.record.derive import provider
from translation.vocabularies.koordinator.keys import ISOLATION_LABEL
from translation.vocabularies.koordinator.translate import VOCABULARY as KOORDINATOR


def check_enforced_limits(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a finding for a share of Koordinator that the driver limits, and koordlet would not.

    Source: koordinator a7a1b76, pkg/koordlet/runtimehooks/hooks/gpu: without the label of an
    isolation provider, memory and cores are reserved and not limited.
    """
    reading = inputs.readings.get(KOORDINATOR.name)
    if reading is None or inputs.legacy.labels.get(ISOLATION_LABEL):
        return
    for intent in reading.intents:
        profile = provider(intent, KOORDINATOR.name, inputs.providers)
        if (
            profile is not None
            and profile.driver in (inputs.snapshot.publishes or ())
            and profile.devices[intent.kind].sharing is Sharing.ALWAYS
            and profile.devices[intent.kind].memory is not None
            and not intent.exclusive
        ):
            yield info(
                Code.LIMITS_ENFORCED,
                intent.path("memory"),
                f"{profile.driver} limits the containers to their share{_parts(intent)}; Koordinator only reserves it "
                f"without the label {ISOLATION_LABEL}",
            )


def _parts(intent: Intent) -> str:
    """Return the share of each of several GPUs in words; empty for a single one."""
    if intent.count < 2:
        return ""
    memory = f"{intent.memory_percent or 100} percent of the memory"
    if intent.memory is not None:
        memory = f"{intent.memory} of memory"
    cores = f" and {intent.cores_percent} percent of the cores" if intent.cores_percent else ""
    return f", {memory}{cores} of each of {intent.count} GPUs"
