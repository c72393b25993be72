"""A recording of a real cluster: its scheduler's places are the best of their moment, and can be replayed.

It is replayed as it was, with more nodes, with a quota, and as after a migration of the pods that request GPUs of a device plugin.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from e2e import inventory
from e2e.access import Access, Object
from e2e.drawbridge import command_line
from e2e.migration import GPU
from e2e.objects import container
from e2e.placed import Outcome, Scheduled, nodes, pods, runtime_class
from testing.documents import api_object

OF_ITS_OWN: Final[dict[str, Any]] = {"client_qps": 550}
"""The default is as good; with it the control plane is of this file alone, without a webhook that translates pods with keys."""
NODES: Final = 8
PODS: Final = 40
GPUS: Final = 4
SEED: Final = 33
PLUGIN_GPUS: Final = 4
KEYS: Final = (2, 1, 3, 1)
"""GPUs of a device plugin that pods request, one after the other."""
MEMORY_MIB: Final = 81920


def schedule(
    scheduled: Scheduled, documents: Sequence[tuple[Object, Object | None]]
) -> Counter[bool]:
    """Create pods one after the other, and delete those that get no node. Count those that got one."""
    placed: Counter[bool] = Counter()
    for document, claim in documents:
        if claim is not None:
            scheduled.create(claim, "resourceclaims")
        scheduled.create(document, "pods")
        name = document["metadata"]["name"]
        outcome: Outcome = scheduled.outcome(name)
        placed[outcome.node is not None] += 1
        if outcome.node is None:
            scheduled.delete(name)
    return placed


def free(cluster: Access, namespace: str, names: Sequence[str]) -> None:
    """Delete pods, and wait until they and the allocations of their claims are gone."""
    cluster.kubectl("delete", "pods", "-n", namespace, "--wait=false", *names)
    for name in names:
        cluster.wait_gone("pods", name, namespace)
    running = {entry["metadata"]["name"] for entry in cluster.objects("pods", namespace)}

    def is_free(claim: Object) -> bool:
        status = claim.get("status") or {}
        users = {user["name"] for user in status.get("reservedFor") or ()}
        return "allocation" not in status or bool(users & running)

    for claim in cluster.objects("resourceclaims", namespace):
        name = claim["metadata"]["name"]
        cluster.wait_for("resourceclaims", name, namespace, until=is_free)


def plugin_nodes() -> Iterator[Object]:
    """Yield nodes with GPUs of a device plugin, and the labels of GPU feature discovery."""
    for node in inventory.kwok_nodes(2, prefix="plugin"):
        resources = {"cpu": "32", "memory": "64Gi", "pods": "30", GPU: str(PLUGIN_GPUS)}
        node["status"] = {"capacity": resources, "allocatable": resources}
        node["metadata"]["labels"] |= {
            "nvidia.com/gpu.product": "NVIDIA-A100",
            "nvidia.com/gpu.memory": str(MEMORY_MIB),
        }
        yield node


def legacy_pods() -> Iterator[tuple[Object, None]]:
    for number, count in enumerate(KEYS):
        main = container("main", limits={GPU: str(count)}, requests={"cpu": "100m"})
        yield (
            api_object("Pod", f"keys-{number}", spec={"containers": [main]}),
            None,
        )


def device_quota(namespace: str, devices: int) -> Object:
    limit = {"name": "gpus", "driver": inventory.EXAMPLE, "devices": {}, "max": devices}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return api_object("DeviceQuota", "few", spec={"namespaceSelector": selector, "limits": [limit]})


def allocated(result: Mapping[str, Any], driver: str, capacity: str) -> float:
    """Return the amount of a capacity that is allocated at the end."""
    amounts = [
        float(entry["allocated"])
        for entry in result["capacities"]
        if (entry["driver"], entry["name"]) == (driver, capacity)
    ]
    return sum(amounts)


def replayed(cluster: Access, *arguments: str | Path) -> dict[str, Any]:
    """Return the answer of `drawbridge replay`."""
    result = command_line(cluster, "replay", *arguments, "-o", "json", "--offline")
    assert result.returncode == 0, result.stderr
    assert "recorder was killed" not in result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def check_quota(cluster: Access, namespace: str, file: Path, stock: Mapping[str, Any]) -> None:
    """Replay with fewer devices than were used, and see pods wait for them."""
    limited = file.with_name("quota.json")
    limited.write_text(json.dumps(device_quota(namespace, GPUS)))
    answer = replayed(cluster, "--snapshot", file, "--strategy", "stock", "--quota", limited)
    (bounded,) = answer["strategies"]
    most = GPUS * 80 * 2**30
    assert allocated(bounded, inventory.EXAMPLE, "memory") <= most
    assert allocated(stock, inventory.EXAMPLE, "memory") > most
    (held,) = bounded["heldBack"]
    assert held["namespace"] == namespace
    assert held["pods"] - held["placed"] == bounded["failedBy"]["deviceQuota"] > 0


def check_migration(cluster: Access, file: Path) -> None:
    """Replay as after a migration from the beginning, and from a moment when some of the pods ran."""
    middle = lines(file, f'"keys-{len(KEYS) // 2}"'.encode())[0]
    second = msgspec.json.decode(middle)["at"]
    for moment in ("0", f"{second:.6f}"):
        flags = ("--strategy", "stock", "--migrated-at", moment)
        answer = replayed(cluster, "--snapshot", file, *flags)
        (moved,) = answer["strategies"]
        assert allocated(moved, inventory.NVIDIA, "memory") == sum(KEYS) * MEMORY_MIB * 2**20
        assert sum(moved["pods"].values()) == sum(answer["recorded"]["outcome"]["pods"].values())
        assert "denied" not in moved["failedBy"]


def lines(file: Path, text: bytes) -> list[bytes]:
    return [line for line in file.read_bytes().splitlines() if text in line]


@pytest.mark.parametrize("cluster", [OF_ITS_OWN], indirect=True)
def test_what_the_scheduler_did_is_the_best_of_its_moment_and_can_be_replayed(
    cluster: Access, namespace: str, tmp_path: Path
) -> None:
    cluster.apply([inventory.example_class(), runtime_class()])
    names = cluster.add_nodes(
        nodes(NODES, "recorded"), lambda node: inventory.example_gpus(node, gpus=GPUS)
    )
    names += cluster.add_nodes(plugin_nodes())
    file = tmp_path / "recording.jsonl"
    kubeconfig = {"KUBECONFIG": str(cluster.kubeconfig)}
    command = (sys.executable, "-m", "cli", "record", "-o", file)
    recorder = cluster.run("recorder", command, kubeconfig)
    documents = list(pods(PODS, SEED))
    half = PODS // 2
    try:
        cluster.wait_until(
            lambda: file.exists() and b'"mark":"state"' in file.read_bytes(),
            "the first state is written",
        )
        scheduled = Scheduled(cluster, namespace)
        placed = schedule(scheduled, documents[:half])
        running = [entry["metadata"]["name"] for entry in cluster.objects("pods", namespace)]
        free(cluster, namespace, running[: len(running) // 2])
        placed += schedule(scheduled, [*documents[half:], *legacy_pods()])
        last = f'"keys-{len(KEYS) - 1}"'.encode()
        cluster.wait_until(
            lambda: any(b'"nodeName"' in line for line in lines(file, last)),
            "the place of the last pod is written",
        )
    finally:
        recorder.stop(grace_s=60)
        cluster.remove_nodes(names)

    assert recorder.exit_status == 0, recorder.tail(8)
    answer = replayed(cluster, "--snapshot", file, "--strategy", "stock,CompactFirst")
    recorded = answer["recorded"]
    assert recorded["otherwise"] == {}
    assert recorded["best"] == recorded["bindings"] == placed[True] >= PODS // 2
    assert recorded["bindings"] - recorded["ties"] > PODS // 10
    outcome = recorded["outcome"]["pods"]
    assert outcome["placed"] == placed[True]
    assert outcome["failed"] >= placed[False]  # Pods that earlier stories left may wait as well.
    stock, compact = answer["strategies"]
    # After a tie it may go on elsewhere, so a pod may fit that did not, or the other way round.
    assert abs(stock["pods"]["placed"] - placed[True]) <= PODS // 10
    assert sum(compact["pods"].values()) == sum(outcome.values())
    flags = ("--strategy", "stock", "--add-nodes", f"8={names[0]}")
    more = replayed(cluster, "--snapshot", file, *flags)
    # What happened stays what it was.
    assert more["recorded"] == recorded
    devices = more["strategies"][0]["devices"]["total"] - stock["devices"]["total"]
    assert devices == 8 * GPUS
    check_quota(cluster, namespace, file, stock)
    check_migration(cluster, file)
    print(f"{recorded['bindings']} bound, {recorded['ties']} ties, {file.stat().st_size} bytes")
