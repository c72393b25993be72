"""The status of an installation as one screen."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from cli.output.layout import NARROWEST
from cli.verbs.status.model import State, StatusAnswer, StatusCheck
from findings.text import printable

_STYLES: Final[Mapping[State, Mapping[str, Any]]] = {
    State.OK: {"fg": "green"},
    State.WAITING: {"fg": "yellow"},
    State.FAILED: {"fg": "red", "bold": True},
    State.OFF: {"dim": True},
    State.UNKNOWN: {"dim": True},
}
_NAME: Final = 18
_STATE: Final = 9
_MARGIN: Final = _NAME + _STATE


def format_status(answer: StatusAnswer, width: int) -> str:
    """Return one line per part, wrapped beside its name, and the next step."""
    lines = [line for check in answer.checks for line in _format_check(check, width)]
    off = answer.vocabularies.off
    text = f"{len(answer.vocabularies.on)} on"
    lines += _wrapped(
        "vocabularies", None, f"{text}; off: {', '.join(off)}" if off else text, width
    )
    if answer.unreadable:
        lines += _wrapped("not readable", None, ", ".join(answer.unreadable), width)
    if answer.next_step:
        lines += _wrapped("next", None, answer.next_step, width)
    verdict = "ready" if answer.ready else "not ready"
    head = f"Drawbridge in namespace {answer.namespace}: {verdict}"
    return "\n".join([click.style(printable(head), bold=True), *lines])


def _format_check(check: StatusCheck, width: int) -> Iterator[str]:
    yield from _wrapped(check.name, check.state, check.message, width)
    if check.fix and check.state in {State.FAILED, State.WAITING}:
        yield from _wrapped("", None, f"fix: {check.fix}", width)


def _wrapped(name: str, state: State | None, text: str, width: int) -> Iterator[str]:
    """Yield a text beside its name and its state."""
    lines = textwrap.wrap(
        printable(text), max(width, NARROWEST) - _MARGIN - 2, break_on_hyphens=False
    )
    shown_state = f"{state or '':<{_STATE}}"
    for number, line in enumerate(lines or [""]):
        if number:
            yield f"  {'':<{_MARGIN}}{line}"
        else:
            styled = click.style(shown_state, **_STYLES[state]) if state else shown_state
            yield f"  {name:<{_NAME}}{styled}{line}".rstrip()
