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


def test_waves_before_the_first_that_needs_the_end_of_work_do_not_wait_for_it(
    tmp_path: Path,
) -> None:
    """Six waves of inference waited for a training of days, though the last wave alone needed its nodes."""
    zones: dict[str, dict[str, Any]] = {
        "a": {"nodeSelector": {"zone": "a"}},
        "t": {"nodeSelector": {"zone": "t"}},
    }
    asks = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    server = workload("server", {GPU: "4"}, ["a-2"], **zones["a"])
    for metadata in (server[0]["spec"]["template"]["metadata"], server[1]["metadata"]):
        metadata["annotations"] = asks
    objects = [
        namespace("team"),
        *(plugin_node(f"a-{number}", zone="a") for number in (1, 2)),
        *(plugin_node(f"t-{number}", zone="t") for number in range(4)),
        *job("days", "a-1", 4, "2026-11-25T08:00:00Z"),
        *job("hours", "t-0", 4, "2026-11-30T08:00:00Z"),
        *workload("web", {GPU: "4"}, ["t-1", "t-2", "t-3"], **zones["t"]),
        *server,
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 4)

    assert [["t-0"], ["t-1"], ["t-2"], ["t-3"], ["a-1"], ["a-2"]] == nodes_of(plan)
    reason = "no larger: no wave before its own needs the end of the work on a-1, so this node comes later"
    assert reason in plan["waves"][0]["notes"]


def test_nodes_of_one_training_that_come_later_come_together(tmp_path: Path) -> None:
    """The wave of another late node took one node of a training, and the next wave the other one."""
    training = workload("train", {GPU: "4"}, ["gpu-1", "gpu-2"], kind="PyTorchJob")[1:]
    for pod in training:
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = "kubeflow.org/v1"
        pod["status"] = {"phase": "Running", "startTime": "2026-11-02T08:00:00Z"}
    objects = [
        namespace("team"),
        *(plugin_node(f"gpu-{number}") for number in range(5)),
        *job("hours", "gpu-0", 4, "2026-11-30T08:00:00Z"),
        *training,
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 2)

    assert [["gpu-3", "gpu-4"], ["gpu-0"], ["gpu-1", "gpu-2"]] == nodes_of(plan)


def test_the_work_of_a_wave_that_began_last_is_waited_for_first(tmp_path: Path) -> None:
    """A script waited for a training of days before it switched the node of a short Job."""
    objects = [
        namespace("team"),
        *(plugin_node(f"gpu-{number}") for number in range(4)),
        *job("weeks", "gpu-0", 4, "2026-11-02T08:00:00Z"),
        *job("hours", "gpu-1", 4, "2026-11-30T08:00:00Z"),
        *workload("web", {GPU: "4"}, ["gpu-2", "gpu-3"]),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 2)

    assert [["gpu-1", "gpu-0"], ["gpu-2", "gpu-3"]] == nodes_of(plan)


def test_work_that_comes_early_for_a_node_to_spare_has_a_note(tmp_path: Path) -> None:
    """A pool of development waited for a training, and only another plan with --spare-nodes 0 showed the reason."""
    objects = [
        namespace("team"),
        *(plugin_node(f"dev-{number}", 3) for number in range(2)),
        *(plugin_node(f"dgx-{number}", 4) for number in range(2)),
        *job("weeks", "dgx-0", 4, "2026-11-02T08:00:00Z"),
        *job("hours", "dev-0", 1, "2026-11-30T08:00:00Z"),
        *job("minutes", "dev-1", 1, "2026-11-30T09:00:00Z"),
        *workload("code", {GPU: "2"}, ["dev-0", "dev-1"]),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 2)

    assert [["dgx-1"], ["dev-0", "dgx-0"], ["dev-1"]] == nodes_of(plan)
    (note,) = early_notes(plan)
    assert note in plan["waves"][1]["notes"]
    assert note.endswith(
        "before it, one of them would leave no node to spare of those with device plugins; --spare-nodes 0, which tries no loss "
        "of a node, lets them come first"
    )
    other = planned(tmp_path, objects, "--wave-nodes", 2, "--spare-nodes", 0)
    assert [["dgx-1"], ["dev-1", "dev-0"], ["dgx-0"]] == nodes_of(other)
    assert [] == early_notes(other)


def early_notes(plan: Mapping[str, Any]) -> list[str]:
    notes = [note for wave in plan["waves"] for note in wave["notes"]]
    return [note for note in notes if "do not need the end of the work on dgx-0, dev-0" in note]
