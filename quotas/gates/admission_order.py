"""The order of letting pods through that wait for a DeviceQuota.

By priority, then by age; of one priority a group goes first of which some members have been let through, as by a
leader that was lost meanwhile. A smaller pod may pass a larger one that does not fit, until the larger has waited
for ten minutes: from then on what is left is saved for it. What exceeds a limit even if nothing else is in
use saves nothing. Members of a group are let through together or not at all: as many as the group needs, and
all that wait if there is room. Once they are, further members are let through one by one, as a group that runs
gets back a member that it has lost.

Nothing is promised of a driver that the bridge owns: other schedulers cannot allocate its devices, until they may
again, and then nobody would have decided. Nor is it while a driver is handed over. Of pods of the bridge only keys of
device plugins are decided about.
"""

from collections import defaultdict
from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Final, NamedTuple

from findings.text import count_text
from kube.api.core import Pod
from kube.cel.scope import AnswerInterrupted, Meter, evaluating
from quotas.device_quotas.caps import CapBreach
from quotas.device_quotas.ledger import Excess, Stage
from quotas.device_quotas.tenants import Account
from quotas.gates.counted_objects import MAPPED_KEYS, TOO_MANY_CLAIMS, is_left_to_bridge
from quotas.gates.groups import GroupId, Minimum
from quotas.gates.tenants import limiting_accounts, waiting_keys
from quotas.gates.usage import Key, LegacyKeysOfPod, PodClaims, QuotaUsage

MAX_PASSED_S: Final = 600.0
"""The time for which smaller pods may pass a larger one."""
MAX_STEPS: Final = 3000
"""Steps of the evaluation of one unit; its estimates are cached, so it needs next to none."""
RETRY_S: Final = 1.0
"""The time until an evaluation goes on that was interrupted."""
GROUP_QUIET_S: Final = 10.0
"""The time without a new member after which a group of unknown minimum is complete."""
MISSING_S: Final = 10.0
"""A claim, a PodGroup or a member that others make is there after so long, or something prevents it."""


class Lack(NamedTuple):
    """A thing that a unit waits for, other than room.

    Attributes:
        kind: The kind of thing; a pod is told once about each.
        note: The reason for people.
    """

    kind: str
    note: str


class Unit(NamedTuple):
    """Pods that are let through together.

    Attributes:
        namespace: Their namespace.
        pods: Namespace and name of each that waits, first those that are let through first.
        priority: The highest of them.
        created_s: The creation of the oldest, in seconds since 1970.
        youngest_s: The creation of the youngest.
        needed: The number of pods without which the others are of no use.
        is_complete: No further member is expected.
        is_begun: Other members of the group were let through, and these are needed, too.
        lack: The thing without which the group is not complete; None while that is not known.
    """

    namespace: str
    pods: tuple[Key, ...]
    priority: int
    created_s: float
    youngest_s: float
    needed: int = 1
    is_complete: bool = True
    is_begun: bool = False
    lack: Lack | None = None


class Waiting(NamedTuple):
    """A unit that has to wait, with the reason.

    Attributes:
        excesses: The limits that it would exceed.
        is_saved: True if the amounts that it needs are saved for an older or more important unit.
        missing: Claims that do not exist, in phrases; what they ask for is not known.
        lack: The thing without which the group of the unit is not complete, or another decider.
    """

    unit: Unit
    excesses: tuple[Excess | CapBreach, ...] = ()
    is_saved: bool = False
    missing: tuple[str, ...] = ()
    lack: Lack | None = None

    @property
    def needs_objects(self) -> bool:
        """Return True if it waits for something that somebody else creates."""
        return bool(self.missing or self.lack)


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
    OUTDATED = "devices that have just changed, or are away, are not counted"
    INTERRUPTED = "selectors have to be evaluated once more"
    HELD_BACK = "another scheduling gate is removed first"
    UNCONFIRMED = "a quota that is not known here yet may limit its namespace"


