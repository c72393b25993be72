"""`drawbridge assess` and `plan`: parts of GPUs by time slicing or MPS, as opposed to whole ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import namespace, node
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import Objects, held_objects, planned, waves

HELD = (
    "its device plugin offers each GPU 4 times (time slicing or MPS), and a DRA driver would give a whole one to each pod "
    "that has a part of one"
)
SLICED = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "4"}


def sliced_node(name: str, **labels: str) -> dict[str, Any]:
    """Return a node with four GPUs, offered as sixteen by its device plugin."""
    return plugin_node(name, 16, **{**SLICED, **labels})


MIG = "nvidia.com/mig-1g.5gb"
GKE = "cloud.google.com/gke-"
GKE_SHARED = {f"{GKE}gpu-sharing-strategy": "mps", f"{GKE}max-shared-clients-per-gpu": "4"}
MIG_LABELS = {
    "product": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"},
    "shared product": {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED",
        "nvidia.com/gpu.replicas": "2",
    },
    "GKE": {f"{GKE}gpu-partition-size": "1g.5gb"},
}
"""Labels of nodes whose plugin calls MIG devices GPUs."""


def fleet() -> Objects:
    """Return a cluster with more pods than GPUs on the nodes that share them, and one on another node."""
    notebooks = workload("nb", {GPU: "1"}, ["ts-0"] * 6 + ["ts-1"] * 6, namespace="lab")
    web = workload("web", {GPU: "1"}, ["gpu-0"])
    nodes = [sliced_node("ts-0"), sliced_node("ts-1"), plugin_node("gpu-0"), plugin_node("gpu-1")]
    return [*nodes, namespace("team"), namespace("lab"), *notebooks, *web]


def assessed(tmp_path: Path, objects: Objects) -> dict[str, Any]:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    answer: dict[str, Any] = json.loads(
        drawbridge("assess", "--snapshot", file, "-o", "json").stdout
    )
    return answer


def test_a_plan_holds_the_nodes_and_says_how_to_go_on(tmp_path: Path) -> None:
    """They were whole GPUs: of twelve pods on eight of them four waited, and the others got a whole one each."""
    plan = planned(tmp_path, fleet())

    held = held_objects(plan)
    assert HELD == held["Node//ts-0"] == held["Node//ts-1"]
    assert {"Node//ts-0", "Node//ts-1", "Deployment/lab/nb"} == held.keys()
    (fix,) = {entry["fix"] for entry in plan["held"]}
    assert "--time-slicing whole" in fix
    assert "renameByDefault" in fix
    assert "translation.keep" in fix
    page = (tmp_path / "plan" / "plan.html").read_text()
    assert "The devices of ts-0, ts-1 are not counted" in page
    assert ["gpu-0", "gpu-1"] == sorted(name for names, _ in waves(plan) for name in names)


def test_pods_in_parts_use_no_devices_of_other_nodes(tmp_path: Path) -> None:
    """Four of them took the devices of gpu-1 in the simulation, so the evicted pod found none there."""
    plan = planned(tmp_path, fleet(), "--wave-nodes", 1)

    assert 7 == plan["waves"][0]["freeForKeys"]["before"]


def test_whole_gpus_for_parts_are_given_on_demand_only(tmp_path: Path) -> None:
    notebooks = workload("nb", {GPU: "1"}, ["ts-0"], namespace="lab")
    objects = [sliced_node("ts-0"), plugin_node("gpu-0"), namespace("lab"), *notebooks]

    plan = planned(tmp_path, objects, "--time-slicing", "whole")

    assert "whole" == plan["timeSlicing"]
    assert {} == held_objects(plan)
    notes = str([wave["notes"] for wave in plan["waves"]])
    assert "offers each GPU 4 times (nvidia.com/gpu.sharing-strategy is not set): pods" in notes


def selecting(value: str, by: str) -> dict[str, Any]:
    """Return the fields of a pod that selects its nodes by the product of their GPUs."""
    key = "nvidia.com/gpu.product"
    if by == "nodeSelector":
        return {"nodeSelector": {key: value}}
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize("by", ["nodeSelector", "affinity"])
def test_a_pod_that_selects_the_shared_product_has_no_node_after_the_switch(
    tmp_path: Path, by: str
) -> None:
    """Its node has the product without -SHARED once nothing shares its GPUs."""
    product = {"nvidia.com/gpu.product": "Tesla-T4-SHARED"}
    spec = selecting("Tesla-T4-SHARED", by)
    notebooks = workload("nb", {GPU: "1"}, ["ts-0"], namespace="lab", **spec)
    objects = [sliced_node("ts-0", **product), plugin_node("gpu-0"), namespace("lab"), *notebooks]

    plan = planned(tmp_path, objects, "--time-slicing", "whole")

    held = held_objects(plan)
    assert (
        "its pods select nodes by nvidia.com/gpu.product=Tesla-T4-SHARED"
        in held["Deployment/lab/nb"]
    )
    assert [["gpu-0"]] == [names for names, _ in waves(plan)]


@pytest.mark.parametrize("by", ["nodeSelector", "affinity"])
def test_no_pod_counts_on_the_product_without_sharing(tmp_path: Path, by: str) -> None:
    """GPU feature discovery goes on by its own configuration: the switched node may keep -SHARED."""
    shared = sliced_node("ts-0", **{"nvidia.com/gpu.product": "Tesla-T4-SHARED"})
    whole = plugin_node("gpu-0", 2, **{"nvidia.com/gpu.product": "Tesla-T4"})
    web = workload("web", {GPU: "2"}, ["gpu-0"], **selecting("Tesla-T4", by))
    notebooks = workload("nb", {GPU: "1"}, ["ts-0"], namespace="lab")

    plan = planned(
        tmp_path,
        [shared, whole, plugin_node("gpu-1"), namespace("team"), *web, *notebooks],
        *("--time-slicing", "whole", "--wave-nodes", 1),
    )

    assert "ts-0" in [name for names, _ in waves(plan) for name in names]
    assert "1 of Deployment/team/web" in held_objects(plan)["Node//gpu-0"]


def test_a_translated_workload_holds_its_namespace(tmp_path: Path) -> None:
    """A restart would give each of its pods a claim for a whole GPU."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {native: translate}\n")

    plan = planned(tmp_path, fleet(), "--settings", settings)

    held = held_objects(plan)
    assert "Deployment/lab/nb cannot move" in held["Namespace//lab"]
    assert "Namespace//team" not in held


