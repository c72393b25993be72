"""The charges to the accounts of DeviceQuotas: entries that come, change and go.

An entry is a claim, or a claim of a pod that is not created yet. Totals are the sum of the entries,
whatever their order: an entry that is put again replaces what it was charged with.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from quotas.device_quotas.tenants import Account

NOTHING: Final[Mapping[Account, int]] = MappingProxyType({})


class Stage(Enum):
    """The stage of an entry: it waits, is let through, or has its devices."""

    WAITING = "waiting"
    PROMISED = "promised"
    USED = "used"


class Totals(NamedTuple):
    """The sums of an account by stage, in nano-units."""

    used: int = 0
    promised: int = 0
    waiting: int = 0

    @property
    def committed(self) -> int:
        """Return the amount that nobody else may have."""
        return self.used + self.promised


NO_TOTALS: Final = Totals()


class Entry(NamedTuple):
    """The charges of a claim.

    Attributes:
        namespace: The claim's namespace.
        charges: Account to nano-units.
        is_complete: False if devices of it are not published any more.
    """

    namespace: str
    stage: Stage
    charges: Mapping[Account, int]
    is_complete: bool = True


class Excess(NamedTuple):
    """An account that has not enough left.

    Attributes:
        amount: The amount that is asked for, in nano-units, like all others.
        committed: The amount that is used and promised.
    """

    account: Account
    amount: int
    committed: int

    @property
    def left(self) -> int:
        """Return the amount that is left."""
        return max(0, self.account.limit.available_max - self.committed)

    @property
    def missing(self) -> int:
        """Return the amount that has to become free."""
        return self.committed + self.amount - self.account.limit.available_max

    @property
    def is_final(self) -> bool:
        """Return True if the amount exceeds the limit even if nothing else is in use."""
        return self.amount > self.account.limit.available_max

    @property
    def message(self) -> str:
        """Return the excess in one phrase, such as `3 devices needed, 1 of 4 devices left`."""
        limit = self.account.limit
        if limit.is_closed:
            return f"DeviceQuota {limit.quota}, limit {limit.name} cannot be evaluated, so it lets nothing through"
        needed, left = limit.in_words(self.amount), limit.as_text(self.left)
        whole = limit.in_words(limit.max.nanos)
        return f"DeviceQuota {limit.quota}, limit {limit.name}: {needed} needed, {left} of {whole} left"


class DeviceQuotaLedger:
    """The entries of all namespaces, and their sums by account."""

    def __init__(self) -> None:
        """Begin without entries."""
        self._entries: dict[Hashable, Entry] = {}
        self._sums: dict[Account, _AccountSums] = {}
        self._incomplete: dict[Account, int] = {}
        self._incomplete_keys: set[Hashable] = set()

    def put(self, key: Hashable, entry: Entry) -> None:
        """Add an entry, or replace the one with the same key."""
        self.remove(key)
        self._entries[key] = entry
        if not entry.is_complete:
            self._incomplete_keys.add(key)
        self._count(entry, 1)

    def remove(self, key: Hashable) -> Entry | None:
        """Remove an entry and return it; None if there is none."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._incomplete_keys.discard(key)
            self._count(entry, -1)
        return entry

    def get(self, key: Hashable) -> Entry | None:
        """Return an entry; None if there is none."""
        return self._entries.get(key)

    def is_committed(self, key: Hashable) -> bool:
        """Return True if an entry is used or promised."""
        entry = self._entries.get(key)
        return entry is not None and entry.stage is not Stage.WAITING

    @property
    def entries(self) -> Mapping[Hashable, Entry]:
        """Return all entries."""
        return self._entries

    def totals(self, account: Account) -> Totals:
        """Return the sums of an account."""
        sums = self._sums.get(account)
        return NO_TOTALS if sums is None else sums.total.totals

    def by_namespace(self, account: Account) -> Iterator[tuple[str, Totals]]:
        """Yield the namespaces that are charged to an account, and their part."""
        sums = self._sums.get(account)
        if sums is not None:
            for namespace, part in sums.by_namespace.items():
                yield namespace, part.totals

    def is_complete(self, account: Account) -> bool:
        """Return True if the amounts of all devices in use are known."""
        return account not in self._incomplete

    @property
    def incomplete_accounts(self) -> Collection[Account]:
        """Return the accounts of entries with devices that are not published any more."""
        return self._incomplete.keys()

    @property
    def incomplete_keys(self) -> Collection[Hashable]:
        """Return the keys of entries with devices that are not published any more."""
        return self._incomplete_keys

    def excesses(
        self,
        charges: Mapping[Account, int],
        *,
        besides: Iterable[Hashable] = (),
        also: Mapping[Account, int] = NOTHING,
    ) -> tuple[Excess, ...]:
        """Return the accounts of enforced limits that have less left than is asked for.

        A charge of nothing exceeds nothing, even where more is used than the limit allows.

        Args:
            charges: Account to nano-units.
            besides: Entries that do not count, such as those of victims, or of the pod itself.
            also: Amounts that count as committed, too.
        """
        ignored_entries = self._find(besides)
        excesses = []
        for account, amount in charges.items():
            if amount <= 0 or not account.limit.is_enforced:
                continue
            committed = self._sum_committed(account, ignored_entries) + also.get(account, 0)
            if committed + amount > account.limit.available_max:
                excesses.append(Excess(account, amount, committed))
        return tuple(excesses)

    def left(
        self,
        account: Account,
        *,
        besides: Iterable[Hashable] = (),
        also: Mapping[Account, int] = NOTHING,
    ) -> int:
        """Return the amount that is left; negative if more is used than the limit allows.

        Args:
            besides: The same charges as in `excesses`.
            also: The same charges as in `excesses`.
        """
        committed = self._sum_committed(account, self._find(besides)) + also.get(account, 0)
        return account.limit.available_max - committed

    def _find(self, keys: Iterable[Hashable]) -> Sequence[Entry]:
        return [entry for key in keys if (entry := self._entries.get(key))]

    def _sum_committed(self, account: Account, ignored_entries: Sequence[Entry]) -> int:
        sums = self._sums.get(account)
        committed = 0 if sums is None else sums.total.used + sums.total.promised
        if not ignored_entries:
            return committed
        return committed - sum(
            entry.charges.get(account, 0)
            for entry in ignored_entries
            if entry.stage is not Stage.WAITING
        )

    def _count(self, entry: Entry, sign: int) -> None:
        """Add an entry to the sums, or with -1 take it away."""
        stage, namespace = entry.stage, entry.namespace
        for account, amount in entry.charges.items():
            sums = self._sums.get(account)
            if sums is None:
                sums = self._sums[account] = _AccountSums()
            change = sign * amount
            sums.total.add(stage, change)
            part = sums.by_namespace.get(namespace)
            if part is None:
                part = sums.by_namespace[namespace] = _Sums()
            part.add(stage, change)
            if part.is_zero:
                del sums.by_namespace[namespace]
                if not sums.by_namespace:
                    del self._sums[account]
            if not entry.is_complete:
                number = self._incomplete.get(account, 0) + sign
                if number:
                    self._incomplete[account] = number
                else:
                    del self._incomplete[account]


class _Sums:
    """The sums of an account, or of a namespace's part, changed in place by every charge."""

    __slots__ = ("promised", "used", "waiting")

    def __init__(self) -> None:
        self.used = self.promised = self.waiting = 0

    def add(self, stage: Stage, amount: int) -> None:
        """Add an amount at a stage; it may be negative."""
        if stage is Stage.USED:
            self.used += amount
        elif stage is Stage.PROMISED:
            self.promised += amount
        else:
            self.waiting += amount

    @property
    def is_zero(self) -> bool:
        """Return True if nothing is left of them."""
        return not (self.used or self.promised or self.waiting)

    @property
    def totals(self) -> Totals:
        """Return them as they are now."""
        return Totals(used=self.used, promised=self.promised, waiting=self.waiting)


class _AccountSums:
    """The sums of an account, of all namespaces together and of each."""

    __slots__ = ("by_namespace", "total")

    def __init__(self) -> None:
        self.total = _Sums()
        self.by_namespace: dict[str, _Sums] = {}
