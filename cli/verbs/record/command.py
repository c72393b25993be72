"""`drawbridge record`: a cluster as it changes, in one file, for `drawbridge replay`."""

import asyncio
import errno
import logging
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from cli.flags.cluster_flags import with_kubeconfig
from cli.flags.completion import FILE_NAME
from cli.flags.durations import DurationType
from cli.output.help import Command
from cli.output.progress import format_seconds
from cli.output.standard_error import print_line
from cli.verbs.record.decisions import DecisionFollower, check_socket
from cli.verbs.record.file import RecordingFile
from cli.verbs.record.follow import Follower, build_header, find_resources
from findings.text import count_text
from kube.api.meta import rfc3339
from kube.client.client import Client
from kube.errors import DrawbridgeError
from kube.logs import structlog
from kube.runtime.informers import InformerFactory
from process.model.durations import Duration

EXAMPLES: Final = """\
drawbridge record -o day.json.gz --for 24h
drawbridge replay --snapshot day.json.gz --strategy stock,FragmentationAware
# what would ten more nodes have brought?
drawbridge replay --snapshot day.json.gz --add-nodes 10=node-a
"""


@click.command("record", cls=Command, has_colours=False, epilog=EXAMPLES)
@click.option(
    "-o",
    "--output",
    required=True,
    type=FILE_NAME,
    metavar="FILE",
    help="The file to write, which must not exist: a JSON document per line, compressed if the name ends "
    "in .gz; - is standard output.",
)
@click.option(
    "--for",
    "duration",
    type=DurationType(),
    metavar="DURATION",
    help="End after a time, such as 30m or 24h; by default SIGINT (^C) or SIGTERM ends it.",
)
@click.option(
    "--decisions",
    type=FILE_NAME,
    metavar="SOCKET",
    help="The socket of the bridge's sidecar, in the leader's pod: its decisions are recorded with what they depended "
    "on, so that replay makes them again.",
)
@with_kubeconfig
def record(
    output: str,
    duration: Duration | None,
    decisions: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Follow the kubeconfig's cluster, and write down its changes, for --snapshot of replay.

    Holds nodes, pods and all objects of device allocation, each with what decides placement: as in snapshots
    there are no command lines, environment variables, Secrets or ConfigMaps. A change of nothing
    else is not written. Read-only.

    With --decisions it holds the decisions of the bridge, and what they depended on; in a pod without a
    kubeconfig the cluster is read under the pod's account then.

    The file can be read at any time. When the connection is lost, the recording goes on after it, and
    the gap is in the file.

    Exit status: 0 when the file is whole, also if some kinds may not be read, which are named; 2 when
    the call is wrong, the file exists, or the cluster does not answer.
    """
    if duration is not None and duration <= 0:
        raise click.BadParameter("write a duration above 0s", param_hint="'--for'")
    if output != "-" and Path(output).exists():
        # Told before the cluster is asked.
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), output)
    with _without_logs():
        follower, file, seconds = asyncio.run(
            _record(output, duration, decisions, kubeconfig, context)
        )
    if follower.decode_errors:
        print_line(f"note: {count_text(follower.decode_errors, 'object')} could not be read")
    if not follower.is_complete:
        raise DrawbridgeError(f"{output}: ended before the first state was complete")
    name = "standard output" if output == "-" else output
    gaps = f", {count_text(follower.gaps, 'gap')}" if follower.gaps else ""
    print_line(
        f"wrote {name}: {count_text(follower.changes, 'change')} in {format_seconds(seconds)}, "
        f"{count_text(follower.objects, 'object')} at the end{gaps}, {file.bytes_written} bytes; "
        f"next: drawbridge replay --snapshot {shlex.quote(output)}"
    )
    sys.exit(0)


async def _record(
    output: str,
    duration: float | None,
    decisions: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> tuple[Follower, RecordingFile, float]:
    """Return the follower, the file, and the seconds that it took."""
    if decisions is not None:
        await check_socket(decisions)
    in_pod = decisions is not None and kubeconfig is None and context is None
    opening = Client.discover() if in_pod else Client.from_kubeconfig(kubeconfig, context)
    async with await opening as client:
        resources, unlistable = await find_resources(client)
        for missing in unlistable:
            note = f"note: {missing.resource} cannot be read, and are left out: {missing.reason}"
            print_line(note)
        started_at = rfc3339(datetime.now(UTC))  # noqa: TID251 - the command's one clock.
        start_s = time.monotonic()
        header = await build_header(client, started_at, unlistable)
        with RecordingFile.create(output) as file:
            file.begin(header)
            informers = InformerFactory(client)
            follower = Follower(
                informers, file, resources, lambda: time.monotonic() - start_s, _print_first_state
            )

            bridge = None
            if decisions is not None:
                bridge = DecisionFollower(decisions, follower.write_decisions)

            async def until_end() -> None:
                await wait_end(duration)
                if bridge is not None and follower.is_complete:
                    await bridge.read()

            async def read_decisions() -> None:
                if bridge is not None:
                    await bridge.run(lambda: follower.is_complete)

            await follower.run(until_end, read_decisions)
            if bridge is not None:
                print_line(_count_decisions(bridge.decisions))
            return follower, file, time.monotonic() - start_s


def _count_decisions(count: int) -> str:
    if count:
        return f"{count_text(count, 'decision')} of the bridge"
    return "note: no decision of the bridge: its sidecar made none, or does not lead"


def _print_first_state(objects: int) -> None:
    print_line(f"recording: {count_text(objects, 'object')} in the first state; ^C ends it")


async def wait_end(duration: float | None) -> None:
    """Return after a time, or at SIGINT or SIGTERM."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    is_main = threading.current_thread() is threading.main_thread()
    for number in signals if is_main else ():
        loop.add_signal_handler(number, ended.set)
    try:
        async with asyncio.timeout(duration):
            await ended.wait()
    except TimeoutError:
        pass
    finally:
        for number in signals if is_main else ():
            loop.remove_signal_handler(number)


@contextmanager
def _without_logs() -> Iterator[None]:
    """Silence the informers: the important part of their log is in the file, or printed at the end."""
    configuration = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**configuration)
