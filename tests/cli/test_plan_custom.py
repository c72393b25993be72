"""`drawbridge plan` and `assess` with pods of kinds that other projects' controllers make."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from kube.names import TRANSLATE_LABEL
from testing.builders import HAMI
from testing.command import drawbridge
from testing.documents import device_class, namespace, node
from testing.migration import (
    GPU,
    SHARE,
    daemon_set,
    hami_node,
    plugin_node,
    ray_cluster,
    running_job,
    workload,
)
from testing.plan import failed_before, held_objects, planned, waves

VERSION: Final = {
    "RayCluster": "ray.io/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "PyTorchJob": "kubeflow.org/v1",
    "MPIJob": "kubeflow.org/v1",
    "Notebook": "kubeflow.org/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "Trainer": "example.com/v1",
    "Job": "batch.volcano.sh/v1alpha1",
    "InferenceService": "serving.kserve.io/v1beta1",
}

LOST: Final = (
    "its tasks, actors and objects are lost, and with the head those of the whole RayCluster"
)
NO_END: Final = "it never ends by itself"


OWN_FIXES: Final = {"Job/team/a": "Node//hami-0", "RayCluster/team/b": "Node//hami-1"}


def pods_of(
    kind: str, name: str, limits: dict[str, str], nodes: Sequence[str], **spec: Any
) -> list[dict[str, Any]]:
    """Pods of a custom workload without its object in the snapshot."""
    pods = workload(name, limits, nodes, kind=kind, **spec)[1:]
    for pod in pods:
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = VERSION[kind]
    return pods


def ray(workers: Sequence[str]) -> list[dict[str, Any]]:
    """A RayCluster with a first pod without devices, and one each for the others."""
    head = pods_of("RayCluster", "tune", {"cpu": "1"}, ["gpu-0"])
    head[0]["metadata"]["name"] = "tune-a-head"
    return [*head, *pods_of("RayCluster", "tune", {GPU: "1"}, workers)]


def test_workers_beside_a_head_without_devices_are_placed(tmp_path: Path) -> None:
    """Only the first pod was looked at: the drains took cards from workers that no wave knew of."""
    full = [plugin_node("gpu-0", 2), plugin_node("gpu-1", 2), namespace("team")]

    plan = planned(tmp_path, [*full, *ray(["gpu-0", "gpu-0", "gpu-1"])])

    assert [] == waves(plan)
    assert "3 of RayCluster/team/tune" not in str(plan["held"])
    assert "of RayCluster/team/tune" in held_objects(plan)["Node//gpu-0"]


@pytest.mark.parametrize("kind", ["RayCluster", "LeaderWorkerSet", "PyTorchJob"])
def test_a_custom_workload_of_whole_devices_moves(tmp_path: Path, kind: str) -> None:
    """Its controller creates an evicted pod again, and Kubernetes serves that on both kinds of nodes."""
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team")]

    plan = planned(tmp_path, [*nodes, *pods_of(kind, "a", {GPU: "1"}, ["gpu-0", "gpu-1"])])

    assert {} == held_objects(plan)
    assert ["gpu-0", "gpu-1"] == sorted(name for names, _ in waves(plan) for name in names)
    losses = {
        reason for wave in plan["waves"] for item in wave["work"] for reason in item["reasons"]
    }
    (loss,) = losses - {NO_END}
    assert loss.startswith(LOST if kind == "RayCluster" else f"its {kind} may start its other pods")


@pytest.mark.parametrize(
    ("kind", "creator", "waits", "never_ends"),
    [
        ("RayCluster", "", True, True),
        ("RayCluster", "RayJob", True, False),
        ("RayCluster", "RayService", False, False),
        ("PyTorchJob", "", True, False),
        ("LeaderWorkerSet", "", False, False),
    ],
)
def test_a_group_with_work_is_asked_about_or_waited_for(
    tmp_path: Path, kind: str, creator: str, waits: bool, never_ends: bool
) -> None:
    """The head of a RayCluster was evicted without a question, and all of its work was lost."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(3)]
    pods = pods_of(kind, "a", {GPU: "1"}, ["gpu-0"])
    clusters = [ray_cluster("a", creator)] if creator else []

    plan = planned(tmp_path, [*nodes, namespace("team"), *pods, *clusters])

    (wave,) = [wave for wave in plan["waves"] if wave["work"]]
    (work,) = wave["work"]
    assert (waits, never_ends) == (work["waits"], work["neverEnds"])
    script = (tmp_path / "plan" / f"wave-{wave['wave']}" / "switch.sh").read_text()
    assert (waits and not never_ends) is ("# Waits for pod team/a-0 of" in script)
    assert never_ends is ("# Asks about pod team/a-0 of" in script)
    notes = [note for note in wave["notes"] if note.startswith("RayCluster/team/a loses work")]
    assert never_ends is bool(notes)
    assert never_ends is ("--evict-jobs=gpu-0 evicts it with all other pods of the node" in script)


