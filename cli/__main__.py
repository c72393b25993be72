"""The command: `drawbridge`, and `kubectl drawbridge`."""

import os
from typing import Any

import click

from cli.demo import demo
from cli.translate import translate
from kube.errors import DrawbridgeError


class _Refusal(click.ClickException):
    """A call that cannot be answered: bad files, bad profiles, no cluster."""

    exit_code = 2


class _Group(click.Group):
    """Tells every error that we raise on purpose in one line; a traceback is a bug."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DrawbridgeError as error:
            raise _Refusal(str(error)) from error


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


main.add_command(demo)
main.add_command(translate)

if __name__ == "__main__":
    main()
