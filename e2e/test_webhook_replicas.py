"""A fault of one replica, or a new certificate, costs creators of pods little.

`pytest -s` shows the costs; docs/operations.md repeats them.
"""

import base64
import http.client
import json
import signal
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from certs.authority import Authority
from certs.rotation import Authorities, encode_authorities
from e2e.access import Access, stream
from e2e.credentials import write_secret
from e2e.drawbridge import CERTIFICATES, CONTROLLER, WEBHOOK, Drawbridge
from e2e.interposer import Interposer
from e2e.load import CALLERS, Load
from e2e.objects import deployment, pod
from e2e.replicas import Replicas
from e2e.translated import legacy_keys
from kube.names import GROUP, ROTATE_ANNOTATION

pytestmark = pytest.mark.usefixtures("fleet")

TIMEOUT_S = 60.0
LIMITS = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}
SHARE = pod("share", limits=LIMITS)
HASTY = {
    "certificates": {
        "resyncPeriod": "100ms",
        # A third of it is left when it is renewed: longer than a busy machine stands still.
        "servingDuration": "20s",
        "authorityPublishPeriod": "3s",
        "authorityExpeditedPublishPeriod": "500ms",
        "pathKeyGracePeriod": "8s",
    },
    "webhook": {
        "drain": "500ms",
        "maxDrain": "5s",
        # New connections all the time, or old certificates would never be missed.
        "requestsPerConnection": 4,
    },
}


@pytest.fixture(scope="module")
def replicas(cluster: Access, drawbridge: Drawbridge) -> Iterator[Replicas]:
    with Replicas(cluster, drawbridge, HASTY).running() as running:
        yield running


@pytest.fixture
def load(cluster: Access, workshop: str, replicas: Replicas) -> Iterator[Load]:
    replicas.wait_ready()
    with Load(cluster, workshop, SHARE) as running:
        cluster.wait_until(lambda: len(running.created) > 20, "the load runs")
        yield running


def apply_serving(cluster: Access, namespace: str) -> None:
    """Have a controller create twenty pods with device keys."""
    serving = deployment("serving", pod("pod", limits=LIMITS), replicas=20)
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(serving))


def assert_serving(cluster: Access, namespace: str) -> None:
    """All of them run, with claims in place of their keys."""
    cluster.wait_for(
        "deployments",
        "serving",
        namespace,
        until=lambda stored: stored["status"].get("readyReplicas") == 20,
        timeout_s=TIMEOUT_S,
    )
    pods = cluster.objects("pods", namespace)
    assert not any(map(legacy_keys, pods))
    assert all(live["spec"].get("resourceClaims") for live in pods)


@pytest.mark.long
def test_a_rolling_restart_loses_nothing(
    cluster: Access, replicas: Replicas, load: Load, namespace: str
) -> None:
    for port, other in zip(replicas.ports, reversed(replicas.ports), strict=True):
        has_work = partial(replicas.has_answered, port, 5)
        cluster.wait_until(has_work, "it has work")
        before = replicas.answered(other)
        began = time.monotonic()

        replicas.child(port).signal(signal.SIGTERM)
        if port == replicas.ports[0]:
            apply_serving(cluster, namespace)

        assert replicas.child(port).wait(60)
        drained_s = time.monotonic() - began
        assert replicas.child(port).exit_status == 0
        replicas.stop(port)
        replicas.start(port)
        started_s = replicas.wait_ready()
        cluster.wait_until(has_work, "the new one gets its part")
        print(
            load.describe_event(f"drain in {drained_s:.1f} s, new replica after {started_s:.1f} s")
        )
        assert replicas.answered(other) > before
    assert load.failures == []
    assert_serving(cluster, namespace)


def test_a_killed_replica_costs_the_calls_in_flight_and_no_deployment(
    cluster: Access, replicas: Replicas, load: Load, namespace: str
) -> None:
    first, _ = replicas.ports
    apply_serving(cluster, namespace)

    replicas.child(first).signal(signal.SIGKILL)

    assert_serving(cluster, namespace)
    replicas.stop(first)
    replicas.start(first)
    started_s = replicas.wait_ready()
    print(load.describe_event(f"SIGKILL, new replica after {started_s:.1f} s"))
    assert len(load.failures) <= CALLERS