@pytest.mark.parametrize("restart_policy", ["Always", "Never"])
def test_workers_of_a_ray_job_have_ended_when_their_nodes_are_drained(
    tmp_path: Path, restart_policy: str
) -> None:
    """Those with Always, the default, needed places elsewhere: both nodes were held, though switch.sh waits for both ends."""
    full = [plugin_node("gpu-0", 2), plugin_node("gpu-1", 2), namespace("team")]
    limits, own_nodes = {GPU: "2"}, ["gpu-0", "gpu-1"]
    workers = pods_of("RayCluster", "tune", limits, own_nodes, restartPolicy=restart_policy)

    plan = planned(tmp_path, [*full, *workers, ray_cluster("tune", "RayJob")])

    assert {} == held_objects(plan)
    assert [["gpu-0", "gpu-1"]] == [sorted(names) for names, _ in waves(plan)]


def test_nodes_of_one_ray_cluster_are_in_one_wave_and_last(tmp_path: Path) -> None:
    """Its work was lost in two waves."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(5)]
    asked = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    other = workload("web", {GPU: "1"}, ["gpu-1"])
    other[1]["metadata"]["annotations"] = asked

    plan = planned(
        tmp_path,
        [*nodes, namespace("team"), *ray(["gpu-0", "gpu-2"]), *other],
        "--wave-nodes",
        "2",
    )

    together = [sorted(names) for names, _ in waves(plan) if "gpu-0" in names]
    assert [["gpu-0", "gpu-2"]] == together


def test_nodes_of_one_training_are_in_one_wave(tmp_path: Path) -> None:
    """Two answers of a person, in two waves, started the same training anew twice."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(5)]
    first = pods_of("PyTorchJob", "a", {GPU: "1"}, ["gpu-0", "gpu-2"])
    second = pods_of("PyTorchJob", "b", {GPU: "1"}, ["gpu-1", "gpu-3"])

    plan = planned(tmp_path, [*nodes, namespace("team"), *first, *second], "--wave-nodes", "2")

    busy = [sorted(names) for names, _ in waves(plan) if "gpu-4" not in names]
    assert [["gpu-0", "gpu-2"], ["gpu-1", "gpu-3"]] == busy


def job_of_set(name: str, node: str) -> list[dict[str, Any]]:
    """A Job of the JobSet `a` with a pod on a node."""
    job, pod = running_job(name, {GPU: "1"}, [node])
    owner = {"apiVersion": VERSION["JobSet"], "kind": "JobSet", "name": "a", "controller": True}
    job["metadata"]["ownerReferences"] = [owner]
    return [job, pod]


