"""Sidecars that are killed or stopped: no device is lost, and none is given twice."""

import signal
from collections.abc import Iterator
from typing import Final

import pytest

from e2e.access import Access, Object, stream
from e2e.bridge import LEASE, Bridge, bridged, doubly_held
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod
from kube.names import NAMESPACE
from kube.runtime.leader import HANDED_OVER

TIMEOUT_S: Final = 120.0
PODS: Final = 8


@pytest.fixture(autouse=True)
def restored(bridge: Bridge) -> Iterator[None]:
    yield
    for part in ("sidecar", "scheduler"):
        bridge.child(part).signal(signal.SIGCONT)
    bridge.ensure()


def apply_pods(cluster: Access, namespace: str, nodes: list[str], *, first: int = 0) -> list[str]:
    names = [f"pod-{number}" for number in range(first, first + PODS // 2)]
    objects: list[Object] = [
        claim_template("one", EXAMPLE),
        *(bridged(pod(name, claims={"gpu": "one"}), nodes) for name in names),
    ]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))
    return names


def wait_running(cluster: Access, bridge: Bridge, namespace: str, names: list[str]) -> None:
    """Wait for pods, and restart processes that have ended meanwhile."""

    def running() -> bool:
        bridge.tend()
        return all(
            pod_["status"].get("phase") == "Running"
            for pod_ in cluster.objects("pods", namespace)
            if pod_["metadata"]["name"] in names
        )

    cluster.wait_until(running, f"{names} run", timeout_s=TIMEOUT_S)


def allocated_claims(cluster: Access, namespace: str) -> int:
    """Return the number of claims that hold a device, each for a pod."""
    claims = cluster.objects("resourceclaims", namespace)
    allocated = [claim for claim in claims if "allocation" in claim.get("status", {})]
    assert all(len(claim["status"]["reservedFor"]) == 1 for claim in allocated)
    return len(allocated)


@pytest.mark.long
def test_a_sidecar_that_is_killed_loses_and_doubles_nothing(
    cluster: Access, bridge: Bridge, namespace: str, nodes: list[str]
) -> None:
    early = apply_pods(cluster, namespace, nodes)
    bridge.child("sidecar").signal(signal.SIGKILL)
    late = apply_pods(cluster, namespace, nodes, first=PODS // 2)

    wait_running(cluster, bridge, namespace, [*early, *late])

    assert [] == doubly_held(cluster)
    assert allocated_claims(cluster, namespace) == PODS


def test_other_pods_go_on_while_the_sidecar_is_stopped(
    cluster: Access, bridge: Bridge, namespace: str, nodes: list[str]
) -> None:
    early = apply_pods(cluster, namespace, nodes)
    bridge.child("sidecar").signal(signal.SIGSTOP)
    late = apply_pods(cluster, namespace, nodes, first=PODS // 2)
    plain = bridged(pod("plain"), nodes)
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream([plain]))

    cluster.wait_running("plain", namespace, timeout_s=TIMEOUT_S)

    bridge.child("sidecar").signal(signal.SIGCONT)
    wait_running(cluster, bridge, namespace, [*early, *late])
    assert [] == doubly_held(cluster)
    assert allocated_claims(cluster, namespace) == PODS


def test_another_replica_takes_over(
    cluster: Access, bridge: Bridge, namespace: str, nodes: list[str]
) -> None:
    bridge.start("b")
    early = apply_pods(cluster, namespace, nodes)
    for part in ("scheduler", "sidecar"):
        bridge.child(part, "a").signal(signal.SIGKILL)

    bridge.wait_working("b")
    late = apply_pods(cluster, namespace, nodes, first=PODS // 2)

    wait_running(cluster, bridge, namespace, [*early, *late])
    assert [] == doubly_held(cluster)
    assert allocated_claims(cluster, namespace) == PODS


def test_a_replica_that_ends_in_good_order_hands_over_at_once(
    cluster: Access, bridge: Bridge, namespace: str, nodes: list[str]
) -> None:
    """The next one leads without the wait for writes of one that died."""
    log = cluster.directory / "scheduler-b.log"
    earlier = log.read_text() if log.exists() else ""
    early = apply_pods(cluster, namespace, nodes)
    wait_running(cluster, bridge, namespace, early)
    bridge.start("b")

    def told() -> str:
        """Return the words of the scheduler of b since then."""
        return log.read_text().removeprefix(earlier)

    cluster.wait_until(lambda: "does not lead" in told(), "b stands by", timeout_s=TIMEOUT_S)

    bridge.stop("a")
    bridge.wait_working("b")
    late = apply_pods(cluster, namespace, nodes, first=PODS // 2)

    wait_running(cluster, bridge, namespace, [*early, *late])
    assert [] == doubly_held(cluster)
    assert allocated_claims(cluster, namespace) == PODS
    lease = cluster.get("lease", LEASE, NAMESPACE)
    ended_term = int(lease["spec"]["leaseTransitions"]) - 1
    assert str(ended_term) == lease["metadata"]["annotations"][HANDED_OVER]
    assert "can be under way" not in told()
