"""The command line as pages, from the parser itself: manual pages, and a reference in Markdown."""

import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Final

import click
import msgspec

from cli.__main__ import COMMANDS, main
from kube.names import NAME

ROOT: Final = Path(__file__).parent.parent
MAN_FOLDER: Final = "cli/man"
REFERENCE: Final = "docs/reference/commands.md"
_EXIT_STATUS: Final = "Exit status:"
_HEADER: Final = """\
# Commands

Every command with its options, generated from the command line itself, as `drawbridge help COMMAND`
prints them.
`kubectl drawbridge` is the same command; there, the cluster of the current context is the default.
An installation has a manual page for each: `man drawbridge`, `man drawbridge-assess`.
`drawbridge completion SHELL` prints what completes commands and options; for `kubectl drawbridge`,
kubectl calls `kubectl_complete-drawbridge`, which an installation puts on the `PATH`.
"""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A command, as its pages show it.

    Attributes:
        name: `drawbridge bridge own`.
        summary: One line.
        usage: The text behind the name.
        paragraphs: The description.
        exit_status: Empty where it is the usual one.
        options: Names with their values, and the help.
        commands: Those of a group, and their lines.
        examples: One per line.
    """

    name: str
    summary: str
    usage: str
    paragraphs: tuple[str, ...]
    exit_status: str
    options: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]
    examples: tuple[str, ...]

    @property
    def man_name(self) -> str:
        """The name of the manual page."""
        return self.name.replace(" ", "-")


@cache
def pages() -> tuple[Page, ...]:
    """Return the pages of all commands, each before its subcommands."""
    context = click.Context(main, info_name=NAME, **main.context_settings)
    return tuple(_pages(context, main, NAME, ""))


def _pages(context: click.Context, command: click.Command, name: str, line: str) -> Iterator[Page]:
    subcommands = {}
    if isinstance(command, click.Group):
        found = {key: command.get_command(context, key) for key in command.list_commands(context)}
        subcommands = {key: value for key, value in found.items() if value is not None}
    helps = {
        key: COMMANDS[key] if command is main else value.get_short_help_str(limit=200)
        for key, value in subcommands.items()
    }
    paragraphs = [" ".join(text.split()) for text in (command.help or "").split("\n\n")]
    status = [text for text in paragraphs if text.startswith(_EXIT_STATUS)]
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    yield Page(
        name=name,
        summary=line or paragraphs[0],
        usage=" ".join(command.collect_usage_pieces(context)),
        paragraphs=tuple(text for text in paragraphs if text not in status),
        exit_status=" ".join(status).removeprefix(_EXIT_STATUS).strip(),
        options=tuple((names, _one_line(help_)) for names, help_ in filter(None, records)),
        commands=tuple(helps.items()),
        examples=tuple((command.epilog or "").strip("\n").split("\n")) if command.epilog else (),
    )
    for key, value in subcommands.items():
        below = click.Context(value, info_name=key, parent=context)
        yield from _pages(below, value, f"{name} {key}", helps[key])


def _one_line(text: str) -> str:
    """Return a help text without its line breaks; click keeps those of a list behind a backspace."""
    words, _, entries = text.partition("\b\n")
    lines = [" ".join(words.split()), ", ".join(entries.split("\n"))]
    return " ".join(filter(None, lines))


# --- Markdown -------------------------------------------------------------------------------------


def reference() -> str:
    """Return the reference of all commands."""
    return _HEADER + "".join(map(_section, pages()))


def _section(page: Page) -> str:
    parts = [f"\n## {page.name}\n", f"```text\n{page.name} {page.usage}\n```\n"]
    parts += [f"{plain_markdown(text)}\n" for text in page.paragraphs]
    if page.exit_status:
        parts.append(f"{_EXIT_STATUS} {plain_markdown(page.exit_status)}\n")
    entries = [
        *((f"[{page.name} {name}](#{page.man_name}-{name})", text) for name, text in page.commands),
        *((f"`{names}`", text) for names, text in page.options),
    ]
    parts.append("".join(f"- {name}: {plain_markdown(text)}\n" for name, text in entries))
    if page.examples:
        parts.append("```sh\n" + "".join(f"{line}\n" for line in page.examples) + "```\n")
    return "\n".join(parts)


def plain_markdown(text: str) -> str:
    r"""Return text without anything that Markdown would format.

    >>> print(plain_markdown("a name that ends in *, or <none>"))
    a name that ends in \*, or \<none>
    """
    return re.sub(r"([\\`*_<\[])", r"\\\1", text)


# --- manual pages ---------------------------------------------------------------------------------


def man_files() -> list[tuple[str, Callable[[], str]]]:
    """Return the path of each manual page, with the maker of its text."""
    return [(f"{MAN_FOLDER}/{page.man_name}.1", partial(man_page, page)) for page in pages()]


def man_page(page: Page) -> str:
    """Return a command as a manual page: man(7)."""
    lines = [
        '.\\" Generated by `python -m tools.generate` from the command line.',
        f'.TH "{_roff(page.man_name.upper())}" "1" "" "Drawbridge {_version()}" "Drawbridge"',
        ".ad l",
        ".nh",
        ".SH NAME",
        f"{_roff(page.man_name)} \\- {_roff(page.summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        f"\\fB{_roff(page.name)}\\fR {_roff(page.usage)}",
        ".SH DESCRIPTION",
        *_paragraphs(page.paragraphs),
    ]
    for title, entries in (("COMMANDS", page.commands), ("OPTIONS", page.options)):
        lines += [f".SH {title}"] if entries else []
        for name, text in entries:
            lines += [".TP", f"\\fB{_roff(name)}\\fR", _line(text)]
    if page.exit_status:
        lines += [".SH EXIT STATUS", _line(page.exit_status)]
    if page.examples:
        lines += [".SH EXAMPLES", ".EX", *map(_line, page.examples), ".EE"]
    others = [*(f"{page.man_name}-{name}" for name, _ in page.commands)] or [
        page.man_name.rpartition("-")[0]
    ]
    see = ", ".join(f"\\fB{_roff(name)}\\fR(1)" for name in others if name)
    return "\n".join([*lines, ".SH SEE ALSO", see]) + "\n"


def _paragraphs(texts: tuple[str, ...]) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number:
            yield ".PP"
        yield _line(text)


def _line(text: str) -> str:
    """Return text as a line that is not taken for a request."""
    escaped = _roff(text)
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped


_ROFF: Final = str.maketrans(
    {
        "\\": "\\e",
        "-": "\\-",
        "'": "\\(aq",
        '"': "\\(dq",
        "`": "\\(ga",
        "^": "\\(ha",
        "~": "\\(ti",
    }
)


def _roff(text: str) -> str:
    """Return text with every character as it is, so that it can be copied from the page."""
    return text.translate(_ROFF)


def _version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])
