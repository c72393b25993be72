"""Differences of shares that no claim can express: where they are placed, and what they limit."""

from collections.abc import Iterator, Mapping

from findings.finding import Code, Finding, error, info
from kube.api.network_attachments import NETWORKS
from translation.cluster.snapshot import TranslationSnapshot
from translation.compiling.memory_shares import granted_amounts
from translation.model.intents import DeviceKind, LegacyPod
from translation.profiles.device_facts import UNKNOWN
from translation.profiles.profile import Profile, Sharing
from translation.record.derive import Readings, provider
from translation.vocabularies.hami.translate import VOCABULARY as HAMI
from translation.vocabularies.koordinator.keys import ISOLATION_LABEL
from translation.vocabularies.koordinator.translate import VOCABULARY as KOORDINATOR


def check_uncapped_cores(
    readings: Readings, providers: Mapping[str, Profile], snapshot: TranslationSnapshot
) -> Iterator[Finding]:
    """Yield a finding for the first share without cores on devices that are published.

    Source: HAMi 4707fb0, pkg/device/nvidia/device.go, Fit: no share without cores on a card whose
    cores are all reserved.
    """
    reading = readings.get(HAMI.name)
    for intent in reading.intents if reading is not None else ():
        profile = provider(intent, HAMI.name, providers)
        if (
            profile is not None
            and profile.driver in (snapshot.publishes or ())
            and profile.devices[intent.kind].cores is not None
            and intent.cores_percent == 0
            and not intent.exclusive
        ):
            yield info(
                Code.UNCAPPED_CORES,
                intent.path("cores"),
                "no cores are requested: the share may be placed on a device whose cores are all "
                "reserved, where HAMi would not place it",
                "request cores, if some must be left",
            )
            return  # It is said once of a pod.


def check_granted_memory(
    readings: Readings, providers: Mapping[str, Profile], snapshot: TranslationSnapshot
) -> Iterator[Finding]:
    """Yield a finding for each amount of memory that devices give only rounded up.

    Koordinator divides a total in bytes among devices, which rarely gives whole MiB. Where nothing is
    published, steps of 1 MiB are assumed.
    """
    for vocabulary, reading in readings.items():
        for intent in reading.intents:
            profile = provider(intent, vocabulary, providers)
            if (
                profile is None
                or intent.memory is None
                or intent.exclusive
                or intent.through_mps
                or intent.kind is DeviceKind.MIG
            ):
                continue
            facts = snapshot.facts.get(profile.driver, {}).get(intent.kind, UNKNOWN)
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


def check_enforced_limits(
    legacy: LegacyPod,
    readings: Readings,
    providers: Mapping[str, Profile],
    snapshot: TranslationSnapshot,
) -> Iterator[Finding]:
    """Yield a finding for a share of Koordinator's that the driver limits, and koordlet would not.

    Source: koordinator a7a1b76, pkg/koordlet/runtimehooks/hooks/gpu: without the label of an
    isolation provider, memory and cores are reserved and not limited.
    """
    reading = readings.get(KOORDINATOR.name)
    if reading is None or legacy.labels.get(ISOLATION_LABEL):
        return
    for intent in reading.intents:
        profile = provider(intent, KOORDINATOR.name, providers)
        if (
            profile is not None
            and profile.driver in (snapshot.publishes or ())
            and profile.devices[intent.kind].sharing is Sharing.ALWAYS
            and profile.devices[intent.kind].memory is not None
            and not intent.exclusive
        ):
            yield info(
                Code.LIMITS_ENFORCED,
                intent.path("memory"),
                f"{profile.driver} limits the containers to their share; Koordinator only reserves it "
                f"without the label {ISOLATION_LABEL}",
            )


def check_multus(
    legacy: LegacyPod, readings: Readings, providers: Mapping[str, Profile]
) -> Iterator[Finding]:
    """Yield an error for each pool of NICs in a pod to which Multus attaches networks.

    The network may be on the NIC that the claim would move out of the host.
    """
    if not legacy.annotations.get(NETWORKS, "").strip():
        return
    for vocabulary, reading in readings.items():
        for intent in reading.intents:
            profile = provider(intent, vocabulary, providers)
            if not intent.pool or profile is None:
                continue
            if profile.devices[intent.kind].sharing is Sharing.NEVER:
                yield error(
                    Code.MULTUS_BESIDE_POOL,
                    intent.path("count"),
                    f"{profile.driver} would move a NIC of the pool out of the host, and Multus attaches "
                    "networks of the host that may be on the same NIC",
                    "keep the device plugin for this pod: label drawbridge.internal/translate: "
                    '"false"; or remove the annotation of the networks',
                )
