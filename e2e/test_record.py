"""A recording of a real cluster: its scheduler's places are the best of their moment, and can be replayed."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from e2e import inventory
from e2e.access import Access, Object
from e2e.drawbridge import command_line
from e2e.placed import Outcome, Scheduled, nodes, pods, runtime_class

NODES: Final = 8
PODS: Final = 40
GPUS: Final = 4
SEED: Final = 33


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


def replayed(cluster: Access, *arguments: str | Path) -> dict[str, Any]:
    """Return the answer of `drawbridge replay`."""
    result = command_line(cluster, "replay", *arguments, "-o", "json", "--offline")
    assert result.returncode == 0, result.stderr
    assert "recorder was killed" not in result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_what_the_scheduler_did_is_the_best_of_its_moment_and_can_be_replayed(
    cluster: Access, namespace: str, tmp_path: Path
) -> None:
    cluster.apply([inventory.example_class(), runtime_class()])
    names = cluster.add_nodes(
        nodes(NODES, "recorded"), lambda node: inventory.example_gpus(node, gpus=GPUS)
    )
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
        placed += schedule(scheduled, documents[half:])
    finally:
        recorder.stop()
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
    print(f"{recorded['bindings']} bound, {recorded['ties']} ties, {file.stat().st_size} bytes")