def test_nodes_of_the_jobs_of_one_job_set_are_in_one_wave(tmp_path: Path) -> None:
    """A JobSet starts all of its Jobs anew, and each of them was a training of its own."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(5)]
    jobs = [*job_of_set("a-0", "gpu-0"), *job_of_set("a-1", "gpu-2")]
    second = pods_of("PyTorchJob", "b", {GPU: "1"}, ["gpu-1", "gpu-3"])

    plan = planned(tmp_path, [*nodes, namespace("team"), *jobs, *second], "--wave-nodes", "2")

    busy = [sorted(names) for names, _ in waves(plan) if "gpu-4" not in names]
    assert [["gpu-0", "gpu-2"], ["gpu-1", "gpu-3"]] == sorted(busy)


ELSEWHERE: Final = "with one evicted pod "


def elsewhere(plan: Mapping[str, Any]) -> list[str]:
    """The notes on pods of other nodes that lose work with those of a wave."""
    return [note for wave in plan["waves"] for note in wave["notes"] if note.startswith(ELSEWHERE)]


LET_IT_END: Final = "; where that counts, let it end by itself before this wave"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("PyTorchJob", "may lose the work of those on other nodes, too: {}" + LET_IT_END),
        ("RayCluster", "may lose the work of those on other nodes, too: {}"),
        ("LeaderWorkerSet", "may start those on other nodes anew, too: {}"),
    ],
)
def test_pods_that_lose_work_with_others_are_named_where_their_node_is_held(
    tmp_path: Path, kind: str, text: str
) -> None:
    """A training lost the work of a pod on a held node, and the plan named it nowhere."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(3)]
    nodes[1]["spec"] = {"unschedulable": True}
    pods = pods_of(kind, "a", {GPU: "1"}, ["gpu-0", "gpu-1"])

    plan = planned(tmp_path, [*nodes, namespace("team"), *pods])

    note = f"{ELSEWHERE}{kind}/team/a {text.format('team/a-1 on gpu-1 (no wave)')}"
    assert [note] == elsewhere(plan)
    assert note in (tmp_path / "plan" / "README.md").read_text()


