"""Claims with selectors that take the bridge seconds of CPU: pods of others do not wait for them.

`DRAWBRIDGE_E2E_NODES` is the number of nodes, with eight devices each.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from e2e import inventory
from e2e.access import Object, stream
from e2e.bridge import bridged
from e2e.hostile_claims import long_selector, slow_selector, template
from e2e.inventory import EXAMPLE
from e2e.objects import pod
from e2e.owned import AUDITED, TIMEOUT_S, Owned, taker

NODES: Final = int(os.environ.get("DRAWBRIDGE_E2E_NODES", "16"))
UUID: Final = f'device.attributes["{EXAMPLE}"].uuid'
COSTLY: Final = "costly-selectors"
HONEST: Final = 8
REQUESTS: Final = 32

pytestmark = pytest.mark.parametrize("cluster", [AUDITED], indirect=True)


@pytest.fixture(scope="module")
def stage(owned_bridge: Owned) -> Iterator[Owned]:
    """Nodes with devices, and a namespace beside the honest one."""
    cluster = owned_bridge.cluster
    nodes = cluster.add_nodes(inventory.kwok_nodes(NODES, prefix="costly"), inventory.example_gpus)
    cluster.kubectl("create", "namespace", COSTLY)
    cluster.wait_for("serviceaccounts", "default", COSTLY)
    owned_bridge.command("bridge", "own", EXAMPLE, "--apply")
    owned_bridge.bridge.ensure()
    yield owned_bridge
    cluster.kubectl("delete", "pods", "--all", "-n", COSTLY)
    cluster.kubectl("delete", "namespace", COSTLY, "--wait=false")
    owned_bridge.clear()
    cluster.remove_nodes(nodes)


def apply(stage: Owned, *documents: Object) -> None:
    stage.cluster.kubectl("apply", "-n", COSTLY, "-f", "-", input=stream(list(documents)))


def costly_pod(name: str, requests: Sequence[Sequence[str]]) -> list[Object]:
    """Return a pod of the bridge with a claim of its own, and the template of the claim."""
    return [template(name, EXAMPLE, requests), bridged(pod(name, claims={"gpu": name}))]


def conditions(stage: Owned, name: str, namespace: str) -> dict[str, Any]:
    """Return the conditions of a pod, by type."""
    document = stage.cluster.get("pods", name, namespace)
    return {entry["type"]: entry for entry in document["status"].get("conditions", ())}


def test_two_costly_pods_hold_up_nobody(stage: Owned) -> None:
    """Each needs some milliseconds of CPU on each device, for each of 32 requests."""
    names = ("first", "second")
    for place, name in enumerate(names):
        numbers = range(place * REQUESTS, (place + 1) * REQUESTS)
        apply(stage, *costly_pod(name, [[slow_selector(UUID, number)] for number in numbers]))

    def is_considered(name: str) -> bool:
        return "PodScheduled" in conditions(stage, name, COSTLY)

    stage.cluster.wait_until(
        lambda: all(map(is_considered, names)), "the bridge has looked at both", timeout_s=TIMEOUT_S
    )
    honest = [f"beside-{number}" for number in range(HONEST)]
    for name in honest:
        stage.apply(bridged(taker(name)))
        stage.running(name)
    waiting = [conditions(stage, name, COSTLY)["PodScheduled"] for name in names]

    assert ["False"] * len(names) == [condition["status"] for condition in waiting]


def test_a_lone_pod_with_costly_selectors_gets_its_devices(stage: Owned) -> None:
    """After those that nobody waits for any more."""
    stage.cluster.kubectl("delete", "pods", "--all", "-n", COSTLY, "--wait=false")
    requests = [[long_selector(UUID, 1)], [slow_selector(UUID, 1)]]
    apply(stage, *costly_pod("lone", requests))

    stage.cluster.wait_running("lone", COSTLY, timeout_s=TIMEOUT_S)
