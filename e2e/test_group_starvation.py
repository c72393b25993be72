"""A group that has waited for long keeps devices: pods that come and go pass only if they fit beside it.

Two nodes have two GPUs each, all of which the group needs, and a third one has a GPU.
"""

import time
from collections.abc import Iterator
from typing import Final

import pytest

from e2e import groups, inventory
from e2e.access import Access, Object, stream
from e2e.bridge import Bridge, bridged, doubly_held
from e2e.groups import LABEL, member, pod_group
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod

pytestmark = pytest.mark.parametrize("cluster", [groups.CLUSTER], indirect=True)

TIMEOUT_S: Final = 60.0
KEEP_AFTER_S: Final = 2


@pytest.fixture(scope="module")
def nodes(cluster: Access) -> Iterator[list[str]]:
    cluster.apply(inventory.device_classes())
    names = cluster.add_nodes(
        inventory.kwok_nodes(3, prefix="starve"),
        lambda node: inventory.example_gpus(node, gpus=1 if node.endswith("2") else 2),
    )
    bridge = Bridge(
        cluster,
        drivers=(EXAMPLE,),
        settings={"keepForGroupAfter": f"{KEEP_AFTER_S}s"},
        scheduler_flags=groups.SCHEDULER_FLAGS,
    )
    bridge.install()
    bridge.ensure()
    yield names
    bridge.uninstall()
    cluster.remove_nodes(names)


def message(object_: Object) -> str:
    """Return the reason a pod or group is not scheduled; empty if it is, or if nothing is known."""
    conditions = object_.get("status", {}).get("conditions", ())
    return "".join(entry.get("message", "") for entry in conditions if entry["status"] == "False")


def test_a_pod_passes_a_group_that_waits_for_long_only_beside_it(
    cluster: Access, nodes: list[str], namespace: str
) -> None:
    def apply(*objects: Object) -> None:
        cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(list(objects)))

    def delete(name: str) -> None:
        cluster.kubectl("delete", "pod", "-n", namespace, name, "--wait=false")

    def worker(index: int) -> Object:
        return member(bridged(pod(f"worker-{index}", claims={"gpu": "two"})), "ring")

    templates = [claim_template(name, EXAMPLE, count=n) for name, n in (("one", 1), ("two", 2))]
    small = [bridged(pod(f"small-{n}", claims={"gpu": "one"}), [nodes[n]]) for n in range(2)]
    apply(*templates, *small)
    for entry in small:
        cluster.wait_running(entry["metadata"]["name"], namespace, timeout_s=TIMEOUT_S)
    apply(pod_group("ring", 2), worker(0), worker(1))
    cluster.wait_for("podgroups", "ring", namespace, until=message, timeout_s=TIMEOUT_S)

    time.sleep(KEEP_AFTER_S + 1)
    apply(worker(2))  # A further pod has the group tried again.
    cluster.wait_for(
        "pods", "worker-2", namespace, until=lambda entry: bool(message(entry)), timeout_s=TIMEOUT_S
    )

    apply(bridged(pod("beside", claims={"gpu": "one"})))
    cluster.wait_running("beside", namespace, timeout_s=TIMEOUT_S)
    apply(bridged(pod("late", claims={"gpu": "one"})))
    late = cluster.wait_for("pods", "late", namespace, until=message, timeout_s=TIMEOUT_S)
    assert "free devices are kept for a group of pods that has waited for long" in message(late)

    for entry in small:
        delete(entry["metadata"]["name"])

    def running() -> list[str]:
        pods = cluster.objects("pods", namespace, selector=f"{LABEL}=ring")
        return [
            entry["metadata"]["name"]
            for entry in pods
            if entry.get("status", {}).get("phase") == "Running"
        ]

    cluster.wait_until(lambda: len(running()) == 2, "the group runs", timeout_s=TIMEOUT_S)
    assert [] == doubly_held(cluster)
    late = cluster.wait_for("pods", "late", namespace, until=message, timeout_s=TIMEOUT_S)
    assert not late["spec"].get("nodeName")

    cluster.kubectl("delete", "pods", "-n", namespace, "-l", f"{LABEL}=ring", "--wait=false")
    cluster.wait_running("late", namespace, timeout_s=TIMEOUT_S)
