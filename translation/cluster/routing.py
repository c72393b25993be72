"""The driver that serves a vocabulary's keys in a pod, by their requests and the known drivers.

One vocabulary has one driver in a pod. The rows of `ROUTES` list the candidates, best first. Of
those that can serve the request, the first wins whose devices were ever published, else the first
whose DeviceClass exists, else the first. Whole GPUs need no driver that divides them, so they go
where GPUs are; a share needs one that does. The choice is recorded in the pod, so it is stable.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from findings.finding import Code, Finding, error
from findings.text import printable
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.model.intents import DeviceKind, Intent, LegacyPod
from translation.profiles.device_facts import UNKNOWN, Facts
from translation.profiles.profile import DeviceProfile, Profile, Sharing
from translation.record.derive import Readings, serves
from translation.vocabularies import nvidia
from translation.vocabularies.hami.translate import VOCABULARY as HAMI
from translation.vocabularies.koordinator.translate import VOCABULARY as KOORDINATOR

OWN: Final = "own"
"""The driver of the vocabulary that reads the keys, in a route."""
OWN_DRIVER: Final = "gpu.drawbridge.internal"
"""Drawbridge's node driver, which publishes whole GPUs, shares and MIG devices: the last candidate."""
GPUS: Final = frozenset({nvidia.VOCABULARY.name, HAMI.name, KOORDINATOR.name})
"""The vocabularies of GPUs."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The order of candidate drivers for one kind of request.

    Attributes:
        request: The request that the keys make, for docs.
        order: Vocabularies whose drivers are the candidates, `OWN` for the one that reads the keys.
    """

    request: str
    order: tuple[str, ...]


PLUGIN_GPUS: Final = Route(
    request="whole GPUs by `nvidia.com/gpu`, with Koordinator's annotations or without",
    order=(nvidia.VOCABULARY.name, OWN, HAMI.name, KOORDINATOR.name),
)
WHOLE_GPUS: Final = Route(
    request="other whole GPUs: beside a key or an annotation of HAMi, or 100 percent in Koordinator's "
    "keys; MIG devices",
    order=(OWN, nvidia.VOCABULARY.name, HAMI.name, KOORDINATOR.name),
)
SHARES: Final = Route(
    request="shares of GPUs, also beside whole ones in the pod",
    order=(OWN, HAMI.name, KOORDINATOR.name, nvidia.VOCABULARY.name),
)
ROUTES: Final = (PLUGIN_GPUS, WHOLE_GPUS, SHARES)
"""The first that matches a request applies; docs/vocabularies.md lists them."""


_GPU_KINDS: Final = frozenset({DeviceKind.GPU, DeviceKind.MIG})


class RoutedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, and the facts that determine the drivers that serve it.

    Attributes:
        owned: Vocabulary name to the keys of the pod that it owns.
    """

    legacy: LegacyPod
    owned: Mapping[str, frozenset[str]]
    readings: Readings
    snapshot: TranslationSnapshot
    options: TranslationOptions


def route(pod: RoutedPod) -> Mapping[str, str]:
    """Return vocabulary name to the driver that serves it in the pod.

    Vocabularies whose driver has no profile are left out.
    """
    profiles = pod.snapshot.profiles
    chosen_drivers: dict[str, str] = {}
    for vocabulary, reading in pod.readings.items():
        gpus = [intent for intent in reading.intents if intent.kind in _GPU_KINDS]
        candidates = [name for name in _candidates(vocabulary, gpus, pod) if name in profiles]
        if not candidates:
            continue
        recorded_driver = pod.legacy.recorded_drivers.get(vocabulary)
        own = pod.options.profiles.get(vocabulary, candidates[0])
        if recorded_driver in candidates:
            chosen_drivers[vocabulary] = recorded_driver
        elif len(candidates) == 1:
            chosen_drivers[vocabulary] = candidates[0]
        elif all(serves(profiles[own], intent) for intent in gpus):
            chosen_drivers[vocabulary] = _best(candidates, own, gpus, pod.snapshot)
        else:
            # As in HAMi's modes mig and mps: another vocabulary's driver serves these intents.
            chosen_drivers[vocabulary] = own
    return chosen_drivers


def check_key_drivers(pod: RoutedPod) -> Iterator[Finding]:
    """Yield an error if the settings give keys of one vocabulary in a pod to several drivers."""
    drivers = pod.options.drivers
    for vocabulary in pod.readings:
        keys = _keys_with_driver(vocabulary, pod)
        if len({drivers[key] for key in keys}) > 1:
            container = next(
                container for container in pod.legacy.containers if keys[0] in container.limits
            )
            key_list = ", ".join(f"{printable(key)} by {drivers[key]}" for key in keys)
            yield error(
                Code.AMBIGUOUS_OWNER,
                container.limit_path(keys[0]),
                f"the settings serve {key_list}, and in one pod they have one driver",
                "request them in pods of their own, or give them one driver in translation.profiles",
            )


def _candidates(vocabulary: str, gpus: Sequence[Intent], pod: RoutedPod) -> tuple[str, ...]:
    """Return the drivers that may serve a vocabulary in the pod, best first."""
    options = pod.options
    keys = _keys_with_driver(vocabulary, pod)
    if keys:
        return (options.drivers[keys[0]],)
    own = options.profiles.get(vocabulary)
    if own is None or own not in pod.snapshot.profiles:
        return ()
    if vocabulary in options.fixed or not gpus:
        return (own,)
    order = _route_of(gpus, pod.owned[vocabulary], vocabulary).order
    names = (vocabulary if name == OWN else name for name in order)
    drivers = (options.profiles[name] for name in names if name in options.profiles)
    return tuple(dict.fromkeys((*drivers, OWN_DRIVER)))


def _keys_with_driver(vocabulary: str, pod: RoutedPod) -> Sequence[str]:
    """Return the pod's keys of a vocabulary that the settings give a driver of their own."""
    drivers = pod.options.drivers
    return sorted(drivers.keys() & pod.owned[vocabulary]) if drivers else ()


