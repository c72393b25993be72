"""The webhook beside HAMi-DRA's, in one cluster and under the same load.

HAMi-DRA (https://github.com/Project-HAMi/HAMi-DRA) translates `nvidia.com/gpu`, `gpumem` and `gpucores`,
too, and creates a ResourceClaim in each review; ours only answers, and its controllers create what a
pod needs once there is a pod. Its webhook is built from a checkout of its source. Its client limits
are raised: with those that it has by default, 40 requests a second, they alone would be measured.

No two pods have one name, since HAMi-DRA's claims are named after them. Either no two are alike, so
that each is translated, or they are the replicas of some workloads, whose answers our webhook keeps.
"""

import http.client
import json
import ssl
import subprocess
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench import reviews
from bench.load import Job, Measured, alternately, measure_load, median_of
from bench.report import Result, informative, times
from certs.authority import Authority
from certs.serving import issue_serving_certificate
from e2e.cluster import Cluster
from e2e.drawbridge import WEBHOOK, install_drawbridge
from e2e.inventory import device_classes, hami_gpus, kwok_nodes
from e2e.processes import Child
from findings.text import count_text
from testing.ports import free_ports

NODES: Final = 20
SECONDS: Final = 3.0
REVIEWS: Final = 6_000
"""The reviews for one turn, more than any webhook answers in it."""
CONNECTIONS: Final = (16, 1)
WORKLOADS: Final = {"no two pods alike": 0, "pods of 50 workloads": 50}
QPS: Final = 5_000
"""The rate of HAMi-DRA's client; as many in a burst."""
READY_WITHIN_S: Final = 60.0
DEVICE_CONFIG: Final = """\
nvidia:
  resourceCountName: nvidia.com/gpu
  resourceMemoryName: nvidia.com/gpumem
  resourceCoreName: nvidia.com/gpucores
"""
"""The names in the values of HAMi-DRA's chart."""


class Webhook(NamedTuple):
    """A webhook under load.

    Attributes:
        port: The port on loopback, HTTPS.
        path: The path of the reviews of pods.
        authority: A file with the certificate that clients trust, as PEM.
        process: The process that serves it.
    """

    port: int
    path: str
    authority: Path
    process: Child


def measure(checkout: Path) -> Iterator[Result]:
    """Yield the results; a control plane is started for them.

    Args:
        checkout: A folder with HAMi-DRA's source.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(checkout, folder)
        with Cluster(folder / "cluster") as cluster:
            cluster.apply(device_classes())
            cluster.kubectl("create", "namespace", _namespace())
            cluster.add_nodes(kwok_nodes(NODES), hami_gpus)
            with (
                _drawbridge(cluster, folder) as ours,
                _hami_dra(cluster, folder, program) as theirs,
            ):
                yield from _compare(ours, theirs)


def build(checkout: Path, folder: Path) -> Path:
    """Build HAMi-DRA's webhook from its source into a folder and return the program.

    Raises:
        subprocess.CalledProcessError: It does not build; Go has said why.
    """
    program = folder / "hami-dra-webhook"
    subprocess.run(["go", "build", "-o", program, "./cmd/webhook"], cwd=checkout, check=True)
    return program


def _compare(ours: Webhook, theirs: Webhook) -> Iterator[Result]:
    turns = count()  # For reviews that nobody has sent.

    def load(webhook: Webhook, connections: int, workloads: int) -> Measured:
        bodies = reviews.shares(REVIEWS, REVIEWS * next(turns), workloads=workloads)
        return measure_load(
            Job(
                port=webhook.port,
                path=webhook.path,
                bodies=bodies,
                connections=connections,
                seconds=SECONDS,
                authority=str(webhook.authority),
                content=b'"patch"',
            )
        )

    for connections, (pods, workloads) in product(CONNECTIONS, WORKLOADS.items()):
        own, others = alternately(
            partial(load, ours, connections, workloads),
            partial(load, theirs, connections, workloads),
        )
        title = f"{pods}, {count_text(connections, 'connection')}"
        rates = (median_of(own, "rate"), median_of(others, "rate"))
        yield times(f"reviews/s, {title}", *rates, at_least=6.0)
        for field in ("p50", "p99"):
            both = (median_of(own, field), median_of(others, field))
            yield informative(f"{field} in ms, {title}", *both)


@contextmanager
def _drawbridge(cluster: Cluster, folder: Path) -> Iterator[Webhook]:
    drawbridge = install_drawbridge(cluster)
    authority = folder / "drawbridge-ca.pem"
    authority.write_bytes(b64decode(drawbridge.client_config()["caBundle"]))
    process = cluster.children[WEBHOOK]
    webhook = Webhook(drawbridge.endpoints.webhook, drawbridge.path(), authority, process)
    _assert_translates(webhook)
    yield webhook


@contextmanager
def _hami_dra(cluster: Cluster, folder: Path, program: Path) -> Iterator[Webhook]:
    authority = _write_certificates(folder)
    (folder / "device-config.yaml").write_text(DEVICE_CONFIG)
    (port,) = free_ports(1)
    flags: Mapping[str, str | Path | int] = {
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "cert-dir": folder,
        "device-config-file": folder / "device-config.yaml",
        "metrics-bind-address": "0",
        "health-probe-bind-address": "0",
        "kube-api-qps": QPS,
        "kube-api-burst": QPS,
    }
    process = cluster.run(
        "hami-dra",
        [program, *(f"--{flag}={value}" for flag, value in flags.items())],
        {"KUBECONFIG": str(cluster.kubeconfig)},
    )
    webhook = Webhook(port, "/mutate", authority, process)
    _assert_translates(webhook)
    yield webhook


def _write_certificates(folder: Path) -> Path:
    """Write the certificates that HAMi-DRA's webhook serves with; return the file of the authority."""
    now, life = datetime.now(UTC), timedelta(hours=1)
    authority = Authority.create("bench", now=now, life=life)
    serving = issue_serving_certificate(authority, ["127.0.0.1"], now=now, life=life)
    (folder / "tls.crt").write_bytes(serving.certificate)
    (folder / "tls.key").write_bytes(serving.key)
    (folder / "hami-dra-ca.pem").write_bytes(authority.certificate_pem)
    return folder / "hami-dra-ca.pem"


def _assert_translates(webhook: Webhook) -> None:
    """Wait until it answers, and see that it answers with a patch."""
    (body,) = reviews.shares(1, -1)
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            status, answer = _post(webhook, body)
        except OSError:
            assert webhook.process.exit_status is None, webhook.process.log.read_text()
            assert time.monotonic() < deadline, webhook.process.log.read_text()
            time.sleep(0.1)
            continue
        response = json.loads(answer)["response"]
        assert status == http.client.OK, answer
        assert response["patch"], answer
        return


def _post(webhook: Webhook, body: bytes) -> tuple[int, bytes]:
    context = ssl.create_default_context(cafile=webhook.authority)
    connection = http.client.HTTPSConnection("127.0.0.1", webhook.port, context=context)
    try:
        connection.request("POST", webhook.path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _namespace() -> str:
    """Return the namespace of the pods in the reviews; HAMi-DRA creates claims there."""
    name: str = msgspec.json.decode(reviews.shares(1)[0])["request"]["namespace"]
    return name
