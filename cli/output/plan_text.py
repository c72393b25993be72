"""The table of `drawbridge plan`."""

from cli.answers.plan.model import Plan, Wave
from cli.output.layout import Row, drop_repeated_labels, format_rows, format_table
from findings.text import count_text

_SHOWN = 3


def format_plan(plan: Plan, width: int) -> str:
    """Return the waves as a table, and below it what has none."""
    head = ("WAVE", "NODES", "NAMESPACES", "WORKLOADS", "MOVED PODS", "FREE DEVICES")
    table = format_table(head, map(_cells, plan.waves)) if plan.waves else ""
    waves_of: dict[str, list[str]] = {}
    for wave in plan.waves:
        for note in wave.notes:
            waves_of.setdefault(note, []).append(str(wave.wave))
    rows = [
        Row(label="note", text=f"wave {', '.join(waves)}: {note}")
        for note, waves in waves_of.items()
    ]
    for entry in plan.held:
        name = entry.object.replace("//", "/", 1).removesuffix("/")
        rows.append(Row(label="held", text=f"{name}: {entry.reason}"))
        if entry.fix:
            rows.append(Row(label="fix", text=entry.fix))
    if not plan.waves:
        text = "no wave fits" if plan.held else "there is nothing to move"
        rows.insert(0, Row(label="waves", text=text))
    nodes = sum(len(wave.nodes) for wave in plan.waves)
    rows.append(
        Row(
            label="total",
            text=f"{count_text(nodes, 'node')} in {count_text(len(plan.waves), 'wave')}",
        )
    )
    return "\n\n".join(
        part for part in (table, format_rows(drop_repeated_labels(rows), width)) if part
    )


def _cells(wave: Wave) -> tuple[object, ...]:
    return (
        wave.wave,
        _join_names(tuple(node.name for node in wave.nodes)),
        _join_names(wave.namespaces),
        len(wave.workloads),
        wave.moved_pods,
        f"{wave.free_before} -> {wave.free_after}",
    )


def _join_names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}" or "-"
