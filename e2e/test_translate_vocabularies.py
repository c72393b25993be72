"""Devices of further vendors, as their users request them, and the cost of knowing so many names."""

from collections.abc import Iterator
from typing import Final

import pytest

from e2e.accelerators import GAUDI, INTEL, NEURON, TPU
from e2e.access import Access, Object, stream
from e2e.fleet import EXAMPLES, accelerator_nodes
from e2e.objects import pod
from e2e.translated import devices
from kube.names import REQUEST_ANNOTATION

pytestmark = pytest.mark.usefixtures("drawbridge", "accelerators")

CONTAINERS: Final = 60
"""With amounts of ten resources each: more than any pod has."""


@pytest.fixture(scope="module")
def accelerators(cluster: Access) -> Iterator[list[str]]:
    """The nodes of examples/accelerators/cluster.yaml."""
    classes, nodes, slices = accelerator_nodes()
    cluster.apply(classes)
    made = cluster.add_nodes(nodes, lambda node: slices.get(node, ()))
    yield made
    cluster.remove_nodes(made)
    for device_class in classes:
        cluster.kubectl("delete", "deviceclass", device_class["metadata"]["name"])


def started(cluster: Access, namespace: str, name: str) -> dict[str, list[str]]:
    """Container of a pod that was applied to the drivers of its devices, once it runs."""
    running = cluster.wait_running(name, namespace)
    assert REQUEST_ANNOTATION in running["metadata"]["annotations"]
    allocated = devices(running, cluster.objects("resourceclaims", namespace))
    return {
        container: [device.driver for device in given] for container, given in allocated.items()
    }


def test_whole_devices_of_other_vendors_are_allocated(cluster: Access, namespace: str) -> None:
    examples = [EXAMPLES / "accelerators" / f"{name}.yaml" for name in ("intel", "neuron", "tpu")]
    files = [argument for path in examples for argument in ("-f", str(path))]

    cluster.kubectl("apply", "-n", namespace, *files)

    assert {INTEL, GAUDI} == set(started(cluster, namespace, "intel")["render"])
    assert [TPU] * 4 == started(cluster, namespace, "tpu")["train"]
    assert [NEURON] * 8 == started(cluster, namespace, "neuron")["train"]


def test_the_api_server_bears_the_conditions_for_a_large_pod(
    cluster: Access, namespace: str
) -> None:
    amounts = {f"example.com/resource-{number}": 1 for number in range(8)}
    large = pod("large", limits={**amounts, "cpu": "1m", "memory": "1Mi"})
    (container,) = large["spec"]["containers"]
    containers: list[Object] = [
        {**container, "name": f"part-{number}"} for number in range(CONTAINERS)
    ]
    large["spec"]["containers"] = containers

    done = cluster.kubectl(
        "create", "-n", namespace, "--dry-run=server", "-f", "-", input=stream(large), check=False
    )

    assert done.returncode == 0, done.stderr
