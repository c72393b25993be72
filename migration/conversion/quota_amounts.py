"""Amounts of quotas on device keys, validated as those of pods are, and their division among DeviceClasses."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Self

import msgspec

from kube.quantity import ZERO, Quantity
from translation.model.amounts import is_in_bytes

_PREFIXES: Final = ("requests.", "limits.")
_TYPES: Final[Mapping[type, str]] = {list: "a list", dict: "an object"}
"""Types of YAML to their words; all else is written out."""


class InvalidAmount(msgspec.Struct, frozen=True):
    """An amount that no quota for claims can have.

    Attributes:
        reason: Says what was found, and what would be right.
    """

    reason: str


def read_amount(value: object) -> Quantity | InvalidAmount:
    """Return the amount of a line as its object has it.

    >>> read_amount("80Gi"), read_amount(None)
    (Quantity('80Gi'), InvalidAmount(reason='null is not a quantity such as 500m, 3Gi or 1e3'))
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        text = _TYPES.get(type(value)) or ("null" if value is None else str(value).lower()[:40])
        return InvalidAmount(f"{text} is not a quantity such as 500m, 3Gi or 1e3")
    try:
        return Quantity(str(value))
    except ValueError as error:  # Python writes out no int of thousands of digits.
        return InvalidAmount(str(error))


def count_fault(amount: Quantity) -> str:
    """Explain the fault of an amount as a number of things; empty if it is one.

    >>> count_fault(Quantity("500m")), count_fault(Quantity("-5")), count_fault(Quantity("4"))
    ('500m is not a whole number; write a whole number', '-5 is negative; write 0 or more', '')
    """
    if not amount.is_whole:
        return f"{amount} is not a whole number; write a whole number"
    return negative_fault(amount)


def devices_fault(amount: Quantity) -> str:
    """Explain the fault of an amount as a number of devices; empty if it is one.

    >>> devices_fault(Quantity("80Gi"))
    '80Gi is a number of bytes, and the key counts devices; write a number of devices'
    """
    if is_in_bytes(amount):
        return (
            f"{amount} is a number of bytes, and the key counts devices; write a number of devices"
        )
    return count_fault(amount)


def negative_fault(amount: Quantity) -> str:
    """Explain that an amount is below zero; empty if it is not."""
    return f"{amount} is negative; write 0 or more" if amount < ZERO else ""


def resource_name(line: str) -> str:
    """Return the resource name that a line of a quota counts.

    >>> resource_name("requests.nvidia.com/gpu")
    'nvidia.com/gpu'
    """
    for prefix in _PREFIXES:
        line = line.removeprefix(prefix)
    return line


def limiting_amounts(lines: Mapping[str, object]) -> dict[str, Quantity]:
    """Return resource name to the amount that claims in place of its devices may have.

    It is that of the line that Kubernetes counts, since HAMi's scheduler counts `limits.`, and only for its own pods.

    >>> limiting_amounts({"limits.nvidia.com/gpu": 4, "requests.nvidia.com/gpu": "8"})
    {'nvidia.com/gpu': Quantity('8')}
    """
    amounts: dict[str, Quantity] = {}
    # A line of `requests.` is the last of its name.
    for line in sorted(lines, key=lambda line: (line.startswith("requests."), line)):
        amount = read_amount(lines[line])
        if isinstance(amount, Quantity) and not devices_fault(amount):
            amounts[resource_name(line)] = amount
    return amounts


# --- the division of an amount --------------------------------------------------------------------


_Join = Callable[[Iterable[int]], int]
"""The devices of several workloads together."""


class Start(NamedTuple):
    """The pods that a workload starts later, such as those of the next run of a CronJob.

    Attributes:
        pods: The number of pods at a time.
        of_pod: DeviceClass to the devices of one pod.
        is_possible: They may start today, by the quotas that there are and the number of its replicas.
    """

    pods: int
    of_pod: Mapping[str, int]
    is_possible: bool = True


