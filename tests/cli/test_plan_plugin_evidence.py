"""Evidence against a DaemonSet that looks like a device plugin: Pod Security of its namespace; such a one is named."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import api_object, namespace
from testing.migration import daemon_set, hami_node, plugin_node
from testing.plan import changes, failed_before, planned, prepare

NAME: Final = "nvidia-device-plugin"
NOT_TAKEN: Final = (
    f"ai-team/{NAME} is not taken for a device plugin, because Pod Security of its namespace"
)
MOUNT: Final = [{"name": "p", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]
PRIVILEGED: Final = {"pod-security.kubernetes.io/enforce": "privileged"}
RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}


def of_team(**spec: Any) -> dict[str, Any]:
    """A DaemonSet with the name and the image of NVIDIA's plugin in the namespace of a team."""
    plugin = daemon_set(NAME, **spec)
    plugin["metadata"]["namespace"] = "ai-team"
    image = "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"
    plugin["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return plugin


def pod_of_plugin(**spec: Any) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": NAME, "controller": True}
    fields = {"containers": [{"name": "c", "image": "a"}], "nodeName": "g0", **spec}
    return api_object("Pod", f"{NAME}-x", "ai-team", ownerReferences=[owner], spec=fields)


def lookalike_notes(plan: dict[str, Any]) -> list[str]:
    return [note for wave in plan["waves"] for note in wave["notes"] if "is not taken for" in note]


def commands(tmp_path: Path) -> dict[str, list[str]]:
    """Return the scripts of a plan without the lines of notes."""
    return {
        str(path.relative_to(tmp_path)): [
            line for line in path.read_text().splitlines() if "note: " not in line.lower()
        ]
        for path in sorted((tmp_path / "plan").rglob("*.sh"))
    }


def test_a_daemon_set_of_a_team_does_not_stand_for_the_plugin_of_a_nodes_image(
    tmp_path: Path,
) -> None:
    """It was patched, the plugin of the image was forgotten, and would have handed out the devices of the driver, too."""
    cluster = [plugin_node("g0"), namespace("ai-team", RESTRICTED), of_team(volumes=MOUNT)]

    plan = planned(tmp_path, cluster)

    (message,) = failed_before(tmp_path, cluster)["Node//g0"].splitlines()
    assert message.startswith(
        f"no DaemonSet of a device plugin is known to come to this node ({NOT_TAKEN}"
    )
    assert "so the plugin may be part of the node's image" in message
    assert "name a label that keeps it away with plan --plugin-label" in message
    assert [] == plan["plugins"]
    assert NAME not in prepare(tmp_path)


def test_a_daemon_set_of_a_team_neither_changes_nor_stops_a_script(tmp_path: Path) -> None:
    """With the label of a cloud's addons it stopped each wave, and without it prepare.sh patched it."""
    cluster = [plugin_node("g0"), plugin_node("g1"), daemon_set(NAME)]
    planned(tmp_path, cluster, "--wave-nodes", 1)
    lookalike = of_team()
    lookalike["metadata"]["labels"] = {"addonmanager.kubernetes.io/mode": "Reconcile"}
    scripts = commands(tmp_path)
    before = failed_before(tmp_path, cluster)

    team = namespace("ai-team", RESTRICTED)

    plan = planned(tmp_path, [*cluster, lookalike, team], "--wave-nodes", 1)

    assert scripts == commands(tmp_path)
    assert before == failed_before(tmp_path, [*cluster, lookalike, team])
    assert ["kube-system"] == [entry["namespace"] for entry in plan["plugins"]]
    (note,) = lookalike_notes(plan)
    assert note.startswith(f"DaemonSet {NOT_TAKEN} forbids the kubelet's device-plugins directory")
    assert "so no script changes it: if it is one, give its namespace the label" in note
    assert "pod-security.kubernetes.io/enforce=privileged, see that its pods run" in note
    assert note in plan["waves"][0]["notes"]


@pytest.mark.parametrize(
    ("labels", "pods", "is_plugin"),
    [
        ({}, [], True),
        (RESTRICTED, [], False),
        ({"pod-security.kubernetes.io/enforce": "baseline"}, [], False),
        ({"pod-security.kubernetes.io/warn": "restricted"}, [], True),
        (RESTRICTED, [pod_of_plugin()], False),
        (RESTRICTED, [pod_of_plugin(volumes=[{"name": "p", "emptyDir": {}}])], False),
        (PRIVILEGED, [], True),
        (RESTRICTED, [pod_of_plugin(volumes=MOUNT)], True),
        (
            RESTRICTED,
            [pod_of_plugin(volumes=[{"name": "k", "hostPath": {"path": "/data/kubelet/"}}])],
            True,
        ),
    ],
    ids=[
        "nothing against it",
        "a template whose pods are rejected",
        "the lowest level that rejects them",
        "a warning only",
        "a pod without the directory",
        "a pod with another volume",
        "a namespace of administrators",
        "a pod with the directory",
        "a pod with the directory above it",
    ],
)
def test_pods_and_namespaces_tell_of_a_plugin(
    tmp_path: Path, labels: dict[str, str], pods: list[dict[str, Any]], *, is_plugin: bool
) -> None:
    cluster = [plugin_node("g0"), namespace("ai-team", labels), of_team(volumes=MOUNT), *pods]

    plan = planned(tmp_path, cluster)

    assert [NAME] * is_plugin == [entry["name"] for entry in plan["plugins"]]
    assert is_plugin == ("Node//g0" not in failed_before(tmp_path, cluster))
    patched = [name for name, _ in changes(prepare(tmp_path)) if "daemonset" in name]
    assert [f"ai-team/daemonset/{NAME}"] * is_plugin == patched
    assert is_plugin == (lookalike_notes(plan) == [])


def test_a_daemon_set_that_would_come_to_switched_nodes_of_hami_is_named(tmp_path: Path) -> None:
    team = namespace("ai-team", RESTRICTED)
    cluster = [hami_node("h0"), team, of_team(nodeSelector={"gpu": "off"})]

    plan = planned(tmp_path, cluster)

    assert [] == plan["plugins"]
    (note,) = lookalike_notes(plan)
    assert NOT_TAKEN in note
