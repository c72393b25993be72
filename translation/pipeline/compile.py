"""The third step of a translation: the claims for a pod's requests."""

from collections.abc import Mapping

import msgspec

from translation.model.intents import DeviceKind
from translation.pipeline.read import PodReading
from translation.pipeline.relevant_facts import relevant_facts
from translation.pipeline.route import Routing
from translation.profiles.device_facts import Facts
from translation.record.derive import Derivation, compile_readings


class Compilation(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a pod.

    Attributes:
        facts: Driver name to device kind to the facts that the claims depend on.
        derivation: The claims and variables, with findings about keys that a claim cannot express.
    """

    facts: Mapping[str, Mapping[DeviceKind, Facts]]
    derivation: Derivation


def compile_pod(reading: PodReading, routing: Routing) -> Compilation:
    """Compile the intents of a pod to claims of the drivers that serve it."""
    readings, providers = reading.readings, routing.providers
    facts = {
        profile.driver: relevant_facts(
            readings, providers, profile, reading.snapshot.facts.get(profile.driver, {})
        )
        for profile in providers.values()
    }
    derivation = compile_readings(readings, reading.legacy, providers, facts)
    return Compilation(facts=facts, derivation=derivation)
