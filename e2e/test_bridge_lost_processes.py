"""Scheduler or sidecar is killed or stopped alone, while the process beside it goes on.

What was killed is started again, as by a kubelet; nobody starts a replica of which a process is stopped. Every
pod is bound, and the API server's audit log says that no device was given twice.
"""

import itertools
import signal
from collections.abc import Iterable, Iterator
from typing import Final

import pytest

from e2e import inventory
from e2e.audit import conflicts, log_length, stored_claims
from e2e.bridge import bridged, doubly_held
from e2e.inventory import EXAMPLE
from e2e.owned import AUDITED, TEAM, Owned, taker

TIMEOUT_S: Final = 120.0
PODS: Final = 8
NODES: Final = 2
PARTS: Final = ("scheduler", "sidecar")
SIGNALS: Final = (signal.SIGKILL, signal.SIGSTOP)

_numbers = itertools.count(1)

pytestmark = pytest.mark.parametrize("cluster", [AUDITED], indirect=True)


@pytest.fixture
def stage(owned_bridge: Owned) -> Iterator[Owned]:
    """Nodes with a device for each pod of a story, and replica `a` at work."""
    cluster, bridge = owned_bridge.cluster, owned_bridge.bridge
    nodes = cluster.add_nodes(
        inventory.kwok_nodes(NODES, prefix="lost"),
        lambda node: inventory.example_gpus(node, gpus=3 * PODS // NODES),
    )
    owned_bridge.command("bridge", "own", EXAMPLE, "--apply")
    bridge.ensure()
    yield owned_bridge
    resume(owned_bridge)
    bridge.ensure()
    owned_bridge.clear()
    cluster.remove_nodes(nodes)


@pytest.mark.parametrize(
    ("part", "number"),
    [
        pytest.param("scheduler", signal.SIGKILL, marks=pytest.mark.long),
        pytest.param("scheduler", signal.SIGSTOP, marks=pytest.mark.long),
        ("sidecar", signal.SIGKILL),
        pytest.param("sidecar", signal.SIGSTOP, marks=pytest.mark.long),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_process_of_the_leader_is_lost_while_another_replica_stands_by(
    stage: Owned, part: str, number: signal.Signals
) -> None:
    """Pods that were being bound, and those that come meanwhile, do not need the stopped process."""
    began = log_length(stage.cluster)
    stage.bridge.start("b")
    early = apply_pods(stage, "early")
    stage.bridge.child(part, "a").signal(number)
    late = apply_pods(stage, "late")

    stage.running_while_tended(
        stage.bridge, [*early, *late], *(("a", "b") if number == signal.SIGKILL else ("b",))
    )

    resume(stage)
    last = apply_pods(stage, "last")
    stage.running_while_tended(stage.bridge, [*early, *late, *last], "a", "b")
    stage.cluster.wait_until(
        lambda: len(stage.bridge.working()) == 1, "one scheduler works", timeout_s=TIMEOUT_S
    )
    assert_each_has_a_device(stage, [*early, *late, *last], began)


@pytest.mark.long
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("part", PARTS)
def test_a_process_of_the_only_replica_is_lost(
    stage: Owned, part: str, number: signal.Signals
) -> None:
    """Pods that come meanwhile wait until it is started again, or goes on."""
    began = log_length(stage.cluster)
    early = apply_pods(stage, "early")
    stage.bridge.child(part, "a").signal(number)
    late = apply_pods(stage, "late")
    wait_claims(stage, 2 * PODS)

    resume(stage)
    stage.running_while_tended(stage.bridge, [*early, *late], "a")

    assert_each_has_a_device(stage, [*early, *late], began)


def apply_pods(stage: Owned, prefix: str) -> list[str]:
    """Apply pods that take a device each, and return their names."""
    # kwok deletes by name, so no two pods of these stories have the same.
    names = [f"{prefix}-{next(_numbers)}" for _ in range(PODS)]
    stage.apply(*(bridged(taker(name)) for name in names))
    return names


def wait_claims(stage: Owned, count: int) -> None:
    """Wait until so many claims were made, so that their pods could be scheduled."""
    stage.cluster.wait_until(
        lambda: len(stage.cluster.objects("resourceclaims", TEAM)) == count,
        f"{count} claims are there",
        timeout_s=TIMEOUT_S,
    )


def resume(stage: Owned) -> None:
    """Let the stopped processes go on."""
    for part in PARTS:
        stage.bridge.child(part, "a").signal(signal.SIGCONT)


def assert_each_has_a_device(stage: Owned, names: Iterable[str], began: int) -> None:
    """Check the stored objects now, and in the audit log those stored since then."""
    uids = stage.uids()
    claims = stage.cluster.objects("resourceclaims", TEAM)
    consumers = [
        consumer["uid"]
        for claim in claims
        if "allocation" in claim.get("status", {})
        for consumer in claim["status"]["reservedFor"]
    ]
    assert sorted(consumers) == sorted(uids[name] for name in names)
    assert [] == doubly_held(stage.cluster)
    assert [] == conflicts(stored_claims(stage.cluster, began))
