"""`drawbridge plan`: pods of DaemonSets that a drain leaves on their node, with their devices."""

from pathlib import Path
from typing import Any

from testing.migration import GPU, namespace, plugin_node, workload
from testing.plan import held_objects, planned, script

NODES = [plugin_node(f"gpu-{number}") for number in range(2)]


def daemon_set(**selector: Any) -> list[dict[str, Any]]:
    """A DaemonSet with a GPU on gpu-0."""
    objects = workload("monitor", {GPU: "1"}, ["gpu-0"], kind="DaemonSet")
    objects[0]["spec"]["selector"] = selector
    del objects[0]["spec"]["replicas"]
    return objects


def test_pods_with_devices_are_deleted_when_their_node_has_changed_hands(tmp_path: Path) -> None:
    selector = {"matchLabels": {"app": "monitor", "tier": "a b; $(reboot)"}}
    planned(tmp_path, [*NODES, namespace("team"), *daemon_set(**selector)], "--wave-nodes", 1)

    scripts = {
        f"{phase}-{wave}": script(tmp_path, phase, wave)
        for phase in ("switch", "rollback")
        for wave in (1, 2)
    }

    expected = (
        "kubectl delete pods --namespace=team '--selector=app=monitor,tier=a b; $(reboot)' "
        "--field-selector=spec.nodeName=gpu-0"
    )
    deleting = [name for name, text in scripts.items() if "kubectl delete pods" in text]
    assert len(deleting) == 2
    assert len({name.partition("-")[2] for name in deleting}) == 1
    for name in deleting:
        lines = [line.strip() for line in scripts[name].splitlines()]
        waits = [place for place, line in enumerate(lines) if "--expect-devices" in line] or [
            place for place, line in enumerate(lines) if line.startswith("kubectl wait node/gpu-0")
        ]
        assert waits[-1] < lines.index(expected) < lines.index("kubectl uncordon gpu-0")


def test_a_node_is_held_whose_daemon_set_has_no_selector_of_labels_alone(tmp_path: Path) -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}

    plan = planned(tmp_path, [*NODES, namespace("team"), *daemon_set(**selector)])

    assert "DaemonSet/team/monitor" in held_objects(plan)["Node//gpu-0"]


def test_a_daemon_set_without_devices_is_left_alone(tmp_path: Path) -> None:
    owner, pod = workload("agent", {}, ["gpu-0"], kind="DaemonSet")

    planned(tmp_path, [*NODES, namespace("team"), owner, pod])

    assert "kubectl delete pods" not in script(tmp_path, "switch")
