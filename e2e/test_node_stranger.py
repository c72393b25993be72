"""A stranger: no process without root reaches the driver, no token of another node writes for it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import inventory
from e2e.access import Access, Object, stream
from e2e.node.claims import claim, pod_with
from e2e.node.driver import CDI, DRIVER, STATE, NodeDriver, python
from e2e.node.node import Node
from e2e.node.pods import apply, delete_pods
from testing.documents import api_object

NOBODY = 65534
CONNECT = f"""
import os, socket, sys
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
    except PermissionError:
        continue
    sys.exit(path + " can be reached")
"""
READ = f"""
import os, sys
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
for path in sys.argv[1:]:
    try:
        open(path).read()
    except PermissionError:
        continue
    sys.exit(path + " can be read")
"""


def test_without_root_nobody_reaches_the_driver(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    apply(cluster, namespace, claim("c"), pod_with(real_node.name, "pod", ["c"]))
    cluster.wait_running("pod", namespace)
    root = str(real_node.path("/"))
    sockets = [f"/{path.removeprefix(root).lstrip('/')}" for path in driver.sockets()]
    assert len(sockets) == 2
    files = [f"{STATE}/checkpoint", f"{STATE}/lock", *(f"{CDI}/{name}" for name in driver.specs())]

    real_node.execute(*python("-c", CONNECT, *sockets))
    real_node.execute(*python("-c", READ, *files))

    delete_pods(cluster, namespace, driver, "pod")


@pytest.fixture
def other_node(cluster: Access, driver: NodeDriver) -> Iterator[Path]:
    """A kubeconfig with a token of the driver's account that is bound to another node."""
    names = cluster.add_nodes(inventory.kwok_nodes(1, prefix="elsewhere"))
    yield driver.kubeconfig_of(names[0])
    cluster.remove_nodes(names)


def test_a_token_of_another_node_writes_nothing_here(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver, other_node: Path
) -> None:
    apply(cluster, namespace, claim("c"), pod_with(real_node.name, "pod", ["c"]))
    cluster.wait_running("pod", namespace)
    published = driver.slices()[0]
    name = published["metadata"]["name"]
    for field in ("managedFields", "resourceVersion", "uid"):
        del published["metadata"][field]
    refused = f"may not write slices of {real_node.name}"

    attempts = {
        "change": ("apply", "--server-side", "--force-conflicts", "-f", "-"),
        "make": ("create", "-f", "-"),
        "delete": ("delete", "resourceslice", name),
    }
    for attempt, words in attempts.items():
        document = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **published}
        if attempt == "make":
            document["metadata"] = {"name": f"{attempt}-{name}"}
        output = cluster.kubectl(*words, input=stream(document), kubeconfig=other_node, check=False)
        assert refused in output.stderr, f"{attempt}: {output.stdout}{output.stderr}"

    status = (
        f'{{"status":{{"devices":[{{"driver":"{DRIVER}","pool":"{real_node.name}",'
        '"device":"gpu-0","data":{"forged":true}}]}}'
    )
    patch = ("patch", "resourceclaim", "-n", namespace, "c", "--subresource=status")
    output = cluster.kubectl(
        *patch, "--type=merge", "-p", status, kubeconfig=other_node, check=False
    )
    assert "orbidden" in output.stderr, f"{output.stdout}{output.stderr}"
    assert "forged" not in str(cluster.get("resourceclaims", "c", namespace))

    delete_pods(cluster, namespace, driver, "pod")


def forged_slices(node: str) -> dict[str, Object]:
    """Refusal to a slice of this node that would take hold of more than this node."""
    spec: Object = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "forged"}],
    }
    own, others = f"{node}-0123456789-0000", "elsewhere-0123456789-0000"
    everywhere = {field: value for field, value in spec.items() if field != "nodeName"}
    forged = {
        "may not write slices of pool elsewhere/nics": (
            own,
            {**spec, "pool": {**spec["pool"], "name": "elsewhere/nics"}},
        ),
        f"may not write slices of pool {node}-2": (
            own,
            {**spec, "pool": {**spec["pool"], "name": f"{node}-2"}},
        ),
        f"may not create a slice called {others}": (others, spec),
        f"may not create a slice called {node}-2-0123456789-0000": (
            f"{node}-2-0123456789-0000",
            spec,
        ),
        "may not write slices of several nodes": (own, {**everywhere, "allNodes": True}),
        "may not write slices of driver gpu.example.com": (
            own,
            {**spec, "driver": "gpu.example.com"},
        ),
    }
    return {
        refusal: api_object("ResourceSlice", name, spec=forged_spec)
        for refusal, (name, forged_spec) in forged.items()
    }


def test_a_token_of_this_node_writes_nothing_of_others(
    cluster: Access, namespace: str, real_node: Node, driver: NodeDriver
) -> None:
    """Root on the node has the driver's token. It must not be worth more than the node."""
    for refusal, document in forged_slices(real_node.name).items():
        output = cluster.kubectl(
            "create", "-f", "-",
            input=stream(document), kubeconfig=driver.kubeconfig(), check=False,
        )  # fmt: skip
        assert refusal in output.stderr, f"{refusal}: {output.stdout}{output.stderr}"
    assert "forged" not in driver.published()

    apply(cluster, namespace, claim("c"), pod_with(real_node.name, "pod", ["c"]), claim("free"))
    cluster.wait_running("pod", namespace)
    device = {"pool": real_node.name, "device": "gpu-0"}
    statuses: dict[str, Object] = {
        "free": {"allocation": {"devices": {"results": [{**device, "driver": DRIVER, "request": "gpu"}]}}},
        "c": {"devices": [{**device, "driver": "gpu.example.com", "data": {"forged": True}}]},
    }  # fmt: skip
    for name, status in statuses.items():
        output = cluster.kubectl(
            "patch", "resourceclaim", "-n", namespace, name, "--subresource=status",
            "--type=merge", "-p", json.dumps({"status": status}),
            kubeconfig=driver.kubeconfig(), check=False,
        )  # fmt: skip
        assert output.returncode != 0, f"{name}: {output.stdout}"
        stored = cluster.get("resourceclaims", name, namespace)["status"]
        assert status != {field: stored.get(field) for field in status}

    delete_pods(cluster, namespace, driver, "pod")
