"""Flags that several commands share."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from cli.flags.completion import FILE_NAME

_Command = TypeVar("_Command", bound=Callable[..., Any])
Flag = Callable[[_Command], _Command]


def add_flags(command: _Command, flags: Sequence[Flag[Any]]) -> _Command:
    """Give a command flags, in the order of its help."""
    for flag in reversed(flags):
        command = flag(command)
    return command


def _kubeconfig_flags(condition: str = "") -> Sequence[Flag[Any]]:
    """Return the flags that choose a kubeconfig and a context; their help ends in a condition."""
    return (
        click.option(
            "--kubeconfig",
            type=FILE_NAME,
            metavar="FILE",
            help=f"Path to a kubeconfig{condition}.",
        ),
        click.option("--context", metavar="NAME", help=f"Context of the kubeconfig{condition}."),
    )


PROFILES_FLAG: Final = click.option(
    "--profiles",
    "profile_directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory of driver profiles, one YAML file each, beside the shipped ones.",
)
KUBECONFIG_FLAGS: Final = _kubeconfig_flags()
LIVE_KUBECONFIG_FLAGS: Final = _kubeconfig_flags(" (with --live)")
SNAPSHOT_FLAG: Final[Flag[Any]] = click.option(
    "--snapshot",
    "snapshots",
    multiple=True,
    type=FILE_NAME,
    metavar="PATH",
    help="State of a cluster: the file of drawbridge snapshot, or Kubernetes objects as kubectl "
    "get prints them, in YAML or JSON. Repeatable.",
)
CLUSTER_FLAGS: Final[Sequence[Flag[Any]]] = (
    SNAPSHOT_FLAG,
    click.option(
        "--live",
        is_flag=True,
        help="Read the state from the kubeconfig's cluster; kubectl drawbridge does so by default.",
    ),
    click.option("--offline", is_flag=True, help="Read no cluster, also as a plugin of kubectl."),
    *LIVE_KUBECONFIG_FLAGS,
)
"""They name the state of a cluster."""
with_kubeconfig: Final = partial(add_flags, flags=KUBECONFIG_FLAGS)
with_live_kubeconfig: Final = partial(add_flags, flags=LIVE_KUBECONFIG_FLAGS)


MANIFESTS: Final = "Manifests"
_MORE_OBJECTS: Final = "Objects that are added to the state, or replace their namesakes in it"


def files_flag(*, is_required: bool, help_text: str = "") -> Flag[Any]:
    """Return the flag that names files of objects."""
    return click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        required=is_required,
        type=FILE_NAME,
        metavar="PATH",
        help=f"{help_text or (MANIFESTS if is_required else _MORE_OBJECTS)}: a file, a directory (its *.yaml, *.yml and "
        "*.json), or - for standard input. Repeatable.",
    )


RECURSIVE_FLAG: Final[Flag[Any]] = click.option(
    "-R",
    "--recursive",
    is_flag=True,
    help="Read the subdirectories of directories that -f names, too.",
)


NAMESPACE_FLAG: Final[Flag[Any]] = click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help='Namespace of objects that name none (default: "default"; with --live the context\'s).',
)
