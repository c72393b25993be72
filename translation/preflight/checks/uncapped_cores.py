"""Shares without cores; claims place them on devices that HAMi and Volcano would not use."""

from collections.abc import Iterator
from typing import Final

from findings.finding import Code, Finding, info
from translation.preflight.model.inputs import PreflightInput
from translation.record.derive import provider
from translation.vocabularies.hami.translate import VOCABULARY as HAMI
from translation.vocabularies.volcano import VOCABULARY as VOLCANO

_SYSTEMS: Final = {HAMI.name: "HAMi", VOLCANO.name: "Volcano"}
"""Vocabulary name to the system that keeps such shares from devices without free cores."""


def check_uncapped_cores(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a finding for the first share without cores on devices that are published.

    Source: HAMi 4707fb0, pkg/device/nvidia/device.go, Fit: no share without cores on a card whose
    cores are all reserved. Volcano, pkg/scheduler/api/devices/nvidia/vgpu/utils.go, has the same rule.
    """
    shares = [
        (name, intent)
        for name in _SYSTEMS
        if name in inputs.readings
        for intent in inputs.readings[name].intents
    ]
    for name, intent in shares:
        profile = provider(intent, name, inputs.providers)
        if (
            profile is not None
            and profile.driver in (inputs.snapshot.publishes or ())
            and profile.devices[intent.kind].cores is not None
            and intent.cores_percent == 0
            and not intent.exclusive
        ):
            yield info(
                Code.UNCAPPED_CORES,
                intent.path("cores"),
                "no cores are requested: the share may be placed on a device whose cores are all "
                f"reserved, where {_SYSTEMS[name]} would not place it",
                "request cores, if some must be left",
            )
            return  # One finding for a pod is enough.