@pytest.mark.long
def test_a_replica_that_hangs_costs_the_calls_that_wait_for_it_and_no_deployment(
    cluster: Access, replicas: Replicas, load: Load, namespace: str
) -> None:
    first, _ = replicas.ports
    replicas.child(first).signal(signal.SIGSTOP)
    try:
        apply_serving(cluster, namespace)
        time.sleep(6)  # Longer than timeoutSeconds.
    finally:
        replicas.child(first).signal(signal.SIGCONT)
    replicas.wait_ready()
    assert_serving(cluster, namespace)
    print(load.describe_event("SIGSTOP for 6 s"))
    assert len(load.failures) <= CALLERS
    assert all("deadline exceeded" in failure.message for failure in load.failures)


def test_a_ca_bundle_that_was_taken_away_is_back_at_once(
    cluster: Access, drawbridge: Drawbridge, replicas: Replicas, load: Load
) -> None:
    began = time.monotonic()
    for webhook_configuration in drawbridge.webhook_configurations():
        steps = [
            {"op": "remove", "path": f"/webhooks/{index}/clientConfig/caBundle"}
            for index, _ in enumerate(webhook_configuration["webhooks"])
        ]
        target = (
            webhook_configuration["kind"],
            webhook_configuration["metadata"]["name"],
            "--type=json",
        )
        cluster.kubectl("patch", *target, "-p", json.dumps(steps))
    cluster.wait_until(replicas.has_current_bundles, "the controller has written it again")
    healed_s = time.monotonic() - began
    print(load.describe_event(f"caBundle removed, healed after {healed_s:.2f} s"))

    def admits() -> bool:
        before = len(load.failures)
        time.sleep(0.5)
        return len(load.failures) == before

    cluster.wait_until(admits, "the API servers have seen it, too")


def test_a_new_authority_and_new_leaves_lose_nothing(
    cluster: Access, drawbridge: Drawbridge, replicas: Replicas, load: Load
) -> None:
    old = replicas.secret()["ca.crt"]
    leaves = {
        port: replicas.child(port).log.read_text().count("certificate.replaced")
        for port in replicas.ports
    }
    paths = drawbridge.paths()
    began = time.monotonic()

    command = ("annotate", "-n", drawbridge.namespace, "secret", "drawbridge-ca")
    cluster.kubectl(*command, f"{ROTATE_ANNOTATION}=now")

    cluster.wait_until(lambda: replicas.trusted() == 2, "a successor is trusted")
    assert replicas.secret()["ca.crt"] == old
    cluster.wait_until(lambda: replicas.secret()["ca.crt"] != old, "the successor signs")
    assert replicas.trusted() == 2
    cluster.wait_until(lambda: replicas.trusted() == 1, "the old authority is forgotten")
    took_s = time.monotonic() - began
    assert replicas.bundles() == {replicas.secret()["ca.crt"]}
    assert drawbridge.paths() == paths
    print(load.describe_event(f"rotation in {took_s:.1f} s"))
    assert load.failures == []

    def has_new_leaves() -> bool:
        return all(
            replicas.child(port).log.read_text().count("certificate.replaced") >= before + 2
            for port, before in leaves.items()
        )

    cluster.wait_until(has_new_leaves, "each replica has had a leaf of both")


@pytest.mark.long
def test_new_paths_lose_nothing_though_a_replica_reads_them_late(
    cluster: Access, drawbridge: Drawbridge, replicas: Replicas, load: Load, workshop: str
) -> None:
    _, late = replicas.ports
    failed_open = fail_open_count(cluster)
    first = drawbridge.paths()
    kubeconfig = cluster.directory / "late.kubeconfig"
    write_secret(kubeconfig, cluster.kubeconfig_for(drawbridge.namespace, WEBHOOK).read_text())
    workloads = Load(
        cluster, workshop, deployment("load", SHARE), kind="deployments", per_second=10
    )
    with Interposer(cluster) as proxy, workloads:
        proxy.redirect(kubeconfig)
        replicas.stop(late)
        replicas.start(late, {"KUBECONFIG": str(kubeconfig)})
        replicas.wait_ready()
        cluster.wait_until(lambda: replicas.has_answered(late, 5), "it has work")
        proxy.withhold_watches("secrets")
        began = time.monotonic()

        command = ("annotate", "-n", drawbridge.namespace, "secret", "drawbridge-webhook-path")
        cluster.kubectl(*command, f"{ROTATE_ANNOTATION}=now")

        second = wait_paths_without(cluster, drawbridge, first)
        switched_s = time.monotonic() - began
        before = replicas.answered(late)
        cluster.wait_until(
            lambda: replicas.has_answered(late, before + 5), "the late replica knows the path"
        )
        assert statuses(drawbridge, replicas, first) == {http.client.BAD_REQUEST}
        proxy.expire_watches()

        third = wait_paths_without(cluster, drawbridge, {**first, **second})
        cluster.wait_until(
            lambda: (
                statuses(drawbridge, replicas, first) | statuses(drawbridge, replicas, second)
                == {http.client.NOT_FOUND}
            ),
            "the old paths are gone",
            timeout_s=TIMEOUT_S,
        )
        gone_s = time.monotonic() - began
        assert drawbridge.paths() == third
        assert statuses(drawbridge, replicas, third) == {http.client.BAD_REQUEST}
        replicas.stop(late)
    replicas.start(late)
    replicas.wait_ready()
    print(
        load.describe_event(f"paths replaced after {switched_s:.1f} s, gone after {gone_s:.1f} s")
    )
    assert load.failures == []
    assert workloads.failures == []
    assert fail_open_count(cluster) == failed_open
    secret = cluster.get("secrets", "drawbridge-webhook-path", drawbridge.namespace)
    assert ROTATE_ANNOTATION not in secret["metadata"].get("annotations", {})


