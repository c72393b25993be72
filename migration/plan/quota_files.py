"""The ResourceQuotas of a plan, as files below `quotas/`. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from findings.text import reference_text
from migration.assessment.outcomes import AssessedWorkload
from migration.assessment.quota_conversion import ConvertedQuota, resource_name
from migration.plan.model import Wave, is_name, is_namespace


def quota_files(quotas: Iterable[ConvertedQuota]) -> dict[str, tuple[str, ...]]:
    """Return namespace to the files with its quotas."""
    files: dict[str, list[str]] = {}
    for namespace, file, _ in _named_quotas(quotas):
        files.setdefault(namespace, []).append(file)
    return {namespace: tuple(sorted(names)) for namespace, names in sorted(files.items())}


def quota_documents(quotas: Iterable[ConvertedQuota]) -> dict[str, Mapping[str, Any]]:
    """Return file to the quota in it."""
    return {file: dict(quota.document or {}) for _, file, quota in _named_quotas(quotas)}


def quota_effects(quotas: Iterable[ConvertedQuota]) -> dict[str, tuple[str, ...]]:
    """Return file to the totals that its lines, with the added lines, allow."""
    return {
        file: tuple(f"{effect.line}: {effect.allows}" for effect in quota.effects)
        for _, file, quota in sorted(_named_quotas(quotas), key=lambda entry: entry[1])
    }


def with_uncounted_quotas(
    wave: Wave, quotas: Iterable[ConvertedQuota], workloads: Iterable[AssessedWorkload]
) -> Wave:
    """Return a wave with a note on each line that limits its pods until then, and no claims afterwards.

    Args:
        wave: The wave, with its workloads.
        quotas: The cluster's quotas.
        workloads: The cluster's workloads.
    """
    moved = {entry.object for entry in wave.workloads if entry.is_translated}
    keys_of: dict[str, set[str]] = {}
    for workload in workloads:
        if workload.key.reference in moved:
            keys_of.setdefault(workload.key.namespace, set()).update(workload.keys)
    notes = tuple(
        f"{reference_text(quota.object)}: {line} does not count the pods that get claims with this wave, and "
        f"no line for claims can be added: {reason}"
        for quota in quotas
        for line, reason in quota.not_convertible.items()
        if resource_name(line) in keys_of.get(quota.object.split("/", 2)[1], ())
    )
    return msgspec.structs.replace(wave, notes=(*wave.notes, *notes))


def _named_quotas(
    quotas: Iterable[ConvertedQuota],
) -> Iterator[tuple[str, str, ConvertedQuota]]:
    """Yield namespace, file and quota of those that are extended."""
    for quota in quotas:
        _, namespace, name = quota.object.split("/", 2)
        if quota.document is not None and is_namespace(namespace) and is_name(name):
            yield namespace, f"{namespace}.{name}.yaml", quota
