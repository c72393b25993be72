"""Completion of the last argument of a call, as kubectl asks its plugins for it.

Source: k8s.io/kubectl v0.37.1, pkg/cmd/plugin/plugin_completion.go; spf13/cobra, completions.go
(ShellCompDirective).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import click

from cli.output.help import PLUGIN

_NO_FILES: Final = 4
_DIRECTIVES: Final[Mapping[str, int]] = {"file": 0, "dir": 16}
"""Kind of a completion that the shell itself makes to cobra's directive."""


def completion_for_kubectl(group: click.Group, arguments: Sequence[str]) -> str:
    """Return one completion per line, with a description behind a tab, and a directive for the shell.

    Args:
        group: The commands.
        arguments: The arguments of the call; the last one is incomplete.
    """
    # Completion is needed by few calls.
    from click.shell_completion import ShellComplete  # noqa: PLC0415

    *before, incomplete = arguments or [""]
    items = ShellComplete(group, {}, PLUGIN, "").get_completions(before, incomplete)
    lines = [
        f"{item.value}\t{item.help}" if item.help else str(item.value)
        for item in items
        if item.type == "plain"
    ]
    directives = [_DIRECTIVES[item.type] for item in items if item.type in _DIRECTIVES]
    return "\n".join([*lines, f":{directives[0] if directives else _NO_FILES}"])
