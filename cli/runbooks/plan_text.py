"""The table of `drawbridge plan`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from cli.output.layout import Row, drop_repeated_labels, fit_names, format_rows, format_table
from cli.runbooks.work_texts import start_again_texts
from findings.text import count_text, join_names, printable, reference_text
from migration.legacy.remaining import remaining_texts
from migration.plan.facts.environment import stopped_texts
from migration.plan.facts.kept_away import returning_texts
from migration.plan.model.plan import Held, Plan, Wave

_NAMES: Final = ("NODES", "NAMESPACES")
"""The columns that list names."""
_HEAD: Final = (
    *("WAVE", *_NAMES, "WORKLOADS", "LEAVING PODS", "EVICTED OF THEM"),
    *("FREE FOR KEYS", "FREE FOR CLAIMS"),
)


def evicted_again_lines(plan: Plan) -> Iterator[str]:
    """Yield a sentence on pods that an eviction may bring to nodes of later waves, if a wave has such pods."""
    last = max((wave.wave for wave in plan.waves if wave.nodes), default=0)
    if any(_evicts_without_claims(wave) for wave in plan.waves if wave.wave < last):
        yield "Evicted pods without claims may come to nodes of later waves, and are evicted there again."


def _evicts_without_claims(wave: Wave) -> bool:
    """Return True if pods come again without claims from the drains of a wave."""
    is_native = any(not workload.is_translated for workload in wave.workloads)
    return is_native or bool(wave.evicted_workloads or wave.evicted_others)


def format_plan(plan: Plan, width: int, table_width: int = 0) -> str:
    """Return the waves as a table, and below it the objects without a wave.

    Args:
        table_width: The columns that longer lists of names may fill; 0 for short lists.
    """
    table = _format_waves(plan.waves, table_width) if plan.waves else ""
    waves_of: dict[str, list[str]] = {}
    for wave in plan.waves:
        for note in wave.notes:
            waves_of.setdefault(note, []).append(str(wave.wave))
    rows = [
        Row(label="note", text=f"wave {', '.join(waves)}: {note}")
        for note, waves in waves_of.items()
    ]
    stops = (*stopped_texts(plan), *returning_texts(plan))
    rows += [Row(label="stops", text=text) for text in stops]
    rows += [Row(label="kept", text=text) for text in remaining_texts(plan.remaining)]
    rows += [Row(label="stopped", text=text) for text in start_again_texts(plan)]
    rows += _held_rows(plan.held)
    if not plan.waves:
        nothing = "there is nothing to move; drawbridge assess --residue tells what is left"
        text = "no wave fits" if plan.held or not plan.complete else nothing
        rows.insert(0, Row(label="waves", text=text))
    if not plan.complete:
        text = "the search for waves was interrupted: the scripts refuse to run; plan again"
        rows.append(Row(label="incomplete", text=text))
    nodes = sum(len(wave.nodes) for wave in plan.waves)
    held_nodes = len({entry.object for entry in plan.held if entry.object.startswith("Node//")})
    all_nodes = (
        f"{nodes} of {count_text(nodes + held_nodes, 'node')}"
        if held_nodes
        else count_text(nodes, "node")
    )
    text = f"{all_nodes} in {count_text(len(plan.waves), 'wave')}{f', {held_nodes} held' if held_nodes else ''}"
    rows.append(Row(label="total", text=text))
    return "\n\n".join(
        part for part in (table, format_rows(drop_repeated_labels(rows), width)) if part
    )


def _held_rows(entries: Iterable[Held]) -> Iterator[Row]:
    """Yield the objects without a wave; those with one reason are named together, and a fix stands once."""
    names_by_reason: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        name = reference_text(entry.object).removesuffix("/")
        names_by_reason.setdefault((entry.reason, entry.fix), []).append(name)
    reasons_by_fix: dict[str, list[str]] = {}
    for (reason, fix), names in names_by_reason.items():
        reasons_by_fix.setdefault(fix, []).append(f"{_join_names(tuple(names))}: {reason}")
    for fix, reasons in reasons_by_fix.items():
        yield from (Row(label="held", text=text) for text in reasons)
        if fix:
            yield Row(label="fix", text=fix)


def _format_waves(waves: Sequence[Wave], width: int) -> str:
    lists = [(tuple(node.name for node in wave.nodes), namespace_texts(wave)) for wave in waves]
    table = format_table(_HEAD, map(_cells, waves, [map(_join_names, pair) for pair in lists]))
    if not width:
        return table
    spare = max(0, width - max(map(len, table.split("\n"))))
    nodes, namespaces = (
        _needed_columns(head, column)
        for head, column in zip(_NAMES, zip(*lists, strict=True), strict=True)
    )
    # The nodes get half of the spare columns, and those that the namespaces do not need.
    for_nodes = min(nodes.lacking, max(spare // 2, spare - namespaces.lacking))
    for_namespaces = min(namespaces.lacking, spare - for_nodes)
    widths = (nodes.short + for_nodes, namespaces.short + for_namespaces)
    filled = [
        [fit_names(names, columns) or "-" for names, columns in zip(pair, widths, strict=True)]
        for pair in lists
    ]
    return format_table(_HEAD, map(_cells, waves, filled))


class _Columns(NamedTuple):
    """The columns of a short list of names, and those that all names need beside them."""

    short: int
    lacking: int


def _needed_columns(head: str, lists: Iterable[tuple[str, ...]]) -> _Columns:
    short, whole = len(head), 0
    for names in lists:
        short = max(short, len(printable(_join_names(names))))
        whole = max(whole, len(printable(", ".join(names))))
    return _Columns(short, max(0, whole - short))


def _cells(wave: Wave, names: Iterable[str]) -> tuple[object, ...]:
    return (
        wave.wave,
        *names,
        len(wave.workloads),
        wave.moved_pods,
        wave.evicted_pods,
        f"{wave.free_for_keys.before} -> {wave.free_for_keys.after}",
        f"{wave.free_for_claims.before} -> {wave.free_for_claims.after}",
    )


def namespace_texts(wave: Wave) -> tuple[str, ...]:
    """Return the namespaces of a wave, with the part that moves if not all of it does."""
    return (
        *(
            f"{name} (the rest)" if name in wave.formerly_selective else name
            for name in wave.namespaces
        ),
        *(
            f"{entry.namespace} ({count_text(len(entry.workloads), 'workload')})"
            for entry in wave.partial_namespaces
        ),
    )


def free_by_kind(wave: Wave) -> dict[str, str]:
    """Return each kind of node to the text of its free devices before and after a wave; empty for one kind."""
    texts = {}
    for entry in wave.free_by_kind:
        sides = (("keys", entry.for_keys), ("claims", entry.for_claims))
        parts = [
            f"{side} {report.before}"
            if report.before == report.after
            else f"{side} {report.before}, then {report.after}"
            for side, report in sides
            if report.before or report.after
        ]
        texts[entry.kind] = "; ".join(parts) or "none"
    return texts


def losses_text(plan: Plan) -> str:
    """Return the losses of nodes that were tried, and the meaning of the setting for them."""
    if not plan.tried_losses:
        return "No loss of a node was tried (--spare-nodes 0): where one is lost during a wave or after it, pods may lack devices."
    lost = count_text(plan.tried_losses, "node")
    tried = (
        f"After each wave the loss of {lost} was tried, of those with device plugins and of those with DRA drivers: the "
        "largest of all, and of each group that the same pods may use."
    )
    if plan.spare_nodes:
        return f"{tried} It leaves no more pods without devices than today; what cannot have that has no wave (--spare-nodes {plan.spare_nodes})."
    return (
        f"{tried} Where it leaves more pods without devices than today, and a bounded search for other waves meets none "
        "without such a loss, a note of the wave says so, and the wave stays "
        f"(spareNodes: 0 in plan.yaml); --spare-nodes {plan.tried_losses} holds such nodes and namespaces instead."
    )


def _join_names(names: tuple[str, ...]) -> str:
    return join_names(names) or "-"
