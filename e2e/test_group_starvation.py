"""Groups beside pods by themselves: one that has waited for long keeps devices, one without quota does not.

Two nodes have two GPUs each, all of which the group needs, and a third one has a GPU.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from e2e import groups, inventory
from e2e.access import Access, Object, stream
from e2e.bridge import Bridge, bridged, doubly_held
from e2e.custom_kinds import wait_established
from e2e.groups import LABEL, member, pod_group
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod
from kube.api.own_kinds import DEVICE_QUOTA
from tools.custom_resources import definition

pytestmark = pytest.mark.parametrize("cluster", [groups.CLUSTER], indirect=True)

TIMEOUT_S: Final = 60.0
KEEP_AFTER_S: Final = 2
KEPT: Final = "free devices are kept for a group of pods that has waited for long"


@pytest.fixture(scope="module")
def nodes(cluster: Access) -> Iterator[list[str]]:
    cluster.apply([*inventory.device_classes(), definition(DEVICE_QUOTA)])
    crd = "devicequotas.drawbridge.internal"
    wait_established(cluster, crd)
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
    cluster.delete("crd", crd)


@pytest.fixture(autouse=True)
def idle(cluster: Access, nodes: list[str]) -> None:
    """The pods of the story before are gone, and their claims."""
    cluster.wait_until(
        lambda: not cluster.objects("resourceclaims") and not cluster.objects("pods"),
        "the pods of other stories are gone",
        timeout_s=TIMEOUT_S,
    )


def message(object_: Object) -> str:
    """Return the reason a pod or group is not scheduled; empty if it is, or if nothing is known."""
    conditions = object_.get("status", {}).get("conditions", ())
    return "".join(entry.get("message", "") for entry in conditions if entry["status"] == "False")


def says(words: str) -> Callable[[Object], bool]:
    """Return a predicate of a pod or group: it is not scheduled, for a reason in these words."""
    return lambda object_: words in message(object_)


def apply(cluster: Access, namespace: str, *objects: Object) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(list(objects)))


def delete(cluster: Access, namespace: str, *pods: Object) -> None:
    names = [entry["metadata"]["name"] for entry in pods]
    cluster.kubectl("delete", "pods", "-n", namespace, *names, "--wait=false")


def single(name: str, nodes: Sequence[str] = ()) -> Object:
    """Return a pod by itself with a device, on some nodes or any."""
    return bridged(pod(name, claims={"gpu": "one"}), nodes)


def worker(index: int) -> Object:
    """Return a pod of the group with two devices."""
    return member(bridged(pod(f"worker-{index}", claims={"gpu": "two"})), "ring")


def start(cluster: Access, namespace: str, *pods: Object) -> None:
    """Apply pods by themselves, and wait until they run."""
    templates = [claim_template(name, EXAMPLE, count=n) for name, n in (("one", 1), ("two", 2))]
    apply(cluster, namespace, *templates, *pods)
    for entry in pods:
        cluster.wait_running(entry["metadata"]["name"], namespace, timeout_s=TIMEOUT_S)


def wait_for_long(cluster: Access, namespace: str, words: str = "") -> None:
    """Apply a group without room, have it tried again after long, and wait until it says the reason in words."""
    apply(cluster, namespace, pod_group("ring", 2), worker(0), worker(1))
    cluster.wait_for("podgroups", "ring", namespace, until=message, timeout_s=TIMEOUT_S)
    time.sleep(KEEP_AFTER_S + 1)
    apply(cluster, namespace, worker(2))  # A further pod has the group tried again.
    cluster.wait_for("pods", "worker-2", namespace, until=message, timeout_s=TIMEOUT_S)
    cluster.wait_for("podgroups", "ring", namespace, until=says(words))


def wait_running(cluster: Access, namespace: str) -> None:
    """Wait until as many pods of the group run as it needs."""

    def are_running() -> bool:
        pods = cluster.objects("pods", namespace, selector=f"{LABEL}=ring")
        phases = [entry.get("status", {}).get("phase") for entry in pods]
        return phases.count("Running") == 2

    cluster.wait_until(are_running, "the group runs", timeout_s=TIMEOUT_S)


def test_a_pod_passes_a_group_that_waits_for_long_only_beside_it(
    cluster: Access, nodes: list[str], namespace: str
) -> None:
    small = [single(f"small-{number}", nodes[number : number + 1]) for number in range(2)]
    start(cluster, namespace, *small)
    wait_for_long(cluster, namespace)

    start(cluster, namespace, single("beside"))
    apply(cluster, namespace, single("late"))
    cluster.wait_for("pods", "late", namespace, until=says(KEPT), timeout_s=TIMEOUT_S)

    delete(cluster, namespace, *small)
    wait_running(cluster, namespace)
    assert [] == doubly_held(cluster)
    late = cluster.wait_for("pods", "late", namespace, until=message, timeout_s=TIMEOUT_S)
    assert not late["spec"].get("nodeName")

    cluster.kubectl("delete", "pods", "-n", namespace, "-l", f"{LABEL}=ring", "--wait=false")
    cluster.wait_running("late", namespace, timeout_s=TIMEOUT_S)


def test_a_group_waits_for_its_quota_as_one_and_keeps_no_devices_for_it(
    cluster: Access, nodes: list[str], namespace: str
) -> None:
    """A namespace with a quota of four of the five devices: as many as its group needs."""
    limit = {"name": "gpus", "driver": EXAMPLE, "devices": {}, "max": "4"}
    labels = {"kubernetes.io/metadata.name": namespace}
    quota = {
        "apiVersion": DEVICE_QUOTA.api_version,
        "kind": DEVICE_QUOTA.kind,
        "metadata": {"name": namespace},
        "spec": {"namespaceSelector": {"matchLabels": labels}, "limits": [limit]},
    }
    cluster.apply(quota)
    first, second = single("first", nodes[2:]), single("second", nodes[:1])
    start(cluster, namespace, first)

    bounded = f"DeviceQuota {namespace}, limit gpus"
    wait_for_long(cluster, namespace, bounded)
    # All devices but one are free, and nothing is kept.
    start(cluster, namespace, second)

    delete(cluster, namespace, first, second)
    wait_running(cluster, namespace)
    assert [] == doubly_held(cluster)
    apply(cluster, namespace, single("third"))
    third = cluster.wait_for("pods", "third", namespace, until=says(bounded), timeout_s=TIMEOUT_S)
    assert "nodeName" not in third["spec"]
    cluster.delete("devicequotas", namespace)
    cluster.wait_running("third", namespace, timeout_s=TIMEOUT_S)