def decide(
    usage: QuotaUsage,
    withheld: Mapping[str, str],
    now_s: float,
    *,
    waiting_pods: Sequence[Key] | None = None,
    unknown: Collection[Account] | None = None,
    is_held: bool = True,
    unconfirmed: Container[str] = (),
) -> Decisions:
    """Let waiting pods through, as far as there is room; the usage counts them as promised from then on.

    Args:
        withheld: The drivers about whose claims another decides, with the reason for people.
        now_s: Seconds since 1970.
        waiting_pods: The pods to decide about, all that share a limit or none of these; None for all pods that wait.
        unknown: The accounts of `unknown_accounts` when the round began; None if this is the whole round.
        is_held: False if nothing holds pods back any more, so that none has to wait.
        unconfirmed: Namespaces in which pods wait although no quota limits them, as far as is known.
    """
    let_through: list[Key] = []
    waiting: list[Waiting] = []
    later: list[float] = []
    saved: set[Account] = set()
    unknown = unknown_accounts(usage) if unknown is None else unknown
    for unit in units(usage, now_s, waiting_pods):
        pods, obstacle = (
            _passing(usage, unit, withheld, unknown, saved) if is_held else (unit.pods, None)
        )
        if obstacle is None and is_held and _is_unconfirmed(usage, unit, unconfirmed):
            obstacle = Undecided.UNCONFIRMED
        if obstacle is None:
            usage.remember(_waiting_entries(usage, map(usage.claims_to_decide, pods)), ())
            for key in pods:
                usage.let_through(key)
            let_through += pods
            if len(pods) < len(unit.pods):
                later.append(0.0)  # The rest need not wait for one another any more.
            continue
        again_s = _again_s(usage, obstacle, unit, now_s)
        if again_s is not None:
            later.append(again_s)
        if isinstance(obstacle, Waiting):
            _remember(usage, obstacle)
            if again_s is None:
                saved |= _to_save(obstacle)
            if again_s is None or not obstacle.needs_objects:
                waiting.append(obstacle)
    return Decisions(tuple(let_through), tuple(waiting), min(later, default=None))


def _is_unconfirmed(usage: QuotaUsage, unit: Unit, unconfirmed: Container[str]) -> bool:
    """Return True if a quota may limit a unit unseen; the bridge decides about claims of its pods."""
    return (
        unit.namespace in unconfirmed
        and not limiting_accounts(usage, unit.namespace)
        and not all(is_left_to_bridge(usage.pods[key]) for key in unit.pods)
    )


def _remember(usage: QuotaUsage, waiting: Waiting) -> None:
    """Have the claims of a unit go on waiting if their devices vanish for a while."""
    entries = _waiting_entries(usage, map(usage.claims_to_decide, waiting.unit.pods))
    breaches = tuple(breach for breach in waiting.excesses if isinstance(breach, CapBreach))
    usage.remember(entries, breaches)


def _again_s(
    usage: QuotaUsage, obstacle: Waiting | Undecided, unit: Unit, now_s: float
) -> float | None:
    """Return the seconds until an obstacle may be another, though nothing has changed; None for never."""
    match obstacle:
        case Undecided.INCOMPLETE:
            return GROUP_QUIET_S
        case Undecided.INTERRUPTED:
            return RETRY_S
        case Undecided.HELD_BACK:
            alone = [usage.alone_left_s(usage.pods[key]) for key in unit.pods]
            return min((left_s for left_s in alone if left_s), default=None)
        case Waiting(needs_objects=True):
            left_s = unit.youngest_s + MISSING_S - now_s
        case Waiting():
            left_s = unit.created_s + MAX_PASSED_S - now_s
        case _:
            return None
    return left_s if left_s > 0 else None


def _passing(
    usage: QuotaUsage,
    unit: Unit,
    withheld: Mapping[str, str],
    unknown: Collection[Account],
    saved: Collection[Account],
) -> tuple[tuple[Key, ...], Waiting | Undecided | None]:
    """Return the pods of a unit that are let through, and the reason if none is."""
    if all(is_left_to_bridge(usage.pods[key]) for key in unit.pods):
        # It decides itself, so whoever wrote the gate, nobody else would remove it.
        return unit.pods, None
    if limiting_accounts(usage, unit.namespace):
        if any(map(usage.has_no_scheduler, unit.pods)):
            return unit.pods, Waiting(unit, lack=Lack("mapped-keys", MAPPED_KEYS))
        if any(map(usage.has_too_many_claims, unit.pods)):
            return unit.pods, Waiting(unit, lack=Lack("claims", TOO_MANY_CLAIMS))
    obstacle = _obstacle(usage, unit, withheld, unknown, saved)
    if obstacle is None or unit.needed >= len(unit.pods):
        return unit.pods, obstacle
    needed = unit._replace(pods=unit.pods[: unit.needed])
    obstacle = _obstacle(usage, needed, withheld, unknown, saved)
    if isinstance(obstacle, Waiting):
        obstacle = obstacle._replace(unit=unit)
    return needed.pods, obstacle


