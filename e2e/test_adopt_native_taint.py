"""A native request with a tainted device stays, as docs/neighbours.md says of Kubernetes.

A pod with a claim is evicted; a pod whose claim kube-scheduler made for an extended resource is not,
though it holds a device with the same taint. No part of Drawbridge has a say in either.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from e2e import inventory
from e2e.access import Access, Object
from e2e.inventory import device_class, resource_slices
from e2e.objects import claim_template, pod
from translation.cluster.component_statements import STATEMENTS, Component, Evidence, Topic

DRIVER: Final = "taint.example.com"
MAPPED: Final = f"{DRIVER}/gpu"
ILL: Final = {"key": "example.com/ill", "effect": "NoExecute"}
EVICTED_WITHIN_S: Final = 30.0
LONGER_S: Final = 5.0
"""The further time to watch the pod with an extended resource after the other pod."""


def slices(node: str, *, taints: Sequence[Object] = ()) -> list[Object]:
    """Two devices on a node, both with the taints."""
    devices: list[Object] = [
        {"name": f"gpu-{number}", **({"taints": list(taints)} if taints else {})}
        for number in range(2)
    ]
    return resource_slices(DRIVER, node, devices)


@pytest.fixture
def node(cluster: Access) -> Iterator[str]:
    """A node with two devices of a class that maps an extended resource."""
    device_class_ = device_class(DRIVER, f"device.driver == '{DRIVER}'", extended_resource=MAPPED)
    cluster.apply(device_class_)
    (name,) = cluster.add_nodes(inventory.kwok_nodes(1, prefix="ill"), slices)
    yield name
    cluster.remove_nodes([name])
    cluster.delete("deviceclasses", DRIVER)


def test_a_native_request_outlives_the_taint_that_evicts_a_claim(
    cluster: Access, namespace: str, node: str
) -> None:
    asking = [
        claim_template("one", DRIVER),
        pod("claiming", claims={"gpu": "one"}),
        pod("native", limits={MAPPED: 1}),
    ]
    for item in asking:
        item["metadata"]["namespace"] = namespace
    cluster.apply(asking)
    for name in ("claiming", "native"):
        cluster.wait_running(name, namespace)
    native = cluster.get("pods", "native", namespace)
    assert native["status"]["extendedResourceClaimStatus"]["resourceClaimName"]

    cluster.apply(slices(node, taints=[ILL]))

    cluster.wait_gone("pods", "claiming", namespace, timeout_s=EVICTED_WITHIN_S)
    time.sleep(LONGER_S)
    assert "deletionTimestamp" not in cluster.get("pods", "native", namespace)["metadata"]


def test_the_statement_says_that_it_was_tried() -> None:
    (statement,) = (
        statement
        for statement in STATEMENTS
        if (statement.component, statement.topic) == (Component.KUBERNETES, Topic.NATIVE)
    )
    assert statement.evidence is Evidence.STORY
