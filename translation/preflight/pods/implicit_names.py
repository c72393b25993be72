"""Implicit names of DeviceClasses, a way for a pod to evade quotas."""

from collections.abc import Iterator, Mapping

from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from kube.api.core import Pod
from kube.api.extended_resources import IMPLICIT_PREFIX, implicit_class
from kube.quantity import ZERO
from quotas.resource_quotas.scopes import devices_of_class, scopes_of
from translation.cluster.snapshot import Mode, QuotaPolicy, TranslationOptions, TranslationSnapshot
from translation.preflight.quotas.coverage import (
    counts_claims,
    drivers_of_class,
    drivers_of_key,
    is_class_counted,
    matching_quotas,
)
from translation.reading.legacy_pod import OPT_OUT_LABELS, containers


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
    counting = matching_quotas(quotas, scopes_of(pod))
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
    """Return True if the webhook is called for all pods of a namespace, with any labels."""
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
    """Return the DeviceClasses with known drivers, or with any."""
    of_profiles = (profile.class_names() for profile in snapshot.profiles.values())
    return frozenset(snapshot.class_drivers).union(snapshot.once_published, *of_profiles)
