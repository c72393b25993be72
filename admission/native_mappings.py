"""Decides if a DeviceClass that maps a resource name gives exactly the devices that it means.

Kubernetes serves a mapped name with any device of its class (KEP-5004). The mapping is exact where a claim of
the translation would have no more than the class: no selector, amount or configuration. A class of another name
is exact where every published device of it is what the name means; without devices, a class for a MIG profile
has to name the profile. It may select fewer devices, such as those of one product: that is its author's choice.

This compiles claims and evaluates selectors, so it is computed when classes or slices change, and no review
waits for it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from allocator.model.devices import PublishedDevice
from allocator.model.requests import Expression
from allocator.model.selectors import SelectorChain, selector_chain
from findings.field_path import FieldPath
from findings.text import printable
from kube.api.extended_resources import implicit_class
from kube.api.meta import ObjectMeta
from kube.api.resource import Device, DeviceClass
from kube.cel.comparisons import drivers_named_by_class
from kube.quantity import Quantity
from translation.cluster.snapshot import (
    Mode,
    NativePolicy,
    TranslationOptions,
    TranslationSnapshot,
    WideMapping,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim, config_drivers
from translation.model.intents import DeviceFilter, Intent, LegacyContainer, LegacyPod
from translation.pipeline.translate import Translated, translate
from translation.profiles.device_facts import is_of_kind
from translation.profiles.profile import DeviceProfile, Profile
from translation.reading.arbiter import NICS
from translation.reading.renamed_keys import with_vocabulary_names
from translation.vocabularies.nvidia import SHARED_SUFFIX, is_replica_name
from translation.vocabularies.nvidia import VOCABULARY as NVIDIA
from translation.vocabularies.resources import NAME as RESOURCES

WHOLE_DEVICES: Final = (NVIDIA.name, RESOURCES, *NICS)
"""The vocabularies with keys that Kubernetes can serve itself."""
_PROBE: Final = "probe"
_ALL: Final = "All"
_NO_SHARE: Final = "nothing shows that it gives a share of a device, which the name means"


class MappingKey(NamedTuple):
    """All of a mapping that its author can change.

    Attributes:
        selectors: The expressions of the class.
    """

    resource: str
    device_class: str
    selectors: tuple[str, ...]


MappingVerdicts = Mapping[MappingKey, WideMapping | None]
"""The fault of each mapping; None for an exact one."""


def evaluate_mappings(
    classes: Mapping[str, DeviceClass],
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    devices: Sequence[PublishedDevice] = (),
) -> MappingVerdicts:
    """Return the verdict on each resource name that a class maps and a vocabulary translates.

    Args:
        classes: The DeviceClasses by name.
        snapshot: The snapshot with the mapped names.
        devices: All that are published; empty where none is known.

    Raises:
        AnswerInterrupted: It is not known yet which devices a class selects.
    """
    return {
        mapping_key(resource, device_class): find_fault(
            resource, device_class, snapshot, options, devices
        )
        for resource, name in snapshot.extended_resources.items()
        if not implicit_class(resource) and (device_class := classes.get(name)) is not None
    }


def text_verdict(
    device_class: DeviceClass, snapshot: TranslationSnapshot, options: TranslationOptions
) -> MappingVerdicts:
    """Return the verdict on the name that a class maps, by its text alone; empty if it maps none."""
    resource = device_class.spec.extended_resource_name
    if not resource:
        return {}
    key = mapping_key(resource, device_class)
    return {key: find_fault(resource, device_class, snapshot, options)}


def mapping_key(resource: str, device_class: DeviceClass) -> MappingKey:
    """Return the key of a mapping."""
    return MappingKey(resource, device_class.metadata.name, _texts(device_class))


def wide_mappings(verdicts: MappingVerdicts) -> Mapping[str, WideMapping]:
    """Return resource name to mapping, for those that are not exact."""
    return {key.resource: fault for key, fault in verdicts.items() if fault is not None}


def with_wide_mappings(
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    classes: Mapping[str, DeviceClass],
    devices: Sequence[PublishedDevice],
) -> TranslationSnapshot:
    """Return a snapshot with the mappings that are not exact; arguments as of `evaluate_mappings`."""
    verdicts = evaluate_mappings(classes, snapshot, options, devices)
    return msgspec.structs.replace(snapshot, wide_mappings=wide_mappings(verdicts))


class MappableNames:
    """The resource names that DeviceClasses could map exactly, if none does yet.

    A class maps one name, so of two names for one class the first that is looked up gets it.
    """

    def __init__(
        self,
        classes: Mapping[str, DeviceClass],
        snapshot: TranslationSnapshot,
        options: TranslationOptions,
        devices: Sequence[PublishedDevice],
    ) -> None:
        """Remember the classes, names and devices that decide.

        Args:
            classes: The DeviceClasses by name.
            snapshot: The snapshot with the mapped names.
            devices: All that are, or will be, published.
        """
        self._classes = classes
        self._snapshot = snapshot
        self._options = options
        self._devices = devices
        self._names_by_class: dict[str, str] = {}
        self._answers: dict[str, bool] = {}
        self._faults: dict[str, WideMapping | None] = {}

    def has(self, resource: str) -> bool:
        """Return True if a class serves a name exactly, once it maps it."""
        if self._options.native is NativePolicy.MAPPED:
            return True
        if resource not in self._answers:
            self._answers[resource] = self._is_exact(resource)
        return self._answers[resource]

    def class_name(self, resource: str) -> str:
        """Return the class of the devices that a name means; empty if nothing here knows it."""
        return next(iter(self._own(resource)), "")

    def wide_mappings(self, resources: Iterable[str]) -> tuple[WideMapping, ...]:
        """Return the mappings of these names that are not exact; none if settings leave pods to their class."""
        if self._options.native is NativePolicy.MAPPED:
            return ()
        mapped = self._snapshot.extended_resources.keys() & set(resources)
        faults = (self._fault(name) for name in sorted(mapped) if not implicit_class(name))
        return tuple(fault for fault in faults if fault is not None)

    def _is_exact(self, resource: str) -> bool:
        if resource not in self._snapshot.extended_resources:
            return all(self._could_map(class_name, resource) for class_name in self._own(resource))
        return self._fault(resource) is None

    def _fault(self, resource: str) -> WideMapping | None:
        """Return the fault of a mapping that there is; the devices are evaluated once for each name."""
        if resource not in self._faults:
            device_class = self._classes[self._snapshot.extended_resources[resource]]
            self._faults[resource] = find_fault(
                resource, device_class, self._snapshot, self._options, self._devices
            )
        return self._faults[resource]

    def _own(self, resource: str) -> Iterable[str]:
        claims = _claims(resource, "", self._snapshot, self._options)
        return sorted({name for claim in claims for name in claim.class_names()})

    def _could_map(self, name: str, resource: str) -> bool:
        device_class = self._classes.get(name)
        if device_class is not None and device_class.spec.extended_resource_name:
            return False
        if self._names_by_class.setdefault(name, resource) != resource:
            return False
        # Of a class that does not exist yet, nothing is published.
        existing_class = device_class or DeviceClass(metadata=ObjectMeta(name=name))
        devices = () if device_class is None else self._devices
        return find_fault(resource, existing_class, self._snapshot, self._options, devices) is None


def find_fault(
    resource: str,
    device_class: DeviceClass,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
    devices: Sequence[PublishedDevice] = (),
) -> WideMapping | None:
    """Return the reason that a class does not serve a resource name exactly; None if it does.

    A name that nothing here translates, and a driver without a profile, are not evaluated: only the author
    of the class knows what they mean. Replicas mean what they do where they stay with their device plugin, too: Kubernetes
    gives a pod of another node a device of the class.
    """
    if resource in options.kept_replicas:
        options = msgspec.structs.replace(options, kept=options.kept - {resource})
    intent = _intent(resource, snapshot, options)
    if intent is None:
        return None
    selected_devices = _select(device_class, devices)
    reason = next(
        (
            reason
            for driver in _drivers(device_class, selected_devices, snapshot)
            for reason in _reasons(
                _Served(
                    intent=intent,
                    device_class=device_class,
                    profile=snapshot.profiles[driver],
                    devices=[device for device in selected_devices if device.id.driver == driver],
                    configured=driver in config_drivers(device_class),
                ),
                _claims(resource, driver, snapshot, options),
            )
        ),
        "",
    )
    if not (reason or selected_devices or drivers_named_by_class(device_class)) and intent.replica:
        reason = _NO_SHARE
    profile_name = intent.filter.mig_profile
    if (
        not (reason or selected_devices)
        and profile_name
        and not _names_value(device_class, profile_name)
    ):
        reason = f"its selectors do not name the profile {profile_name}"
    if not reason:
        return None
    return WideMapping(resource=resource, device_class=device_class.metadata.name, reason=reason)


class _Served(msgspec.Struct, frozen=True, kw_only=True):
    """A resource name, and the devices of one driver that a class gives for it.

    Attributes:
        devices: Published devices of the driver that the class selects.
        configured: The class has a configuration for the driver.
    """

    intent: Intent
    device_class: DeviceClass
    profile: Profile
    devices: Sequence[PublishedDevice]
    configured: bool


def _reasons(served: _Served, claims: Iterable[Claim]) -> Iterator[str]:
    """Yield the parts of a translated claim that the class lacks."""
    if served.intent.replica:
        yield from _reasons_of_replica(served)
    for claim in claims:
        spec = claim.spec["spec"]["devices"]
        if spec.get("config") and not served.configured:
            yield f"has no configuration, which driver {served.profile.driver} needs"
        for request in spec["requests"]:
            yield from _reasons_of_request(
                served, request.get("firstAvailable") or [request["exactly"]]
            )


def _reasons_of_replica(served: _Served) -> Iterator[str]:
    """Yield the reasons that a class gives more than a share; without published shares nothing gets a translated claim."""
    kind = served.profile.devices.get(served.intent.kind)
    if not served.devices:
        yield _NO_SHARE
    for device in served.devices:
        if kind is None or kind.replicas is None or not _is_shared(device, kind.replicas):
            yield f"gives all of device {device.id}: the name means a share of it"


def _reasons_of_request(
    served: _Served, alternatives: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    is_own = served.device_class.metadata.name in {
        alternative["deviceClassName"] for alternative in alternatives
    }
    chains = [_expressions(alternative) for alternative in alternatives]
    if is_own and all(chains):
        yield f"selects more: the name means only devices with {printable(chains[0][0])}"
    if is_own and any(alternative.get("allocationMode") == _ALL for alternative in alternatives):
        yield "gives a number of devices: the name means all of a node"
    kind = served.profile.devices.get(served.intent.kind)
    if kind is None:
        return
    for device in served.devices:
        is_meant = not _is_of_other_kind(device.device, kind, served.profile) and any(
            not chain or _chain(chain).verdict(device) is True for chain in chains
        )
        if not is_meant:
            yield f"selects more, such as device {device.id}"
        for alternative in alternatives:
            requests = (alternative.get("capacity") or {}).get("requests") or {}
            if any(not _gives_all(device, name, amount) for name, amount in requests.items()):
                yield f"gives only a part of device {device.id}"


def _is_of_other_kind(device: Device, kind: DeviceProfile, profile: Profile) -> bool:
    """Return True if a device says that it is of another kind; one that does not say may be of this."""
    return not is_of_kind(device, kind, profile) and any(
        attribute in (device.attributes or {})
        for name in (*kind.where, *kind.lacks)
        for attribute in (name, "/".join(profile.qualified_name(name)))
    )


def _gives_all(device: PublishedDevice, name: str, amount: object) -> bool:
    """Return True if a claim without amounts consumes at least an amount of a device."""
    capacity = (device.device.capacity or {}).get(name)
    if capacity is None or not device.device.allow_multiple_allocations:
        return True
    policy = capacity.request_policy
    default = (
        policy.default if policy is not None and policy.default is not None else capacity.value
    )
    return default >= Quantity(str(amount))


def _is_shared(device: PublishedDevice, name: str) -> bool:
    """Return True if a claim without amounts gets one share of a device.

    Args:
        name: The capacity of which each consumer takes one.
    """
    capacity = (device.device.capacity or {}).get(name)
    if capacity is None or not device.device.allow_multiple_allocations:
        return False
    policy = capacity.request_policy
    return policy is not None and policy.default == Quantity(1)


def _expressions(alternative: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(selector["cel"]["expression"] for selector in alternative.get("selectors") or ())


# --- what the name means --------------------------------------------------------------------------


def _intent(
    resource: str, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Intent | None:
    """Return the intent of one device of a name; None if no vocabulary of whole devices has it."""
    vocabularies = vocabularies_in_force(options, snapshot.profiles)
    for name in WHOLE_DEVICES:
        vocabulary = vocabularies.get(name)
        if vocabulary is not None and vocabulary.handles(resource):
            pod = with_vocabulary_names(_pod(resource), vocabulary.renamed_keys)
            intent = next(iter(vocabulary.translate(pod).intents), None)
            meaning = vocabulary.renamed_keys.get(resource, resource)
            if intent is None and is_replica_name(meaning):
                # Nothing translates a replica of a MIG device; a class can give the whole device all the same.
                whole = _intent(meaning.removesuffix(SHARED_SUFFIX), snapshot, options)
                return whole and msgspec.structs.replace(whole, replica=True, filter=DeviceFilter())
            return intent
    return None


def _claims(
    resource: str, driver: str, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Sequence[Claim]:
    """Return the claims of a pod with one device of a name, if a driver serves it; empty for any driver."""
    outcome = translate(
        _pod(resource),
        namespace=_PROBE,
        snapshot=msgspec.structs.replace(
            snapshot, quotas={}, limit_ranges={}, namespaces={}, policies={}
        ),
        options=msgspec.structs.replace(
            options,
            mode=Mode.OPT_OUT,
            exempt_namespaces=(),
            drivers={resource: driver} if driver else options.drivers,
        ),
        passes_through=False,
    )
    claims = outcome.claims if isinstance(outcome, Translated) else ()
    return [claim for claim in claims if not driver or driver in claim.drivers]


def _pod(resource: str) -> LegacyPod:
    container = LegacyContainer(
        name=_PROBE, path=FieldPath.of("spec", "containers", 0), limits={resource: Quantity("1")}
    )
    return LegacyPod(containers=(container,))


# --- what the class gives -------------------------------------------------------------------------


def _drivers(
    device_class: DeviceClass, devices: Iterable[PublishedDevice], snapshot: TranslationSnapshot
) -> Sequence[str]:
    """Return the drivers with a profile and devices that a class gives, as far as they are known."""
    name = device_class.metadata.name
    published_drivers = {device.id.driver for device in devices}
    drivers = published_drivers or {
        *drivers_named_by_class(device_class),
        *(driver for driver, profile in snapshot.profiles.items() if name in profile.class_names()),
    }
    return sorted(drivers & snapshot.profiles.keys())


def _select(
    device_class: DeviceClass, devices: Sequence[PublishedDevice]
) -> Sequence[PublishedDevice]:
    """Return the devices of a class; a device that makes a selector fail is never allocated."""
    verdicts = _chain(_texts(device_class)).verdicts(devices)
    return [device for device, verdict in zip(devices, verdicts, strict=True) if verdict is True]


def _texts(device_class: DeviceClass) -> tuple[str, ...]:
    return tuple(
        selector.cel.expression
        for selector in device_class.spec.selectors or ()
        if selector.cel is not None
    )


def _names_value(device_class: DeviceClass, value: str) -> bool:
    """Return True if a selector of a class has a text as a whole literal."""
    literals = (f"'{value}'", f'"{value}"')
    return any(literal in text for text in _texts(device_class) for literal in literals)


def _chain(expressions: Iterable[str]) -> SelectorChain:
    return selector_chain(tuple(Expression(text=text, origin="") for text in expressions))
