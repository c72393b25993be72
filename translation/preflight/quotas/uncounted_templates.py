"""ResourceClaimTemplates that give devices past the quotas on device keys of their namespace.

A ResourceClaimTemplate may be used by every pod of its namespace, and a quota on a device key counts no
claims. So a pod that names a template gets devices although the quota is used up, or 0, and keeps the
template alive, also one that was derived from the keys of another pod.
"""

from collections.abc import Iterable, Mapping

from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from quotas.resource_quotas.scopes import REQUESTS, Quota, devices_of_class
from translation.cluster.snapshot import (
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.model.dimensions import amount_fix, counts_amounts
from translation.preflight.quotas.coverage import (
    counts_claims,
    drivers_of_class,
    drivers_of_key,
    is_class_counted,
)

QuotaName = tuple[str, str]
"""Namespace and name of a ResourceQuota."""
TemplatesByClass = Mapping[str, list[str]]
"""DeviceClass to the names of the templates of one namespace that request it."""


def find_uncounted_templates(
    snapshot: TranslationSnapshot, options: TranslationOptions
) -> Mapping[QuotaName, Finding]:
    """Return a warning for each quota on a device key beside templates for devices of the same driver."""
    templates: dict[str, dict[str, list[str]]] = {}
    for (namespace, name), template in sorted(snapshot.templates.items()):
        for device_class in template.classes if namespace in snapshot.quotas else ():
            templates.setdefault(namespace, {}).setdefault(device_class, []).append(name)
    findings: dict[QuotaName, Finding] = {}
    for namespace, by_class in templates.items():
        quotas = snapshot.quotas[namespace]
        uncounted_templates = {
            device_class: names
            for device_class, names in by_class.items()
            if not is_class_counted(device_class, quotas.values())
        }
        for name, quota in sorted(quotas.items()):
            finding = _check_quota(quota, by_class, uncounted_templates, snapshot, options)
            if finding is not None:
                findings[namespace, name] = finding
    return findings


def _check_quota(
    quota: Quota,
    all_templates: TemplatesByClass,
    uncounted_templates: TemplatesByClass,
    snapshot: TranslationSnapshot,
    options: TranslationOptions,
) -> Finding | None:
    """Return the warning about the first key of a quota with a driver that has such templates.

    Args:
        all_templates: The templates of the namespace; no line on devices counts their memory or compute.
        uncounted_templates: Those of classes that no quota counts.
    """
    vocabularies = vocabularies_in_force(options, snapshot.profiles).values()
    for key in sorted(quota.counted_keys()):
        is_amount = counts_amounts(key, vocabularies)
        templates = all_templates if is_amount else uncounted_templates
        drivers_of_quota = drivers_of_key(key, snapshot, options)
        drivers_by_class = {
            device_class: common_drivers
            for device_class in sorted(templates)
            if not counts_claims(quota, key, (device_class,), snapshot)
            and (common_drivers := drivers_of_class(device_class, snapshot).among(drivers_of_quota))
        }
        if drivers_by_class:
            names = sorted({name for chosen in drivers_by_class for name in templates[chosen]})
            drivers = sorted(frozenset[str]().union(*drivers_by_class.values()))
            fix = (
                amount_fix(key, vocabularies)
                if is_amount
                else f"count {', '.join(map(devices_of_class, drivers_by_class))}, too"
            )
            return warning(
                Code.TEMPLATE_NOT_COUNTED,
                FieldPath.of("spec", "hard").key(f"{REQUESTS}{key}"),
                f"a pod that names ResourceClaimTemplate {_first_of(names)} gets devices of "
                f"{', '.join(drivers)} that this does not count",
                f"{fix}; a template goes when it is deleted together with the pods that name it",
            )
    return None


def _first_of(names: Iterable[str]) -> str:
    first, *others = names
    return f"{first} (and {len(others)} more)" if others else first
