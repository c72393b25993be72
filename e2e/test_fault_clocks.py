"""Clocks that disagree with the API server's: pods are admitted, nothing good is thrown away, it heals.

The certificate controller and the webhook run with a clock that the story sets while they run, and pods
are created all the time.
"""

import base64
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from cryptography import x509

from certs.authority import Authority
from certs.rotation import Authorities, encode_authorities
from e2e.access import Access, stream
from e2e.drawbridge import CERTIFICATES, CONTROLLER, WEBHOOK, Drawbridge
from e2e.load import Load
from e2e.objects import pod
from kube.names import ROTATE_ANNOTATION
from testing.long_runs import beginning_with

pytestmark = pytest.mark.usefixtures("fleet")

TIMEOUT_S: Final = 90.0
PACKAGES: Final = {
    CERTIFICATES: "controllers.certificates",
    WEBHOOK: "webhook",
    CONTROLLER: "controllers",
}
# A leader that a busy machine kept from its Lease would be another one.
ELECTION: Final = {"leaseDuration": "60s", "renewDeadline": "45s", "retryPeriod": "1s"}
HASTY: Final = {
    "certificateController": {"leaderElection": ELECTION},
    "controllers": {"leaderElection": ELECTION},
    "certificates": {"resyncPeriod": "200ms", "authorityExpeditedPublishPeriod": "300ms"},
    # New connections all the time, or a certificate that nobody accepts would not be missed.
    "webhook": {"requestsPerConnection": 4},
}
LIMITS: Final = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}
AUTHORITY, SERVING = "drawbridge-ca", "drawbridge-webhook-tls"
PATHS, SIGNING = "drawbridge-webhook-path", "drawbridge-signing"
HALF_AN_HOUR: Final = timedelta(minutes=30)
LONG: Final = timedelta(hours=2)
"""More than certificates are backdated."""
DAYS: Final = timedelta(days=2)
"""More than path keys are kept for, and more than a signature and its pod may be apart."""


class Clocks(NamedTuple):
    """The processes with clocks that can be set, and the objects that they keep."""

    cluster: Access
    drawbridge: Drawbridge

    def start(self, process: str) -> None:
        """Replace a process by one with a clock that can be set."""
        self.drawbridge.stop(process)
        command = (sys.executable, "-m", "e2e.skewed", PACKAGES[process], self._file(process))
        self.drawbridge.start(process, command=command)

    def set(self, ahead: timedelta, *processes: str) -> None:
        """Set the clocks of processes."""
        for process in processes:
            partial = self._file(process).with_suffix(".partial")
            partial.write_text(str(ahead.total_seconds()))
            partial.rename(self._file(process))

    def secret(self, name: str) -> Mapping[str, str]:
        """The data of a Secret; empty if there is none."""
        secret = self.cluster.find("secrets", name, self.drawbridge.namespace) or {}
        return secret.get("data") or {}

    def delete(self, name: str) -> None:
        """Delete a Secret."""
        self.cluster.kubectl("delete", "-n", self.drawbridge.namespace, "secret", name)

    def signer(self) -> bytes:
        """The certificate of the authority that signs; empty if there is none."""
        return base64.b64decode(self.secret(AUTHORITY).get("ca.crt", ""))

    def wait_signed(self) -> None:
        """Wait until the webhook's certificate is of the authority that signs and is trusted."""

        def is_signed() -> bool:
            signer = self.signer()
            authority = base64.b64decode(self.secret(SERVING).get("ca.crt", ""))
            bundle = base64.b64decode(self.drawbridge.client_config().get("caBundle", ""))
            return bool(signer) and signer == authority and signer in bundle

        self.wait_until(is_signed, "the webhook's certificate is signed and trusted")

    def wait_until(self, condition: Callable[[], object], description: str) -> None:
        self.cluster.wait_until(condition, description, timeout_s=TIMEOUT_S)

    def skew_s(self) -> float:
        """Return the lead of its clock that the certificate controller sees."""
        line = re.search(
            r"^drawbridge_clock_skew_seconds (\S+)$",
            self.drawbridge.metrics(CERTIFICATES),
            re.MULTILINE,
        )
        return float(line[1]) if line else 0.0

    def wait_skew(self, ahead: timedelta) -> None:
        """Wait until the certificate controller has seen the error of its clock."""
        # The API server tells whole seconds.
        self.wait_until(
            lambda: abs(self.skew_s() - ahead.total_seconds()) < 60, "the clock was compared"
        )

    def transitions(self, process: str) -> tuple[str, int]:
        """Return the leader, and the number of its changes."""
        spec = self.cluster.get("leases", process, self.drawbridge.namespace)["spec"]
        return spec["holderIdentity"], spec["leaseTransitions"]

    def _file(self, process: str) -> Path:
        return self.cluster.directory / f"{process}.ahead"


@pytest.fixture(scope="module")
def clocks(cluster: Access, drawbridge: Drawbridge) -> Iterator[Clocks]:
    clocks_ = Clocks(cluster, drawbridge)
    clocks_.set(timedelta(), *PACKAGES)
    with drawbridge.configured(HASTY):
        for process in PACKAGES:
            clocks_.start(process)
        drawbridge.wait_ready()
        yield clocks_
        forget_authorities(clocks_)


def forget_authorities(clocks: Clocks) -> None:
    """Begin anew with one authority, since the others would be trusted for a week."""
    clocks.drawbridge.stop(CERTIFICATES)
    for name in (AUTHORITY, SERVING):
        clocks.delete(name)
    for configuration in clocks.drawbridge.webhook_configurations():
        steps = [
            {"op": "remove", "path": f"/webhooks/{index}/clientConfig/caBundle"}
            for index, _ in enumerate(configuration["webhooks"])
        ]
        target = (configuration["kind"], configuration["metadata"]["name"], "--type=json")
        clocks.cluster.kubectl("patch", *target, "-p", json.dumps(steps))
    clocks.start(CERTIFICATES)


