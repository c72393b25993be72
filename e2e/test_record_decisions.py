"""A recording with the decisions of the bridge: made again from their inputs, each comes out the same.

Pods come in batches, with all strategies, while others leave; at the end half of the nodes are closed to them.
"""

import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from allocator.strategies.registry import ALL
from e2e import inventory
from e2e.access import Access, Object, stream
from e2e.bridge import Bridge, bridged, doubly_held, is_waiting
from e2e.drawbridge import command_line
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod
from kube.names import STRATEGY_ANNOTATION

NODES: Final = 120
"""More than there are in an answer."""
GPUS: Final = 2
BATCHES: Final = 8
TOGETHER: Final = 15
CPUS: Final = (2, 4, 8, 16)
SEED: Final = 33
TIMEOUT_S: Final = 120.0
MEMORY: Final = {"small": "10Gi", "half": "40Gi", "large": "70Gi"}
OF_ITS_OWN: Final[dict[str, Any]] = {"client_qps": 533}
"""The parameters of the cluster, since pods of other stories would be among the usual ones."""
LEAVING: Final = 4
"""Pods that leave after each batch."""


def sized(name: str, cpus: int) -> Object:
    """A simulated node with so many CPUs."""
    node = inventory.kwok_node(name)
    room = {**node["status"]["allocatable"], "cpu": str(cpus)}
    return {**node, "status": {"capacity": room, "allocatable": room}}


@pytest.fixture
def nodes(cluster: Access) -> Iterator[list[str]]:
    """Nodes of four sizes, with two devices each that can be shared."""
    cluster.apply(list(inventory.device_classes()))
    sizes = [sized(f"decided-{number:03}", CPUS[number % 4]) for number in range(NODES)]
    names = cluster.add_nodes(
        sizes, lambda node: inventory.example_gpus(node, gpus=GPUS, shared=True)
    )
    yield sorted(names)
    cluster.remove_nodes(names)


def templates() -> Iterator[Object]:
    """Yield templates of shares of several sizes, and one of two whole devices."""
    for name, memory in MEMORY.items():
        template = claim_template(name, EXAMPLE)
        (request,) = template["spec"]["spec"]["devices"]["requests"]
        request["exactly"]["capacity"] = {"requests": {"memory": memory}}
        yield template
    yield claim_template("two", EXAMPLE, count=2)


def asking(number: int, chance: random.Random) -> Object:
    """A pod of the bridge with a strategy, and an amount by chance."""
    return bridged(
        pod(
            f"pod-{number}",
            claims={"gpu": chance.choice([*MEMORY, "two"])},
            requests={"cpu": chance.choice([1, 2, 6])},
            annotations={STRATEGY_ANNOTATION: ALL[number % len(ALL)].name},
        )
    )


def run(cluster: Access, namespace: str, pods: Sequence[Object]) -> None:
    """Create pods together, and wait until each has a node or fits nowhere."""
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(pods))
    names = {entry["metadata"]["name"] for entry in pods}

    def are_decided() -> bool:
        entries = cluster.objects("pods", namespace)
        return all(
            entry["spec"].get("nodeName") or is_waiting(entry)
            for entry in entries
            if entry["metadata"]["name"] in names
        )

    cluster.wait_until(are_decided, "all pods have a node or fit nowhere", timeout_s=TIMEOUT_S)


def leave(cluster: Access, namespace: str, names: Sequence[str]) -> None:
    """Delete pods, and wait until they and their claims are gone."""
    cluster.kubectl("delete", "pods", "-n", namespace, "--wait=false", *names)

    def are_gone() -> bool:
        pods = {entry["metadata"]["name"] for entry in cluster.objects("pods", namespace)}
        owners = {
            owner["name"]
            for claim in cluster.objects("resourceclaims", namespace)
            for owner in claim["metadata"].get("ownerReferences", ())
        }
        return (pods | owners).isdisjoint(names)

    cluster.wait_until(are_gone, "the pods and their claims are gone", timeout_s=TIMEOUT_S)


@pytest.mark.long
@pytest.mark.parametrize("cluster", [OF_ITS_OWN], indirect=True)
def test_decisions_made_again_come_out_the_same(
    cluster: Access, bridge: Bridge, namespace: str, nodes: list[str], tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    file = tmp_path / "recording.jsonl"
    folder = bridge.replica("a").folder
    socket = folder / "run" / "sidecar.sock"
    kubeconfig = {"KUBECONFIG": str(folder / "sidecar.kubeconfig")}  # As in the leader's pod.
    cluster.kubectl("apply", "-n", namespace, "-f", "-", input=stream(list(templates())))
    run(cluster, namespace, [asking(number, chance) for number in range(TOGETHER)])
    command = (sys.executable, "-m", "cli", "record", "-o", file, "--decisions", socket)
    recorder = cluster.run("recorder", command, kubeconfig)
    try:
        cluster.wait_until(
            lambda: file.exists() and b'"type":"beginning"' in file.read_bytes(),
            "the first state is written, and the log of decisions has begun",
        )
        for batch in range(1, BATCHES + 1):
            first = batch * TOGETHER
            pods = [asking(number, chance) for number in range(first, first + TOGETHER)]
            run(cluster, namespace, pods)
            entries = cluster.objects("pods", namespace)
            running = [
                entry["metadata"]["name"] for entry in entries if entry["spec"].get("nodeName")
            ]
            leave(cluster, namespace, chance.sample(running, LEAVING))
        cluster.kubectl("taint", "nodes", *nodes[::2], "story=decided:NoSchedule")
        first = (BATCHES + 1) * TOGETHER
        run(cluster, namespace, [asking(first + number, chance) for number in range(TOGETHER)])
    finally:
        recorder.stop(grace_s=60)
    assert recorder.exit_status == 0, recorder.tail(8)
    assert doubly_held(cluster) == []

    call = ("replay", "--snapshot", file, "--strategy", "FragmentationAware", "-o", "json")
    result = command_line(cluster, *call, "--offline")
    assert result.returncode == 0, result.stderr
    decisions = json.loads(result.stdout)["decisions"]
    print(f"{decisions}, {file.stat().st_size} bytes")
    assert decisions["beginnings"] == 1
    # None but those beside a change of the inventory, which are named so.
    assert decisions["otherwise"].keys() <= {"sameMoment"}, decisions
    assert decisions["answers"] >= BATCHES * TOGETHER
    assert decisions["placements"] >= BATCHES * TOGETHER // 2
    different = decisions["otherwise"].get("sameMoment", 0)
    both = decisions["answers"] + decisions["placements"]
    same = decisions["sameAnswers"] + decisions["samePlacements"]
    assert same == both - different
    assert different <= both // 20
    cluster.kubectl("delete", "pods", "--all", "-n", namespace)
