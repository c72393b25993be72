"""The text of `drawbridge check-upgrade`."""

from collections.abc import Iterator
from typing import Final

from cli.output.layout import BAD, GOOD, NEUTRAL, Paragraph, Row, format_paragraph
from findings.finding import Severity
from findings.text import count_text, reference_text
from migration.upgrade.model import UpgradeAnswer, UpgradeFinding

_STYLES: Final = {Severity.ERROR: BAD, Severity.WARNING: {"fg": "yellow"}, Severity.INFO: NEUTRAL}
_SHOWN: Final = 5


def format_upgrade(answer: UpgradeAnswer, width: int) -> str:
    """Return a paragraph per finding, and a line that sums up."""
    paragraphs = [
        format_paragraph(
            Paragraph(
                title=entry.code.value,
                place=entry.severity.value,
                style=_STYLES[entry.severity],
                rows=tuple(_rows(entry)),
            ),
            width,
        )
        for entry in answer.findings
    ]
    errors = sum(entry.severity is Severity.ERROR for entry in answer.findings)
    warnings = sum(entry.severity is Severity.WARNING for entry in answer.findings)
    kubernetes = f"Kubernetes {answer.kubernetes_version or 'of unknown version'}"
    if answer.target_version and not answer.kubernetes_version.removeprefix("v").startswith(
        f"{answer.target_version}."
    ):
        kubernetes += f" to {answer.target_version}"
    summary = format_paragraph(
        Paragraph(
            title=f"{count_text(errors, 'error')}, {count_text(warnings, 'warning')}",
            place=f"Drawbridge {answer.client_version}, {kubernetes}",
            style=BAD if errors else GOOD,
            rows=(),
        ),
        width,
    )
    return "\n\n".join([*paragraphs, summary])


def _rows(entry: UpgradeFinding) -> Iterator[Row]:
    yield Row(label="found", text=entry.message)
    if entry.objects:
        more = entry.count - min(_SHOWN, len(entry.objects))
        names = ", ".join(map(reference_text, entry.objects[:_SHOWN]))
        yield Row(label="objects", text=f"{names} and {more} more" if more else names)
    if entry.fix:
        yield Row(label="fix", text=entry.fix)