class DeviceUse(msgspec.Struct, frozen=True):
    """The devices that a namespace uses, as claims count them.

    Attributes:
        now: DeviceClass to the devices of the pods that there are, with keys or claims.
        starts: The pods of workloads that have none now.
        rollouts: DeviceClass to the most devices of the pods that a rollout starts before it ends one.
        starts_at_once: The quotas of today let all of these pods start at once.
    """

    now: Mapping[str, int] = {}
    starts: tuple[Start, ...] = ()
    rollouts: Mapping[str, int] = {}
    starts_at_once: bool = True

    @classmethod
    def merged(cls, uses: Iterable[Self]) -> Self:
        """Return the use of several namespaces together."""
        now: dict[str, int] = {}
        starts: list[Start] = []
        rollouts: dict[str, int] = {}
        starts_at_once = True
        for use in uses:
            starts_at_once &= use.starts_at_once
            starts += use.starts
            for name, number in use.now.items():
                now[name] = now.get(name, 0) + number
            for name, number in use.rollouts.items():
                rollouts[name] = max(rollouts.get(name, 0), number)
        return cls(now, tuple(starts), rollouts, starts_at_once)

    def class_names(self) -> set[str]:
        """Return the classes of the devices."""
        return {*self.now, *self.rollouts}.union(*(start.of_pod for start in self.starts))

    def most(self, name: str) -> int:
        """Return the most devices of a class, with all pods to come and a rollout."""
        starting = sum(start.pods * start.of_pod.get(name, 0) for start in self.starts)
        return self.now.get(name, 0) + starting + self.rollouts.get(name, 0)

    def needs(
        self, classes: Collection[str], total: int, free: Collection[str] = ()
    ) -> dict[str, int]:
        """Return class to the devices that it has to have of an amount, as far as that is enough.

        All workloads without pods start at once if that fits, else any one of them beside the pods that there are. Where the
        amount is not enough, those that start nothing today do not count, and after them those that do not fit beside these.

        Args:
            classes: The classes that share the amount.
            total: The amount.
            free: Those of them whose claims need nothing of it, where it is not enough for all.
        """
        possible = tuple(start for start in self.starts if start.is_possible)
        room = total - sum(self.now.get(name, 0) for name in classes)
        fitting = tuple(_fitting(start, classes, room) for start in self.starts)
        ways: tuple[tuple[_Join, tuple[Start, ...], bool], ...] = (
            *((sum, starts, self.starts_at_once) for starts in (self.starts, possible)),
            *((max, starts, True) for starts in (self.starts, possible)),
            *((join, fitting, True) for join in (sum, max)),
        )
        for join, starts, is_enough_without_free in ways:
            needs = {
                name: self.now.get(name, 0)
                + join([start.pods * start.of_pod.get(name, 0) for start in starts] or [0])
                for name in classes
            }
            left = total - sum(needs[name] for name in classes if name not in free)
            if sum(needs.values()) <= total:
                return needs
            if is_enough_without_free and left >= 0:
                return needs | _limited(
                    {name: needs[name] for name in classes if name in free}, left
                )
        return {name: self.now.get(name, 0) for name in classes}


ROOM_FOR_OTHERS: Final = 2
"""The room for pods that had no limit, as a multiple of what they use at the time of a snapshot."""


class NamespaceUse(msgspec.Struct, frozen=True):
    """The devices that a namespace uses, by the keys of its pods.

    Attributes:
        by_keys: The keys of pods to what they use; no keys for the claims of all others.
    """

    by_keys: tuple[tuple[frozenset[str], DeviceUse], ...] = ()

    def of(self, key: str) -> DeviceUse:
        """Return the use by pods with a key, and that of claims of no such workload."""
        return DeviceUse.merged(use for keys, use in self.by_keys if not keys or key in keys)

    def beside(self, keys: Collection[str]) -> Mapping[str, int]:
        """Return class to the room for pods with none of some keys: twice their use, with all pods to come.

        No line of these keys counted such pods, so they may be more at other times, and a line of the class counts all.
        """
        counted = frozenset(keys)
        others = [use for own, use in self.by_keys if own and own.isdisjoint(counted)]
        names = frozenset[str]().union(*(use.class_names() for use in others))
        use = DeviceUse.merged(others)
        return {name: ROOM_FOR_OTHERS * number for name in names if (number := use.most(name))}

    @property
    def all(self) -> DeviceUse:
        """The use by all."""
        return DeviceUse.merged(use for _, use in self.by_keys)

    @classmethod
    def merged(cls, uses: Iterable[Self]) -> Self:
        """Return the use of several namespaces together."""
        return cls(tuple(entry for use in uses for entry in use.by_keys))