def wait_paths_without(
    cluster: Access, drawbridge: Drawbridge, old: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the paths once none is one of those."""
    cluster.wait_until(
        lambda: not {*drawbridge.paths().values()} & {*old.values()},
        "all configurations name other paths",
        timeout_s=TIMEOUT_S,
    )
    return drawbridge.paths()


def statuses(drawbridge: Drawbridge, replicas: Replicas, paths: Mapping[str, str]) -> set[int]:
    """Return the statuses of the replicas' answers at paths."""
    return {
        drawbridge.post(b"{}", path=path, port=port)[0]
        for path in paths.values()
        for port in replicas.ports
    }


def fail_open_count(cluster: Access) -> float:
    """Return the number of times that the API server went on without an answer of a webhook of ours."""
    lines = cluster.kubectl("get", "--raw", "/metrics").stdout.splitlines()
    name = "apiserver_admission_webhook_fail_open_count"
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name) and GROUP in line)


def test_a_deleted_secret_loses_nothing(
    cluster: Access, drawbridge: Drawbridge, replicas: Replicas, load: Load
) -> None:
    old = replicas.secret()["ca.crt"]
    began = time.monotonic()

    cluster.kubectl("delete", "-n", drawbridge.namespace, "secret", "drawbridge-ca")

    cluster.wait_until(lambda: replicas.secret().get("ca.crt", old) != old, "another one signs")
    healed_s = time.monotonic() - began
    time.sleep(1)
    print(load.describe_event(f"Secret deleted, healed after {healed_s:.1f} s"))
    assert load.failures == []


@pytest.mark.long
def test_an_older_copy_of_the_secret_loses_nothing(
    cluster: Access, drawbridge: Drawbridge, replicas: Replicas, load: Load
) -> None:
    """As from a backup: API servers do not know its authority any more."""
    created = datetime.now(UTC) - timedelta(days=1)
    older = Authority.create("drawbridge", now=created, life=timedelta(days=90))
    copy = encode_authorities(
        Authorities(signer=older, trusted=(older.certificate,), signing_since=created)
    )
    data = {key: base64.b64encode(value).decode() for key, value in copy.items()}
    step = {"op": "replace", "path": "/data", "value": data}
    target = ("secret", "drawbridge-ca", "-n", drawbridge.namespace, "--type=json")
    demoted = drawbridge.log(CERTIFICATES).count('"demote"')

    cluster.kubectl("patch", *target, "-p", json.dumps([step]))

    cluster.wait_until(
        lambda: drawbridge.log(CERTIFICATES).count('"demote"') > demoted,
        "it is published before it signs",
    )
    cluster.wait_until(
        lambda: (
            replicas.secret().get("ca.crt") == data["ca.crt"]
            and "next.crt" not in replicas.secret()
        ),
        "it signs again",
    )
    cluster.wait_until(lambda: replicas.trusted() == 1, "the newer one is forgotten")
    assert replicas.bundles() == {data["ca.crt"]}
    print(load.describe_event("the Secret of the authorities was restored"))
    assert load.failures == []


def test_no_controller_costs_no_admission(
    cluster: Access, drawbridge: Drawbridge, replicas: Replicas, load: Load
) -> None:
    for name in (CONTROLLER, CERTIFICATES):
        cluster.children[name].signal(signal.SIGKILL)
        assert cluster.children[name].wait(60)
    try:
        time.sleep(0.5)  # Less than is left of a serving certificate.
        print(load.describe_event("no controllers for half a second"))
        assert load.failures == []
    finally:
        drawbridge.stop(CONTROLLER)
        drawbridge.start(CONTROLLER)
