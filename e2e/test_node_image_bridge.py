"""The bridge's Deployment on a real node, from the images that the manifests name.

Other stories run its two processes without containers. Here they share a socket in a volume, have the
account's mounted token, write nothing else, and whoever ends is started again by the kubelet.
"""

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest
import yaml

from e2e.access import Object
from e2e.cluster import Cluster
from e2e.drawbridge import ROOT, command_line
from e2e.node import product_image, scheduler_image
from e2e.node.driver import DRIVER, environment_of
from e2e.node.node import Node
from e2e.node.product_pods import ROUTED, TIMEOUT_S, ProductPods
from kube.names import NAMESPACE, SCHEDULER_NAME

pytestmark = pytest.mark.parametrize("cluster", [ROUTED], indirect=True)

EXAMPLES: Final = ROOT / "examples" / "quickstart"
PAGE: Final = ROOT / "docs" / "bridge.md"
SETTINGS: Final = {"translation": {"profiles": {"hami": DRIVER}}}
BRIDGE: Final = "app.kubernetes.io/component=bridge"


@pytest.fixture
def product(
    cluster: Cluster, real_node: Node, product_image: None, scheduler_image: None
) -> Iterator[ProductPods]:
    """Webhook, controllers, node driver and bridge as pods, all ready."""
    product = ProductPods(
        cluster,
        real_node.name,
        settings=SETTINGS,
        inventory=(EXAMPLES / "inventory.yaml").read_text(),
        kustomizations=("base", "driver", "bridge"),
    )
    with product.installed():
        product.wait_rolled_out()
        yield product
        fence = ROOT / "manifests" / "bridge" / "fence.yaml"
        cluster.kubectl("delete", "--ignore-not-found", "-f", fence)


@pytest.mark.long
@pytest.mark.usefixtures("product")
def test_a_legacy_pod_is_served_by_the_pod_of_the_bridge(
    cluster: Cluster, namespace: str, real_node: Node
) -> None:
    images = {container["image"] for container in bridge_pod(cluster)["spec"]["containers"]}
    assert images == {product_image.NAME, scheduler_image.NAME}
    run(cluster, "bridge", "own", DRIVER, "--apply")
    cluster.wait_until(
        lambda: command_line(cluster, "bridge", "status").returncode == 0,
        "the bridge allocates devices of the driver",
        timeout_s=TIMEOUT_S,
    )
    wait_until_routed(cluster, namespace, legacy_pod("first"))

    assert_gets_its_share(cluster, namespace, "first")
    assert set(reservations(cluster)) >= {"reservations"}

    # Whichever ends, in good order or not, the kubelet starts it again.
    for name, signal in (("sidecar", "SIGTERM"), ("scheduler", "SIGKILL")):
        status = container_status(cluster, name)
        container = status["containerID"].removeprefix("containerd://")
        real_node.ctr("tasks", "kill", "--signal", signal, container)
        cluster.wait_until(
            partial(is_started_again, cluster, name, status["restartCount"]),
            f"the {name} runs again",
            timeout_s=TIMEOUT_S,
        )
        assert_gets_its_share(cluster, namespace, f"after-{name}")

    # Nobody but the Deployment's controller is needed for a new pod of the bridge.
    cluster.kubectl("delete", "pod", "-n", NAMESPACE, bridge_pod(cluster)["metadata"]["name"])
    assert_gets_its_share(cluster, namespace, "after-both")

    cluster.kubectl("delete", "pods", "--all", "-n", namespace)
    cluster.wait_until(
        lambda: not cluster.objects("resourceclaims", namespace), "their claims are gone"
    )
    run(cluster, "bridge", "release", DRIVER, "--apply")


def run(cluster: Cluster, *words: str) -> None:
    completed = command_line(cluster, *words)
    assert completed.returncode == 0, completed.stderr


def legacy_pod(name: str) -> Object:
    pod: Object = yaml.load((EXAMPLES / "fraction.yaml").read_text(), Loader=yaml.CSafeLoader)
    return {**pod, "metadata": {"name": name}}


def wait_until_routed(cluster: Cluster, namespace: str, pod: Object) -> None:
    """Wait until the webhook has seen the owner of the driver."""
    create = ("create", "--dry-run=server", "-n", namespace, "-o", "json", "-f", "-")

    def is_routed() -> bool:
        answer = cluster.kubectl(*create, input=json.dumps(pod), check=False)
        return SCHEDULER_NAME in answer.stdout

    cluster.wait_until(is_routed, "the webhook routes pods to the bridge", timeout_s=TIMEOUT_S)


def assert_gets_its_share(cluster: Cluster, namespace: str, name: str) -> None:
    pod = legacy_pod(name)
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(pod))
    stored = cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S)
    assert SCHEDULER_NAME == stored["spec"]["schedulerName"]
    variables = environment_of(cluster.kubectl("logs", "-n", namespace, name).stdout)
    assert "3145728000" in {value for key, value in variables.items() if key.endswith("_MEMORY")}, (
        variables
    )


def reservations(cluster: Cluster) -> Object:
    """Return the output of the page's script of the debug endpoint in the sidecar."""
    (script,) = re.findall(
        r"^  ```text\n(  import http\.client.*?)^  ```$", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    where = ("-n", NAMESPACE, *in_sidecar(cluster))
    program = "\n".join(line[2:] for line in script.splitlines())
    answer = cluster.kubectl("exec", "-i", *where, "--", "python", "-", input=program)
    shown: Object = json.loads(answer.stdout)
    return shown


def bridge_pod(cluster: Cluster) -> Object:
    (pod,) = cluster.objects("pods", NAMESPACE, selector=BRIDGE)
    return pod


def in_sidecar(cluster: Cluster) -> tuple[str, ...]:
    return (bridge_pod(cluster)["metadata"]["name"], "-c", "sidecar")


def container_status(cluster: Cluster, name: str) -> Object:
    statuses: list[Object] = bridge_pod(cluster)["status"]["containerStatuses"]
    (status,) = (status for status in statuses if status["name"] == name)
    return status


def is_started_again(cluster: Cluster, name: str, restarts: int) -> bool:
    status = container_status(cluster, name)
    return status["restartCount"] > restarts and "running" in status["state"]
