"""The ResourceQuotas of a plan, as files below `quotas/`. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from migration.assessment.quota_conversion import ConvertedQuota
from migration.plan.model import is_name, is_namespace


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


def _named_quotas(
    quotas: Iterable[ConvertedQuota],
) -> Iterator[tuple[str, str, ConvertedQuota]]:
    """Yield namespace, file and quota of those that are extended."""
    for quota in quotas:
        _, namespace, name = quota.object.split("/", 2)
        if quota.document is not None and is_namespace(namespace) and is_name(name):
            yield namespace, f"{namespace}.{name}.yaml", quota
