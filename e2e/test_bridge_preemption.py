"""Preemption for devices: the stock evaluator of kube-scheduler, through the plugin."""

from collections.abc import Iterator
from typing import Final

import pytest

from e2e.access import Access, stream
from e2e.bridge import Bridge, bridged, doubly_held, is_waiting
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod, priority_class

TIMEOUT_S: Final = 90.0
PRIORITY: Final = "bridge-important"
DEVICES: Final = 8


@pytest.fixture(scope="module", autouse=True)
def priority(cluster: Access) -> Iterator[None]:
    cluster.apply(priority_class(PRIORITY))
    yield
    cluster.delete("priorityclass", PRIORITY)


def test_an_important_pod_evicts_one_pod_and_gets_its_device(
    cluster: Access, bridge: Bridge, namespace: str, nodes: list[str]
) -> None:
    low = [f"low-{number}" for number in range(DEVICES)]
    objects = [
        claim_template("one", EXAMPLE),
        *(bridged(pod(name, claims={"gpu": "one"}), nodes) for name in low),
    ]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))
    for name in low:
        cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S)

    high = bridged(pod("high", claims={"gpu": "one"}, priorityClassName=PRIORITY), nodes)
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream([high]))

    cluster.wait_running("high", namespace, timeout_s=TIMEOUT_S)
    # An attempt that came between the end of the victim and the release of its claim evicted none.
    cluster.wait_until(
        lambda: (
            not any(
                "deletionTimestamp" in pod_["metadata"]
                for pod_ in cluster.objects("pods", namespace)
            )
        ),
        "whoever was evicted is gone",
        timeout_s=TIMEOUT_S,
    )
    assert len(cluster.objects("pods", namespace)) == DEVICES
    assert [] == doubly_held(cluster)
    assert bridge.calls("filter") > 0


@pytest.mark.usefixtures("bridge")
def test_a_pod_of_equal_priority_evicts_nobody(
    cluster: Access, namespace: str, nodes: list[str]
) -> None:
    first = bridged(pod("first", claims={"gpu": "all"}, priorityClassName=PRIORITY), nodes[:1])
    second = bridged(pod("second", claims={"gpu": "all"}, priorityClassName=PRIORITY), nodes[:1])
    objects = [claim_template("all", EXAMPLE, count=4), first]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))
    cluster.wait_running("first", namespace, timeout_s=TIMEOUT_S)
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream([second]))

    cluster.wait_for("pods", "second", namespace, until=is_waiting, timeout_s=TIMEOUT_S)
    assert {"first", "second"} == {
        pod_["metadata"]["name"]
        for pod_ in cluster.objects("pods", namespace)
        if "deletionTimestamp" not in pod_["metadata"]
    }


def test_an_important_pod_evicts_one_pod_that_has_the_cpu_that_it_lacks(
    cluster: Access, bridge: Bridge, namespace: str, nodes: list[str]
) -> None:
    """Devices are free on both nodes, so the victim has none."""
    cpus = int(cluster.get("nodes", nodes[0])["status"]["allocatable"]["cpu"])
    fillers = [f"filler-{number}" for number in range(4)]
    objects = [
        claim_template("one", EXAMPLE),
        *(bridged(pod(name, requests={"cpu": cpus // 2}), nodes) for name in fillers),
    ]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))
    for name in fillers:
        cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S)

    high = bridged(
        pod(
            "high",
            claims={"gpu": "one"},
            requests={"cpu": cpus // 2},
            priorityClassName=PRIORITY,
        ),
        nodes,
    )
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream([high]))

    cluster.wait_running("high", namespace, timeout_s=TIMEOUT_S)
    remaining = [
        pod_["metadata"]["name"]
        for pod_ in cluster.objects("pods", namespace)
        if "deletionTimestamp" not in pod_["metadata"]
    ]
    assert len(remaining) == len(fillers)
    assert [] == doubly_held(cluster)
