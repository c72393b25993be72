"""The lines of ResourceQuotas that DeviceQuotas replace, since they count pods with keys and claims together.

Both sides of a migration count in such a DeviceQuota, so a wave removes the old line, and needs none for claims. All
other quotas are converted.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from answers.model.views import decode_view
from kube.api.core import NAMESPACE_NAME
from kube.api.device_quota import (
    API_VERSION,
    KIND,
    Budget,
    DeviceQuota,
    LegacyKey,
    QuotaEnforcement,
    QuotaLimit,
)
from kube.api.workloads import resolve_path
from kube.errors import QuantityError
from kube.manifests.source import SourceObject
from kube.quantity import Quantity
from migration.conversion.quota_amounts import NamespaceUse, resource_name
from migration.conversion.quota_conversion import (
    ConvertedQuota,
    convert_quotas,
    with_converted_quotas,
)
from translation.cluster.snapshot import TranslationOptions
from translation.profiles.profile import Profile


class ReplacedLines(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Lines of a ResourceQuota for pods that DeviceQuotas count together with claims.

    They are removed once these are enforced, so that the budget neither doubles nor halves.

    Attributes:
        namespace: The namespace of the ResourceQuota.
        name: Its name.
        lines: The lines, as in spec.hard.
        amounts: The amounts of the lines, which a rollback gives back.
        device_quotas: The names of the DeviceQuotas.
    """

    namespace: str
    name: str
    lines: tuple[str, ...]
    device_quotas: tuple[str, ...]
    amounts: Mapping[str, str] = {}


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
        for quota in read_device_quotas(sources)
        if quota.spec.enforcement is QuotaEnforcement.ENFORCE
    ]
    replaced = []
    for source in sources:
        place = source.namespace or namespace
        if not _is_resource_quota(source):
            continue
        selecting = [
            quota
            for quota in quotas
            if quota.spec.namespace_selector.matches(labels.get(place, {NAMESPACE_NAME: place}))
        ]
        counting = {
            line: names
            for line in _hard(source)
            if (names := _counting_quotas(resource_name(line), selecting))
        }
        if counting:
            replaced.append(
                ReplacedLines(
                    namespace=place,
                    name=source.name,
                    lines=tuple(sorted(counting)),
                    amounts={line: stored_amount(_hard(source)[line]) for line in sorted(counting)},
                    device_quotas=tuple(sorted(set().union(*counting.values()))),
                )
            )
    return tuple(replaced)


def stored_amount(amount: object) -> str:
    """Return an amount as the API server stores it, such as 32k for 32000; as it is if it is no quantity."""
    try:
        return str(Quantity(str(amount)))
    except ValueError:
        return str(amount)


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


def convert_plan_quotas(
    objects: Sequence[SourceObject],
    profiles: Mapping[str, Profile],
    options: TranslationOptions,
    namespace: str,
    usage: Mapping[str, NamespaceUse] | None,
    *,
    later_mappings: Mapping[str, str],
    replaced_lines: tuple[ReplacedLines, ...],
    namespaces: Collection[str],
    absent: Collection[str] = (),
    left_lines: Collection[tuple[str, str]] = (),
    unclaimed: Mapping[str, Collection[str]] = {},
) -> tuple[ConvertedQuota, ...]:
    """Return the quotas of a cluster as a plan leaves them; other arguments as of `convert_quotas`.

    Args:
        replaced_lines: The lines that a wave removes, since DeviceQuotas count both sides.
        namespaces: The namespaces with pods that get claims of a translation; quotas of others stay.
    """
    remaining = without_replaced_lines(objects, replaced_lines, namespace)
    return tuple(
        quota
        for quota in convert_quotas(
            *(remaining, profiles, options, namespace, usage),
            later_mappings=later_mappings,
            absent=absent,
            left_lines=left_lines,
            unclaimed=unclaimed,
        )
        if quota.object.split("/")[1] in namespaces
    )


def planned_objects(
    objects: Iterable[SourceObject],
    quotas: Iterable[ConvertedQuota],
    replaced_lines: Iterable[ReplacedLines],
    namespace: str,
) -> tuple[SourceObject, ...]:
    """Return objects with their quotas as a plan leaves them.

    Args:
        objects: The objects.
        quotas: The converted quotas.
        replaced_lines: The lines that the plan removes.
        namespace: The namespace for objects that name none.
    """
    remaining = without_replaced_lines(objects, replaced_lines, namespace)
    return with_converted_quotas(remaining, quotas, namespace)


def replaced_text(entry: ReplacedLines) -> str:
    """Return lines of a ResourceQuota that a wave removes, with the DeviceQuotas in their place."""
    quotas = ", ".join(entry.device_quotas)
    return (
        f"ResourceQuota/{entry.namespace}/{entry.name}: DeviceQuota {quotas} counts {', '.join(entry.lines)} and claims "
        "together; the runbooks of `drawbridge plan` remove the old lines once it is enforced"
    )


def differing_amounts(entry: ReplacedLines, quotas: Iterable[DeviceQuota]) -> Iterator[str]:
    """Yield a text on each line with another amount than the limit of a DeviceQuota in its place.

    Several limits may count the pods of a line between them, and namespaces that share an amount may have more of it
    together than a line of one: nothing is said of these.

    Args:
        entry: The lines of a ResourceQuota.
        quotas: The DeviceQuotas of the cluster.
    """
    for quota in quotas:
        counting = _limits_by_key(quota) if quota.metadata.name in entry.device_quotas else {}
        is_shared = quota.spec.budget is Budget.SHARED and not _has_one_namespace(quota)
        for line in entry.lines:
            limits = counting.get(resource_name(line), ())
            if len(limits) != 1:
                continue
            ((limit, key),) = limits
            amount = _amount_in(key.per_unit or Quantity(1), entry.amounts[line])
            if amount is None:
                continue
            if limit.max < amount or (limit.max > amount and not is_shared):
                yield (
                    f"{line} of ResourceQuota/{entry.namespace}/{entry.name} allows {amount}, and limit {limit.name} of "
                    f"DeviceQuota/{quota.metadata.name} in its place {limit.max}, which is "
                    f"{'less' if limit.max < amount else 'more'}: change the limit if that is not meant"
                )


def _amount_in(unit: Quantity, amount: str) -> Quantity | None:
    """Return an amount of a key in the unit of a limit; None for a text that is no quantity."""
    try:
        nanos = Quantity(amount).nanos * unit.nanos // Quantity(1).nanos
    except QuantityError:
        return None
    return Quantity.from_nanos(nanos, unit.format)


def _limits_by_key(quota: DeviceQuota) -> dict[str, list[tuple[QuotaLimit, LegacyKey]]]:
    """Return each key to the limits that count pods with it."""
    limits: dict[str, list[tuple[QuotaLimit, LegacyKey]]] = {}
    for limit in quota.spec.limits:
        for key in limit.legacy_keys or ():
            limits.setdefault(key.name, []).append((limit, key))
    return limits


def _has_one_namespace(quota: DeviceQuota) -> bool:
    return quota.status is not None and quota.status.namespace_count == 1


def read_device_quotas(objects: Iterable[SourceObject]) -> tuple[DeviceQuota, ...]:
    """Return the DeviceQuotas among objects, without those that cannot be read."""
    quotas = (
        decode_view(source.document, DeviceQuota)
        for source in objects
        if (source.api_version, source.kind) == (API_VERSION, KIND)
    )
    return tuple(quota for quota in quotas if isinstance(quota, DeviceQuota))


def _counting_quotas(key: str, quotas: Iterable[DeviceQuota]) -> set[str]:
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
