"""The one node with free devices of many, and a hundred best nodes that another filter rejects."""

import os
from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from e2e import inventory
from e2e.access import Access, Object, stream
from e2e.bridge import IMPARTIAL, Bridge, bridged, doubly_held
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod
from kube.names import STRATEGY_ANNOTATION
from testing.documents import api_object

NODES: Final = int(os.environ.get("DRAWBRIDGE_E2E_NODES", "150"))
"""More than the hundred that are in an answer; 1,000 take two minutes more."""
BEST: Final = 100
TIMEOUT_S: Final = 180.0


@pytest.fixture(scope="module")
def many(cluster: Access) -> Iterator[list[str]]:
    """Nodes with two devices each."""
    cluster.apply(list(inventory.device_classes()))
    names = cluster.add_nodes(
        inventory.kwok_nodes(NODES, prefix="many"),
        lambda node: inventory.example_gpus(node, gpus=2),
    )
    yield sorted(names)
    cluster.remove_nodes(names)


@pytest.mark.long
def test_the_one_node_with_free_devices_is_found(
    cluster: Access, impartial_bridge: Bridge, namespace: str, many: Sequence[str]
) -> None:
    """kube-scheduler looks at a sample of the nodes only, but at all that an answer names."""
    free = many[NODES // 2]
    _allocate(cluster, namespace, [name for name in many if name != free], count=2)
    before = impartial_bridge.calls("filter", name=IMPARTIAL)

    _apply(cluster, namespace, many, "last")

    running = cluster.wait_running("last", namespace, timeout_s=TIMEOUT_S)
    assert running["spec"]["nodeName"] == free
    assert impartial_bridge.calls("filter", name=IMPARTIAL) == before
    assert [] == doubly_held(cluster)


@pytest.mark.long
def test_a_pod_goes_to_another_node_if_the_hundred_best_are_rejected(
    cluster: Access, impartial_bridge: Bridge, namespace: str, many: Sequence[str]
) -> None:
    """Devices are packed onto nodes in use, and there the pod's port is taken."""
    best, other = many[:BEST], many[BEST:]
    _wait_free(cluster, many)
    _allocate(cluster, namespace, best, count=1)
    fillers = [
        _with_port(pod(f"filler-{number}", nodeName=name)) for number, name in enumerate(best)
    ]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(fillers))
    cluster.wait_running(f"filler-{BEST - 1}", namespace, timeout_s=TIMEOUT_S)
    before = impartial_bridge.calls("prefilter", "fits", name=IMPARTIAL)

    packed = {STRATEGY_ANNOTATION: "CompactFirst"}
    asking = pod("packed", claims={"gpu": "one"}, annotations=packed)
    objects = [claim_template("one", EXAMPLE), bridged(_with_port(asking), many)]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))

    running = cluster.wait_running("packed", namespace, timeout_s=TIMEOUT_S)
    assert running["spec"]["nodeName"] in other
    # The best hundred, and then all others.
    assert impartial_bridge.calls("prefilter", "fits", name=IMPARTIAL) - before >= 2
    assert [] == doubly_held(cluster)


def _with_port(pod_: Object) -> Object:
    """Return a pod that takes the only such port of its node."""
    port = {"containerPort": 80, "hostPort": 8080}
    containers = [{**entry, "ports": [port]} for entry in pod_["spec"]["containers"]]
    return {**pod_, "spec": {**pod_["spec"], "containers": containers}}


def _apply(
    cluster: Access, namespace: str, nodes: Sequence[str], name: str, **fields: Object
) -> None:
    pod_ = bridged(pod(name, claims={"gpu": "one"}, **fields), nodes)
    objects = [claim_template("one", EXAMPLE), pod_]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))


def _wait_free(cluster: Access, nodes: Sequence[str]) -> None:
    """Wait until the claims of the story before have ended with their namespace."""
    held = {f"held-{name}" for name in nodes}

    def are_free() -> bool:
        claims = cluster.objects("resourceclaims")
        return held.isdisjoint(claim["metadata"]["name"] for claim in claims)

    cluster.wait_until(are_free, "all devices are free", timeout_s=TIMEOUT_S)


def _allocate(cluster: Access, namespace: str, nodes: Sequence[str], *, count: int) -> None:
    """Have devices of nodes be in use, as if other pods had them."""
    spec = claim_template("held", EXAMPLE)["spec"]["spec"]
    claims: list[Object] = [
        api_object("ResourceClaim", f"held-{name}", spec=spec) for name in nodes
    ]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(claims))
    for name in nodes:
        results = [
            {"request": "gpu", "driver": EXAMPLE, "pool": name, "device": f"gpu-{number}"}
            for number in range(count)
        ]
        status = {"status": {"allocation": {"devices": {"results": results}}}}
        path = cluster.kind("resourceclaims").path(namespace, f"held-{name}")
        code, body = cluster.request(
            "PATCH", f"{path}/status", status, content_type="application/merge-patch+json"
        )
        assert code == 200, body
