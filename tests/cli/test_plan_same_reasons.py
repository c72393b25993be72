"""`drawbridge plan`: nodes with one reason are named together, the first of them by name."""

from pathlib import Path
from typing import Any, Final

from testing.documents import device_class, namespace, resource_quota
from testing.migration import GPU, WHOLE, plugin_node, workload
from testing.plan import call, document, held_objects

KEY: Final = f"requests.{GPU}"
NVIDIA: Final = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
NEXT: Final = "the next pods of StatefulSet/team/web may be placed on it"
NAMES: Final = "Node/gpu-2, Node/gpu-3, Node/gpu-4 and 3 more"


def estate() -> list[dict[str, Any]]:
    """Eight nodes with a device plugin, and a workload without enough claims."""
    driver = "device.driver == 'gpu.nvidia.com'"
    return [
        *(plugin_node(f"gpu-{number}") for number in range(8)),
        *(namespace("team"), resource_quota({KEY: "8", NVIDIA: "1"}, name="gpus")),
        device_class(driver, name="gpu.nvidia.com"),
        *workload("web", WHOLE, ["gpu-0", "gpu-1"], kind="StatefulSet"),
    ]


def test_nodes_that_one_workload_holds_are_in_one_line(tmp_path: Path) -> None:
    result = call(tmp_path, estate())

    assert {} == document(tmp_path)["mappedClasses"]
    held = held_objects(document(tmp_path))
    assert 6 == sum(NEXT in reason for reason in held.values())
    text = " ".join(result.stdout.split())
    assert 1 == text.count(NEXT)
    assert f"{NAMES}: {NEXT}" in text
    # Where all of them are named, too, they have one line.
    readme = (tmp_path / "plan" / "README.md").read_text()
    assert 1 == readme.count(NEXT)
