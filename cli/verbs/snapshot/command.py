"""`drawbridge snapshot`: the state of a cluster in one file, for every other command."""

import asyncio
import gzip
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import msgspec

from answers.model.kinds import API_VERSION
from answers.model.snapshot_origin import SNAPSHOT
from cli.flags.cluster_flags import with_kubeconfig
from cli.flags.completion import FILE_NAME
from cli.output.files import write_whole
from cli.output.help import Command
from cli.output.progress import LongRun
from cli.output.standard_error import print_line
from cli.reading.cluster_documents import print_unreadable
from cli.reading.live_snapshot import LiveSnapshot, read_snapshot
from findings.text import count_text, printable
from kube.api.meta import rfc3339
from kube.client.client import Client
from kube.manifests.views import SNAPSHOT_LIST

EXAMPLES: Final = """\
drawbridge snapshot -o cluster.json.gz
drawbridge assess --snapshot cluster.json.gz
"""


@click.command("snapshot", cls=Command, has_colours=False, epilog=EXAMPLES)
@click.option(
    "-o",
    "--output",
    required=True,
    type=FILE_NAME,
    metavar="FILE",
    help="The file to write: JSON, compressed if the name ends in .gz; - is standard output.",
)
@with_kubeconfig
def snapshot(output: str, kubeconfig: str | None, context: str | None) -> None:
    """Write the state of the kubeconfig's cluster to one file, for --snapshot of every command.

    Holds nodes, workloads, pods, quotas and all objects of device allocation. Secrets, ConfigMaps,
    command lines and environment variables are left out, except variables that choose devices.
    Read-only.

    Exit status: 0 when written, also if some kinds may not be read, which are named; 2 when the
    call is wrong or the cluster does not answer.
    """
    taken_at = rfc3339(datetime.now(UTC))  # noqa: TID251 - the command's one clock.
    state = asyncio.run(_read(kubeconfig, context))
    text = encode_snapshot(state, taken_at)
    if output == "-":
        click.echo(text, nl=False)
    else:
        write_whole(Path(output), gzip.compress(text, mtime=0) if _is_gzip(output) else text)
        print_line(
            f"wrote {printable(output)}: {count_text(len(state.items), 'object')} of Kubernetes "
            f"{printable(state.version)}, {taken_at}; next: drawbridge assess --snapshot "
            f"{printable(shlex.quote(output))}"
        )
    print_unreadable(state)
    sys.exit(0)


def encode_snapshot(state: LiveSnapshot, taken_at: str) -> bytes:
    """Return the file: a List with a first item that tells the place and time of reading the others.

    Args:
        taken_at: The time in RFC 3339.
    """
    origin = {
        "apiVersion": API_VERSION,
        "kind": SNAPSHOT,
        "metadata": {"name": "cluster"},
        "takenAt": taken_at,
        **({"context": state.context} if state.context else {}),
        "kubernetesVersion": state.version,
        "server": state.server,
        "unreadable": [missing.resource for missing in state.unreadable],
    }
    head = {"apiVersion": API_VERSION, "kind": SNAPSHOT_LIST}
    return msgspec.json.encode({**head, "items": (origin, *state.items)}) + b"\n"


def _is_gzip(output: str) -> bool:
    return output.endswith(".gz")


async def _read(kubeconfig: str | None, context: str | None) -> LiveSnapshot:
    async with await Client.from_kubeconfig(kubeconfig, context) as client:
        return await read_snapshot(client, LongRun("objects read"))
