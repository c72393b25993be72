"""The command: `drawbridge`, and `kubectl drawbridge`."""

import errno
import io
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

from kube.errors import DrawbridgeError

SUBCOMMANDS: Final[Mapping[str, str]] = {
    "check": "cli.check",
    "demo": "cli.demo",
    "inventory": "cli.inventory",
    "matrix": "cli.matrix",
    "simulate": "cli.simulate",
    "translate": "cli.translate",
    "why": "cli.why",
}
"""Name to module; the command has the name of its subcommand there."""


class _Refusal(click.ClickException):
    """A call that cannot be answered: bad files, bad profiles, no cluster."""

    exit_code = 2


class _Group(click.Group):
    """Tells every error that we raise on purpose, or the machine, in one line; a traceback is a bug.

    Subcommands are imported when they are called: no one pays for what another needs.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        module = SUBCOMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = getattr(import_module(module), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DrawbridgeError as error:
            raise _Refusal(str(error)) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # Whoever read has seen enough; click ends quietly.
            raise _Refusal(error.strerror or str(error)) from error


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="drawbridge-dra", prog_name="drawbridge")
@click.pass_context
def main(context: click.Context) -> None:
    """Pods written for device plugins, as pods of Dynamic Resource Allocation.

    Works on files, with or without the state of a cluster; changes nothing anywhere.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False
    # YAML and JSON are UTF-8, whatever the locale says.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


if __name__ == "__main__":
    main()
