"""`drawbridge version`: the version of the command, and the Kubernetes API that it reads."""

from importlib.metadata import version as version_of
from typing import Final

import click

from cli.output.help import Command
from kube.names import NAME

KUBERNETES: Final = "1.37"
"""The release whose semantics this version has."""


@click.command("version", cls=Command, has_colours=False)
def version() -> None:
    """Print the version, and the Kubernetes release that it follows."""
    click.echo(f"{NAME} {version_of('drawbridge-dra')}, for Kubernetes {KUBERNETES}")
