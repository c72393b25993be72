"""The quotas of other schedulers that limit a namespace."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from kube.api.extended_resources import implicit_class
from kube.api.foreign_quotas import BY_TYPE, IS_PARENT, NAMESPACES, ForeignQuotaObject
from translation.model.intents import Vocabulary
from translation.reading.claim_blind_objects import find_resource_names

MAX_NAMES: Final = 100
"""Resource names and namespaces of one quota that are kept."""
QUOTA_FIX: Final = (
    "limit claims by a DeviceQuota (drawbridge quota convert prints one), or by Kueue"
)
_KEEP_SCHEDULER: Final = (
    "; or keep the scheduler: an administrator lists it in the setting translation.adoptSchedulers with its own name, if it "
    "allocates claims"
)
_KOORDINATOR: Final = "Koordinator"


def or_kept_scheduler(fix: str, project: str) -> str:
    """Return a fix, and to keep the scheduler instead; Koordinator's allocates no claims.

    Args:
        fix: The fix for pods that leave the scheduler.
        project: The project of the scheduler.
    """
    return fix if project == _KOORDINATOR else f"{fix}{_KEEP_SCHEDULER}"


class ForeignQuotaSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a quota of another scheduler that translations read.

    Attributes:
        label: Kind and name, for sentences.
        owner: The project whose scheduler counts by it.
        names: The resource names that it counts, device keys among them.
        namespaces: The namespaces that it limits beside its own.
    """

    label: str
    owner: str
    names: frozenset[str]
    namespaces: tuple[str, ...] = ()

    def counted_keys(self, vocabularies: Collection[Vocabulary]) -> list[str]:
        """Return the device keys of vocabularies that it counts, sorted."""
        return sorted(
            name
            for name in self.names
            if implicit_class(name)
            or any(
                vocabulary.handles(name) or name in vocabulary.annotations
                for vocabulary in vocabularies
            )
        )


ForeignQuotas = Mapping[str, tuple[ForeignQuotaSummary, ...]]
"""Namespace to the quotas of other schedulers that limit it."""


def summarize_foreign_quota(quota: ForeignQuotaObject) -> ForeignQuotaSummary | None:
    """Return the quota as translations read it; None if it counts no possible device resource."""
    kind = BY_TYPE.get((quota.api_version, quota.kind))
    if kind is None or not kind.limits_namespace:
        return None
    names = sorted(find_resource_names(quota.spec, kind.group))
    if not names or (quota.metadata.labels or {}).get(IS_PARENT) == "true":
        return None
    return ForeignQuotaSummary(
        label=f"{kind.kind} {quota.metadata.name}",
        owner=kind.owner,
        names=frozenset(names[:MAX_NAMES]),
        namespaces=_namespaces((quota.metadata.annotations or {}).get(NAMESPACES, "")),
    )


def _namespaces(text: str) -> tuple[str, ...]:
    """Return the namespaces of a JSON list; none if the text is none."""
    try:
        return tuple(msgspec.json.decode(text.encode(), type=list[str])[:MAX_NAMES])
    except (msgspec.DecodeError, RecursionError):
        return ()


def by_namespace(quotas: Iterable[tuple[str, ForeignQuotaSummary]]) -> ForeignQuotas:
    """Return the namespaces with the quotas that limit them, each quota given with its own."""
    limiting: dict[str, list[ForeignQuotaSummary]] = {}
    for namespace, quota in quotas:
        for name in dict.fromkeys((namespace, *quota.namespaces)):
            limiting.setdefault(name, []).append(quota)
    return {
        namespace: tuple(sorted(entries, key=lambda entry: entry.label))
        for namespace, entries in limiting.items()
    }
