"""Preemption while claims are released slowly, and with disruption budgets: one victim each."""

import signal
from collections.abc import Iterator
from typing import Final

import pytest

from e2e.access import Access, stream
from e2e.bridge import Bridge, bridged, doubly_held
from e2e.cluster import Cluster
from e2e.inventory import EXAMPLE
from e2e.objects import (
    claim_template,
    disruption_budget,
    has_healthy_pods,
    named_claim,
    pod,
    priority_class,
)

TIMEOUT_S: Final = 90.0
PRIORITY: Final = "bridge-urgent"
DEVICES: Final = 8


@pytest.fixture(scope="module", autouse=True)
def priority(cluster: Access) -> Iterator[None]:
    cluster.apply(priority_class(PRIORITY))
    yield
    cluster.delete("priorityclass", PRIORITY)


def test_a_slow_release_costs_one_victim_and_a_budget_chooses_it(
    own_cluster: Cluster, bridge: Bridge, namespace: str, nodes: list[str]
) -> None:
    """The claim of the victim stays allocated for a while after its pod is gone."""
    cluster = own_cluster
    guarded = [f"guarded-{number}" for number in range(DEVICES - 1)]
    label = {"app": "guarded"}
    budget = disruption_budget("guarded", label, len(guarded))
    pods = [bridged(pod(name, claims={"gpu": "one"}), nodes) for name in (*guarded, "other")]
    for pod_ in pods[:-1]:
        pod_["metadata"]["labels"] = {**pod_["metadata"].get("labels", {}), **label}
    high = bridged(pod("high", priorityClassName=PRIORITY), nodes)
    high["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "of-high"}]
    high["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    claim = named_claim("of-high", EXAMPLE)
    objects = [claim_template("one", EXAMPLE), claim, budget, *pods]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))
    for name in (*guarded, "other"):
        cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S)
    cluster.wait_for(
        "poddisruptionbudgets", "guarded", namespace, until=has_healthy_pods, timeout_s=TIMEOUT_S
    )
    controllers = cluster.children["kube-controller-manager"]
    controllers.signal(signal.SIGSTOP)
    try:
        cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream([high]))
        cluster.wait_until(
            lambda: cluster.find("pods", "other", namespace) is None,
            "the pod without a budget is evicted",
            timeout_s=TIMEOUT_S,
        )
        # Each of these has the pod tried again, while no device is free and its victim is gone.
        for number in range(3):
            _wait_tried_again(cluster, bridge, namespace, number)
        remaining = {pod_["metadata"]["name"] for pod_ in cluster.objects("pods", namespace)}
        assert remaining == {*guarded, "high"}
    finally:
        controllers.signal(signal.SIGCONT)

    cluster.wait_running("high", namespace, timeout_s=TIMEOUT_S)
    assert {*guarded, "high"} == {
        pod_["metadata"]["name"]
        for pod_ in cluster.objects("pods", namespace)
        if "deletionTimestamp" not in pod_["metadata"]
    }
    assert [] == doubly_held(cluster)


def _wait_tried_again(cluster: Cluster, bridge: Bridge, namespace: str, number: int) -> None:
    """Have a pod that waits for a release tried again, by a label of its own, and wait for it."""
    before = bridge.calls("postfilter", "wait")
    cluster.kubectl("label", "pod", "high", "-n", namespace, f"tried={number}", "--overwrite")
    cluster.wait_until(
        lambda: bridge.calls("postfilter", "wait") > before,
        "the pod is tried again",
        timeout_s=TIMEOUT_S,
    )
