"""`drawbridge completion`: the script that completes commands and options in a shell."""

from typing import Final

import click
from click.shell_completion import get_completion_class

from cli.output.help import Command
from kube.names import NAME

SHELLS: Final = ("bash", "fish", "zsh")
EXAMPLES: Final = """\
source <(drawbridge completion bash)
drawbridge completion fish > ~/.config/fish/completions/drawbridge.fish
"""


@click.command("completion", cls=Command, has_colours=False, epilog=EXAMPLES)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in a shell."""
    kind = get_completion_class(shell)
    assert kind is not None  # click has checked the name.
    variable = f"_{NAME.upper()}_COMPLETE"
    click.echo(kind(context.find_root().command, {}, NAME, variable).source())