@pytest.fixture
def load(clocks: Clocks, workshop: str) -> Iterator[Load]:
    """Honest pods, created all the time; none may be refused."""
    clocks.drawbridge.wait_ready()
    with Load(clocks.cluster, workshop, pod("share", limits=LIMITS), per_second=10) as running:
        yield running
        clocks.set(timedelta(), *PACKAGES)
        before = len(running.created)
        clocks.wait_until(lambda: len(running.created) > before + 8, "pods are created")
    assert running.failures == []


def run_pod(clocks: Clocks, namespace: str, name: str = "share") -> None:
    """Have a pod run; it gets its template, too."""
    cluster = clocks.cluster
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=stream(pod(name, limits=LIMITS)))
    cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize(
    "ahead", beginning_with(1, [HALF_AN_HOUR, -HALF_AN_HOUR]), ids=["ahead", "behind"]
)
def test_what_is_created_half_an_hour_off_is_good_and_stays(
    clocks: Clocks, load: Load, namespace: str, ahead: timedelta
) -> None:
    old = clocks.signer()
    clocks.set(ahead, *PACKAGES)
    clocks.wait_skew(ahead)

    for name in (AUTHORITY, SERVING, PATHS):
        clocks.delete(name)
    rotate = ("annotate", "--overwrite", "-n", clocks.drawbridge.namespace, "secret", SIGNING)
    clocks.cluster.kubectl(*rotate, f"{ROTATE_ANNOTATION}=now")
    clocks.wait_until(lambda: clocks.signer() not in {b"", old}, "another authority signs")
    clocks.wait_signed()
    clocks.wait_until(lambda: clocks.secret(PATHS), "there are keys of paths")
    run_pod(clocks, namespace, "early")
    secrets = [clocks.secret(name) for name in (AUTHORITY, SERVING)]

    clocks.set(timedelta(), *PACKAGES)
    clocks.wait_skew(timedelta())
    run_pod(clocks, namespace, "late")
    clocks.drawbridge.wait_ready()
    assert secrets == [clocks.secret(name) for name in (AUTHORITY, SERVING)]
    assert load.failures == []


@pytest.mark.parametrize("ahead", beginning_with(1, [LONG, -LONG]), ids=["ahead", "behind"])
def test_while_the_clock_is_wrong_by_hours_nothing_is_created_or_thrown_away(
    clocks: Clocks, load: Load, namespace: str, ahead: timedelta
) -> None:
    clocks.wait_signed()
    before = clocks.secret(AUTHORITY)
    clocks.set(ahead, CERTIFICATES)
    clocks.wait_skew(ahead)

    clocks.delete(SERVING)
    run_pod(clocks, namespace, "early")
    count = clocks.drawbridge.log(CERTIFICATES).count("clock.wrong")
    clocks.wait_until(
        lambda: clocks.drawbridge.log(CERTIFICATES).count("clock.wrong") > count + 2,
        "the log says that the clock is wrong",
    )
    assert (before, {}) == (clocks.secret(AUTHORITY), clocks.secret(SERVING))

    clocks.set(timedelta(), CERTIFICATES)
    clocks.wait_signed()
    assert before == clocks.secret(AUTHORITY)
    assert load.failures == []


@pytest.mark.parametrize("ahead", beginning_with(1, [DAYS, -DAYS]), ids=["ahead", "behind"])
def test_a_jump_replaces_no_key_and_no_leader_and_pods_get_their_devices(
    clocks: Clocks, load: Load, namespace: str, ahead: timedelta
) -> None:
    clocks.wait_signed()
    clocks.wait_until(lambda: clocks.secret(PATHS), "there are keys of paths")
    secrets = [clocks.secret(name) for name in (AUTHORITY, SERVING, PATHS, SIGNING)]
    leaders = [clocks.transitions(name) for name in (CERTIFICATES, CONTROLLER)]

    clocks.set(ahead, *PACKAGES)
    clocks.wait_skew(ahead)
    run_pod(clocks, namespace, "early")
    clocks.drawbridge.wait_ready()
    clocks.set(timedelta(), *PACKAGES)
    clocks.wait_skew(timedelta())
    run_pod(clocks, namespace, "late")

    assert secrets == [clocks.secret(name) for name in (AUTHORITY, SERVING, PATHS, SIGNING)]
    assert leaders == [clocks.transitions(name) for name in (CERTIFICATES, CONTROLLER)]
    assert load.failures == []


def test_an_authority_that_is_not_valid_yet_counts_as_missing(
    clocks: Clocks, load: Load, namespace: str
) -> None:
    clocks.wait_signed()
    now = datetime.now(UTC)
    future = Authority.create("drawbridge", now=now + timedelta(hours=6), life=timedelta(days=365))
    stored = encode_authorities(
        Authorities(signer=future, trusted=(future.certificate,), signing_since=now)
    )
    data = {key: base64.b64encode(value).decode() for key, value in stored.items()}
    patch = json.dumps([{"op": "replace", "path": "/data", "value": data}])
    target = ("-n", clocks.drawbridge.namespace, "secret", AUTHORITY)

    clocks.cluster.kubectl("patch", *target, "--type=json", "-p", patch)

    clocks.wait_until(
        lambda: clocks.signer() not in {b"", future.certificate_pem}, "a valid authority signs"
    )
    clocks.wait_signed()
    signer = x509.load_pem_x509_certificate(clocks.signer())
    assert signer.not_valid_before_utc <= now < signer.not_valid_after_utc
    run_pod(clocks, namespace)
    assert load.failures == []
