"""`drawbridge status`: the readiness of Drawbridge itself in a cluster, and the next step."""

import asyncio
import shutil
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version as version_of
from typing import Final

import click
import msgspec

from cli.flags.cluster_flags import with_kubeconfig
from cli.flags.durations import DurationType
from cli.output.formats import Output, Report, format_document, text_or_document
from cli.output.help import Command
from cli.output.standard_error import print_line
from cli.verbs.status.build import build_status
from cli.verbs.status.model import State, StatusAnswer
from cli.verbs.status.text import format_status
from kube.errors import KubeError
from kube.names import DISTRIBUTION, NAMESPACE
from process.model.durations import Duration

EXAMPLES: Final = """\
drawbridge status
# for scripts: exit 0 as soon as all parts are ready, 1 if they are not within two minutes
drawbridge status --wait 2m -o json
"""
DEFAULT_WAIT: Final = "5m"
POLL_S: Final = 2.0
"""Seconds between two looks at a cluster."""

Read = Callable[[], StatusAnswer]


@click.command("status", cls=Command, epilog=EXAMPLES)
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help=f"Namespace of Drawbridge (default: that of its webhook, else {NAMESPACE}).",
)
@click.option(
    "--wait",
    type=DurationType(),
    is_flag=False,
    flag_value=DEFAULT_WAIT,
    metavar="[DURATION]",
    help=f"Look again until everything is ready, for so long; {DEFAULT_WAIT} without a duration.",
)
@click.option(
    "--live",
    is_flag=True,
    expose_value=False,
    help="Read the kubeconfig's cluster (the default).",
)
@with_kubeconfig
@text_or_document("one screen")
def status(
    namespace: str | None,
    wait: Duration | None,
    kubeconfig: str | None,
    context: str | None,
    output: str,
) -> None:
    """Show the readiness of Drawbridge in the kubeconfig's cluster, part by part.

    Replicas and leaders, webhook configurations with caBundle and rules, the end of the authority,
    mode, versions, feature gates, translated pods without template or claim, bridge, observer and
    driver, policies and profiles, devices, vocabularies, and the next step. Reads no Secret.
    Read-only.

    Exit status: 0 when ready, 1 when something is not or has failed, 2 when the call is wrong or
    the cluster does not answer.
    """
    answer = wait_until_ready(
        lambda: asyncio.run(_read(kubeconfig, context, namespace)), wait or Duration(0)
    )
    if output != Output.TEXT:
        click.echo(format_document(output, msgspec.json.encode(answer), Report.STATUS))
    else:
        click.echo(format_status(answer, shutil.get_terminal_size().columns))
    sys.exit(0 if answer.ready else 1)


def wait_until_ready(
    read: Read,
    wait: Duration,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> StatusAnswer:
    """Return the status when it is ready, or when the time is over.

    While it waits, an API server that does not answer is no error: it may be starting.

    Raises:
        KubeError: The cluster does not answer, and the time is over.
    """
    end, last_message = clock() + wait, ""
    while True:
        is_last = clock() + POLL_S > end
        try:
            answer = read()
        except KubeError as error:
            if is_last:
                raise
            waiting_for = f"the cluster: {error}"
        else:
            if answer.ready or is_last:
                return answer
            waiting_for = ", ".join(
                check.name
                for check in answer.checks
                if check.state in {State.WAITING, State.FAILED}
            )
        if waiting_for != last_message:
            remaining_s = max(0, round(end - clock()))
            print_line(f"waiting for {waiting_for} ({remaining_s} s left)")
            last_message = waiting_for
        sleep(POLL_S)


async def _read(kubeconfig: str | None, context: str | None, namespace: str | None) -> StatusAnswer:
    # The client takes twice as long to import as all the rest.
    from cli.reading.installation import read_installation  # noqa: PLC0415
    from kube.client.client import Client  # noqa: PLC0415

    async with await Client.from_kubeconfig(kubeconfig, context) as client:
        installation = await read_installation(client, namespace)
    return build_status(
        installation,
        client_version=version_of(DISTRIBUTION),
        now=datetime.now(UTC),  # noqa: TID251 - the command's one clock.
    )
