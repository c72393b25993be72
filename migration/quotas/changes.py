"""The differences between a line of a quota and the limits of a DeviceQuota in its place.

A DeviceQuota counts devices of one driver in a limit, and every device of a request. So a line may become several limits,
and several lines one limit.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from findings.text import join_names
from kube.quantity import ZERO, Quantity, format_count
from migration.quotas.model import FoundQuota, LineChange, MeasuredLine, Part, QuotaLine

_LESS: Final = (
    "where the line allows {amount} of any class, each limit has a part: {parts}; pods and claims of a class are held back "
    "above its part as soon as the DeviceQuota is enforced; --split whole gives each limit the whole amount"
)
_NONE: Final = (
    "where the line allows {amount} of any class, class {names} is nowhere in the cluster and gets none ({parts}): its pods "
    "and claims are held back; raise its limit by hand before such pods come"
)
_MORE: Final = (
    "where the line allows {amount} of all classes together, the limits allow {total} once the line is removed: {parts}; --split used "
    "divides the amount"
)
_SHARED: Final = (
    "limit {limit} has the amounts of {lines} together, since claims do not show their key: pods with this key may use all of it, "
    "{total}, where the line allows {amount}"
)
_MULTIPLIED: Final = (
    "a container with 2 of {key} is charged twice the amount, which the line counts once; raise the limit if such pods are to have "
    "as many devices as before"
)
_OTHERS: Final = (
    "claims of pods with other keys count, too, once they have claims of class {names}, and the line does not count them: raise the "
    "limit by what they need"
)
_ROOM: Final = (
    "limit {limit} has room for {room} devices of pods with other keys, which the line does not count, and pods with this key may "
    "use it: {total}, where the line gives {amount}"
)
_NOT_COUNTED: Final = (
    "Kubernetes counts no extended resource under limits., and HAMi's scheduler its memory and cores alone, so nothing limits such "
    "pods by this line today"
)
_ALL_PODS: Final = "the limits count all pods of the namespaces, whichever their scheduler is, where the quota counts {counted}"


class LimitOfLines(msgspec.Struct, frozen=True, kw_only=True):
    """A limit with the lines that it is made of.

    Attributes:
        name: The name of the limit.
        entries: The lines, measured as the limit counts.
    """

    name: str
    entries: tuple[MeasuredLine, ...]

    @property
    def beside(self) -> Quantity:
        """The room for pods with keys of no line."""
        return Quantity(max((entry.beside for entry in self.entries), default=0))

    @property
    def amount(self) -> Quantity:
        """The amount of the limit."""
        return total_amount(self.entries)


def total_amount(entries: Iterable[MeasuredLine]) -> Quantity:
    """Return the amount of one limit for several lines.

    Lines of one key limit the same pods, so the smaller holds. Those of different keys count apart, so that pods may use all of them.

    Args:
        entries: The lines, measured alike; one at least.
    """
    of_key: dict[str, Quantity] = {}
    beside = 0
    for entry in entries:
        own = of_key.get(entry.line.key, entry.own_amount)
        of_key[entry.line.key] = min(own, entry.own_amount)
        beside = max(beside, entry.beside)
    first, *others = of_key.values()
    total = sum(others, first)
    return total + Quantity(beside) if beside else total


def line_changes(quota: FoundQuota, limits: Sequence[LimitOfLines]) -> tuple[LineChange, ...]:
    """Return the differences between the lines of a quota and the limits that they become, by line."""
    of_line: dict[str, list[tuple[LimitOfLines, MeasuredLine]]] = {}
    for limit in limits:
        for entry in limit.entries:
            if entry.line.part is Part.TOTAL and entry.measure is not None:
                of_line.setdefault(entry.line.name, []).append((limit, entry))
    changes = [
        change
        for parts in of_line.values()
        for change in (
            *_divided(parts),
            *_shared(parts),
            *_with_others(parts),
            *(
                _under_limits(parts)
                if _is_under_limits(quota, parts[0][1].line)
                else _multiplied(parts)
            ),
        )
    ]
    if quota.counted_pods:
        text = _ALL_PODS.format(counted=quota.counted_pods)
        changes += [LineChange(line=name, text=text, allows_less=True) for name in of_line]
    return tuple(changes)


def _is_under_limits(quota: FoundQuota, line: QuotaLine) -> bool:
    """Return True for a line that Kubernetes does not count."""
    return quota.is_core and not line.counted_by and line.name == f"limits.{line.key}"


def _divided(parts: Sequence[tuple[LimitOfLines, MeasuredLine]]) -> Iterator[LineChange]:
    """Yield the differences of a line with a part of it in several limits."""
    entries = [entry for _, entry in parts]
    if len(parts) < 2 or any(entry.measure and entry.measure.capacity for entry in entries):
        return
    line = entries[0].line
    amount = format_count(line.amount)
    texts = ", ".join(
        f"{format_count(entry.own_amount)} in limit {limit.name}" for limit, entry in parts
    )
    total = sum((entry.own_amount for entry in entries), ZERO)
    if any(entry.own_amount < line.amount for entry in entries if not entry.is_absent):
        text = _LESS.format(amount=amount, parts=texts)
        yield LineChange(line=line.name, text=text, allows_less=True)
    absent = [entry.measure.device_class for entry in entries if entry.measure and entry.is_absent]
    if absent and line.amount > ZERO:
        text = _NONE.format(amount=amount, names=join_names(absent), parts=texts)
        yield LineChange(line=line.name, text=text, allows_less=True)
    if total > line.amount:
        text = _MORE.format(amount=amount, total=format_count(total), parts=texts)
        yield LineChange(line=line.name, text=text, allows_more=True)


def _shared(parts: Iterable[tuple[LimitOfLines, MeasuredLine]]) -> Iterator[LineChange]:
    """Yield the differences of a line that shares a limit with lines of other keys."""
    for limit, entry in parts:
        own = [other for other in limit.entries if other.line.key == entry.line.key]
        if limit.amount > total_amount(own):
            text = _SHARED.format(
                limit=limit.name,
                lines=join_names([other.line.name for other in limit.entries]),
                total=limit.amount,
                amount=entry.own_amount,
            )
            yield LineChange(line=entry.line.name, text=text, allows_more=True)


def _with_others(parts: Sequence[tuple[LimitOfLines, MeasuredLine]]) -> Iterator[LineChange]:
    """Yield the differences of a line by claims of pods with other keys, and by the room for them."""
    entries = [entry for _, entry in parts]
    for limit, entry in parts:
        if entry.beside:
            text = _ROOM.format(
                limit=limit.name,
                room=format_count(Quantity(entry.beside)),
                total=format_count(limit.amount),
                amount=format_count(entry.own_amount),
            )
            yield LineChange(line=entry.line.name, text=text, allows_more=True)
    names = [
        entry.measure.device_class for entry in entries if entry.measure and entry.counts_others
    ]
    if names:
        text = _OTHERS.format(names=join_names(names))
        yield LineChange(line=entries[0].line.name, text=text, allows_less=True)


def _multiplied(parts: Sequence[tuple[LimitOfLines, MeasuredLine]]) -> Iterator[LineChange]:
    """Yield the difference of an amount of a container that each of its devices has."""
    entries = [entry for _, entry in parts]
    for key in dict.fromkeys(filter(None, map(_multiplied_by, entries))):
        text = _MULTIPLIED.format(key=key)
        yield LineChange(line=entries[0].line.name, text=text, allows_less=True)


def _under_limits(parts: Sequence[tuple[LimitOfLines, MeasuredLine]]) -> Iterator[LineChange]:
    """Yield the difference of a line that HAMi's scheduler counts, by device as a limit does, or nobody.

    Source: Project-HAMi/HAMi, commit 06944339, pkg/device/quota.go, AddQuota and countPodDevices: `limits.` of memory
    and cores.
    """
    entries = [entry for _, entry in parts]
    if not all(map(_multiplied_by, entries)):
        yield LineChange(line=entries[0].line.name, text=_NOT_COUNTED, allows_less=True)


def _multiplied_by(entry: MeasuredLine) -> str:
    """Return the key with the number of devices that each have the amount; empty without one."""
    return str((entry.legacy_key or {}).get("multipliedBy", ""))
