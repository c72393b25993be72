"""Quotas that would not count the devices of a pod, whatever names it requests them by. Preflight checks.

A ResourceQuota that counts one key of a driver concerns every pod that gets devices of this driver:

* by claims in place of its keys, which Kubernetes counts by their DeviceClass only;
* by the implicit name of a DeviceClass, `deviceclass.resource.kubernetes.io/<class>`. Every class has
  one, and kube-scheduler makes the claim, so a user needs no right to create claims. The pod stays as it
  is, and its own labels and its scheduler make no difference.

Source: KEP-5004; k8s.io/kubernetes v1.37.1, pkg/quota/v1/evaluator/core, resource_claims.go and pods.go:
claims and pods count under the implicit name, and pods in quotas with scopes, too.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from kube.api.core import Pod
from kube.api.extended_resources import IMPLICIT_PREFIX, implicit_class
from kube.quantity import ZERO
from quotas.scopes import REQUESTS, PodScopes, Quota, devices_of_class, scopes_of
from translation.cluster.serving_drivers import serving_drivers
from translation.cluster.snapshot import (
    Mode,
    QuotaPolicy,
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.model.intents import LegacyPod, Vocabulary
from translation.preflight.quota_dimensions import counts_amounts
from translation.reading.legacy_pod import OPT_OUT_LABELS, containers
from translation.record.derive import Readings

AMOUNT_FIX: Final = (
    "no ResourceQuota counts memory or compute of claims: limit it by a queue such as Kueue, with capacity "
    "sources; translation.quota: warn admits the pods, and gives this limit up"
)


class ClassDrivers(NamedTuple):
    """The drivers whose devices a DeviceClass may select.

    Attributes:
        known: Those that its selectors or a profile name, and those that ever published devices of it.
        may_be_others: Its selectors name none, so it may select devices of every driver.
    """

    known: frozenset[str]
    may_be_others: bool = False

    def among(self, drivers: frozenset[str]) -> frozenset[str]:
        """Return those of some drivers whose devices the class may select."""
        return drivers if self.may_be_others else drivers & self.known


def drivers_of_class(name: str, snapshot: TranslationSnapshot) -> ClassDrivers:
    """Return the drivers of a DeviceClass; none of a class that does not exist and no profile has."""
    named_drivers = snapshot.class_drivers.get(name)
    of_profiles = (
        driver for driver, profile in snapshot.profiles.items() if name in profile.class_names()
    )
    return ClassDrivers(
        known=(named_drivers or frozenset()).union(
            of_profiles, snapshot.once_published.get(name, ())
        ),
        may_be_others=named_drivers is not None and not named_drivers,
    )


def drivers_of_key(
    key: str, snapshot: TranslationSnapshot, options: TranslationOptions
) -> frozenset[str]:
    """Return the drivers whose devices a resource name stands for, as far as they are known."""
    device_class = implicit_class(key) or snapshot.extended_resources.get(key)
    drivers = serving_drivers(key, options, snapshot.profiles)
    return (
        drivers
        if device_class is None
        else drivers | drivers_of_class(device_class, snapshot).known
    )


def is_class_counted(device_class: str, quotas: Iterable[Quota]) -> bool:
    """Return whether a quota counts the devices that claims have of a class."""
    return any(not quota.scopes and quota.counts_class(device_class) for quota in quotas)


def counts_claims(
    quota: Quota, key: str, classes: Collection[str], snapshot: TranslationSnapshot
) -> bool:
    """Return whether a quota on a resource name counts the devices that claims have of some classes.

    Source: addExtendedResourceQuota.
    """
    return not quota.scopes and snapshot.extended_resources.get(key) in classes


# --- claims in place of keys ----------------------------------------------------------------------


def check_quotas(
    claims: Sequence[Claim],
    amounts: Iterable[tuple[str, FieldPath]],
    scopes: PodScopes,
    *,
    namespace: str,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> Iterator[Finding]:
    """Yield a finding for each quota that would silently stop counting the pod.

    A quota concerns the pod if it counts one of its keys, or any other key that is served by a driver
    of its claims: devices are the same, whatever they are called. A quota without scopes counts the
    claims itself where their class maps the key. A line on devices is replaced by lines on the classes of
    the claims, and a line on memory or compute by nothing.

    Args:
        amounts: Key and path of every amount that quotas count.
        scopes: The quota scopes that match the pod.
    """
    quotas = snapshot.quotas.get(namespace, {})
    counting = _matching(quotas, scopes)
    if not counting:
        return
    classes = sorted({name for claim in claims for name in claim.class_names()})
    # Devices are counted in place of devices; nothing counts the memory and compute of claims.
    is_counted = bool(classes) and all(is_class_counted(name, quotas.values()) for name in classes)
    vocabularies = vocabularies_in_force(options, snapshot.profiles).values()
    finding = error if options.quota is QuotaPolicy.DENY else warning
    fix = (
        f"count {', '.join(map(devices_of_class, classes)) or 'claims'} in a ResourceQuota instead"
    )
    own = list(amounts)
    for key, path in own:
        is_amount = counts_amounts(key, vocabularies)
        for name, quota in counting if is_amount or not is_counted else ():
            if f"{REQUESTS}{key}" in quota.names and not counts_claims(
                quota, key, classes, snapshot
            ):
                message = (
                    f"ResourceQuota {name} counts requests.{key}, which does not include claims"
                )
                yield finding(
                    Code.QUOTA_NOT_COUNTED, path, message, AMOUNT_FIX if is_amount else fix
                )
    drivers = _drivers_of_claims(classes, snapshot)
    for name, quota in counting if not is_counted else ():
        for key in sorted(quota.counted_keys() - {key for key, _ in own}):
            if counts_claims(quota, key, classes, snapshot):
                continue
            for driver in sorted(drivers & drivers_of_key(key, snapshot, options)):
                yield finding(
                    Code.QUOTA_NOT_COUNTED,
                    own[0][1] if own else FieldPath.of("spec", "resourceClaims"),
                    f"ResourceQuota {name} counts requests.{key}, which also stands for devices of "
                    f"{driver}, and does not include claims",
                    fix,
                )


def _matching(quotas: Mapping[str, Quota], scopes: PodScopes) -> list[tuple[str, Quota]]:
    """Return the quotas that count a pod, by name."""
    return [(name, quotas[name]) for name in sorted(quotas) if quotas[name].counts(scopes)]


def _drivers_of_claims(classes: Collection[str], snapshot: TranslationSnapshot) -> frozenset[str]:
    """Return the drivers whose profiles have these DeviceClasses."""
    return frozenset(
        driver
        for driver, profile in snapshot.profiles.items()
        if not profile.class_names().isdisjoint(classes)
    )


def quota_amounts(
    legacy: LegacyPod, readings: Readings, vocabularies: Mapping[str, Vocabulary]
) -> Iterator[tuple[str, FieldPath]]:
    """Yield key and path of every amount that quotas count in the untranslated pod."""
    for container in legacy.containers:
        for key, amount in sorted(container.limits.items()):
            if amount:
                yield key, container.limit_path(key)
    limits = {container.name: container.limits for container in legacy.containers}
    for vocabulary, reading in readings.items():
        added_key = vocabularies[vocabulary].added_key
        for intent in reading.intents:
            if added_key is not None and added_key not in limits[intent.container]:
                yield added_key, intent.path("count")


# --- implicit names of DeviceClasses --------------------------------------------------------------


def check_implicit_names(
    pod: Pod, *, namespace: str, snapshot: TranslationSnapshot, options: TranslationOptions
) -> Iterator[Finding]:
    """Yield a finding for each implicit name of a DeviceClass in a pod, and each quota that it evades.

    A quota that counts the name itself counts the pod, and one without scopes that counts the class
    counts the claim that kube-scheduler makes.
    """
    quotas = snapshot.quotas.get(namespace)
    # No scheduler makes a claim for a pod that names its node, such as the mirror of a static pod.
    if not quotas or pod.spec.node_name or not _is_reviewed(namespace, snapshot, options):
        return
    requested_names = _implicit_names(pod, snapshot)
    if not requested_names:
        return
    finding = error if options.quota is QuotaPolicy.DENY else warning
    counting = _matching(quotas, scopes_of(pod))
    drivers_by_key = {
        key: drivers_of_key(key, snapshot, options)
        for key in frozenset[str]().union(*(quota.counted_keys() for _, quota in counting))
    }
    for requested_name, path in sorted(requested_names.items()):
        device_class = implicit_class(requested_name)
        if is_class_counted(device_class, quotas.values()):
            continue
        drivers = drivers_of_class(device_class, snapshot)
        fix = f"count {devices_of_class(device_class)} in a ResourceQuota of the namespace"
        for name, quota in counting:
            keys = quota.counted_keys()
            if requested_name in keys:
                continue
            evaded_key = next(
                (
                    key
                    for key in sorted(keys)
                    if drivers.among(drivers_by_key[key])
                    and not counts_claims(quota, key, (device_class,), snapshot)
                ),
                None,
            )
            if evaded_key is not None:
                driver = min(drivers.among(drivers_by_key[evaded_key]))
                yield finding(
                    Code.QUOTA_NOT_COUNTED,
                    path,
                    f"ResourceQuota {name} counts requests.{evaded_key}, which also stands for devices "
                    f"of {driver}, and does not include this name of DeviceClass {device_class}",
                    fix,
                )


def _is_reviewed(
    namespace: str, snapshot: TranslationSnapshot, options: TranslationOptions
) -> bool:
    """Return whether the webhook is called for the pods of a namespace, whatever labels they have."""
    labels = snapshot.namespaces.get(namespace, {})
    is_opted_out = any(labels.get(label) == value for label, value in OPT_OUT_LABELS.items())
    is_opted_in = options.mode is not Mode.OPT_IN or snapshot.is_taking_part(namespace)
    return is_opted_in and not is_opted_out and namespace not in options.exempt_namespaces


def _implicit_names(pod: Pod, snapshot: TranslationSnapshot) -> Mapping[str, FieldPath]:
    """Return the implicit names of known DeviceClasses that a pod requests, with their first paths.

    The API server allows requests without limits and below them for these names, and the scheduler
    reads requests.
    """
    names: dict[str, FieldPath] = {}
    known_classes: frozenset[str] | None = None
    for path, container in containers(pod):
        for section, amounts in (("requests", container.requests), ("limits", container.limits)):
            for key, amount in amounts.items():
                if not key.startswith(IMPLICIT_PREFIX) or key in names or amount <= ZERO:
                    continue
                if section == "limits" and key in container.requests:
                    continue
                if known_classes is None:
                    known_classes = _known_classes(snapshot)
                if implicit_class(key) in known_classes:
                    names[key] = path.child("resources", section).key(key)
    return names


def _known_classes(snapshot: TranslationSnapshot) -> frozenset[str]:
    """Return the DeviceClasses whose drivers are known, or may be any."""
    of_profiles = (profile.class_names() for profile in snapshot.profiles.values())
    return frozenset(snapshot.class_drivers).union(snapshot.once_published, *of_profiles)
