"""The status of a DeviceQuota: the usage of each limit, by namespace, and the amount left."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from controllers.quotas.conditions import (
    Deciders,
    accepted_condition,
    enforced_condition,
    incomplete_condition,
    threshold_condition,
)
from findings.text import shorten
from kube.api.device_quota import (
    MAX_NAMESPACES,
    DeviceQuota,
    DeviceQuotaStatus,
    LimitStatus,
    NamespaceUsage,
)
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.limit_sums import LimitSums, sums_of
from quotas.device_quotas.limits import Limit, Measure

MAX_SUMMARY: Final = 1024


def quota_status(
    quota: DeviceQuota,
    book: QuotaBook,
    deciders: Deciders,
    before: DeviceQuotaStatus | None,
    now: str,
) -> DeviceQuotaStatus:
    """Return the status of a quota that a book knows.

    Args:
        before: The stored status.
        now: RFC 3339, in whole seconds.
    """
    name, generation = quota.metadata.name, quota.metadata.generation
    limits, selected = book.tenants.limits[name], book.tenants.selected(name)
    sums = [sums_of(limit, selected, book.ledger) for limit in limits]
    accounts = [account for of_limit in sums for account, _ in of_limit.by_account]
    outstanding = [
        key
        for key in book.outstanding
        if (claim := book.claim(key)) is not None and claim.namespace in selected
    ]

    states = (
        accepted_condition(limits),
        enforced_condition(limits, deciders),
        threshold_condition(sums),
        incomplete_condition(accounts, book.ledger, outstanding),
    )
    statuses = tuple(map(_limit_status, sums))
    return DeviceQuotaStatus(
        observed_generation=generation,
        conditions=tuple(state.condition(before, generation, now) for state in states),
        namespace_count=len(selected),
        summary=summary(limits, statuses),
        limits=statuses,
    )


def differs_in_more_than_amounts(first: DeviceQuotaStatus | None, other: DeviceQuotaStatus) -> bool:
    """Return True if statuses differ in more than amounts; those change with every claim."""
    return first is None or _without_amounts(first) != _without_amounts(other)


def _without_amounts(status: DeviceQuotaStatus) -> object:
    return (
        status.observed_generation,
        [
            (condition.type, condition.status, condition.reason)
            for condition in status.conditions or ()
        ],
        status.namespace_count,
        [limit.name for limit in status.limits or ()],
    )


def _limit_status(sums: LimitSums) -> LimitStatus:
    limit, total = sums.limit, sums.total
    namespaces = tuple(
        NamespaceUsage(
            namespace=namespace,
            used=limit.as_text(part.used),
            promised=limit.as_text(part.promised),
            waiting=limit.as_text(part.waiting),
        )
        for namespace, part in sums.by_namespace[:MAX_NAMESPACES]
    )
    return LimitStatus(
        name=limit.name,
        used=limit.as_text(total.used),
        promised=limit.as_text(total.promised),
        waiting=limit.as_text(total.waiting),
        available=limit.as_text(sums.available),
        namespaces=namespaces or None,
    )


def summary(limits: Sequence[Limit], statuses: Sequence[LimitStatus]) -> str:
    """Return the amounts left in a few words, such as `40Gi of 80Gi memory, 1 of 4 devices left`."""
    times = Counter(map(_noun, limits))
    parts = [
        f"{status.available} of {limit.max} {_noun(limit)}"
        + (f" ({limit.name})" if times[_noun(limit)] > 1 else "")
        for limit, status in zip(limits, statuses, strict=True)
    ]
    place = "" if limits[0].is_shared else " in the fullest namespace"
    return shorten(f"{', '.join(parts)} left{place}", MAX_SUMMARY)


def _noun(limit: Limit) -> str:
    match limit.measure:
        case Measure.CAPACITY:
            return limit.capacity[1]
        case Measure.COUNTER:
            return limit.counter
        case _:
            return limit.measure.value