@pytest.mark.parametrize("strategy", ["time-sharing", "mps"])
def test_gpus_that_gke_shares_are_parts(tmp_path: Path, strategy: str) -> None:
    """They were whole GPUs: a plan waited for four devices of each, and the wave stopped at a drained node."""
    labels = {**GKE_SHARED, f"{GKE}gpu-sharing-strategy": strategy}
    nodes = [node("ts-0", {GPU: "4"}, labels, {}), plugin_node("gpu-0"), namespace("lab")]
    notebooks = workload("nb", {GPU: "1"}, ["ts-0"] * 3, namespace="lab")

    plan = planned(tmp_path, [*nodes, *notebooks])
    whole = planned(tmp_path, [*nodes, *notebooks[:2]], "--time-slicing", "whole")

    assert HELD == held_objects(plan)["Node//ts-0"]
    assert [["gpu-0"]] == [names for names, _ in waves(plan)]
    devices = {node["name"]: node["devices"] for wave in whole["waves"] for node in wave["nodes"]}
    assert {"gpu.nvidia.com": 1} == devices["ts-0"]


@pytest.mark.parametrize("clients", ["1", "x", ""])
def test_gpus_of_gke_with_one_client_are_whole(tmp_path: Path, clients: str) -> None:
    labels = {**GKE_SHARED, f"{GKE}max-shared-clients-per-gpu": clients}

    plan = planned(tmp_path, [node("gpu-0", {GPU: "4"}, labels, {}), plugin_node("gpu-1")])

    assert {} == held_objects(plan)


