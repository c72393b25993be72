"""The findings of `drawbridge check` as lines; equal findings on many objects are one line."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import click
from msgspec.structs import replace

from answers.manifests.check import CheckedFinding, CheckReport
from findings.documentation import code_address
from findings.finding import Severity
from findings.text import count_text, inert_line, printable, reference_text

_COLOURS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
ALIKE: Final = 4
"""Objects with equal findings from which on only the first of them is shown."""


def format_report(report: CheckReport, limit: int | None = None, codes: str = "") -> Iterator[str]:
    """Yield a line for each finding, with its file and line, then the totals, and the way to more about an error.

    Args:
        limit: Findings that are shown; equal ones on many objects count once.
        codes: The address of the page that explains codes; empty where none is published.
    """
    groups = list(_groups(report.shown))
    for group in groups[:limit]:
        yield from _lines(group)
    if limit is not None and len(groups) > limit:
        yield f"and {len(groups) - limit} more, not shown because of --max"
    totals = ", ".join(
        count_text(sum(entry.finding.severity is severity for entry in report.findings), severity)
        for severity in (Severity.ERROR, Severity.WARNING)
    )
    ignored_count = f"; {report.ignored} ignored" if report.ignored else ""
    yield f"{count_text(report.objects, 'object')} checked: {totals}{ignored_count}"
    first = next((entry.finding.code for entry in report.shown if entry.finding.is_error), None)
    if first is not None:
        address = f", or {code_address(codes, first)}" if codes else ""
        yield f"more: drawbridge explain {first}{address}"


def _groups(entries: Iterable[CheckedFinding]) -> Iterator[Sequence[CheckedFinding]]:
    """Yield the findings in order; equal ones on many objects together, at the first of them."""
    alike: dict[object, list[CheckedFinding]] = {}
    keys = []
    for entry in entries:
        key = (entry.object.partition("/")[0], entry.finding)
        keys.append((key, entry))
        alike.setdefault(key, []).append(entry)
    for key, entry in keys:
        group = alike[key]
        if len(group) < ALIKE:
            yield (entry,)
        elif group[0] is entry:
            yield group


def _lines(group: Sequence[CheckedFinding]) -> Iterator[str]:
    first = group[0]
    place = printable(f"{first.file}:{first.line}: ") if first.file is not None else ""
    # One group of nodes a line, after the fix.
    line = replace(first.described, finding=replace(first.finding, reasons=())).line()
    word, colon, rest = line.partition(":")
    severity = first.finding.severity
    styled_word = click.style(word, fg=_COLOURS[severity], bold=True)
    yield inert_line(f"{place}{styled_word}{colon}{rest}")
    yield from (inert_line(f"  {printable(reason)}") for reason in first.finding.reasons)
    if len(group) > 1:
        namespaces = {entry.object.split("/")[1] for entry in group} - {""}
        where = f" in {count_text(len(namespaces), 'namespace')}" if namespaces else ""
        last = printable(reference_text(group[-1].object))
        yield f"  and {len(group) - 1} more objects like it{where}, the last of them {last}"