def _obstacle(
    usage: QuotaUsage,
    unit: Unit,
    withheld: Mapping[str, str],
    unknown: Collection[Account],
    saved: Collection[Account],
) -> Waiting | Undecided | None:
    """Return the obstacle that holds a unit back; None if it is let through."""
    accounts = limiting_accounts(usage, unit.namespace)
    if not accounts:
        return None  # Nothing is limited, so nothing has to be known either.
    claims = [usage.claims_to_decide(key) for key in unit.pods]
    missing = tuple(dict.fromkeys(phrase for of_pod in claims for phrase in of_pod.missing))
    if missing:
        # Without its PodGroup kube-controller-manager makes no claims for a pod, so that comes first.
        return Waiting(unit, missing=missing, lack=unit.lack)
    entries = _waiting_entries(usage, claims)
    charges = _charges(usage, entries, accounts)
    if any(map(usage.awaits_slices, unit.pods)) or _is_counted_by_memory(usage, entries, charges):
        return Undecided.OUTDATED
    if charges is None or not accounts.isdisjoint(unknown):
        return Undecided.UNKNOWN
    driver = _withheld_driver(usage, entries, accounts, withheld)
    if driver is not None:
        # A handover that ends, or begins, is another reason.
        return Waiting(unit, lack=Lack(f"decider/{withheld[driver]}", withheld[driver]))
    if not charges:
        return None
    if not unit.is_complete:
        return Waiting(unit, lack=unit.lack) if unit.lack else Undecided.INCOMPLETE
    if not all(usage.is_last(usage.pods[key]) for key in unit.pods):
        return Undecided.HELD_BACK
    try:
        with evaluating(meter=Meter(MAX_STEPS)):
            excesses = _excesses(usage, unit.namespace, entries, accounts, charges)
    except AnswerInterrupted:
        return Undecided.INTERRUPTED
    is_saved = not excesses and not charges.keys().isdisjoint(saved)
    return Waiting(unit, excesses, is_saved=is_saved) if excesses or is_saved else None


def obstacle_of(
    usage: QuotaUsage, key: Key, withheld: Mapping[str, str], now_s: float
) -> Waiting | Undecided | None:
    """Return the obstacle that keeps the gate of a waiting pod now; None if there is room for it.

    What is saved for others is not considered.

    Args:
        key: Namespace and name of the pod.
        withheld: The same drivers as in `decide`.
        now_s: The same time as in `decide`.
    """
    unit = next(unit for unit in units(usage, now_s) if key in unit.pods)
    return _passing(usage, unit, withheld, unknown_accounts(usage), ())[1]


def _to_save(waiting: Waiting) -> set[Account]:
    """Return the accounts that give nobody anything before a unit; none if it never fits."""
    shortages = [excess for excess in waiting.excesses if isinstance(excess, Excess)]
    if len(shortages) < len(waiting.excesses) or any(excess.is_final for excess in shortages):
        return set()
    return {excess.account for excess in shortages}


def units(usage: QuotaUsage, now_s: float, waiting_pods: Sequence[Key] | None = None) -> list[Unit]:
    """Return the units that wait, in order.

    Args:
        now_s: Seconds since 1970.
        waiting_pods: The same pods as in `decide`.
    """
    waiting = waiting_keys(usage) if waiting_pods is None else waiting_pods
    all_units = [_unit(usage, [key]) for key in waiting if usage.groups.group_of(key) is None]
    groups = dict.fromkeys(
        group for key in waiting if (group := usage.groups.group_of(key)) is not None
    )
    for group in groups:
        all_units += _units_of_group(usage, group, now_s)
    return sorted(
        all_units, key=lambda unit: (-unit.priority, not unit.is_begun, unit.created_s, unit.pods)
    )


def _units_of_group(usage: QuotaUsage, group: GroupId, now_s: float) -> Iterator[Unit]:
    """Yield the units of a group that has waiting pods."""
    members = [
        key
        for key in usage.groups.members(group)
        if usage.pods[key].metadata.deletion_timestamp is None
    ]
    waiting = sorted(
        (key for key in members if usage.waits(usage.pods[key])),
        key=lambda key: _precedence(usage, key),
    )
    others = [key for key in members if not usage.waits(usage.pods[key])]
    minimum = usage.groups.minimum(group)
    if minimum is Minimum.UNKNOWN:
        is_quiet = now_s - max(_created_s(usage.pods[key]) for key in members) >= GROUP_QUIET_S
        yield _unit(usage, waiting)._replace(needed=len(waiting), is_complete=is_quiet)
    elif minimum is Minimum.MISSING:
        yield _unit(usage, waiting)._replace(is_complete=False, lack=_no_pod_group(group))
    elif len(others) >= minimum:
        yield from (_unit(usage, [key]) for key in waiting)
    elif any(map(usage.is_charged, others)):
        # Members may have ended since they were let through, so others need not come any more.
        needed = min(minimum - len(others), len(waiting))
        yield _unit(usage, waiting)._replace(needed=needed, is_begun=True)
    else:
        is_complete = len(members) >= minimum
        lack = None if is_complete else _too_few(group, len(members), minimum)
        yield _unit(usage, waiting)._replace(
            needed=minimum - len(others), is_complete=is_complete, lack=lack
        )


def _no_pod_group(group: GroupId) -> Lack:
    note = "does not exist; how many pods it needs is not known, so its pods wait until it is made"
    return Lack("pod-group", f"{group} {note}")


