"""Device plugins of charts of their own beside NVIDIA's GPU Operator."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing.migration import daemon_set, hami_node, plugin_node
from testing.plan import changes, failed_before, planned, prepare

NAME: Final = "nvidia-device-plugin"
PRESENT: Final = "nvidia.com/gpu.present"
OPERAND: Final = "nvidia.com/gpu.deploy.device-plugin"
FLAGS: Final = ("--wave-nodes", 9, "--gpu-operator", "v25.10.0")
NVIDIA: Final = "nvidia.com/dra-kubelet-plugin=true"
HAMI: Final = "drawbridge.internal/dra-driver=hami-core-gpu.project-hami.io"
OPERATORS: Final = daemon_set("nvidia-device-plugin-daemonset", nodeSelector={OPERAND: "true"})


def affinity(key: str, operator: str, value: str) -> dict[str, Any]:
    expression = {"key": key, "operator": operator, "values": [value]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


NOT_ON: Final = daemon_set(NAME, affinity=affinity("gpu", "NotIn", "on"))


def operator_node(name: str, node: dict[str, Any] | None = None) -> dict[str, Any]:
    """A node with the labels of the Operator."""
    entry = node or plugin_node(name)
    entry["metadata"]["labels"] |= {PRESENT: "true", OPERAND: "true"}
    return entry


@pytest.mark.parametrize(
    ("nodes", "plugins", "labels"),
    [
        ([operator_node("g0")], [OPERATORS], {}),
        ([operator_node("g0")], [daemon_set(NAME)], {NAME: [NVIDIA]}),
        (
            [operator_node("g0")],
            [OPERATORS, daemon_set(NAME, affinity=affinity(PRESENT, "In", "true"))],
            {NAME: [NVIDIA]},
        ),
        ([hami_node("h0")], [NOT_ON], {NAME: [HAMI]}),
        ([operator_node("h0", hami_node("h0"))], [NOT_ON, OPERATORS], {NAME: [HAMI]}),
        ([operator_node("g0"), hami_node("h0")], [NOT_ON], {NAME: [NVIDIA, HAMI]}),
        ([operator_node("g0")], [daemon_set(NAME, nodeSelector={OPERAND: "true"})], {}),
    ],
    ids=[
        "the Operator's own",
        "for all nodes",
        "beside the Operator's own",
        "after the switch of HAMi",
        "after the switch of HAMi with labels of the Operator",
        "both",
        "by the label of the Operator",
    ],
)
def test_a_plugin_that_does_not_follow_the_operators_label_is_kept_away(
    tmp_path: Path,
    nodes: list[dict[str, Any]],
    plugins: list[dict[str, Any]],
    labels: dict[str, list[str]],
) -> None:
    """It was taken for the Operator's, stayed beside the driver, and the node stayed drained."""
    cluster = [*nodes, *plugins]

    plan = planned(tmp_path, cluster, *FLAGS)

    assert labels == {entry["name"]: entry["labels"] for entry in plan["plugins"]}
    patched = [name for name, _ in changes(prepare(tmp_path)) if "daemonset" in name]
    assert [f"kube-system/daemonset/{name}" for name in labels] == patched
    failures = {
        name: text for name, text in failed_before(tmp_path, cluster).items() if "Set/" in name
    }
    assert [f"DaemonSet/kube-system/{name}" for name in labels] == list(failures)
    assert all("beside the driver: run prepare.sh" in text for text in failures.values())


def test_the_operators_own_plugin_leaves_by_its_label_where_no_operator_was_seen(
    tmp_path: Path,
) -> None:
    """The Operator takes a patch back, so no wave could begin."""
    cluster = [operator_node("g0"), OPERATORS, daemon_set(NAME)]

    plan = planned(tmp_path, cluster, "--wave-nodes", 9)

    assert [NAME] == [entry["name"] for entry in plan["plugins"]]
    failures = [name for name in failed_before(tmp_path, cluster) if name.startswith("DaemonSet/")]
    assert [f"DaemonSet/kube-system/{NAME}"] == failures


def test_a_plugin_that_came_beside_the_operator_after_the_plan_stops_the_wave(
    tmp_path: Path,
) -> None:
    nodes = [operator_node("g0")]
    planned(tmp_path, [*nodes, OPERATORS], *FLAGS)

    failures = failed_before(tmp_path, [*nodes, OPERATORS, daemon_set(NAME)])

    message = (
        f"it would stay on nodes with {NVIDIA}, beside the driver: plan again from a new snapshot"
    )
    assert message == failures[f"DaemonSet/kube-system/{NAME}"]


def test_a_plugin_of_the_cloud_beside_the_operator_is_named(tmp_path: Path) -> None:
    plugin = daemon_set("nvidia-gpu-device-plugin")
    plugin["metadata"]["labels"] = {"addonmanager.kubernetes.io/mode": "Reconcile"}
    cluster = [operator_node("g0"), OPERATORS, plugin]

    planned(tmp_path, cluster, *FLAGS)

    assert "is managed by the cloud" in failed_before(tmp_path, cluster)["Node//g0"]

    label = "gke-no-default-nvidia-gpu-device-plugin"
    plugin["spec"]["template"]["spec"]["affinity"] = affinity(label, "NotIn", "true")
    planned(tmp_path, cluster, *FLAGS, "--plugin-label", f"{label}=true")

    assert "Node//g0" not in failed_before(tmp_path, cluster)


def test_a_node_without_operands_gets_no_label_of_one(tmp_path: Path) -> None:
    """The Operator deletes such labels there, and a note said that it may set one back to true."""
    bare = plugin_node("g0")
    bare["metadata"]["labels"] |= {PRESENT: "true", "nvidia.com/gpu.deploy.operands": "false"}

    plan = planned(tmp_path, [bare, operator_node("g1"), OPERATORS, daemon_set(NAME)], *FLAGS)

    labels = {node["name"]: node["labels"] for wave in plan["waves"] for node in wave["nodes"]}
    assert {"g0": False, "g1": True} == {name: OPERAND in own for name, own in labels.items()}
    assert [NAME] == [entry["name"] for entry in plan["plugins"]]
