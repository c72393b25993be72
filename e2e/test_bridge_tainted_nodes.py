"""The bridge as second scheduler: it serves nodes with a taint, and the default scheduler all others.

Installed as docs/bridge.md says: nodes are tainted, `validation.bridgeTaint` names the key, and the
webhook routes pods that need devices of the driver that the bridge owns.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pytest

from e2e import inventory
from e2e.access import Access, Object, stream
from e2e.bridge import ROOT, doubly_held
from e2e.drawbridge import Drawbridge
from e2e.inventory import EXAMPLE, HAMI
from e2e.objects import claim_template, pod
from e2e.owned import TEAM, TIMEOUT_S, Owned, taker
from kube.names import DEFAULT_SCHEDULER_NAME, SCHEDULER_NAME

TAINT: Final = "example.com/bridge"
DOCUMENTED: Final = "kubectl taint nodes NODE example.com/bridge=:NoSchedule"
PODS: Final = 4
OF_ITS_OWN: Final[dict[str, Any]] = {"client_qps": 520}
"""The parameters of the cluster, since here the webhook routes pods that other stories leave to kube-scheduler."""


class Stage(NamedTuple):
    """The bridge, and the nodes that are for it and for others."""

    owned: Owned
    tainted: Sequence[str]
    others: Sequence[str]


@pytest.fixture
def stage(cluster: Access, drawbridge: Drawbridge, owned_bridge: Owned) -> Iterator[Stage]:
    """Two tainted nodes with a driver that the bridge owns, and two with one of kube-scheduler."""
    tainted = cluster.add_nodes(
        inventory.kwok_nodes(2, prefix="tainted"),
        lambda node: inventory.example_gpus(node, gpus=PODS),
    )
    assert DOCUMENTED in (ROOT / "docs" / "bridge.md").read_text()
    for node in tainted:
        _, *words = DOCUMENTED.replace("NODE", node).split()
        cluster.kubectl(*words)
    others = cluster.add_nodes(
        inventory.kwok_nodes(2, prefix="open"),
        lambda node: inventory.hami_gpus(node, gpus=PODS),
    )
    template = claim_template("other", HAMI)
    cluster.kubectl("apply", "-n", TEAM, "-f", "-", input=stream([template]))
    owned_bridge.command("bridge", "own", EXAMPLE, "--apply")
    owned_bridge.bridge.ensure()
    with drawbridge.configured({"validation": {"bridgeTaint": TAINT}}):
        cluster.wait_until(
            lambda: TAINT in keys_of(dry_run(cluster, taker("probe"))),
            "pods of the driver are routed, and tolerate the taint",
            timeout_s=TIMEOUT_S,
        )
        yield Stage(owned_bridge, tainted, others)
        owned_bridge.clear()
    cluster.remove_nodes([*tainted, *others])


@pytest.mark.parametrize("cluster", [OF_ITS_OWN], indirect=True)
def test_two_schedulers_serve_one_cluster(stage: Stage) -> None:
    """At the same time; and while the bridge does not run, the other one goes on."""
    bridge = stage.owned.bridge
    routed = [taker(f"routed-{number}") for number in range(PODS)]
    left = [pod(f"other-{number}", claims={"gpu": "other"}) for number in range(PODS)]
    plain = [pod(f"plain-{number}") for number in range(PODS)]
    toleration = {"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}
    naming = taker("naming", schedulerName=SCHEDULER_NAME, tolerations=[toleration])

    stage.owned.apply(*routed, *left, *plain, naming)

    stage.owned.running(*names_of([*routed, *left, *plain, naming]))
    assert_placed(stage, names_of([*routed, naming]), SCHEDULER_NAME, stage.tainted)
    assert_placed(stage, names_of([*left, *plain]), DEFAULT_SCHEDULER_NAME, stage.others)
    for document in [*left, *plain]:
        stored = stage.owned.cluster.get("pods", document["metadata"]["name"], TEAM)
        assert TAINT not in keys_of(stored)

    bridge.stop("a")
    stage.owned.apply(taker("waiting"), pod("other-late", claims={"gpu": "other"}), pod("late"))
    stage.owned.running("other-late", "late")
    assert "nodeName" not in stage.owned.cluster.get("pods", "waiting", TEAM)["spec"]

    bridge.ensure()
    stage.owned.running("waiting")
    assert_placed(stage, ["waiting"], SCHEDULER_NAME, stage.tainted)
    assert_placed(stage, ["other-late", "late"], DEFAULT_SCHEDULER_NAME, stage.others)
    assert [] == doubly_held(stage.owned.cluster)


def dry_run(cluster: Access, document: Object) -> Object:
    """Return a pod as it would be stored; the same if it would be rejected."""
    words = ("create", "--dry-run=server", "-n", TEAM, "-o", "json", "-f", "-")
    completed = cluster.kubectl(*words, input=stream([document]), check=False)
    stored: Object = json.loads(completed.stdout) if completed.returncode == 0 else document
    return stored


def keys_of(document: Object) -> list[str]:
    """Return the taints that a pod tolerates."""
    return [toleration["key"] for toleration in document["spec"].get("tolerations", ())]


def names_of(documents: Sequence[Object]) -> list[str]:
    return [document["metadata"]["name"] for document in documents]


def assert_placed(stage: Stage, names: Sequence[str], scheduler: str, nodes: Sequence[str]) -> None:
    """Check the scheduler and the node of pods."""
    stored = {name: stage.owned.cluster.get("pods", name, TEAM)["spec"] for name in names}
    assert dict.fromkeys(names, scheduler) == {
        name: spec["schedulerName"] for name, spec in stored.items()
    }
    assert {} == {
        name: spec["nodeName"] for name, spec in stored.items() if spec["nodeName"] not in nodes
    }
