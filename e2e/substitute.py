"""Processes of ours with one thing changed, for stories: the rest is that of `python -m PACKAGE`."""

from collections.abc import Coroutine
from importlib import import_module
from typing import Any

import msgspec

from process.running.command import Command, Process


def command_with(package: str, kind: type[Process[Any]]) -> Command[Any]:
    """Return the command of a package, with its process replaced by one of another kind.

    Args:
        kind: A subclass of Process that adds no fields.
    """
    command: Command[Any] = import_module(f"{package}.__main__").COMMAND

    def start(process: Process[Any]) -> Coroutine[Any, Any, None]:
        return command.start(
            kind(
                settings=process.settings, kubeconfig=process.kubeconfig, identity=process.identity
            )
        )

    return msgspec.structs.replace(command, start=start)
