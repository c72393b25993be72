"""The text of `drawbridge rehearse`."""

from collections.abc import Iterator

from cli.output.layout import Row, drop_repeated_labels, format_rows, format_table
from findings.text import count_text
from migration.rehearsal.model import RehearsalAnswer


def format_rehearsal(answer: RehearsalAnswer, width: int) -> str:
    """Return the scripts as a table, and below it the broken rules and the untried parts."""
    head = ("SCRIPT", "SECONDS", "EXIT STATUS")
    cells = [(run.script, f"{run.seconds:.0f}", run.status) for run in answer.scripts]
    rows = drop_repeated_labels(list(_rows(answer)))
    return "\n\n".join(
        part
        for part in (format_table(head, cells) if cells else "", format_rows(rows, width))
        if part
    )


def _rows(answer: RehearsalAnswer) -> Iterator[Row]:
    for run in answer.stopped:
        yield Row(label="stopped", text=f"{run.script} ended with status {run.status}")
        for line in run.output.splitlines():
            yield Row(label="output", text=line, is_line=True)
    for finding in answer.findings:
        text = f"after {finding.at:.0f} s {finding.object}: {finding.message}"
        yield Row(label=finding.rule, text=text)
    for sentence in answer.by_hand:
        yield Row(label="by hand", text=sentence)
    for sentence in answer.not_rehearsed:
        yield Row(label="left out", text=f"not rehearsed: {sentence}")
    waves = f"{answer.waves_done} of {count_text(answer.waves, 'wave')} done"
    cluster = f"{count_text(answer.nodes, 'simulated node')}, {count_text(answer.pods, 'pod')}"
    broken = (
        count_text(len(answer.findings), "broken rule") if answer.findings else "no rule broken"
    )
    yield Row(label="total", text=f"{waves} in {answer.seconds:.0f} s on {cluster}; {broken}")
