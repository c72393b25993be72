"""`drawbridge quota status` as text."""

from collections.abc import Iterable, Iterator, Sequence

from answers.cluster.quota_status import LimitUsage, QuotaUsage
from cli.output.layout import format_table
from findings.text import count_text, join_names, printable

MAX_NAMES = 5
"""Namespaces and pods that a line names."""
_HEAD = ("LIMIT", "USED", "PROMISED", "WAITING", "LEFT", "MAX", "COUNTS")


def format_quotas(quotas: Iterable[QuotaUsage]) -> str:
    """Return every quota with its limits, and the namespaces that use them."""
    return "\n\n".join("\n".join(_quota_lines(quota)) for quota in quotas)


def _quota_lines(quota: QuotaUsage) -> Iterator[str]:
    of_each = " each" if quota.budget == "PerNamespace" else ""
    number = count_text(len(quota.namespaces), "namespace")
    selected = f"{number}{of_each} ({format_names(quota.namespaces)})"
    selects_none = "it selects no namespace, so it limits nobody"
    yield printable(f"DeviceQuota {quota.name}: {selected if quota.namespaces else selects_none}")
    table = format_table(_HEAD, (_row(limit) for limit in quota.limits))
    yield from (f"  {line}" for line in table.splitlines())
    for limit in quota.limits:
        for part in limit.namespaces:
            amounts = f"used {part.used}, promised {part.promised}, waiting {part.waiting}"
            left = f", left {part.available}" if part.available else ""
            yield printable(f"  {limit.name} of {part.namespace}: {amounts}{left}")
    if quota.promised_pods:
        pods = format_names(quota.promised_pods)
        yield printable(f"  promised to {pods}: deleting a pod that fits nowhere frees its part")
    notes: dict[str, list[str]] = {}
    for limit in quota.limits:
        for note in _notes(limit):
            notes.setdefault(note, []).append(limit.name)
    for note, limits in notes.items():
        yield printable(f"  {', '.join(limits)}: {note}")


def format_names(all_names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    return join_names(all_names, MAX_NAMES)


def _row(limit: LimitUsage) -> tuple[str, ...]:
    counts = f"{limit.counts} of {limit.driver}"
    amounts = (limit.used, limit.promised, limit.waiting, limit.available, limit.max)
    return (limit.name, *amounts, counts)


def _notes(limit: LimitUsage) -> Iterator[str]:
    yield limit.enforcement
    if limit.fault:
        yield f"it cannot be evaluated, so it lets nothing through: {limit.fault}"
    if not limit.counts_published:
        yield "no published device counts: drawbridge check of the quota says why"
    if limit.above_max != "0" and not limit.fault:
        yield f"{limit.above_max} above its max, until as much is released"
    elif limit.is_alerting:
        yield "above its alert threshold"
    if not limit.is_complete:
        yield "devices in use are not published any more, so that their amounts are not known"
