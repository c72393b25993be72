"""`drawbridge plan`: pods of whole GPUs that a drain sends to nodes of HAMi are named before."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import api_object, namespace
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import planned, script

TAINTED: Final = {"spec": {"taints": [{"key": "hami", "effect": "NoSchedule"}]}}
SELECTOR: Final = {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100"}}
NOTE: Final = "evicted pods of Deployment/team/train may get a node of HAMi (hami-"
FIX: Final = (
    "first give their templates a node affinity that leaves those nodes out (required, gpu NotIn [on]), or taint those "
    "nodes and let the pods that stay there, and the DaemonSets of device plugins and DRA drivers, tolerate it; each may "
    "move pods, so plan again from a new snapshot then; see strayWorkloads in plan.yaml"
)
ARGO: Final = "; Argo CD manages Deployment/team/train, and takes back what kubectl changes: change the template in its repository"
PAUSED: Final = (
    "; a change of the template reaches no pod of Deployment/team/train as it is (OnDelete, a partition, or a paused "
    "rollout): taint the nodes, or resume the rollout"
)


@pytest.mark.parametrize(
    ("hami", "limits", "spec", "expected"),
    [
        ({}, {GPU: "1"}, {}, True),
        (TAINTED, {GPU: "1"}, {}, False),
        ({}, {GPU: "1"}, SELECTOR, False),
        ({}, {GPU: "1"}, {"schedulerName": "volcano"}, False),
        ({}, {"nvidia.com/mig-1g.5gb": "1"}, {}, False),
    ],
    ids=["a pod of a GPU", "a taint", "a node selector", "another scheduler", "a MIG device"],
)
def test_pods_that_kube_scheduler_may_send_to_shares_are_named(
    tmp_path: Path,
    hami: dict[str, Any],
    limits: dict[str, str],
    spec: dict[str, Any],
    *,
    expected: bool,
) -> None:
    """A rehearsal found pods of two GPUs on a node that offers forty shares of four."""
    hamis = [{**hami_node(f"hami-{number}"), **hami} for number in range(2)]
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), *hamis]
    for node in nodes[:2]:
        node["status"]["allocatable"]["nvidia.com/mig-1g.5gb"] = "1"
    objects = [
        *nodes,
        namespace("team"),
        *workload("train", limits, ["gpu-0"], **spec),
        *workload("web", SHARE, ["hami-0", "hami-1"] * 4, namespace="shares"),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    wave = next(
        (wave for wave in plan["waves"] if ["gpu-0"] == [node["name"] for node in wave["nodes"]]),
        None,
    )
    assert wave is not None, plan["held"]
    notes = [note for note in wave["notes"] if note.startswith(NOTE)]
    assert expected is any(note.endswith(FIX) for note in notes)
    assert (["Deployment/team/train"] if expected else []) == wave["strayWorkloads"]
    assert expected is (NOTE in script(tmp_path, "preflight", wave["wave"]))


@pytest.mark.parametrize(("free", "expected"), [("8", True), ("4", False)])
def test_a_node_without_cpu_for_a_pod_is_none_that_it_may_get(
    tmp_path: Path, free: str, *, expected: bool
) -> None:
    """The note named a node by its labels alone, though 2 of its 62 CPUs were free."""
    hamis = [hami_node(f"hami-{number}") for number in range(2)]
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), *hamis]
    for node in nodes:
        cpu = free if node in hamis else "64"
        node["status"]["allocatable"] |= {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    owner, *pods = workload("train", {GPU: "1", "cpu": "6"}, ["gpu-0"])
    objects = [
        *(*nodes, namespace("team"), owner, *pods),
        *workload("web", SHARE, ["hami-0", "hami-1"] * 4, namespace="shares"),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    waves = [
        wave for wave in plan["waves"] if ["gpu-0"] == [node["name"] for node in wave["nodes"]]
    ]
    (notes,) = [wave["notes"] for wave in waves]
    assert expected is any(note.startswith(NOTE) for note in notes)


def test_only_nodes_that_a_pod_may_get_are_named(tmp_path: Path) -> None:
    """One had no CPU left, and stood beside the others."""
    hamis = [hami_node(f"hami-{number}") for number in range(3)]
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), *hamis]
    for node in nodes:
        cpu = "4" if node is hamis[1] else "64"
        node["status"]["allocatable"] |= {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    objects = [
        *(*nodes, namespace("team"), *workload("train", {GPU: "1", "cpu": "6"}, ["gpu-0"])),
        *workload("web", SHARE, ["hami-0", "hami-1", "hami-2"] * 4, namespace="shares"),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    notes = [note for wave in plan["waves"] for note in wave["notes"] if note.startswith(NOTE)]
    assert notes
    assert all("hami-1" not in note for note in notes)


def test_a_pod_with_a_volume_of_its_node_gets_no_other(tmp_path: Path) -> None:
    """The note asked to change the template of a StatefulSet, though its pods wait for their node."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In"}]}
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    objects = [
        *(plugin_node(f"gpu-{number}") for number in range(2)),
        *(hami_node(f"hami-{number}") for number in range(2)),
        *(namespace("team"), *workload("train", {GPU: "1"}, ["gpu-0"])),
        *workload(
            *("db", {GPU: "1"}, ["gpu-0"]),
            kind="StatefulSet",
            volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
        ),
        api_object("PersistentVolumeClaim", "data", "team", spec={"volumeName": "disk"}),
        api_object("PersistentVolume", "disk", spec={"csi": {}, "nodeAffinity": affinity}),
        *workload("web", SHARE, ["hami-0", "hami-1"] * 4, namespace="shares"),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    notes = [note for wave in plan["waves"] for note in wave["notes"] if "node of HAMi" in note]
    assert any(note.startswith(NOTE) for note in notes)
    assert all("StatefulSet/team/db" not in note for note in notes)
    strays = {name for wave in plan["waves"] for name in wave["strayWorkloads"]}
    assert {"Deployment/team/train"} == strays


def test_once_hami_has_left_there_is_nothing_to_say(tmp_path: Path) -> None:
    objects = [
        *(plugin_node(f"gpu-{number}") for number in range(2)),
        namespace("team"),
        *workload("train", {GPU: "1"}, ["gpu-0"]),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    assert all("node of HAMi" not in note for wave in plan["waves"] for note in wave["notes"])


@pytest.mark.parametrize(
    ("annotations", "paused", "expected"),
    [
        ({}, False, ""),
        ({"argocd.argoproj.io/tracking-id": "llm:apps/Deployment:team/train"}, False, ARGO),
        ({}, True, PAUSED),
        ({"argocd.argoproj.io/tracking-id": "llm:apps/Deployment:team/train"}, True, ARGO + PAUSED),
    ],
    ids=["neither", "Argo CD", "paused", "both"],
)
def test_the_cure_says_what_its_workload_does_with_it(
    tmp_path: Path, annotations: dict[str, str], expected: str, *, paused: bool
) -> None:
    """A reader was told to edit the template of a paused Deployment that Argo CD manages."""
    owner, *pods = workload("train", {GPU: "1"}, ["gpu-0"])
    owner["metadata"]["annotations"] = annotations
    owner["spec"]["paused"] = paused
    objects = [
        *(plugin_node("gpu-0"), plugin_node("gpu-1"), hami_node("hami-0"), hami_node("hami-1")),
        *(namespace("team"), owner, *pods),
        *workload("web", SHARE, ["hami-0", "hami-1"] * 4, namespace="shares"),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    (note,) = {note for wave in plan["waves"] for note in wave["notes"] if note.startswith(NOTE)}
    assert note.endswith(f"a new snapshot then{expected}; see strayWorkloads in plan.yaml")
