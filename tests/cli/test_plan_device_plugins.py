"""Device plugins node by node: one elsewhere in the cluster, or of somebody else, takes none away from a node."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import api_object
from testing.migration import daemon_set, plugin_node
from testing.plan import changes, planned, prepare

NAME: Final = "nvidia-device-plugin"
ABSENT: Final = "no DaemonSet of a device plugin comes to this node"
OF_THE_CLOUD: Final = "is managed by the cloud"
TAINT: Final = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
OWN_TAINT: Final = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
TOLERATION: Final = {"key": "nvidia.com/gpu", "operator": "Exists"}


def elsewhere(operator: str, *values: str) -> dict[str, Any]:
    """A required node affinity by the label `pool`."""
    expression = {"key": "pool", "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def managed(**spec: Any) -> dict[str, Any]:
    """The device plugin of GKE."""
    plugin = daemon_set("nvidia-gpu-device-plugin", **spec)
    plugin["metadata"]["labels"] = {"addonmanager.kubernetes.io/mode": "Reconcile"}
    return plugin


def notes(plan: dict[str, Any]) -> list[str]:
    return [
        note
        for wave in plan["waves"]
        for note in wave["notes"]
        if note.startswith("a device plugin")
    ]


def failed(tmp_path: Path, objects: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The nodes of the first wave that may not be switched, to the messages."""
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))
    wave = tmp_path / "plan" / "wave-1"
    result = drawbridge("verify", "--snapshot", file, "--wave", wave, "--before", "-o", "json")
    return {
        check["object"]: check["message"]
        for check in json.loads(result.stdout)["checks"]
        if check["state"] == "failed" and check["object"].startswith("Node/")
    }


def test_a_plugin_of_one_pool_takes_none_away_from_the_nodes_of_another(tmp_path: Path) -> None:
    """On GKE a team had its own plugin in a pool, and the one of the cloud counted for no node any more."""
    cluster = [
        *(plugin_node(f"g{number}", pool="a") for number in range(3)),
        plugin_node("b0", pool="b"),
        managed(affinity=elsewhere("NotIn", "b")),
        daemon_set(NAME, nodeSelector={"pool": "b"}),
    ]

    plan = planned(tmp_path, cluster, "--wave-nodes", 4)

    (note,) = notes(plan)
    assert note.startswith(
        "a device plugin, on g0, g1, g2: DaemonSet kube-system/nvidia-gpu-device"
    )
    assert OF_THE_CLOUD in note
    assert ["Node//g0", "Node//g1", "Node//g2"] == sorted(failed(tmp_path, cluster))
    patched = [name for name, _ in changes(prepare(tmp_path)) if "daemonset" in name]
    assert [f"kube-system/daemonset/{NAME}"] == patched


def test_a_plugin_that_comes_to_no_node_is_nobodys(tmp_path: Path) -> None:
    """A tenant had a DaemonSet of that name for no node: it was patched, and the plugin of the image forgotten."""
    plugin = daemon_set(NAME, nodeSelector={"nothing": "here"})
    plugin["metadata"]["namespace"] = "ai-team"
    cluster = [plugin_node("g0"), plugin_node("g1"), plugin]

    plan = planned(tmp_path, cluster, "--wave-nodes", 2)

    (note,) = notes(plan)
    assert note.startswith(f"a device plugin, on g0, g1: {ABSENT} (ai-team/{NAME} runs elsewhere")
    messages = failed(tmp_path, cluster)
    assert ["Node//g0", "Node//g1"] == sorted(messages)
    assert all(message.startswith(ABSENT) for message in messages.values())
    assert [] == plan["plugins"]
    assert NAME not in prepare(tmp_path)


@pytest.mark.parametrize(
    ("plugins", "taints", "message"),
    [
        ([daemon_set(NAME)], [], ""),
        ([daemon_set(NAME, nodeSelector={"pool": "a"})], [], ""),
        ([daemon_set(NAME, affinity=elsewhere("In", "a"))], [], ""),
        ([daemon_set(NAME, affinity=elsewhere("In", "b"))], [], ABSENT),
        ([daemon_set(NAME)], [TAINT], ABSENT),
        ([daemon_set(NAME, tolerations=[TOLERATION])], [TAINT], ""),
        ([daemon_set(NAME)], [OWN_TAINT], ""),
        ([managed(), daemon_set(NAME)], [], OF_THE_CLOUD),
        ([managed(nodeSelector={"pool": "b"}), daemon_set(NAME)], [], ""),
        ([managed(nodeSelector={"pool": "b"})], [], ABSENT),
    ],
    ids=[
        "for all nodes",
        "its node selector",
        "its affinity",
        "the affinity for others",
        "a taint",
        "a taint that it tolerates",
        "a taint of Kubernetes itself",
        "beside that of the cloud",
        "that of the cloud for others",
        "only that of the cloud, for others",
    ],
)
def test_a_node_has_the_plugins_with_a_template_for_it(
    tmp_path: Path, plugins: list[dict[str, Any]], taints: list[dict[str, str]], message: str
) -> None:
    node = plugin_node("g0", pool="a")
    node["spec"] = {"taints": taints}
    cluster = [node, *plugins]

    plan = planned(tmp_path, cluster)

    assert [message] * bool(message) == [message for note in notes(plan) if message in note]
    assert bool(message) is bool(notes(plan))
    assert bool(message) is bool(failed(tmp_path, cluster))


def test_a_pod_of_a_plugin_shows_that_it_serves_its_node(tmp_path: Path) -> None:
    """With the updateStrategy OnDelete a template may have changed since the pod was created."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": NAME, "controller": True}
    pod = api_object(
        "Pod",
        f"{NAME}-x",
        "kube-system",
        ownerReferences=[owner],
        spec={"containers": [{"name": "c", "image": "a"}], "nodeName": "g0"},
    )
    cluster = [plugin_node("g0"), plugin_node("g1"), daemon_set(NAME, nodeSelector={"x": "y"}), pod]

    plan = planned(tmp_path, cluster, "--wave-nodes", 2)

    (note,) = notes(plan)
    assert note.startswith(f"a device plugin, on g1: {ABSENT}")
    assert ["Node//g1"] == list(failed(tmp_path, cluster))
