"""The product's own image runs all its processes as pods on a real node, and serves a legacy pod there.

The API server reaches the webhook through its Service, and resolves that to the pod itself, since
nothing routes Services on this node.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from e2e.access import Object
from e2e.cluster import Cluster
from e2e.node.driver import DRIVER, environment_of
from e2e.node.node import Node
from e2e.node.pods import is_translated
from e2e.node.product_image import NAME
from e2e.node.product_pods import ROUTED, TIMEOUT_S, ProductPods

pytestmark = pytest.mark.parametrize("cluster", [ROUTED], indirect=True)

ROOT: Final = Path(__file__).parent.parent
EXAMPLES: Final = ROOT / "examples" / "quickstart"
SETTINGS: Final = {"translation": {"profiles": {"hami": DRIVER}}}


@pytest.fixture
def product(cluster: Cluster, real_node: Node, product_image: None) -> Iterator[ProductPods]:
    """All of Drawbridge as pods, installed; the story has to check that they are ready."""
    inventory = (EXAMPLES / "inventory.yaml").read_text()
    product = ProductPods(cluster, real_node.name, settings=SETTINGS, inventory=inventory)
    with product.installed():
        yield product


def test_a_legacy_pod_is_served_by_pods_of_the_product(
    cluster: Cluster, namespace: str, real_node: Node, product: ProductPods
) -> None:
    product.wait_rolled_out()
    pods = product.pods()
    assert {container["image"] for pod in pods for container in pod["spec"]["containers"]} == {NAME}
    assert len(product.workloads) == len(pods)

    legacy = yaml.load((EXAMPLES / "fraction.yaml").read_text(), Loader=yaml.CSafeLoader)
    cluster.wait_until(
        lambda: is_translated(cluster, namespace, legacy),
        "the webhook translates",
        timeout_s=TIMEOUT_S,
    )
    cluster.kubectl("apply", "-n", namespace, "-f", EXAMPLES / "fraction.yaml")
    cluster.wait_running("fraction", namespace, timeout_s=TIMEOUT_S)

    variables = environment_of(cluster.kubectl("logs", "-n", namespace, "fraction").stdout)
    assert str(3000 * 2**20) == variables["DRAWBRIDGE_DEVICE_GPU_0_MEMORY"]
    assert "30" == variables["DRAWBRIDGE_DEVICE_GPU_0_CORES"]
    state = ("python", "-m", "driver", "state")
    assert f"{namespace}/fraction-gpu-" in in_driver(cluster, pods, *state)

    # The observer explains a pod that has to wait.
    waiting = {**legacy, "metadata": {"name": "waiting"}}
    limits = waiting["spec"]["containers"][0]["resources"]["limits"]
    limits |= {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 81920, "nvidia.com/gpucores": 100}
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(waiting))
    cluster.wait_until(
        lambda: _is_explained(cluster, namespace), "the pod is explained", timeout_s=TIMEOUT_S
    )

    cluster.kubectl("delete", "pod", "-n", namespace, "fraction", "waiting")
    cluster.wait_until(
        lambda: "fraction-gpu-" not in in_driver(cluster, pods, *state),
        "the driver has released the device",
        timeout_s=TIMEOUT_S,
    )


def in_driver(cluster: Cluster, pods: list[Object], *command: str) -> str:
    """Return the output of a command in the driver's pod."""
    (pod,) = (pod for pod in pods if pod["metadata"]["namespace"] == "drawbridge-driver")
    where = ("-n", "drawbridge-driver", pod["metadata"]["name"])
    return cluster.kubectl("exec", *where, "--", *command).stdout


def _is_explained(cluster: Cluster, namespace: str) -> bool:
    return any(
        event["reason"] == "DevicesMissing" and event["involvedObject"]["name"] == "waiting"
        for event in cluster.objects("events", namespace)
    )
