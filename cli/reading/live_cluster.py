"""The flags of commands about one cluster: the kubeconfig's unless there is a snapshot."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from cli.flags.cluster_flags import KUBECONFIG_FLAGS, SNAPSHOT_FLAG, add_flags
from cli.output.standard_error import print_notes
from cli.reading.cluster_state import ClusterFlags
from cli.reading.options import pop_flags, read_cluster

_Command = Callable[..., Any]


def with_live_cluster(command: _Command) -> _Command:
    """As `with_whole_cluster`, but the cluster is the kubeconfig's unless there is a snapshot.

    The command is called with `kubeconfig` and `context`, too; with `is_live` False for a snapshot.
    """

    @wraps(command)
    def run_command(**values: Any) -> None:
        if values.pop("live") and values["snapshots"]:
            raise click.UsageError("--live and --snapshot are mutually exclusive.")
        flags = pop_flags(ClusterFlags, {**values, "files": (), "live": not values["snapshots"]})
        del values["snapshots"]
        cluster_objects = read_cluster(flags)
        print_notes(cluster_objects.notes)
        command(cluster_objects=cluster_objects, is_live=flags.live, **values)

    return add_flags(
        run_command,
        (
            SNAPSHOT_FLAG,
            click.option(
                "--live", is_flag=True, help="Read the kubeconfig's cluster (the default)."
            ),
            *KUBECONFIG_FLAGS,
        ),
    )
