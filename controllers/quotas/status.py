"""The status of a DeviceQuota: the usage of each limit, by namespace, and what is left."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from kube.quantity import Quantity
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.ledger import DeviceQuotaLedger, Totals
from quotas.device_quotas.limits import Limit, Measure
from quotas.device_quotas.tenants import Account

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
    accounts = [account for limit in limits for account in accounts_of(limit, selected)]
    outstanding = [
        key
        for key in book.outstanding
        if (claim := book.claim(key)) is not None and claim.namespace in selected
    ]

    def totals_of(account: Account) -> Totals:
        is_owned = account.limit.driver in deciders.owned_drivers
        return shown_totals(book.ledger.totals(account), is_owned=is_owned)

    states = (
        accepted_condition(limits),
        enforced_condition(limits, deciders),
        threshold_condition((account, totals_of(account)) for account in accounts),
        incomplete_condition(accounts, book.ledger, outstanding),
    )
    statuses = tuple(
        _limit_status(limit, selected, book.ledger, is_owned=limit.driver in deciders.owned_drivers)
        for limit in limits
    )
    return DeviceQuotaStatus(
        observed_generation=generation,
        conditions=tuple(state.condition(before, generation, now) for state in states),
        namespace_count=len(selected),
        summary=summary(limits, statuses),
        limits=statuses,
    )


def accounts_of(limit: Limit, selected: Iterable[str]) -> Iterator[Account]:
    """Yield the accounts of a limit.

    Args:
        selected: The namespaces that its quota selects.
    """
    if limit.is_shared:
        yield Account(limit)
        return
    for namespace in sorted(selected):
        yield Account(limit, namespace)


def differs_in_more_than_amounts(first: DeviceQuotaStatus | None, other: DeviceQuotaStatus) -> bool:
    """Return whether statuses differ in more than amounts, which change with every claim."""
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


def _limit_status(
    limit: Limit, selected: frozenset[str], ledger: DeviceQuotaLedger, *, is_owned: bool
) -> LimitStatus:
    accounts = tuple(accounts_of(limit, selected))
    totals = [shown_totals(ledger.totals(account), is_owned=is_owned) for account in accounts]
    by_namespace = [
        (namespace, shown_totals(part, is_owned=is_owned))
        for account in accounts
        for namespace, part in ledger.by_namespace(account)
    ]
    by_namespace.sort(key=lambda entry: (-entry[1].committed, -entry[1].waiting, entry[0]))
    left = [limit.available_max - of_account.committed for of_account in totals]
    namespaces = tuple(
        NamespaceUsage(
            namespace=namespace,
            used=_amount(part.used, limit),
            promised=_amount(part.promised, limit),
            waiting=_amount(part.waiting, limit),
        )
        for namespace, part in by_namespace[:MAX_NAMESPACES]
    )
    return LimitStatus(
        name=limit.name,
        used=_amount(sum(part.used for part in totals), limit),
        promised=_amount(sum(part.promised for part in totals), limit),
        waiting=_amount(sum(part.waiting for part in totals), limit),
        # No namespace is selected: all of it is left for the first.
        available=_amount(max(0, min(left, default=limit.available_max)), limit),
        namespaces=namespaces or None,
    )


def shown_totals(totals: Totals, *, is_owned: bool) -> Totals:
    """Return sums as people read them: the bridge promises nothing before it allocates."""
    if not is_owned:
        return totals
    return Totals(used=totals.used, waiting=totals.promised + totals.waiting)


def _amount(nanos: int, limit: Limit) -> str:
    return str(Quantity.from_nanos(nanos, limit.max.format))


def summary(limits: Sequence[Limit], statuses: Sequence[LimitStatus]) -> str:
    """Return what is left in a few words, such as `40Gi of 80Gi memory, 1 of 4 devices left`."""
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