def _too_few(group: GroupId, count: int, minimum: int) -> Lack:
    needed = count_text(minimum, "pod")
    note = f"needs {needed}, and has {count}; they get through together, once there are enough"
    return Lack("members", f"{group} {note}")


def _unit(usage: QuotaUsage, keys: Sequence[Key]) -> Unit:
    pods = [usage.pods[key] for key in keys]
    return Unit(
        namespace=keys[0][0],
        pods=tuple(keys),
        priority=max(pod.spec.priority or 0 for pod in pods),
        created_s=min(map(_created_s, pods)),
        youngest_s=max(map(_created_s, pods)),
    )


def _precedence(usage: QuotaUsage, key: Key) -> tuple[bool, int, float, Key]:
    """Return the place of a member among those of its group that wait."""
    pod = usage.pods[key]
    return not usage.is_last(pod), -(pod.spec.priority or 0), _created_s(pod), key


def _charges(
    usage: QuotaUsage, entries: Sequence[Hashable], accounts: Collection[Account]
) -> Mapping[Account, int] | None:
    """Return the charge of a unit's entries; None while it is not known."""
    charges: dict[Account, int] = defaultdict(int)
    for key in entries:
        if key in usage.book.outstanding:
            return None
        of_entry = usage.charges_of(key)
        if of_entry is None:
            return None
        for account, amount in of_entry.items():
            if account in accounts and amount:
                charges[account] += amount
    return charges


def _is_counted_by_memory(
    usage: QuotaUsage, entries: Sequence[Hashable], charges: Mapping[Account, int] | None
) -> bool:
    """Return True if the devices of a unit have vanished, and with them amounts of devices in use."""
    ledger = usage.book.ledger
    return any(usage.remembered(key) is not None for key in entries) and not all(
        map(ledger.is_complete, charges or ())
    )


def _withheld_driver(
    usage: QuotaUsage,
    entries: Sequence[Hashable],
    accounts: Collection[Account],
    withheld: Mapping[str, str],
) -> str | None:
    """Return a withheld driver with claims of a unit; None without one, and for keys of pods."""
    if not withheld:
        return None
    for key in entries:
        if isinstance(key, LegacyKeysOfPod):
            continue
        for account, amount in (usage.charges_of(key) or {}).items():
            if account in accounts and amount and account.limit.driver in withheld:
                return account.limit.driver
    return None


def _waiting_entries(usage: QuotaUsage, claims: Iterable[PodClaims]) -> Sequence[Hashable]:
    """Return the charges of a unit's pods that are not let through, each once."""
    return [
        key
        for key in dict.fromkeys(entry for of_pod in claims for entry in of_pod.entries)
        if (claim := usage.book.claim(key)) is not None and claim.stage is Stage.WAITING
    ]


def _excesses(
    usage: QuotaUsage,
    namespace: str,
    entries: Sequence[Hashable],
    accounts: Collection[Account],
    charges: Mapping[Account, int],
) -> tuple[Excess | CapBreach, ...]:
    """Return the limits that a unit's entries would exceed."""
    if any(usage.remembered(key) is not None for key in entries):
        vanished = usage.vanished_promises()
        charges = {
            account: amount + vanished.get(account, 0) for account, amount in charges.items()
        }
    excesses = usage.book.ledger.excesses(charges)
    if any(account.limit.per_request or account.limit.per_device for account in accounts):
        return (*_breaches(usage, namespace, entries, accounts), *excesses)
    return excesses


def _breaches(
    usage: QuotaUsage, namespace: str, entries: Sequence[Hashable], accounts: Collection[Account]
) -> Iterator[CapBreach]:
    for key in entries:
        remembered = usage.remembered(key)
        yield from remembered.breaches if remembered is not None else ()
    counted = [claim for key in entries if (claim := usage.book.claim(key)) is not None]
    for claim in counted:
        if claim.legacy_pod is not None:
            spec, _, mapped = claim.legacy_pod
            yield from usage.book.legacy_breaches(namespace, spec, mapped)
    claims = [claim.devices for claim in counted]
    drivers = frozenset(account.limit.driver for account in accounts)
    for breach in usage.book.excesses_of_claims(namespace, claims, drivers=drivers):
        if isinstance(breach, CapBreach):
            yield breach


def unknown_accounts(usage: QuotaUsage) -> frozenset[Account]:
    """Return the accounts with unknown usage, since charges of claims are outstanding: a look at all of these."""
    namespaces = {
        claim.namespace
        for key in usage.book.outstanding
        if (claim := usage.book.claim(key)) is not None and claim.stage is not Stage.WAITING
    }
    return frozenset(
        account for namespace in namespaces for account in usage.book.accounts(namespace)
    )


def _created_s(pod: Pod) -> float:
    text = pod.metadata.creation_timestamp
    return datetime.fromisoformat(text).astimezone(UTC).timestamp() if text else 0.0
