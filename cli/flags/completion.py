"""Values that a shell completes: names of files, and texts of sets that are closed."""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from process.profiles.profile_files import shipped_drivers
from translation.reading.arbiter import VOCABULARIES

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


class FileName(click.ParamType[str]):
    """The name of a file or a folder, or `-`; the command that reads it reports its errors."""

    name = "file name"

    def convert(
        self,
        value: str,
        param: click.Parameter | None,  # noqa: ARG002
        ctx: click.Context | None,  # noqa: ARG002
    ) -> str:
        """Return the name as it was given."""
        return value

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Leave the completion to the shell, since it knows the files."""
        return [CompletionItem(incomplete, type="file")]


FILE_NAME = FileName()


def complete_from(texts: Callable[[], Iterable[str]]) -> Completion:
    """Return the completion of an option with known values.

    Args:
        texts: Returns them, once somebody asks for a completion.
    """

    def complete(
        _context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(text) for text in sorted(texts()) if text.startswith(incomplete)]

    return complete


def complete_list_from(texts: Callable[[], Iterable[str]]) -> Completion:
    """Return a completion as `complete_from` does, for the last part of a list with commas."""
    complete_part = complete_from(texts)

    def complete(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        items = complete_part(context, parameter, last)
        return [CompletionItem(f"{before}{comma}{item.value}") for item in items]

    return complete


def profile_choices() -> list[str]:
    """Return the values of `--profile` with drivers that have shipped profiles."""
    return [f"{name}={driver}" for name in VOCABULARIES for driver in shipped_drivers()]
