"""The order of letting pods through that wait for a DeviceQuota.

By priority, then by age. A smaller pod may pass a larger one that does not fit, until the larger has waited
for ten minutes: from then on what is left is saved for it. What exceeds a limit even if nothing else is in
use saves nothing. Members of a group are let through together or not at all.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Final, NamedTuple

from kube.api.core import Pod
from kube.cel.scope import AnswerInterrupted, Meter, evaluating
from kube.names import QUOTA_GATE
from quotas.device_quotas.book import CapBreach
from quotas.device_quotas.ledger import Excess, Stage
from quotas.device_quotas.tenants import Account
from quotas.gates.groups import group_of
from quotas.gates.usage import Key, LegacyKeysOfPod, QuotaUsage

MAX_PASSED_S: Final = 600.0
"""The time for which smaller pods may pass a larger one."""
MAX_STEPS: Final = 3000
"""Steps of the evaluation of one unit; its estimates are cached, so it needs next to none."""
RETRY_S: Final = 1.0
"""The time until an evaluation goes on that was interrupted."""
GROUP_QUIET_S: Final = 10.0
"""A group without a declared minimum, or with members that need no devices, is complete when no member
has come for so long."""
MISSING_S: Final = 10.0
"""A claim that kube-controller-manager makes is there after so long, or something keeps it from being made."""


class Unit(NamedTuple):
    """Pods that are let through together.

    Attributes:
        namespace: Their namespace.
        pods: Namespace and name of each that waits, sorted.
        priority: The highest of them.
        created_s: The creation of the oldest, in seconds since 1970.
        youngest_s: The creation of the youngest.
        is_complete: No further member is expected.
    """

    namespace: str
    pods: tuple[Key, ...]
    priority: int
    created_s: float
    youngest_s: float
    is_complete: bool


class Waiting(NamedTuple):
    """A unit that has to wait, with the reason.

    Attributes:
        excesses: What it would exceed.
        is_saved: What it needs is saved for an older or more important unit.
        missing: Claims that do not exist, in phrases; what they ask for is not known.
    """

    unit: Unit
    excesses: tuple[Excess | CapBreach, ...] = ()
    is_saved: bool = False
    missing: tuple[str, ...] = ()


class Decisions(NamedTuple):
    """The outcome of a round.

    Attributes:
        let_through: The pods that need wait no longer, in order.
        waiting: The units for which nothing is left.
        next_s: The time after which a round may decide otherwise, though nothing has changed; None if
            none would.
    """

    let_through: tuple[Key, ...]
    waiting: tuple[Waiting, ...]
    next_s: float | None = None


class Undecided(Enum):
    """A reason nothing can be said about a unit yet."""

    INCOMPLETE = "members of its group are missing"
    UNKNOWN = "selectors of claims are not evaluated yet"
    INTERRUPTED = "selectors have to be evaluated once more"
    HELD_BACK = "another scheduling gate is removed first"


def decide(
    usage: QuotaUsage, owned_drivers: Collection[str], now_s: float, *, is_held: bool = True
) -> Decisions:
    """Let waiting pods through, as far as there is room; the usage counts them as promised from then on.

    Args:
        owned_drivers: The drivers that the bridge decides about.
        now_s: Seconds since 1970.
        is_held: False if nothing holds pods back any more, so that none has to wait.
    """
    let_through: list[Key] = []
    waiting: list[Waiting] = []
    later: list[float] = []
    saved: set[Account] = set()
    unknown = _unknown_accounts(usage)
    for unit in units(usage, now_s):
        obstacle = _obstacle(usage, unit, owned_drivers, unknown, saved) if is_held else None
        if obstacle is None:
            for key in unit.pods:
                usage.let_through(key)
            let_through += unit.pods
        elif obstacle is Undecided.INCOMPLETE:
            later.append(GROUP_QUIET_S)
        elif obstacle is Undecided.INTERRUPTED:
            later.append(RETRY_S)
        elif isinstance(obstacle, Waiting) and obstacle.missing:
            left_s = unit.youngest_s + MISSING_S - now_s
            if left_s > 0:
                later.append(left_s)
            else:
                waiting.append(obstacle)
        elif isinstance(obstacle, Waiting):
            waiting.append(obstacle)
            left_s = unit.created_s + MAX_PASSED_S - now_s
            if left_s > 0:
                later.append(left_s)
            else:
                saved |= _to_save(obstacle)
    return Decisions(tuple(let_through), tuple(waiting), min(later, default=None))


def _obstacle(
    usage: QuotaUsage,
    unit: Unit,
    owned_drivers: Collection[str],
    unknown: Collection[Account],
    saved: Collection[Account],
) -> Waiting | Undecided | None:
    """Return the obstacle that holds a unit back; None if it is let through."""
    accounts = frozenset(
        account
        for account in usage.book.accounts(unit.namespace)
        if account.limit.is_enforced
        and (account.limit.driver not in owned_drivers or account.limit.legacy_keys)
    )
    if not accounts:
        return None  # Nothing is limited, so nothing has to be known either.
    if not unit.is_complete:
        return Undecided.INCOMPLETE
    missing = tuple(
        dict.fromkeys(phrase for key in unit.pods for phrase in usage.claims_of(key).missing)
    )
    if missing:
        return Waiting(unit, missing=missing)
    charges = _charges(usage, unit, accounts, owned_drivers)
    if charges is None or not accounts.isdisjoint(unknown):
        return Undecided.UNKNOWN
    if charges and not all(_is_last(usage.pods[key]) for key in unit.pods):
        return Undecided.HELD_BACK
    try:
        with evaluating(meter=Meter(MAX_STEPS)):
            return _shortage(usage, unit, accounts, charges, saved)
    except AnswerInterrupted:
        return Undecided.INTERRUPTED


def obstacle_of(
    usage: QuotaUsage, key: Key, owned_drivers: Collection[str], now_s: float
) -> Waiting | Undecided | None:
    """Return the obstacle that keeps the gate of a waiting pod now; None if there is room for it.

    What is saved for others is not considered.

    Args:
        key: Namespace and name of the pod.
        owned_drivers: As in `decide`.
        now_s: As in `decide`.
    """
    unit = next(unit for unit in units(usage, now_s) if key in unit.pods)
    return _obstacle(usage, unit, owned_drivers, _unknown_accounts(usage), ())


def _to_save(waiting: Waiting) -> set[Account]:
    """Return the accounts that give nobody anything before a unit; none if it never fits."""
    shortages = [excess for excess in waiting.excesses if isinstance(excess, Excess)]
    if len(shortages) < len(waiting.excesses) or any(excess.is_final for excess in shortages):
        return set()
    return {excess.account for excess in shortages}


def units(usage: QuotaUsage, now_s: float) -> list[Unit]:
    """Return the units that wait, in order.

    Args:
        now_s: Seconds since 1970.
    """
    singles: list[Unit] = []
    groups: dict[tuple[str, tuple[str, str]], list[Key]] = defaultdict(list)
    for key, pod in usage.pods.items():
        if pod.metadata.deletion_timestamp is not None:
            continue
        group = group_of(pod)
        if group is not None:
            groups[key[0], group.name].append(key)
        elif usage.waits(pod):
            singles.append(_unit(usage, [key], is_complete=True))
    for members in groups.values():
        waiting_members = [key for key in members if usage.waits(usage.pods[key])]
        if waiting_members:
            is_complete = _is_complete(usage, members, now_s)
            singles.append(_unit(usage, waiting_members, is_complete=is_complete))
    return sorted(singles, key=lambda unit: (-unit.priority, unit.created_s, unit.pods))


def _unit(usage: QuotaUsage, keys: Sequence[Key], *, is_complete: bool) -> Unit:
    pods = [usage.pods[key] for key in keys]
    return Unit(
        namespace=keys[0][0],
        pods=tuple(sorted(keys)),
        priority=max(pod.spec.priority or 0 for pod in pods),
        created_s=min(map(_created_s, pods)),
        youngest_s=max(map(_created_s, pods)),
        is_complete=is_complete,
    )


def _is_complete(usage: QuotaUsage, members: Sequence[Key], now_s: float) -> bool:
    """Return True if a group has its declared members, or has had the time to get them."""
    pods = [usage.pods[key] for key in members]
    minimums = [group.minimum for pod in pods if (group := group_of(pod)) and group.minimum]
    if minimums and len(members) >= max(minimums):
        return True
    return now_s - max(map(_created_s, pods)) >= GROUP_QUIET_S


def _charges(
    usage: QuotaUsage, unit: Unit, accounts: Collection[Account], owned_drivers: Collection[str]
) -> Mapping[Account, int] | None:
    """Return the charge of a unit; None while it is not known.

    About claims of an owned driver the bridge decides, but not about pods that have its devices by keys.
    """
    charges: dict[Account, int] = defaultdict(int)
    for key in _waiting_entries(usage, unit):
        if key in usage.book.outstanding:
            return None
        entry = usage.book.ledger.get(key)
        if entry is None:
            return None
        for account, amount in entry.charges.items():
            is_decided_here = (
                isinstance(key, LegacyKeysOfPod) or account.limit.driver not in owned_drivers
            )
            if account in accounts and amount and is_decided_here:
                charges[account] += amount
    return charges


def _waiting_entries(usage: QuotaUsage, unit: Unit) -> Iterator[Hashable]:
    """Yield the charges of a unit that are not let through, each once."""
    entries: dict[Hashable, None] = {}
    for pod in unit.pods:
        entries |= dict.fromkeys(usage.claims_of(pod).entries)
    for key in entries:
        claim = usage.book.claim(key)
        if claim is not None and claim.stage is Stage.WAITING:
            yield key


def _shortage(
    usage: QuotaUsage,
    unit: Unit,
    accounts: Collection[Account],
    charges: Mapping[Account, int],
    saved: Collection[Account],
) -> Waiting | None:
    """Return the shortage that a unit waits for; None if it need not wait."""
    excesses: tuple[Excess | CapBreach, ...] = usage.book.ledger.excesses(charges)
    if any(account.limit.per_request or account.limit.per_device for account in accounts):
        excesses = (*_breaches(usage, unit, accounts), *excesses)
    if excesses:
        return Waiting(unit, excesses)
    if not charges.keys().isdisjoint(saved):
        return Waiting(unit, (), is_saved=True)
    return None


def _breaches(usage: QuotaUsage, unit: Unit, accounts: Collection[Account]) -> Iterator[CapBreach]:
    claims = [
        claim.devices
        for key in _waiting_entries(usage, unit)
        if (claim := usage.book.claim(key)) is not None
    ]
    drivers = frozenset(account.limit.driver for account in accounts)
    for breach in usage.book.excesses_of_claims(unit.namespace, claims, drivers=drivers):
        if isinstance(breach, CapBreach):
            yield breach


def _unknown_accounts(usage: QuotaUsage) -> frozenset[Account]:
    """Return the accounts with unknown usage, since charges of claims are outstanding."""
    namespaces = {
        claim.namespace
        for key in usage.book.outstanding
        if (claim := usage.book.claim(key)) is not None and claim.stage is not Stage.WAITING
    }
    return frozenset(
        account for namespace in namespaces for account in usage.book.accounts(namespace)
    )


def _is_last(pod: Pod) -> bool:
    """Return True if nothing but our gate holds a pod back."""
    return all(gate.name == QUOTA_GATE for gate in pod.spec.scheduling_gates or ())


def _created_s(pod: Pod) -> float:
    text = pod.metadata.creation_timestamp
    return datetime.fromisoformat(text).astimezone(UTC).timestamp() if text else 0.0