@pytest.mark.parametrize("options", [(), ("--time-slicing", "whole")], ids=["hold", "whole"])
@pytest.mark.parametrize("labels", MIG_LABELS.values(), ids=MIG_LABELS.keys())
def test_mig_devices_under_the_name_of_gpus_are_held(
    tmp_path: Path, labels: dict[str, str], options: tuple[str, ...]
) -> None:
    """They were whole GPUs: after the switch there were seven MIG devices, and no pod with that name got one."""
    nodes = [node("m-0", {GPU: "7"}, labels, {}), plugin_node("gpu-0"), plugin_node("gpu-1")]
    small = workload("small", {GPU: "1"}, ["m-0"] * 3, namespace="lab")

    plan = planned(tmp_path, [*nodes, namespace("lab"), *small], *options)

    held = held_objects(plan)
    assert {"Node//m-0", "Deployment/lab/small"} == held.keys()
    assert "offers MIG devices of 1g.5gb under the name of GPUs" in held["Node//m-0"]
    assert "a MIG device each" in held["Deployment/lab/small"]
    (fix,) = {entry["fix"] for entry in plan["held"]}
    assert "MIG strategy mixed" in fix
    assert "nvidia.com/mig-1g.5gb" in fix
    assert ["gpu-0", "gpu-1"] == sorted(name for names, _ in waves(plan) for name in names)


def test_a_product_with_mig_in_its_own_name_is_a_gpu(tmp_path: Path) -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-MIG-READY"}

    plan = planned(tmp_path, [node("gpu-0", {GPU: "4"}, labels, {}), plugin_node("gpu-1")])

    assert {} == held_objects(plan)


