"""`drawbridge plan` names cordoned nodes that have devices for the pods that keep a node from its wave."""

from pathlib import Path
from typing import Any, Final

from testing.documents import namespace
from testing.migration import GPU, plugin_node, workload
from testing.plan import planned

FREE: Final = "free devices for these pods first: "


def cordoned(name: str, gpus: int, **labels: str) -> dict[str, Any]:
    return {**plugin_node(name, gpus, **labels), "spec": {"unschedulable": True}}


def fix_of(tmp_path: Path, *nodes: dict[str, Any]) -> str:
    """Return the fix of the node with the only pods; they need a GPU each on another one."""
    pods = workload("web", {GPU: "1"}, ["gpu-0", "gpu-0"])
    plan = planned(tmp_path, [plugin_node("gpu-0", 2), namespace("team"), *pods, *nodes])
    (fix,) = [entry["fix"] for entry in plan["held"] if entry["object"] == "Node//gpu-0"]
    return str(fix)


def test_a_cordoned_node_with_free_devices_is_named(tmp_path: Path) -> None:
    """A node was to be added, though one had all devices that were missing."""
    fix = fix_of(tmp_path, cordoned("gpu-1", 8))

    assert fix.startswith(f"uncordon gpu-1 (8 free devices), if they may take pods, or {FREE}")


def test_one_with_too_few_devices_is_not_named(tmp_path: Path) -> None:
    busy = workload("busy", {GPU: "8"}, ["gpu-1"])

    assert fix_of(tmp_path, cordoned("gpu-1", 8), *busy).startswith(FREE)
