"""The resources left on nodes: pods land at the first attempt, on nodes that the devices alone would put last.

Nodes are in order of names where devices are alike, and `small` ones come before `large` ones.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pytest

from e2e import inventory
from e2e.access import Access, Object, stream
from e2e.bridge import Bridge, bridged, doubly_held
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod
from kube.names import STRATEGY_ANNOTATION
from testing.long_runs import beginning_with

SMALL, LARGE = 120, 4
"""More small nodes than there are in an answer."""
GPUS: Final = 2
TIMEOUT_S: Final = 60.0
REJECTED: Final = "FailedScheduling"
UNAVAILABLE: Final = "the device allocator is not available"


def sized(name: str, cpus: int) -> Object:
    """A simulated node with so many CPUs."""
    node = inventory.kwok_node(name)
    room = {**node["status"]["allocatable"], "cpu": str(cpus)}
    return {**node, "status": {"capacity": room, "allocatable": room}}


@pytest.fixture(scope="module")
def nodes(cluster: Access) -> Iterator[list[str]]:
    """Nodes of two devices: many with one CPU, and few with 32."""
    cluster.apply(list(inventory.device_classes()))
    small = [sized(f"room-a-small-{number:03}", 1) for number in range(SMALL)]
    large = [sized(f"room-b-large-{number}", 32) for number in range(LARGE)]
    names = cluster.add_nodes(
        [*small, *large], lambda node: inventory.example_gpus(node, gpus=GPUS)
    )
    yield sorted(names)
    cluster.remove_nodes(names)


def run(
    cluster: Access,
    namespace: str,
    nodes: Sequence[str],
    requests: Mapping[str, int],
    strategy: str,
) -> dict[str, str]:
    """Return the node of each pod; each requests a device and so many CPUs."""
    objects = [claim_template("one", EXAMPLE)]
    for name, cpus in requests.items():
        asking = pod(
            name,
            claims={"gpu": "one"},
            requests={"cpu": cpus},
            annotations={STRATEGY_ANNOTATION: strategy},
        )
        objects.append(bridged(asking, nodes))
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(objects))
    running = [cluster.wait_running(name, namespace, timeout_s=TIMEOUT_S) for name in requests]
    return {entry["metadata"]["name"]: entry["spec"]["nodeName"] for entry in running}


def wait_idle(cluster: Access) -> None:
    """Wait until the pods of other stories have ended with their namespaces, and their claims."""
    cluster.wait_until(
        lambda: not cluster.objects("resourceclaims") and not cluster.objects("pods"),
        "other stories' pods are gone",
        timeout_s=3 * TIMEOUT_S,
    )


def rejections(cluster: Access, namespace: str) -> list[str]:
    return [
        event.get("note") or event.get("message", "")
        for event in cluster.objects("events", namespace)
        if event["reason"] == REJECTED
    ]


@pytest.mark.parametrize("strategy", beginning_with(1, ["CompactFirst", "FirstFit"]))
def test_pods_land_at_the_first_attempt_where_most_nodes_lack_cpu(
    cluster: Access, bridge: Bridge, namespace: str, nodes: Sequence[str], strategy: str
) -> None:
    """A pod of the default scheduler takes a large node's CPU, and counts as well."""
    wait_idle(cluster)
    large = nodes[-LARGE:]
    filler = pod("filler", requests={"cpu": 30}, nodeName=large[0])
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream([filler]))
    cluster.wait_running("filler", namespace, timeout_s=TIMEOUT_S)
    before = bridge.calls("prefilter", "fits")

    requests = {f"pod-{number}": 4 for number in range((LARGE - 1) * GPUS)}
    began = time.monotonic()
    chosen = run(cluster, namespace, nodes, requests, strategy)

    print(f"{len(requests)} pods ran after {time.monotonic() - began:.1f} s")
    assert sorted(chosen.values()) == sorted([*large[1:]] * GPUS)
    assert bridge.calls("prefilter", "fits") - before == len(requests), "one attempt each"
    assert rejections(cluster, namespace) == []
    assert doubly_held(cluster) == []


def test_fragmentation_aware_leaves_the_cpu_that_usual_pods_need(
    cluster: Access, bridge: Bridge, namespace: str, nodes: Sequence[str]
) -> None:
    """With 10 of 32 CPUs left a node has a device for one usual pod of 8 CPUs, and one more is idle anyway.

    A process that begins to lead learns the usual pods from those that there are.
    """
    chosen_nodes = nodes[-3:]
    wait_idle(cluster)
    filler = pod("filler", requests={"cpu": 22}, nodeName=chosen_nodes[-1])
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream([filler]))
    cluster.wait_running("filler", namespace, timeout_s=TIMEOUT_S)
    usual = {"usual-0": 8, "usual-1": 8}
    first = run(cluster, namespace, chosen_nodes, usual, "FirstFit")
    assert chosen_nodes[-1] not in first.values(), "the scheduler prefers those with CPU"
    bridge.stop()
    bridge.ensure()

    chosen = run(cluster, namespace, chosen_nodes, {"small": 2}, "FragmentationAware")

    assert chosen == {"small": chosen_nodes[-1]}
    # The plugin may reach no sidecar yet when the pod comes first; that attempt is made again.
    assert [note for note in rejections(cluster, namespace) if UNAVAILABLE not in note] == []
