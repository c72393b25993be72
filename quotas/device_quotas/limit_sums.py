"""The sums of a limit as people read them: in status, metrics and on the command line."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from quotas.device_quotas.ledger import DeviceQuotaLedger, Totals
from quotas.device_quotas.limits import Limit
from quotas.device_quotas.tenants import Account


class LimitSums(NamedTuple):
    """The sums of a limit, in nano-units.

    Attributes:
        by_account: Its accounts, each with its sums.
        by_namespace: Namespace and its part, the largest first.
    """

    limit: Limit
    by_account: tuple[tuple[Account, Totals], ...]
    by_namespace: tuple[tuple[str, Totals], ...]

    @property
    def total(self) -> Totals:
        """Return the sums of all accounts together."""
        totals = [of_account for _, of_account in self.by_account]
        return Totals(
            used=sum(part.used for part in totals),
            promised=sum(part.promised for part in totals),
            waiting=sum(part.waiting for part in totals),
        )

    @property
    def available(self) -> int:
        """Return the amount that is left in the account with the least; all of it without an account."""
        most = self.limit.available_max
        left = [most - of_account.committed for _, of_account in self.by_account]
        return max(0, min(left, default=most))

    @property
    def above_max(self) -> int:
        """Return the amount beyond max in the account with the most; 0 without one."""
        most = self.limit.available_max
        return max((0, *(of_account.committed - most for _, of_account in self.by_account)))

    @property
    def above_threshold(self) -> Iterator[tuple[Account, Totals]]:
        """Yield the accounts that are used, or promised, above the threshold of the limit."""
        threshold = self.limit.max.nanos * self.limit.alert_percent
        for account, of_account in self.by_account:
            if of_account.committed * 100 > threshold:
                yield account, of_account


def sums_of(limit: Limit, selected: Iterable[str], ledger: DeviceQuotaLedger) -> LimitSums:
    """Return the sums of a limit.

    Args:
        selected: The namespaces that its quota selects.
    """
    accounts = tuple(accounts_of(limit, selected))
    by_namespace = [
        (namespace, part)
        for account in accounts
        for namespace, part in ledger.by_namespace(account)
    ]
    by_namespace.sort(key=lambda entry: (-entry[1].committed, -entry[1].waiting, entry[0]))
    return LimitSums(
        limit=limit,
        by_account=tuple((account, ledger.totals(account)) for account in accounts),
        by_namespace=tuple(by_namespace),
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
