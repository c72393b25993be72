"""The command: `drawbridge`, and `kubectl drawbridge`."""

import errno
import io
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

from cli.output.completion import completion_for_kubectl
from cli.output.help import program_name, unknown_command
from cli.output.progress import INTERRUPTED
from cli.output.standard_error import print_line
from findings.text import inert_line, printable
from kube.errors import DrawbridgeError

COMMANDS: Final[Mapping[str, str]] = {
    "assess": "Report the claims that a cluster would get, and the losses and blockers of the move.",
    "bridge": "Give drivers to the bridge, take them back, or show each driver's allocator.",
    "check": "Report everything that the cluster would reject or warn about.",
    "check-upgrade": "Report problems with an upgrade.",
    "completion": "Print a completion script for a shell.",
    "demo": "Show the translation of a few examples; needs no cluster.",
    "explain": "Explain the code of a finding: cause, fix and example.",
    "fix": "Write the fixes that check names into manifests.",
    "inventory": "List devices, free capacity and DeviceClasses.",
    "matrix": "Show the devices that may be in use together.",
    "plan": "Plan a migration in waves, and write the runbooks.",
    "settings": "Import the settings of HAMi, Koordinator and Volcano.",
    "quota": "Show the amounts left of DeviceQuotas; convert quotas of device keys.",
    "record": "Follow a cluster, and write down its changes, for replay.",
    "rehearse": "Try a plan wave by wave on simulated nodes of this machine.",
    "replay": "Compare strategies on pods that arrive one by one.",
    "simulate": "Simulate the placement of pods and claims.",
    "snapshot": "Write the state of a cluster to one file.",
    "status": "Show the readiness of Drawbridge in a cluster.",
    "test": "Run a site's own tests of its manifests.",
    "top": "Show the devices in use, by node, namespace, pod or device.",
    "translate": "Print manifests as the webhook would rewrite them.",
    "verify": "Check that no device is allocated twice.",
    "version": "Print the version.",
    "wave": "Go through the waves of a plan, or take one back.",
    "why": "Explain the placement of a pod or claim, or the reason it is pending.",
}
"""Each command and its line in the list; the module `cli.verbs.<name>.command` has the command, with `_` for `-`."""


class _CallError(click.ClickException):
    """A call that cannot be answered: unreadable files, wrong profiles, no cluster."""

    exit_code = 2

    def format_message(self) -> str:
        """Return the message, maybe quoting a file or an object, with nothing that anybody obeys."""
        return "\n".join(inert_line(printable(line)) for line in self.message.split("\n"))


class _Group(click.Group):
    """The commands, each imported on its call, so that no command pays for the imports of others.

    Expected errors, ours and those of the operating system, end in one line; a traceback is a bug.
    """

    def main(self, *args: Any, **extra: Any) -> Any:
        if extra.get("prog_name") is None:
            extra["prog_name"] = program_name()
        return super().main(*args, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"cli.verbs.{name}.command"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if ctx.resilient_parsing and args and args[0] not in COMMANDS:
            return None, None, args[1:]  # A shell completes what stands behind it.
        if args[:1] == ["help"]:
            args = [*args[1:2], "--help"]
            if len(args) == 1:
                click.echo(ctx.get_help())
                ctx.exit()
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise unknown_command(args[0], sorted(COMMANDS), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # The status of click's own answer would be that of "something is wrong".
            print_line("interrupted")
            sys.exit(INTERRUPTED)
        except DrawbridgeError as error:
            raise _CallError(str(error)) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # The reader has closed the pipe; click ends quietly.
            reason = error.strerror or str(error)
            place = f"{error.filename}: " if isinstance(error.filename, str | os.PathLike) else ""
            raise _CallError(f"{place}{reason}") from error


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="drawbridge-dra", prog_name="drawbridge")
@click.pass_context
def main(context: click.Context) -> None:
    """Turn pods written for device plugins into pods with ResourceClaims.

    Works on files, with or without the state of a cluster. Read-only, apart from `bridge` with --apply and `wave`.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False
    elif os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE"):
        context.color = True
    # YAML and JSON are UTF-8, whatever the locale says.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def complete_for_kubectl() -> None:
    """Complete the last argument of `kubectl drawbridge`; kubectl calls this as `kubectl_complete-drawbridge`."""
    click.echo(completion_for_kubectl(main, sys.argv[1:]))


if __name__ == "__main__":
    main()
