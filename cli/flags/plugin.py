"""The command as a plugin of kubectl: its users mean the cluster of the current context."""

import os
from pathlib import Path
from typing import Final

import click

DEFAULT_KUBECONFIG: Final = "~/.kube/config"


def is_plugin() -> bool:
    """Return True if kubectl called the running command."""
    program = click.get_current_context().find_root().info_name or ""
    return program.split()[:1] == ["kubectl"]


def has_kubeconfig() -> bool:
    """Return True if a kubeconfig is in a place that kubectl reads."""
    paths = os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    return any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path)
