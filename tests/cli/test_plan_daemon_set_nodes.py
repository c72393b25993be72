"""`drawbridge plan`: the nodes that a DaemonSet with device keys holds, as its controller chooses nodes for it."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import namespace
from testing.migration import SHARE, hami_node, workload
from testing.plan import held_objects, planned

TAINT: Final = {"key": "team", "value": "others", "effect": "NoSchedule"}
LACKING: Final = "pods of DaemonSet/team/monitor keep device keys and would lack them"


def in_pool(*names: str) -> dict[str, Any]:
    """A node affinity for pools of nodes."""
    expression = {"key": "pool", "operator": "In", "values": [*names]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def estate(**spec: Any) -> list[dict[str, Any]]:
    """A DaemonSet that stays, with a pod on a cordoned node alone, and a workload with pods on others."""
    nodes = [hami_node(f"hami-{number}") for number in range(5)]
    for number, entry in enumerate(nodes):
        entry["metadata"]["labels"] = {"gpu": "on", "pool": f"p{number}"}
    nodes[0]["spec"] = {"unschedulable": True}
    nodes[4]["spec"] = {"taints": [TAINT]}
    owner, pod = workload("monitor", SHARE, ["hami-0"], kind="DaemonSet", **spec)
    owner["spec"] = {
        "selector": {"matchLabels": {"app": "monitor"}},
        "template": owner["spec"]["template"],
    }
    web = workload(
        *("web", SHARE, ["hami-1", "hami-2"]),
        kind="StatefulSet",
        tolerations=[{"key": "team", "operator": "Exists"}],
    )
    return [*nodes, namespace("team"), owner, pod, *web]


@pytest.mark.parametrize(
    ("spec", "lacking"),
    [
        ({}, {"hami-2", "hami-3"}),
        ({"tolerations": [{"key": "team", "operator": "Exists"}]}, {"hami-2", "hami-3", "hami-4"}),
        ({"nodeSelector": {"pool": "p0"}}, set()),
        ({"affinity": in_pool("p0", "p3")}, {"hami-3"}),
    ],
    ids=["all nodes", "all with a taint", "a node selector", "an affinity"],
)
def test_a_daemon_set_holds_the_nodes_that_its_controller_chooses(
    tmp_path: Path, spec: dict[str, Any], lacking: set[str]
) -> None:
    """Its pods may be missing on these; the nodes that it may not use are free."""
    plan = planned(tmp_path, estate(**spec))

    held = held_objects(plan)
    assert lacking == {
        name.removeprefix("Node//") for name, reason in held.items() if LACKING in reason
    }
    assert "cordoned" in held["Node//hami-0"]
