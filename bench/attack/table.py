"""The results as tables in Markdown."""

from collections.abc import Iterable, Sequence
from typing import Final

from bench.attack import floods, poison

FLOODS: Final = (
    *("attacker", "honest pods", "before", "during", "after", "control"),
    *("failed (control)", "requests (control)", "CPU", "MiB", "bounds"),
)
BRIDGE: Final = (
    *("attacker", "before", "during", "after", "not bound"),
    *("CPU", "MiB", "bounds"),
)


def render(rows: Iterable[floods.Row | poison.Row]) -> str:
    """Return tables: creations in milliseconds, and pods that are bound in seconds, each p50 / p95."""
    flooded, poisoned = [], []
    for row in rows:
        if isinstance(row, floods.Row):
            flooded.append(_flooded(row))
        else:
            poisoned.append(_poisoned(row))
    tables = []
    if flooded:
        tables.append("Creation of honest pods in ms, p50 / p95:\n\n" + _markdown(FLOODS, flooded))
    if poisoned:
        tables.append(
            "Honest pods until they are bound in s, p50 / p95:\n\n" + _markdown(BRIDGE, poisoned)
        )
    return "\n\n".join(tables)


def _flooded(row: floods.Row) -> list[str]:
    return [
        row.attack,
        row.size,
        f"{row.before_p50:.0f} / {row.before_p95:.0f}",
        f"{row.during_p50:.0f} / {row.during_p95:.0f}",
        f"{row.after_p50:.0f} / {row.after_p95:.0f}",
        f"{row.control_p50:.0f} / {row.control_p95:.0f}",
        f"{row.failed} ({row.control_failed}) of {row.honest}",
        f"{sum(row.statuses.values())} ({sum(row.control_statuses.values())})",
        f"{row.cpu:.2f}",
        f"{row.memory_mib:.0f}",
        "; ".join(row.faults) or "kept",
    ]


def _poisoned(row: poison.Row) -> list[str]:
    return [
        row.attack,
        f"{row.before_p50:.2f} / {row.before_p95:.2f}",
        f"{row.during_p50:.2f} / {row.during_p95:.2f}",
        f"{row.after_p50:.2f} / {row.after_p95:.2f}",
        f"{row.failed} of {row.honest}",
        f"{row.cpu:.2f}",
        f"{row.memory_mib:.0f}",
        "; ".join(row.faults) or "kept",
    ]


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