def test_pods_that_lose_work_with_others_are_named_with_their_later_wave(tmp_path: Path) -> None:
    """Those of an earlier wave have ended by then, or have begun anew."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(3)]
    pods = pods_of("PyTorchJob", "a", {GPU: "1"}, ["gpu-0", "gpu-1"])
    jobs = [*job_of_set("a-0", "gpu-0"), *job_of_set("a-1", "gpu-1")]

    for objects, name in ((pods, "PyTorchJob/team/a"), (jobs, "JobSet/team/a")):
        plan = planned(tmp_path, [*nodes, namespace("team"), *objects], "--wave-nodes", 1)

        (later,) = [number for number, (names, _) in enumerate(waves(plan)) if "gpu-1" in names]
        pod = f"team/a-1{'-0' if objects is jobs else ''} on gpu-1 (wave {later + 1})"
        assert [
            f"{ELSEWHERE}{name} may lose the work of those on other nodes, too: {pod}{LET_IT_END}"
        ] == elsewhere(plan)


def test_another_group_of_a_leader_worker_set_loses_nothing(tmp_path: Path) -> None:
    nodes = [plugin_node(f"gpu-{number}") for number in range(3)]
    nodes[1]["spec"] = {"unschedulable": True}
    owner, *pods = workload("lws", {GPU: "1"}, ["gpu-0", "gpu-1", "gpu-1"], kind="StatefulSet")
    for pod, group in zip(pods, "001", strict=True):
        pod["metadata"]["labels"] = {
            "app": "lws",
            "leaderworkerset.sigs.k8s.io/name": "lws",
            "leaderworkerset.sigs.k8s.io/group-index": group,
        }

    plan = planned(tmp_path, [*nodes, namespace("team"), owner, *pods])

    text = "LeaderWorkerSet/team/lws (group 0) may start those on other nodes anew, too"
    assert [f"{ELSEWHERE}{text}: team/lws-1 on gpu-1 (no wave)"] == elsewhere(plan)


def test_a_pod_of_a_leader_worker_set_is_known_by_its_label(tmp_path: Path) -> None:
    """Its controller is a StatefulSet."""
    pods = workload("lws", {GPU: "1"}, ["gpu-0"], kind="StatefulSet")
    pods[1]["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/name"] = "lws"

    plan = planned(tmp_path, [plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team"), *pods])

    assert "its LeaderWorkerSet may start its other pods anew" in str(plan["waves"])


def test_workers_that_differ_hold_their_nodes_and_say_so(tmp_path: Path) -> None:
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team")]
    second = pods_of("RayCluster", "tune", {GPU: "2"}, ["gpu-1"])
    second[0]["metadata"]["name"] = "tune-big"

    plan = planned(tmp_path, [*nodes, *ray(["gpu-0"]), *second])

    assert {"Node//gpu-0", "Node//gpu-1"} == held_objects(plan).keys()
    assert "pods of this RayCluster request different" in held_objects(plan)["Node//gpu-0"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (
            "RayCluster",
            "nothing here restarts a RayCluster, so its pods would keep their device keys",
        ),
        ("Trainer", "its pods belong to a Trainer, whose pod template is not read here"),
    ],
)
def test_a_custom_workload_of_shares_is_held_with_its_reason(
    tmp_path: Path, kind: str, reason: str
) -> None:
    nodes = [hami_node("hami-0"), hami_node("hami-1"), namespace("team")]
    other = workload("web", SHARE, ["hami-1"])

    plan = planned(tmp_path, [*nodes, *pods_of(kind, "a", SHARE, ["hami-0"]), *other])

    assert reason in held_objects(plan)["Node//hami-0"]
    assert [] == [name for _, names in waves(plan) for name in names]
    assert f"would get claims: {kind}/team/a" in held_objects(plan)["Namespace//team"]


def test_a_job_of_volcano_is_stopped_by_its_own_command(tmp_path: Path) -> None:
    """It was to be scaled to nothing, or suspended, and it has neither replicas nor a field for that."""
    nodes = [hami_node("hami-0"), hami_node("hami-1"), namespace("team")]

    plan = planned(tmp_path, [*nodes, *pods_of("Job", "a", SHARE, ["hami-0"])])

    fixes = {entry["object"]: entry["fix"] for entry in plan["held"]}
    assert "stop it (vcctl job suspend --name JOB --namespace NAMESPACE; " in fixes["Node//hami-0"]
    assert "scale it to nothing" not in str(plan["held"])


def test_the_template_of_a_job_of_volcano_is_read_once_it_is_stopped(tmp_path: Path) -> None:
    """Its template was not read, said the reason, while the plan after the stop read it."""
    nodes = [hami_node("hami-0"), hami_node("hami-1"), namespace("team")]

    plan = planned(tmp_path, [*nodes, *pods_of("Job", "a", SHARE, ["hami-0"])])

    reason = held_objects(plan)["Node//hami-0"]
    assert "a Job of Volcano, whose pod template is read only while it has no pods" in reason


def test_the_fix_of_a_namespace_is_about_each_of_its_workloads(tmp_path: Path) -> None:
    """It was that of the first one, so that another had none."""
    nodes = [hami_node("hami-0"), hami_node("hami-1"), namespace("team")]
    job = pods_of("Job", "a", SHARE, ["hami-0"])
    ray_cluster = pods_of("RayCluster", "b", SHARE, ["hami-1"])

    plan = planned(tmp_path, [*nodes, *job, *ray_cluster])

    fixes = {entry["object"]: entry["fix"] for entry in plan["held"]}
    texts = [f"for {name}: {fixes[node]}" for name, node in OWN_FIXES.items()]
    assert "; ".join(texts) == fixes["Namespace//team"]


def test_a_custom_workload_that_has_to_stay_up_lets_others_move(tmp_path: Path) -> None:
    """The only fix was to stop it, though its controller replaces its pods one after another."""
    nodes = [hami_node(f"hami-{number}") for number in range(3)]
    others = [*nodes, namespace("team"), *workload("web", SHARE, ["hami-1"])]
    service = pods_of("InferenceService", "a", SHARE, ["hami-0"])
    held = {
        entry["object"]: entry["fix"] for entry in planned(tmp_path, [*others, *service])["held"]
    }
    service[0]["metadata"]["labels"][TRANSLATE_LABEL] = "false"
    labelled = planned(tmp_path, [*others, *service])

    for name in ("Node//hami-0", "Namespace//team"):
        assert held[name].startswith("where it has to stay up"), held[name]
        assert f'set the label {TRANSLATE_LABEL}: "false"' in held[name]
    left = held_objects(labelled)
    assert "Node//hami-0" in left
    assert "Namespace//team" not in left
    assert (["hami-2"], ["team"]) == waves(labelled)[0]


@pytest.mark.parametrize("kind", ["RayCluster", "Trainer"])
def test_assess_blocks_for_what_plan_holds_until_it_is_stopped(tmp_path: Path, kind: str) -> None:
    """The fix of `plan` was a circle, and `assess` named no blocker."""
    nodes = [hami_node("hami-0"), hami_node("hami-1"), namespace("team")]
    other = workload("web", SHARE, ["hami-1"])
    pods = pods_of(kind, "a", SHARE, ["hami-0"])

    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml([*nodes, *pods, *other]))
    result = drawbridge("assess", "--snapshot", file, "-o", "json")
    plan = planned(tmp_path, [*nodes, *pods, *other])
    stopped = planned(tmp_path, [*nodes, *other])

    (blocker,) = json.loads(result.stdout)["blockers"]
    assert ("podTemplateNotRead", [f"{kind}/team/a"]) == (blocker["code"], blocker["objects"])
    held = {entry["object"]: entry for entry in plan["held"]}
    reason = held["Node//hami-0"]["reason"].replace(f" of {kind}/team/a (unknown)", "")
    message = reason.replace("uses its devices", "uses devices")
    assert f"{message}; plan holds its node and its namespace" == blocker["message"]
    assert blocker["fix"] == held["Node//hami-0"]["fix"] == held["Namespace//team"]["fix"]
    assert "stop it (scale it to nothing, or suspend it) or wait for" in blocker["fix"]
    assert "label its namespace first if no wave opts it in" in blocker["fix"]
    assert result.exit_code == 1
    assert {} == held_objects(stopped)
    assert ["hami-0", "hami-1"] == sorted(name for names, _ in waves(stopped) for name in names)


def test_assess_says_that_a_pod_without_a_node_requests_devices(tmp_path: Path) -> None:
    """It uses none yet."""
    pods = pods_of("Trainer", "a", SHARE, [""])
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml([hami_node("hami-0"), namespace("team"), *pods]))

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    messages = [entry["message"] for entry in answer["blockers"]]
    assert ["a pod requests devices, and its pods belong to a Trainer"] == [
        message.partition(", whose")[0] for message in messages if "Trainer" in message
    ]


@pytest.mark.parametrize(
    ("limits", "labels", "code"),
    [
        (SHARE, {TRANSLATE_LABEL: "false"}, "optedOut"),
        ({"nvidia.com/unknown": "1"}, {}, "untranslatedDeviceKey"),
    ],
    ids=["opted out", "a key that nothing translates"],
)
def test_assess_names_pods_that_keep_their_node_from_a_wave(
    tmp_path: Path, limits: dict[str, str], labels: dict[str, str], code: str
) -> None:
    """The fix of a blocker is to opt pods out, and the next assessment had a blocker with the fix to opt them in."""
    row, end = "blockers", "; plan holds its node"
    if labels:
        row, end = "notes", "; it stays as it is, and so does its node"
    nodes = [hami_node("hami-0"), hami_node("hami-1"), namespace("team")]
    pods = workload("web", limits, ["hami-0"])
    for entry in (pods[0]["spec"]["template"]["metadata"], pods[1]["metadata"]):
        entry["labels"] |= labels
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml([*nodes, *pods]))

    result = drawbridge("assess", "--snapshot", file, "-o", "json")
    plan = planned(tmp_path, [*nodes, *pods])

    found = {entry["code"]: entry for entry in json.loads(result.stdout)[row]}
    held = {entry["object"]: entry for entry in plan["held"]}["Node//hami-0"]
    assert result.exit_code == (row == "blockers")
    assert ["Deployment/team/web"] == found[code]["objects"]
    assert held["fix"] == found[code]["fix"]
    assert found[code]["message"].startswith("a pod uses devices, and ")
    assert found[code]["message"].endswith(end)


@pytest.mark.parametrize("kind", ["PyTorchJob", "MPIJob", "JobSet"])
def test_a_custom_workload_with_nics_is_proposed_to_keep_them_and_moves_then(
    tmp_path: Path, kind: str
) -> None:
    """The fix led to claims for NICs of no driver, and to pods without a node."""
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    for entry in nodes:
        entry["status"]["allocatable"] |= {"nvidia.com/hostdev": "8"}
    limits = {GPU: "2", "nvidia.com/hostdev": "2"}
    objects = [*nodes, namespace("team"), *pods_of(kind, "a", limits, ["gpu-0"])]
    file, settings = tmp_path / "now.yaml", tmp_path / "settings.yaml"
    file.write_text(dump_yaml(objects))
    settings.write_text(dump_yaml([{"translation": {"keep": ["sriov"]}}]))

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)
    plan = planned(tmp_path, objects)
    kept = planned(tmp_path, objects, "--settings", str(settings))

    assert {"sriov": [f"{kind}/team/a"]} == answer["keysToKeep"]
    held = {entry["object"]: entry for entry in plan["held"]}
    for name in ("Node//gpu-0", "Namespace//team"):
        assert held[name]["fix"] == (
            "leave sriov with its device plugin by translation.keep of the settings first, and plan again from a new snapshot"
        )
    assert "with claims no node would serve them: " in held["Node//gpu-0"]["reason"]
    assert {} == held_objects(kept)
    assert ["gpu-0", "gpu-1"] == sorted(name for names, _ in waves(kept) for name in names)


def test_a_custom_workload_that_has_ended_stops_no_wave(tmp_path: Path) -> None:
    """Its object is not read, so only its pods say that it was there."""
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team")]
    planned(tmp_path, [*nodes, *pods_of("PyTorchJob", "a", {GPU: "1"}, ["gpu-0"])])
    wave = next(path for path in (tmp_path / "plan").glob("wave-*") if _drains(path, "gpu-0"))
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(nodes))

    result = drawbridge("verify", "--snapshot", file, "--wave", wave)

    (line,) = [line for line in result.stdout.splitlines() if "PyTorchJob/team/a" in line]
    assert line.startswith("note"), line


def _drains(wave: Path, node: str) -> bool:
    return f"kubectl drain {node} " in (wave / "switch.sh").read_text()


MIG: Final = {"nvidia.com/mig-1g.5gb": "1"}
MIG_LABELS: Final = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    "nvidia.com/mig.strategy": "mixed",
}


def mig_node(name: str, devices: int) -> dict[str, Any]:
    return node(name, {"cpu": "8", "nvidia.com/mig-1g.5gb": str(devices)}, MIG_LABELS, {})


def test_a_node_with_a_notebook_takes_pods_of_device_plugins(tmp_path: Path) -> None:
    """Its device plugin goes on, and has the devices that the Notebook leaves; the node counted for nobody."""
    nodes = [mig_node(name, 7) for name in ("mig-0", "mig-1")]
    lab = pods_of("Notebook", "lab", MIG, ["mig-0"], namespace="labs")
    web = workload("web", MIG, ["mig-1"])

    plan = planned(tmp_path, [*nodes, namespace("labs"), namespace("team"), *lab, *web])

    assert {"Node//mig-0", "Namespace//labs"} == held_objects(plan).keys()
    assert [(["mig-1"], ["team"])] == waves(plan)


def test_a_node_with_a_notebook_takes_no_more_pods_than_it_leaves_devices_for(
    tmp_path: Path,
) -> None:
    nodes = [mig_node("mig-0", 2), mig_node("mig-1", 7)]
    lab = pods_of("Notebook", "lab", MIG, ["mig-0"], namespace="labs")
    web = workload("web", MIG, ["mig-1", "mig-1"])

    plan = planned(tmp_path, [*nodes, namespace("labs"), namespace("team"), *lab, *web])

    reason = held_objects(plan)["Node//mig-1"]
    assert "while draining this node only, 1 pod has no devices: 1 of Deployment/team/web" == reason


def test_a_node_with_a_notebook_takes_no_pods_with_claims(tmp_path: Path) -> None:
    """It has no DRA driver until its Notebook is stopped."""
    nodes = [mig_node("mig-0", 7), mig_node("mig-1", 2), mig_node("mig-2", 2)]
    lab = pods_of("Notebook", "lab", MIG, ["mig-0"], namespace="labs")
    web = workload("web", MIG, ["mig-0"] * 5)

    plan = planned(tmp_path, [*nodes, namespace("labs"), namespace("team"), *lab, *web])

    assert [] == waves(plan)
    assert "Namespace//team" in held_objects(plan)


def test_verify_counts_the_devices_of_a_notebook(tmp_path: Path) -> None:
    """Before a wave all devices of its node were free."""
    large = {**SHARE, "nvidia.com/gpumem": "39000"}
    driver = daemon_set(
        "hami-dra",
        nodeSelector={"drawbridge.internal/dra-driver": HAMI},
        volumes=[{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}],
    )
    lab = pods_of("Notebook", "lab", large, ["hami-0"], namespace="labs")
    later = pods_of("Notebook", "later", large, ["hami-0"], namespace="labs")
    web = workload("web", large, ["hami-1"])
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    objects = [driver, *nodes, namespace("labs"), namespace("team"), *lab, *web]

    assert [(["hami-1"], ["team"])] == waves(planned(tmp_path, objects))

    assert {} == failed_before(tmp_path, objects)
    failed = failed_before(tmp_path, [*objects, *later])
    assert "1 pod has no devices: 1 of Deployment/team/web" in failed["Wave//1"]


def test_a_held_node_of_a_notebook_with_unknown_devices_is_not_called_one_of_rejected_pods(
    tmp_path: Path,
) -> None:
    """Its pod is rejected by nothing: nothing translates it, and its devices are not counted."""
    nodes = [mig_node(name, 7) for name in ("mig-0", "mig-1")]
    lab = pods_of("Notebook", "lab", MIG, ["mig-0"], namespace="labs")
    lab[0]["metadata"]["labels"][TRANSLATE_LABEL] = "false"
    web = workload("web", MIG, ["mig-1"])

    plan = planned(tmp_path, [*nodes, namespace("labs"), namespace("team"), *lab, *web])

    reason = held_objects(plan)["Node//mig-1"]
    assert reason.startswith("while draining this node only, 1 pod has no devices")
    assert reason.endswith(
        "though they may have devices for such pods: mig-0 (nothing here moves some of its pods, so that it is not known "
        "which of its devices these have)"
    )


@pytest.mark.parametrize(
    ("limits", "restart", "is_held"),
    [
        ({GPU: "1"}, "Never", False),
        ({GPU: "1"}, "OnFailure", False),
        ({GPU: "1"}, "Always", True),
        (SHARE, "Never", True),
    ],
)
def test_whole_devices_of_an_unknown_kind_that_runs_to_its_end_are_waited_for(
    tmp_path: Path, limits: dict[str, str], restart: str, is_held: bool
) -> None:
    """One runner of CI held its node, and every other one that the next might have."""
    nodes = [
        hami_node(f"gpu-{number}") if limits is SHARE else plugin_node(f"gpu-{number}")
        for number in range(3)
    ]
    runner = pods_of("Trainer", "runner", limits, ["gpu-0"], restartPolicy=restart)

    plan = planned(tmp_path, [*nodes, namespace("team"), *runner])

    assert is_held is ("Node//gpu-0" in held_objects(plan))
    assert is_held is bool(held_objects(plan))
    if not is_held:
        work = [(item["pod"], item["waits"]) for wave in plan["waves"] for item in wave["work"]]
        assert [("Pod/team/runner-0", True)] == work
        assert ["gpu-0", "gpu-1", "gpu-2"] == sorted(
            name for names, _ in waves(plan) for name in names
        )


def test_classes_of_their_sizes_are_the_first_way_on_for_mig_devices(tmp_path: Path) -> None:
    """A reader was told to stop twelve pods that serve until the last wave, and a class kept them all."""
    nodes = [mig_node(name, 7) for name in ("mig-0", "mig-1", "mig-2")]
    cluster = [
        *nodes,
        namespace("labs"),
        *pods_of("Notebook", "lab", MIG, ["mig-0"], namespace="labs"),
    ]
    devices = "device.attributes['gpu.nvidia.com'].profile == '1g.5gb'"
    own = device_class(
        f"device.driver == 'gpu.nvidia.com' && {devices}",
        name="mig-1g.5gb.gpu.nvidia.com",
        extendedResourceName="nvidia.com/mig-1g.5gb",
    )

    without = planned(tmp_path, cluster)
    with_class = planned(tmp_path, [*cluster, own])

    fixes = {entry["object"]: entry["fix"] for entry in without["held"]}
    assert fixes["Node//mig-0"].startswith(
        "create a DeviceClass for each size of MIG devices, so that nvidia.com/mig-1g.5gb has one"
    )
    assert "or without such a class stop it (" in fixes["Node//mig-0"]
    assert {} == held_objects(with_class)
    assert ["mig-0", "mig-1", "mig-2"] == sorted(
        name for names, _ in waves(with_class) for name in names
    )
