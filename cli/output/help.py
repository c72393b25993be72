"""Commands whose `--help` ends with examples that can be copied, and groups that suggest names."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import PurePath
from typing import Final

import click

from kube.names import NAME

PLUGIN: Final = f"kubectl-{NAME}"
"""The name under which kubectl finds and calls the command."""


class Command(click.Command):
    """A command whose epilog has one example per line, with `drawbridge` as it was called."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are: a broken line could not be copied."""
        if self.epilog:
            program = ctx.find_root().info_name or NAME
            formatter.write_paragraph()
            formatter.write("Examples:\n")
            for line in self.epilog.strip("\n").split("\n"):
                text = f"{program}{line.removeprefix(NAME)}" if line.startswith(NAME) else line
                formatter.write(f"  {text}\n")


def program_name() -> str:
    """Return how this process was called: `drawbridge`, or `kubectl drawbridge` by kubectl."""
    program = PurePath(sys.argv[0]).name
    return f"kubectl {NAME}" if program == PLUGIN else NAME


def unknown_command(name: str, known_names: Sequence[str], ctx: click.Context) -> click.UsageError:
    """Return the error for a command that does not exist, with the names that look like it."""
    near = get_close_matches(name, known_names, n=2)
    suggestion = f" Did you mean {' or '.join(near)}?" if near else ""
    return click.UsageError(f"No such command {name!r}.{suggestion}", ctx)


CLUSTER_STATE: Final = """\
# the state of a cluster
kubectl get deviceclasses,resourceslices,resourceclaims,nodes,pods \\
  -A -o json > cluster.json
"""
"""The command that prints what --snapshot reads; other kinds are read as well."""
