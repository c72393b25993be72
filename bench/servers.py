"""Our endpoint and a no-op one on one event loop, under TLS, for the load generator.

Started as a process of its own; prints the ports as JSON and serves until its standard input ends.
The endpoint is the one that `python -m webhook` runs, with a world that needs no API server.
"""

import asyncio
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry

from admission.webhook_configuration import MUTATE_PATH
from bench.reviews import snapshot_of_reviews
from certs.authority import Authority
from certs.serving import Listener, issue_serving_certificate
from process.model.durations import Duration
from process.running.garbage import exempt_caches
from process.running.logs import log_to
from testing.review_runner import review_runner
from testing.signing import fixed_signing
from testing.webhook_endpoint import FixedEvaluator
from testing.webhook_paths import fixed_path
from translation.cluster.snapshot import TranslationOptions
from webhook.endpoint import Endpoint
from webhook.metrics import WebhookMetrics
from webhook.mutate import PodReviewHandler
from webhook.settings import WebhookSettings

UID = re.compile(rb'"uid": ?"([-0-9a-f]{36})"')
NO_UID = b"00000000-0000-0000-0000-000000000000"
NO_OP_ANSWER = json.dumps(
    {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": NO_UID.decode(), "allowed": True},
    }
).encode()


@contextmanager
def running(authority: Path) -> Iterator[Mapping[str, int]]:
    """Run both servers; yield their ports, as "ours" and "anchor".

    Args:
        authority: The file for the certificate that clients must trust.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "bench.servers", str(authority)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as servers:  # Leaving closes their standard input, and waits.
        assert servers.stdout is not None
        yield json.loads(servers.stdout.readline())


async def no_op(request: web.Request) -> web.Response:
    """Read the review and allow anything; the API server wants to see its uid again."""
    uid_match = UID.search(await request.read())
    answer = NO_OP_ANSWER if uid_match is None else NO_OP_ANSWER.replace(NO_UID, uid_match.group(1))
    return web.Response(body=answer, content_type="application/json")


async def serve(authority: Authority) -> None:
    """Serve both until standard input ends."""
    serving_certificate = issue_serving_certificate(
        authority, ["localhost", "127.0.0.1"], now=datetime.now(UTC), life=timedelta(hours=1)
    )
    context = Listener(serving_certificate).context

    settings = WebhookSettings(bind_address="127.0.0.1", port=0, drain=Duration(0))
    metrics = WebhookMetrics(CollectorRegistry())
    snapshot = snapshot_of_reviews()
    mutation = PodReviewHandler(
        lambda: snapshot,
        TranslationOptions(),
        metrics,
        review_runner(metrics),
        signing=fixed_signing,
        evaluator=FixedEvaluator(lambda: snapshot),
    )
    ours = Endpoint(
        settings,
        {MUTATE_PATH: mutation.handle},
        metrics,
        find_path=fixed_path,
        chance=random.random,
    )
    await ours.start(context)

    app = web.Application()
    app.add_routes([web.post("/mutate", no_op)])
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=settings.keepalive_timeout)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()

    exempt_caches()  # As `python -m webhook` does.
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(ours.run())
        print(json.dumps({"ours": ours.port, "anchor": runner.addresses[0][1]}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        answering.cancel()
    await ours.stop()
    await runner.cleanup()


def main() -> None:
    """Start."""
    # As in production, a line per translated pod; whoever collects them is not measured.
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        log_to(nowhere, "info")
        _serve()


def _serve() -> None:
    authority = Authority.create("bench", now=datetime.now(UTC), life=timedelta(hours=1))
    Path(sys.argv[1]).write_bytes(authority.certificate_pem)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(serve(authority))


if __name__ == "__main__":
    main()