def _limited(needs: Mapping[str, int], total: int) -> dict[str, int]:
    """Return needs in their order, as far as a total is enough."""
    limited = {}
    for name, need in needs.items():
        limited[name] = min(need, total)
        total -= limited[name]
    return limited


def _fitting(start: Start, classes: Collection[str], room: int) -> Start:
    """Return all pods of a start, else one, as far as there is room for them; none without."""
    size = sum(number for name, number in start.of_pod.items() if name in classes)
    pods = next((pods for pods in (start.pods, 1) if size * pods <= room), 0)
    return start._replace(pods=pods)


def present_classes(classes: Iterable[str], absent: Collection[str]) -> list[str]:
    """Return the classes that share an amount: none of those that are nowhere in the cluster, unless all are.

    >>> present_classes(["gpu", "share"], {"share"}), present_classes(["share"], {"share"})
    (['gpu'], ['share'])
    """
    own = list(classes)
    return [name for name in own if name not in absent] or own


def classes_of_line(
    classes: Iterable[str],
    absent: Collection[str],
    key: str,
    used: NamespaceUse | None,
    *,
    counts_others: bool,
) -> list[str]:
    """Return the classes of a key that get a line, in order.

    Args:
        classes: The classes that the key may become devices of.
        absent: The classes that are nowhere in the cluster.
        key: The resource name of the line.
        used: The use of the namespace; None if it is not known.
        counts_others: Those that pods get by other keys alone, and that had no limit before, get one, too.
    """
    present = sorted(present_classes(classes, absent))
    if used is None or counts_others:
        return present
    own, others = used.of(key), used.beside({key})
    return [name for name in present if own.most(name) or name not in others]


def divide_amount(
    amount: Quantity,
    classes: Sequence[str],
    use: DeviceUse | None,
    *,
    with_lines: Collection[str] = (),
    mapped: Collection[str] = (),
) -> Mapping[str, Quantity]:
    """Return class to its amount: all of it, or the needed part and an equal part of the rest.

    What is left of the division goes to the class that needs most, so the sum is the amount. Where more is used
    than the amount, it is divided in proportion.

    Args:
        amount: The amount of the old line.
        classes: The classes that a key may become devices of.
        use: The use of the namespace; None for the whole amount for each.
        with_lines: The classes that have a line of their own already, whose use is no part of the old line.
        mapped: The classes whose claims the old line counts itself, so that their part is no line.
    """
    if use is None or len(classes) <= 1 or not amount.is_whole:
        return dict.fromkeys(classes, amount)
    total = int(amount)
    sharing = [name for name in classes if name not in with_lines]
    needs = dict.fromkeys(classes, 0) | use.needs(sharing, total, mapped)
    parts = _parts(needs, total)
    # The rest is often enough for rollouts.
    for names in (sharing, [name for name in sharing if name not in mapped]):
        more = {name: use.rollouts.get(name, 0) for name in names}
        with_rollouts = {name: need + more.get(name, 0) for name, need in needs.items()}
        if all(parts[name] >= with_rollouts[name] for name in names):
            break
        if sum(with_rollouts.values()) <= total:
            parts = _parts(with_rollouts, total)
            break
    return {name: Quantity(str(part)) for name, part in parts.items()}


def _parts(needs: Mapping[str, int], total: int) -> dict[str, int]:
    """Return class to its need and an equal part of the rest, or a part in proportion if the needs are more than the total."""
    needed = sum(needs.values())
    if needed > total:
        parts = {name: total * need // needed for name, need in needs.items()}
    else:
        parts = {name: need + (total - needed) // len(needs) for name, need in needs.items()}
    most_needed = max(needs, key=lambda name: (needs[name], name))
    parts[most_needed] += total - sum(parts.values())
    return parts
