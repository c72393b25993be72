"""Fixes as text: a line for each value that was changed."""

from collections.abc import Iterator, Sequence

from cli.reading.field_lines import LinesOfFiles
from findings.fixes import FixedObject
from findings.text import count_text, inert_line, printable, reference_text


def format_fixes(objects: Sequence[FixedObject], lines: LinesOfFiles) -> Iterator[str]:
    """Yield a line for each fix, then their number.

    Args:
        lines: The lines of the files as they were before.
    """
    for fixed in objects:
        name = reference_text(fixed.checked.reference)
        for fix in fixed.fixes:
            change = f"write {fix.after}" if fix.before is None else f"{fix.before} -> {fix.after}"
            line = lines.line(fixed.before.source, fixed.before.line, fix.path)
            place = f"{fixed.before.source}:{line}: {name}: {fix.path}"
            yield inert_line(printable(f"{place}: {change} [{fix.code}]"))
    fixes = sum(len(fixed.fixes) for fixed in objects)
    changed = sum(bool(fixed.fixes) for fixed in objects)
    yield f"{count_text(len(objects), 'object')} checked: {count_text(fixes, 'value')} fixed in {changed}"
