"""`drawbridge explain`: the meaning of a code, the fix of its cause, and an example of it."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final

import click
import msgspec

from cli.output.formats import Output, Report, format_document, text_or_document
from cli.output.help import Command
from cli.verbs.explain.explanation import (
    COMPONENTS,
    ExplainAnswer,
    Explanation,
    explanations,
)

EXAMPLES: Final = """\
drawbridge explain
drawbridge explain wrongUnit
drawbridge explain wrongUnit -o json
"""


@click.command("explain", cls=Command, epilog=EXAMPLES)
@click.argument("code", required=False)
@text_or_document()
def explain(code: str | None, *, output: str) -> None:
    """Explain the CODE of a finding: its cause, its fix, and a manifest that yields it.

    Reasons of simulate and why, such as insufficientResource, are codes, too.

    Without CODE, list all codes with their causes. Needs no cluster. Read-only.

    Exit status: 0 when printed, 2 when there is no such code or the call is wrong.
    """
    by_code = explanations()
    if code is not None and code not in by_code:
        raise click.UsageError(f"no code {code!r}{_near(code, by_code)}")
    chosen = tuple(by_code.values()) if code is None else (by_code[code],)
    if output != Output.TEXT:
        document = msgspec.json.encode(ExplainAnswer(explanations=chosen))
        click.echo(format_document(output, document, Report.EXPLAIN))
    elif code is None:
        width = max(map(len, by_code))
        click.echo("\n".join(f"{entry.code:{width}}  {entry.cause}" for entry in chosen))
    else:
        click.echo("\n".join(_lines(by_code[code])))


def _near(code: str, codes: Iterable[str]) -> str:
    """Return the codes that look like it, in any case, as the end of an error."""
    by_lower_case = {name.lower(): name for name in codes}
    near = [by_lower_case[match] for match in get_close_matches(code.lower(), by_lower_case, n=2)]
    return f"; did you mean {' or '.join(near)}?" if near else "; drawbridge explain lists them"


def _lines(explanation: Explanation) -> Iterator[str]:
    yield explanation.code
    yield ""
    yield f"Cause: {explanation.cause}"
    for fix in explanation.fixes:
        yield f"Fix: {fix}"
    for rule in explanation.rules:
        yield f"Rule: {', '.join(rule.kinds)}; {rule.category}; in the API server: {rule.api_server}"
    if explanation.how_it_passes:
        yield f"It may pass: {explanation.how_it_passes}"
    yield ""
    example = explanation.example
    if example is None:
        yield "Example: none yet"
        return
    yield f"Example: {example.name}"
    if example.snapshot:
        yield f"Cluster: {example.snapshot}"
    if example.command:
        yield f"Command: drawbridge {example.command}"
    if example.component:
        yield COMPONENTS[example.component]
        yield f"Answer: {example.answer}"
    if example.settings:
        yield from ("", "# settings.yaml", example.settings.rstrip())
    yield ""
    if example.command or example.settings:
        yield "# example.yaml"
    yield example.shown_manifest().rstrip()
