"""The driver is updated while pods start, is removed, and comes back."""

import http.client

import pytest

from e2e.access import Access
from e2e.node.claims import claim, named, pod_with, request
from e2e.node.driver import NodeDriver
from e2e.node.node import Node
from e2e.node.pods import REFUSED, TIMEOUT_S, apply, containers, delete_pods, environment

PODS = 6
LATE_AUTHORIZER = "no relationship found between node"
"""The API server has not yet noticed that the node has the pod; the driver was not asked at all."""
SHARE = request(where=named("uuid-of-gpu-0"), capacity={"memory": "1Gi", "cores": "5"})


def test_no_pod_fails_to_start_during_an_update(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    """As with maxSurge: the next instance serves before the last one ends, and takes over."""
    uids = {slice_["metadata"]["uid"] for slice_ in driver.slices()}
    names = [f"pod-{number}" for number in range(PODS)]
    for moment, name in enumerate(names):
        apply(cluster, namespace, claim(name, SHARE), pod_with(real_node.name, name, [name]))
        if moment == 1:
            driver.start("next")
            driver.wait_ready("next")
        if moment == 3:
            driver.stop()

    for name in names:
        assert str(2**30) == environment(cluster, namespace, name)["DRAWBRIDGE_DEVICE_GPU_0_MEMORY"]

    failures = [
        event["message"]
        for event in cluster.objects("events", namespace)
        if event["reason"] == REFUSED and LATE_AUTHORIZER not in event["message"]
    ]
    assert [] == failures
    assert PODS == len(driver.checkpoint())
    assert uids == {slice_["metadata"]["uid"] for slice_ in driver.slices()}, "slices were written"

    # The next instance has taken over publishing.
    status, answer = driver.probe("/readyz", "next")
    assert http.client.OK == status, answer
    delete_pods(cluster, namespace, driver, *names)
    driver.start()
    driver.wait_ready()
    driver.stop("next")


@pytest.mark.long
def test_a_driver_that_is_removed_leaves_running_pods_alone(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    apply(cluster, namespace, claim("c", SHARE), pod_with(real_node.name, "pod", ["c"]))
    environment_ = environment(cluster, namespace, "pod")
    before = containers(cluster, namespace, "pod")

    driver.stop()

    assert [] == driver.sockets()
    cluster.wait_until(
        lambda: not driver.slices(), "the kubelet deletes its slices", timeout_s=TIMEOUT_S
    )
    assert before == containers(cluster, namespace, "pod")
    assert 1 == len(driver.specs()), "what a running container was given is still true"

    driver.start()
    driver.wait_ready()
    cluster.wait_until(driver.slices, "the devices are published again")
    assert before == containers(cluster, namespace, "pod")
    assert environment_ == environment(cluster, namespace, "pod")
    delete_pods(cluster, namespace, driver, "pod")