def test_mig_devices_that_their_plugin_offers_by_size_move(tmp_path: Path) -> None:
    """That is the way on that the plan names."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/mig.strategy": "mixed"}
    nodes = [node(f"m-{number}", {MIG: "7"}, labels, {}) for number in range(2)]

    plan = planned(tmp_path, [*nodes, namespace("team"), *workload("small", {MIG: "1"}, ["m-0"])])

    assert {} == held_objects(plan)


def test_assess_names_the_pods_of_both_forms(tmp_path: Path) -> None:
    mig = node("m-0", {GPU: "7"}, MIG_LABELS["product"], {})
    objects = [*fleet(), mig, *workload("both", {GPU: "1"}, ["m-0", "m-0", "ts-0"])]

    answer = assessed(tmp_path, objects)

    parts, small = answer["blockers"]
    assert ["gpusInParts", "gpusInParts"] == [parts["code"], small["code"]]
    assert parts["message"].startswith("13 pods on 2 nodes have a part of a GPU each")
    assert small["message"].startswith("2 pods on 1 node have a MIG device each")
    assert ["Deployment/team/both"] == small["objects"]
    assert (1, 1) == (answer["capacity"]["placed"], answer["capacity"]["pods"])
    codes = {entry["object"]: entry["codes"] for entry in answer["workloads"]}
    assert ["gpusInParts"] == codes["Deployment/team/both"]
    sizes = {entry["name"]: entry["migSize"] for entry in answer["nodes"]}
    assert {"m-0": "1g.5gb"} == {name: size for name, size in sizes.items() if size}


def test_assess_has_a_row_of_mig_devices_under_the_name_of_gpus(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    nodes = [node(f"m-{number}", {GPU: "7"}, MIG_LABELS["GKE"], {}) for number in range(2)]
    file.write_text(dump_yaml(nodes))

    text = " ".join(drawbridge("assess", "--snapshot", file).stdout.split())

    assert "2 nodes offer MIG devices of 1g.5gb under the name of GPUs: plan holds them" in text


@pytest.mark.parametrize("replicas", ["1", "0", "x", ""])
def test_nodes_that_offer_each_gpu_once_move(tmp_path: Path, replicas: str) -> None:
    nodes: list[dict[str, Any]] = [plugin_node("gpu-0"), plugin_node("gpu-1"), namespace("team")]
    for entry in nodes[:2]:
        entry["metadata"]["labels"]["nvidia.com/gpu.replicas"] = replicas

    plan = planned(tmp_path, [*nodes, *workload("web", {GPU: "1"}, ["gpu-1"])])

    assert {} == held_objects(plan)


def test_assess_names_the_pods_and_places_the_others(tmp_path: Path) -> None:
    answer = assessed(tmp_path, fleet())

    (blocker,) = answer["blockers"]
    assert "gpusInParts" == blocker["code"]
    assert ["Deployment/lab/nb"] == blocker["objects"]
    assert blocker["message"].startswith("12 pods on 2 nodes have a part of a GPU each")
    assert (1, 1) == (answer["capacity"]["placed"], answer["capacity"]["pods"])
    codes = {entry["object"]: entry["codes"] for entry in answer["workloads"]}
    assert {"Deployment/lab/nb": ["gpusInParts"], "Deployment/team/web": []} == codes


@pytest.mark.parametrize(
    ("resource", "labels", "devices"),
    [
        (GPU, {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "4"}, 4),
        (GPU, {"nvidia.com/gpu.replicas": "4"}, 4),
        (GPU, GKE_SHARED, 4),
        ("nvidia.com/mig-1g.10gb", {"nvidia.com/mig-1g.10gb.replicas": "4"}, 4),
    ],
)
def test_devices_are_counted_once(
    tmp_path: Path, resource: str, labels: dict[str, str], devices: int
) -> None:
    """Without the label of the count, and of MIG devices, each part was a device."""
    answer = assessed(tmp_path, [node("ts-0", {resource: "16"}, labels, {})])

    (entry,) = answer["nodes"]
    assert (devices, 4) == (entry["devices"], entry["replicas"])


def test_whole_gpus_may_stray_to_nodes_that_offer_parts(tmp_path: Path) -> None:
    plan = planned(tmp_path, [*fleet(), *workload("other", {GPU: "1"}, ["gpu-1"])])

    notes = [note for wave in plan["waves"] for note in wave["notes"]]
    stray = (
        "may get a node with time slicing (ts-0, ts-1), which offers parts of GPUs under the name"
    )
    assert any(stray in note for note in notes)


@pytest.mark.parametrize(
    ("sharing", "pods"), [(1, 1), (1, 6), (2, 1)], ids=["one first", "one last", "two"]
)
def test_they_may_stray_until_a_plan_of_whole_gpus_has_switched_the_last_such_node(
    tmp_path: Path, sharing: int, pods: int
) -> None:
    """With whole GPUs for the pods that have parts, nothing was said of the others."""
    offering = {f"ts-{number}" for number in range(sharing)}
    nodes = [*map(sliced_node, sorted(offering)), plugin_node("gpu-0"), plugin_node("gpu-1")]
    notebooks = workload("nb", {GPU: "1"}, ["ts-0"] * pods, namespace="lab")
    web = workload("web", {GPU: "1"}, ["gpu-0", "gpu-1"])
    objects = [*nodes, namespace("team"), namespace("lab"), *notebooks, *web]
    options = ("--time-slicing", "whole", "--wave-nodes", 1, "--spare-nodes", 0)

    waves = planned(tmp_path, objects, *options)["waves"]

    assert {"gpu-0", "gpu-1", "ts-0"} <= {wave["nodes"][0]["name"] for wave in waves}
    for wave in waves:
        (name,) = (node["name"] for node in wave["nodes"])
        offering.discard(name)
        stray = ["Deployment/team/web"] if offering and name.startswith("gpu-") else []
        assert stray == wave["strayWorkloads"], wave["wave"]


def test_whole_gpus_may_stray_to_nodes_that_offer_mig_devices(tmp_path: Path) -> None:
    mig = node("m-0", {GPU: "7"}, MIG_LABELS["product"], {})
    web = workload("web", {GPU: "1"}, ["gpu-0"])

    plan = planned(tmp_path, [mig, plugin_node("gpu-0"), plugin_node("gpu-1"), *web])

    notes = [note for wave in plan["waves"] for note in wave["notes"]]
    assert any("may get a node with MIG (m-0), which offers MIG devices" in note for note in notes)


def test_inventory_says_where_devices_are_offered_in_parts(tmp_path: Path) -> None:
    """Sixteen parts of four GPUs were sixteen GPUs."""
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([*fleet(), hami_node("h"), *workload("s", SHARE, ["h"])]))

    text = drawbridge("inventory", "--snapshot", file).stdout

    assert "nvidia.com/gpu: 60 on 5 nodes, 3 of them in parts of devices" in text


@pytest.mark.parametrize(
    ("key", "value", "is_told"),
    [
        ("nvidia.com/gpu.product", "Tesla-T4-SHARED", True),
        ("nvidia.com/gpu.replicas", "4", True),
        ("nvidia.com/gpu.sharing-strategy", "time-slicing", True),
        ("nvidia.com/gpu.sharing-strategy", "none", False),
        ("nvidia.com/gpu.replicas", "1", False),
    ],
)
def test_a_pod_that_selects_such_nodes_is_told_that_its_claim_gets_a_whole_gpu(
    tmp_path: Path, key: str, value: str, *, is_told: bool
) -> None:
    (_, pod) = workload("nb", {GPU: "1"}, [""], nodeSelector={key: value})
    del pod["spec"]["nodeName"], pod["metadata"]["ownerReferences"]
    file = tmp_path / "pod.yaml"
    file.write_text(dump_yaml([pod]))

    text = drawbridge("check", "-f", file).stdout

    told = "nvidia.com/gpu is a part of one; the claim gets a whole one" in " ".join(text.split())
    assert is_told is told, text


@pytest.mark.parametrize(
    ("amounts", "replicas"),
    [
        ({GPU: "2", f"{MIG}.shared": "56"}, f"{MIG}.shared"),
        ({"nvidia.com/gpu.shared": "8", MIG: "14"}, "nvidia.com/gpu.shared"),
        ({GPU: "2", "k8s.amazonaws.com/vgpu": "10"}, "k8s.amazonaws.com/vgpu"),
    ],
)
def test_a_node_with_replicas_beside_known_devices_is_held(
    tmp_path: Path, amounts: dict[str, str], replicas: str
) -> None:
    """A wave waited for more devices than there are, and took the only nodes of a name from its pods."""
    labels = {"nvidia.com/gpu.count": "2", f"{MIG}.count": "14"}
    web = workload("web", {GPU: "1"}, ["gpu-0"])
    nodes = [node("m-0", amounts, labels, {}), plugin_node("gpu-0"), plugin_node("gpu-1")]
    objects = [*nodes, namespace("team"), *web]

    plan = planned(tmp_path, objects)

    assert {"gpu-0", "gpu-1"} == {name for entry in waves(plan) for name in entry[0]}
    assert f"its device plugin offers {replicas}, and" in held_objects(plan)["Node//m-0"]
    assert {"m-0": [replicas]} == assessed(tmp_path, objects)["unknownDevices"]


def test_replicas_of_mig_devices_are_no_mig_devices(tmp_path: Path) -> None:
    """Four replicas of each of 14 devices were 56 devices of the assumed inventory."""
    shared = node("m-0", {GPU: "2", f"{MIG}.shared": "56"}, {f"{MIG}.replicas": "4"}, {})

    (answer,) = assessed(tmp_path, [shared])["nodes"]

    assert ("m-0", 2) == (answer["name"], answer["devices"])


def test_amounts_of_known_devices_hold_no_node(tmp_path: Path) -> None:
    """Koordinator's and HAMi's nodes offer names beside their devices that no driver has."""
    amounts = {GPU: "20", "nvidia.com/gpumem": "80", "koordinator.sh/gpu.shared": "200"}
    shares = hami_node("hami-0")
    shares["status"]["allocatable"] |= amounts
    nodes = [shares, hami_node("hami-1")]
    objects = [*nodes, namespace("team"), *workload("web", SHARE, ["hami-0"])]

    plan = planned(tmp_path, objects)

    assert {"hami-0", "hami-1"} == {name for entry in waves(plan) for name in entry[0]}
    assert {} == assessed(tmp_path, objects)["unknownDevices"]
