"""The node's records of claims: large ones of one namespace do not keep those of others from being prepared."""

from collections.abc import Iterator

import pytest

from e2e.access import Access, Object
from e2e.node.claims import claim, pod_with, request
from e2e.node.driver import NodeDriver, python
from e2e.node.node import Node
from e2e.node.pods import TIMEOUT_S, apply, environment, wait_refused

SHARES = 32
"""The shares of a greedy claim, as many as a claim may have; two of their records take more than the 16 KiB that are open to all."""


@pytest.fixture
def small_driver(cluster: Access, driver: NodeDriver) -> Iterator[NodeDriver]:
    driver.stop()
    driver.start(command=python("-m", "e2e.node.small_records"))
    driver.wait_ready()
    yield driver
    cluster.wait_until(driver.is_clean, "nothing is prepared", timeout_s=TIMEOUT_S)
    driver.stop()
    driver.start()
    driver.wait_ready()


def greedy(name: str) -> Object:
    """A claim of many small shares, with the longest names that the API allows."""
    shares = (
        request(f"share-{number}-{'x' * 50}", capacity={"memory": "1Mi", "cores": "0"})
        for number in range(SHARES)
    )
    return claim(name, *shares)


def test_a_namespace_with_large_records_is_refused_and_another_is_not(
    cluster: Access, namespace: str, stage: str, real_node: Node, small_driver: NodeDriver
) -> None:
    for name in ("first", "second"):
        apply(cluster, namespace, greedy(name), pod_with(real_node.name, name, [name]))
        if name == "first":
            assert environment(cluster, namespace, name)
    wait_refused(cluster, namespace, "second", "delete pods with large claims")

    small = claim("small", request(capacity={"memory": "1Gi", "cores": "1"}))
    apply(cluster, stage, small, pod_with(real_node.name, "pod", ["small"]))

    assert environment(cluster, stage, "pod")
    assert {"first", "small"} == {record["name"] for record in small_driver.checkpoint().values()}

    # What is refused is prepared once there is room.
    cluster.kubectl("delete", "pod", "-n", namespace, "first")
    assert environment(cluster, namespace, "second")
    for place, pod in ((namespace, "second"), (stage, "pod")):
        cluster.kubectl("delete", "pod", "-n", place, pod)
