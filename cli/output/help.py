"""Commands that end `--help` with examples to copy, and groups that suggest names."""

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any, Final

import click

from kube.names import NAME

PLUGIN: Final = f"kubectl-{NAME}"
"""The name under which kubectl finds and calls the command."""


_COLOURS: Final[Mapping[str, bool | None]] = {"auto": None, "always": True, "never": False}


def _choose_colour(ctx: click.Context, _option: click.Parameter, choice: str) -> None:
    """Make output coloured or not; `auto` leaves it to the terminal and the environment."""
    if _COLOURS[choice] is not None:
        ctx.color = _COLOURS[choice]


class Command(click.Command):
    """A command with an epilog of one example per line, with `drawbridge` as it was called."""

    def __init__(self, *args: Any, has_colours: bool = True, **settings: Any) -> None:
        super().__init__(*args, **settings)
        if not has_colours:
            return
        colour = click.Option(
            ["--color"],
            type=click.Choice(list(_COLOURS)),
            default="auto",
            show_default=True,
            expose_value=False,
            is_eager=True,
            callback=_choose_colour,
            help="Colours of the text. auto: on a terminal, unless NO_COLOR is set.",
        )
        self.params.append(colour)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are: a broken line could not be copied."""
        if self.epilog:
            program = ctx.find_root().info_name or NAME
            formatter.write_paragraph()
            formatter.write("Examples:\n")
            for line in self.epilog.strip("\n").split("\n"):
                text = f"{program}{line.removeprefix(NAME)}" if line.startswith(NAME) else line
                formatter.write(f"  {text}\n")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, with a hint for an option of kubectl that is not supported."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = _KUBECTL_OPTIONS.get(error.option_name)
            if hint is None:
                raise
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from error


_CONNECTION: Final = "Set it in a kubeconfig, and name that with --kubeconfig or --context."
_ALL_NAMESPACES: Final = "Objects of all namespaces are read; -n is for objects that name none."
_KUSTOMIZE: Final = "Use kubectl kustomize DIR | drawbridge ... -f -"
_SELECTOR: Final = "Use kubectl get ... -l SELECTOR -o yaml | drawbridge ... -f -"
_KUBECTL_OPTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("-A", "--all-namespaces"), _ALL_NAMESPACES),
    **dict.fromkeys(("-k", "--kustomize"), _KUSTOMIZE),
    **dict.fromkeys(("-l", "--selector"), _SELECTOR),
    **dict.fromkeys(("-s", "--server", "--token", "--as", "--user", "--cluster"), _CONNECTION),
}
"""Option of kubectl to what to do here instead."""


def program_name() -> str:
    """Return this process's name as called: `drawbridge`, or `kubectl drawbridge` by kubectl."""
    program = PurePath(sys.argv[0]).name
    return f"kubectl {NAME}" if program == PLUGIN else NAME


def unknown_command(name: str, known_names: Sequence[str], ctx: click.Context) -> click.UsageError:
    """Return the error for a command that does not exist, with the names that look like it."""
    near = get_close_matches(name, known_names, n=2)
    suggestion = f" Did you mean {' or '.join(near)}?" if near else ""
    return click.UsageError(f"No such command {name!r}.{suggestion}", ctx)


CLUSTER_STATE: Final = """\
# the state of a cluster, for --snapshot
drawbridge snapshot -o cluster.json.gz
"""
"""The command that writes what --snapshot reads."""
