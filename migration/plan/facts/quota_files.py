"""The ResourceQuotas of a plan, as files below `quotas/`. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from answers.model.views import decode_view
from findings.text import reference_text
from kube.api.core import NAMESPACE_NAME
from kube.api.device_quota import API_VERSION, KIND, DeviceQuota, QuotaEnforcement
from kube.api.workloads import resolve_path
from kube.manifests.source import SourceObject
from migration.assessment.outcomes import AssessedWorkload
from migration.assessment.quota_conversion import (
    ConvertedQuota,
    convert_quotas,
    resource_name,
    with_converted_quotas,
)
from migration.plan.model.plan import ReplacedLines, Wave, is_name, is_namespace
from translation.cluster.snapshot import TranslationOptions
from translation.profiles.profile import Profile


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


class PlanQuotas(NamedTuple):
    """The quotas of a cluster as a plan leaves them.

    Attributes:
        objects: The cluster with them.
        quotas: The ResourceQuotas with lines for claims.
        replaced_lines: Lines that a wave removes, since DeviceQuotas count both sides.
    """

    objects: tuple[SourceObject, ...]
    quotas: tuple[ConvertedQuota, ...]
    replaced_lines: tuple[ReplacedLines, ...]


def convert_plan_quotas(
    objects: Sequence[SourceObject],
    profiles: Mapping[str, Profile],
    options: TranslationOptions,
    namespace: str,
    usage: Mapping[str, Mapping[str, int]] | None,
    *,
    later_mappings: Mapping[str, str],
) -> PlanQuotas:
    """Return the quotas of a cluster as a plan leaves them; arguments as of `convert_quotas`."""
    replaced_lines = find_replaced_lines(objects, namespace)
    remaining = without_replaced_lines(objects, replaced_lines, namespace)
    quotas = convert_quotas(
        remaining, profiles, options, namespace, usage, later_mappings=later_mappings
    )
    converted = tuple(with_converted_quotas(remaining, quotas, namespace))
    return PlanQuotas(converted, tuple(quotas), replaced_lines)


def find_replaced_lines(
    objects: Iterable[SourceObject], namespace: str
) -> tuple[ReplacedLines, ...]:
    """Return the lines of ResourceQuotas that enforced DeviceQuotas count with claims, in order.

    Args:
        objects: The cluster.
        namespace: The namespace for objects that name none.
    """
    sources = tuple(objects)
    labels = {
        source.name: {NAMESPACE_NAME: source.name, **_labels(source)}
        for source in sources
        if (source.api_version, source.kind) == ("v1", "Namespace")
    }
    quotas = [
        quota
        for source in sources
        if (source.api_version, source.kind) == (API_VERSION, KIND)
        and isinstance(quota := decode_view(source.document, DeviceQuota), DeviceQuota)
        and quota.spec.enforcement is QuotaEnforcement.ENFORCE
        and is_name(quota.metadata.name)
    ]
    replaced = []
    for source in sources:
        place = source.namespace or namespace
        if not (_is_resource_quota(source) and is_namespace(place) and is_name(source.name)):
            continue
        selecting = [
            quota
            for quota in quotas
            if quota.spec.namespace_selector.matches(labels.get(place, {NAMESPACE_NAME: place}))
        ]
        counting = {
            line: names
            for line in _hard(source)
            if (names := _counting(resource_name(line), selecting))
        }
        if counting:
            replaced.append(
                ReplacedLines(
                    namespace=place,
                    name=source.name,
                    lines=tuple(sorted(counting)),
                    device_quotas=tuple(sorted(set().union(*counting.values()))),
                )
            )
    return tuple(replaced)


def without_replaced_lines(
    objects: Iterable[SourceObject], replaced_lines: Iterable[ReplacedLines], namespace: str
) -> tuple[SourceObject, ...]:
    """Return objects with their ResourceQuotas as they are once the lines are removed."""
    lines = {(entry.namespace, entry.name): entry.lines for entry in replaced_lines}
    return tuple(
        _without_lines(source, lines[place])
        if (place := (source.namespace or namespace, source.name)) in lines
        and _is_resource_quota(source)
        else source
        for source in objects
    )


def _counting(key: str, quotas: Iterable[DeviceQuota]) -> set[str]:
    """Return the DeviceQuotas that count every pod with a key together; empty if some pods count in none."""
    names: set[str] = set()
    without: set[str] | None = None
    only_with: set[str] = set()
    for quota in quotas:
        for limit in quota.spec.limits:
            for entry in limit.legacy_keys or ():
                if entry.name != key:
                    continue
                names.add(quota.metadata.name)
                if entry.only_with:
                    only_with.update(entry.only_with)
                elif without is None:
                    without = set(entry.without or ())
                else:
                    without &= set(entry.without or ())
    return names if without is not None and without <= only_with else set()


def _is_resource_quota(source: SourceObject) -> bool:
    spec = source.document.get("spec")
    has_scopes = isinstance(spec, Mapping) and (spec.get("scopes") or spec.get("scopeSelector"))
    return (source.api_version, source.kind) == ("v1", "ResourceQuota") and not has_scopes


def _hard(source: SourceObject) -> Mapping[str, Any]:
    _, hard = resolve_path(source.document, ("spec", "hard"))
    return hard if isinstance(hard, Mapping) else {}


def _labels(source: SourceObject) -> Mapping[str, str]:
    _, labels = resolve_path(source.document, ("metadata", "labels"))
    return labels if isinstance(labels, Mapping) else {}


def _without_lines(source: SourceObject, lines: Iterable[str]) -> SourceObject:
    removed = frozenset(lines)
    hard = {line: amount for line, amount in _hard(source).items() if line not in removed}
    spec = {**source.document["spec"], "hard": hard}
    return msgspec.structs.replace(source, document={**source.document, "spec": spec})


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
