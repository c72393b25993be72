"""The third step of a translation: the claims for a pod's requests."""

from collections.abc import Mapping, Sequence

import msgspec

from translation.model.intents import Alignment, DeviceKind, Intent, Scope
from translation.pipeline.read import PodReading
from translation.pipeline.route import Routing
from translation.profiles.device_facts import UNKNOWN, Facts
from translation.profiles.profile import DeviceProfile, Profile, Sharing
from translation.record.derive import Derivation, Readings, compile_readings, provider


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
        profile.driver: _relevant_facts(
            readings, providers, profile, reading.snapshot.facts.get(profile.driver, {})
        )
        for profile in providers.values()
    }
    derivation = compile_readings(readings, reading.legacy, providers, facts)
    return Compilation(facts=facts, derivation=derivation)


def _relevant_facts(
    readings: Readings,
    providers: Mapping[str, Profile],
    profile: Profile,
    known_facts: Mapping[DeviceKind, Facts],
) -> Mapping[DeviceKind, Facts]:
    """Return only those facts about published devices that the intents' claims depend on.

    So a record, and with it the name of its template, changes only when a claim does.
    """
    provided_intents = [
        (intent, reading.alignment)
        for vocabulary, reading in readings.items()
        for intent in reading.intents
        if provider(intent, vocabulary, providers) is profile
    ]
    relevant: dict[DeviceKind, Facts] = {}
    for kind, facts in known_facts.items():
        of_kind = [
            (intent, alignment)
            for intent, alignment in provided_intents
            if intent.kind is kind or (kind is DeviceKind.GPU and _is_part_of_gpu(intent))
        ]
        relevant[kind] = _relevant_to(profile, kind, facts, [intent for intent, _ in of_kind])
        per_root = _relevant_group_sizes(facts, of_kind)
        if per_root is not None:
            relevant[kind] = msgspec.structs.replace(relevant[kind], per_root=per_root)
    return relevant


def _is_part_of_gpu(intent: Intent) -> bool:
    """Return True if a MIG device depends on the memory of its GPU."""
    return intent.kind is DeviceKind.MIG and intent.memory_percent is not None


def _relevant_group_sizes(
    facts: Facts, intents: Sequence[tuple[Intent, Alignment | None]]
) -> tuple[int, ...] | None:
    """Return the numbers of devices per PCIe root if devices are divided into groups.

    Elsewhere it only matters whether known devices publish no root.
    """
    rooted_intents = [
        (intent, alignment)
        for intent, alignment in intents
        if intent.within is Scope.PCIE_ROOT or (alignment and intent.kind in alignment.kinds)
    ]
    if not rooted_intents or facts == UNKNOWN:
        return None
    if facts.per_root is None:
        return ()
    divides = any(
        alignment and intent.kind is alignment.kinds[0] and intent.count > 1
        for intent, alignment in rooted_intents
    )
    return facts.per_root if divides else None


def _relevant_to(
    profile: Profile, kind: DeviceKind, facts: Facts, intents: Sequence[Intent]
) -> Facts:
    device = profile.devices.get(kind)
    if device is None or not intents:
        return UNKNOWN
    takes_all = any(intent.takes_all_memory for intent in intents)
    by_size = any(intent.memory_percent is not None for intent in intents)
    by_profile = kind is DeviceKind.MIG and any(intent.memory is not None for intent in intents)
    default_is_part = takes_all and facts.default_is_part
    by_name = any(intent.nominal_memory for intent in intents)
    return Facts(
        sizes=facts.sizes if by_size or by_profile or default_is_part else None,
        mixed=facts.mixed
        and any(intent.memory_percent is not None and intent.count > 1 for intent in intents),
        mixed_profiles=facts.mixed_profiles
        and any(
            intent.count > 1 and (intent.memory is not None or intent.memory_percent is not None)
            for intent in intents
        ),
        shared=facts.shared if device.sharing is Sharing.PUBLISHED else None,
        default_is_part=default_is_part,
        replicas=facts.replicas
        if any(_depends_on_replicas(intent, facts) for intent in intents)
        else None,
        partitions=_relevant_partitions(facts, intents),
        compute_units=_relevant_compute_units(device, facts, intents),
        named_sizes=facts.named_sizes if kind is DeviceKind.MIG and by_name else {},
    )


def _relevant_partitions(facts: Facts, intents: Sequence[Intent]) -> tuple[int, ...] | None:
    if any(intent.partition for intent in intents):
        return () if facts.partitions is None and facts != UNKNOWN else facts.partitions
    return facts.partitions if any(intent.exclusive for intent in intents) else None


def _relevant_compute_units(
    device: DeviceProfile, facts: Facts, intents: Sequence[Intent]
) -> tuple[int, ...] | None:
    if device.compute_units is msgspec.UNSET or device.cores is not None:
        return None
    if not any(intent.takes_part_of_cores for intent in intents):
        return None
    return () if facts.compute_units is None and facts != UNKNOWN else facts.compute_units


def _depends_on_replicas(intent: Intent, facts: Facts) -> bool:
    return intent.replica or (intent.exclusive and bool(facts.shared) and bool(facts.replicas))
