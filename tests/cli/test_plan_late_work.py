"""`drawbridge plan`: nodes with work come last that pods of other waves can do without."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testing.documents import namespace
from testing.migration import GPU, plugin_node, running_job, workload
from testing.plan import planned


def job(name: str, node: str, devices: int, since: str) -> list[dict[str, Any]]:
    """A Job with devices of a node, since some time."""
    owner, pod = running_job(name, {GPU: str(devices)}, [node])
    pod["status"]["startTime"] = since
    return [owner, pod]


def bare(name: str, node: str, devices: int = 1, **spec: Any) -> list[dict[str, Any]]:
    """A pod that nothing creates again."""
    pod = workload(name, {GPU: str(devices)}, [node], **spec)[1]
    del pod["metadata"]["ownerReferences"]
    return [pod]


def nodes_of(plan: Mapping[str, Any]) -> list[list[str]]:
    return [[node["name"] for node in wave["nodes"]] for wave in plan["waves"]]


ESTATE = [
    namespace("team"),
    *(plugin_node(f"gpu-{number}") for number in range(3)),
    *job("weeks", "gpu-0", 4, "2026-11-02T08:00:00Z"),
    *job("days", "gpu-1", 3, "2026-11-26T08:00:00Z"),
]


def test_a_pod_that_fits_elsewhere_has_no_wave_wait_for_work(tmp_path: Path) -> None:
    """A reader's debug pod on one node had its wave wait for a training of weeks on another one."""
    plan = planned(tmp_path, [*ESTATE, *bare("debug", "gpu-1")], "--wave-nodes", 1)

    assert [["gpu-2"], ["gpu-1"], ["gpu-0"]] == nodes_of(plan)


def test_a_pod_that_fits_nowhere_else_waits_for_work(tmp_path: Path) -> None:
    """Only the work on a node is waited for that the pod needs."""
    estate = [entry for entry in ESTATE if entry["metadata"]["name"] != "gpu-1"]
    objects = [
        *estate,
        plugin_node("gpu-1", zone="a"),
        plugin_node("gpu-3", zone="a"),
        *job("months", "gpu-3", 4, "2026-09-02T08:00:00Z"),
        *bare("bound", "gpu-1", nodeSelector={"zone": "a"}),
    ]

    assert [["gpu-2"], ["gpu-3"], ["gpu-1"], ["gpu-0"]] == nodes_of(
        planned(tmp_path, objects, "--wave-nodes", 1)
    )