def _route_of(gpus: Sequence[Intent], owned_keys: frozenset[str], vocabulary: str) -> Route:
    if not all(intent.exclusive for intent in gpus):
        return SHARES
    return PLUGIN_GPUS if nvidia.GPU in owned_keys and vocabulary != HAMI.name else WHOLE_GPUS


def _best(
    candidates: Sequence[str], own: str, gpus: Sequence[Intent], snapshot: TranslationSnapshot
) -> str:
    """Return the first of the candidates that exist most, of those that can serve the intents."""
    able = [
        driver
        for driver in candidates
        if driver == own or _can_serve(snapshot.profiles[driver], gpus, snapshot)
    ]
    if len(able) == 1:
        return able[0]
    return min(
        able,
        key=lambda driver: (
            _absence(snapshot.profiles[driver], gpus, snapshot),
            _lacks_tflops(snapshot.profiles[driver], gpus),
        ),
    )


def _lacks_tflops(profile: Profile, gpus: Iterable[Intent]) -> bool:
    """Return True if a request of TFLOPS would be dropped."""
    return any(
        intent.tflops is not None
        and intent.kind in profile.devices
        and not isinstance(profile.devices[intent.kind].tflops, str)
        for intent in gpus
    )


def _can_serve(profile: Profile, gpus: Iterable[Intent], snapshot: TranslationSnapshot) -> bool:
    """Return True if another driver than the first candidate can serve all of the intents."""
    facts = snapshot.facts.get(profile.driver, {})
    return all(
        serves(profile, intent)
        and (
            intent.exclusive
            or _divides(profile.devices[intent.kind], facts.get(intent.kind, UNKNOWN), intent)
        )
        for intent in gpus
    )


def _divides(device: DeviceProfile, facts: Facts, intent: Intent) -> bool:
    """Return True if a driver divides its devices into such shares."""
    if intent.replica or intent.through_mps:
        return False
    is_shared = device.sharing is Sharing.ALWAYS or (
        device.sharing is Sharing.PUBLISHED and bool(facts.shared)
    )
    return (
        is_shared
        and device.memory is not None
        and (device.cores is not None or not intent.cores_percent)
    )


def _absence(profile: Profile, gpus: Iterable[Intent], snapshot: TranslationSnapshot) -> int:
    """Return 0 if devices of every kind were ever published, 1 if their classes exist, else 2."""
    kinds = {intent.kind for intent in gpus}
    return max(
        (
            _absence_of(profile, device, kind, snapshot)
            for kind, device in profile.devices.items()
            if kind in kinds
        ),
        default=0,
    )


def _absence_of(
    profile: Profile, device: DeviceProfile, kind: DeviceKind, snapshot: TranslationSnapshot
) -> int:
    if snapshot.facts.get(profile.driver, {}).get(kind, UNKNOWN) != UNKNOWN:
        return 0
    if profile.driver in snapshot.once_published.get(device.class_name, ()):
        return 0
    return 1 if device.class_name in (snapshot.classes or ()) else 2


def publishes_elsewhere(resource: str, snapshot: TranslationSnapshot) -> bool:
    """Return True if the class that maps a resource has no devices, and another GPU driver has.

    Kubernetes would let such a pod wait, while its keys can be served by the other driver.
    """
    device_class = snapshot.extended_resources[resource]
    has_devices = {
        driver: any(
            _absence_of(profile, device, kind, snapshot) == 0
            for kind, device in profile.devices.items()
            if kind is DeviceKind.GPU
        )
        for driver, profile in snapshot.profiles.items()
    }
    owners = [
        driver
        for driver, profile in snapshot.profiles.items()
        if device_class in profile.class_names()
    ]
    return (
        resource == nvidia.GPU
        and bool(owners)
        and not any(has_devices[driver] for driver in owners)
        and any(has_devices.values())
    )
