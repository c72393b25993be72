"""`drawbridge plan` with pods that run, and that no node would serve after their move."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import api_object, class_of_driver, namespace, node
from testing.migration import (
    GPU,
    SHARE,
    daemon_set,
    hami_node,
    plugin_node,
    resource_slice,
    workload,
)
from testing.plan import call, document, held_objects, planned, waves

HAMI: Final = "hami-core-gpu.project-hami.io"
REGISTRY: Final = [
    {"name": "registry", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}},
]
_EXCLUDED: Final = [
    {"key": "nvidia.com/dra-kubelet-plugin", "operator": "NotIn", "values": ["true"]},
    {"key": "drawbridge.internal/dra-driver", "operator": "NotIn", "values": [HAMI]},
]
KEPT_AWAY: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": _EXCLUDED}]
        }
    }
}
"""The affinity of a device plugin that `prepare.sh` has kept from switched nodes."""
ON_HAMI: Final[dict[str, Any]] = {
    "nodeSelector": {"pool": "shared"},
    "schedulerName": "hami-scheduler",
}


def shared_node(name: str) -> dict[str, Any]:
    """A node of HAMi with a label that its switch leaves alone."""
    node = hami_node(name)
    node["metadata"]["labels"]["pool"] = "shared"
    return node


def cluster(rank: dict[str, str]) -> list[dict[str, Any]]:
    """Nodes of HAMi and of the device plugin, and a Deployment `rank` on one of HAMi's."""
    return [
        *(shared_node(f"hami-{number}") for number in range(3)),
        *(plugin_node(f"gpu-{number}") for number in range(2)),
        namespace("llm"),
        *workload("chat", SHARE, ["hami-0"], namespace="llm", **ON_HAMI),
        *workload("rank", rank, ["hami-1"], namespace="llm", **ON_HAMI),
        daemon_set(
            "hami-dra-driver",
            nodeSelector={"drawbridge.internal/dra-driver": HAMI},
            volumes=REGISTRY,
        ),
        daemon_set(
            "driver", nodeSelector={"nvidia.com/dra-kubelet-plugin": "true"}, volumes=REGISTRY
        ),
        daemon_set("nvidia-device-plugin", affinity=KEPT_AWAY),
    ]


def test_a_whole_device_of_a_node_for_shares_is_never_moved(tmp_path: Path) -> None:
    result = call(tmp_path, cluster({GPU: "1"}), "--wave-nodes", 5)
    plan = document(tmp_path)

    moved = [entry["object"] for wave in plan["waves"] for entry in wave["workloads"]]
    assert (1, ["Deployment/llm/chat"]) == (result.exit_code, moved), result.stdout
    assert [] == [name for _, names in waves(plan) for name in names]
    assert "hami-1" not in [name for names, _ in waves(plan) for name in names]
    held = held_objects(plan)
    assert {"Deployment/llm/rank", "Node//hami-1", "Namespace//llm"} == held.keys()
    assert "no node would serve them" in held["Deployment/llm/rank"]
    assert "devices of gpu.nvidia.com" in held["Deployment/llm/rank"]
    assert "Deployment/llm/rank" in held["Node//hami-1"]
    assert "cannot move as a whole" in held["Namespace//llm"]
    pages = [(tmp_path / "plan" / name).read_text() for name in ("README.md", "plan.html")]
    for text in (result.stdout, *pages):
        assert "its pods run, and after their move no node" in " ".join(text.split())
    for path in sorted((tmp_path / "plan").glob("wave-*/switch.sh")):
        commands = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert [line for line in commands if "rank" in line] == []


def test_devices_of_a_held_node_are_not_called_missing(tmp_path: Path) -> None:
    """The node has room for the pod, and takes none, since it is held."""
    nodes = [entry for entry in cluster({GPU: "1"}) if entry["metadata"]["name"] != "hami-2"]

    plan = planned(tmp_path, nodes, "--wave-nodes", 5)

    expected = (
        "1 pod has no devices: 1 of Deployment/llm/chat; held nodes do not count here, though they may have devices for such "
        "pods: hami-1 "
        "(pods of Deployment/llm/rank run on it, and after their move no node would serve them)"
    )
    assert held_objects(plan)["Node//hami-0"] == f"while draining this node only, {expected}"
    fixes = {entry["object"]: entry["fix"] for entry in plan["held"]}
    assert fixes["Node//hami-0"].startswith("solve what holds hami-1, or free devices")
    (note,) = [text for text in plan["waves"][0]["notes"] if text.startswith("no larger")]
    assert note == f"no larger: while draining gpu-0, gpu-1, hami-0, {expected}"


def test_a_node_without_room_is_not_named_for_being_held(tmp_path: Path) -> None:
    full = cluster({GPU: "1"})
    full = [entry for entry in full if entry["metadata"]["name"] != "hami-2"]
    full += workload(
        "more", {GPU: "1", "nvidia.com/gpumem": "40960"}, ["hami-1"] * 2, namespace="llm"
    )

    plan = planned(tmp_path, full, "--wave-nodes", 5)

    assert "held nodes" not in held_objects(plan)["Node//hami-0"]


def test_the_fix_for_a_whole_device_is_the_key_that_lets_it_move(tmp_path: Path) -> None:
    """It said `a share of a device`, and no name."""
    whole = planned(tmp_path, cluster({GPU: "1"}), "--wave-nodes", 5)
    all_memory = {GPU: "1", "nvidia.com/gpumem-percentage": "100"}
    moved = planned(tmp_path, cluster(all_memory), "--wave-nodes", 5)

    fixes = {entry["object"]: entry["fix"] for entry in whole["held"]}
    assert "nvidia.com/gpumem-percentage: 100 is a whole card" in fixes["Deployment/llm/rank"]
    assert {} == held_objects(moved)


def test_a_share_without_a_driver_for_it_is_told_so_at_once(tmp_path: Path) -> None:
    """The fix was an amount of memory, or `--snapshot`, and with that amount the driver was missing."""
    kai = {"schedulerName": "kai-scheduler"}
    objects = [
        *(plugin_node(f"gpu-{number}") for number in range(2)),
        namespace("llm"),
        *workload("rank", {"cpu": "1"}, ["gpu-0"], namespace="llm", **kai),
    ]
    for entry in (objects[-2]["spec"]["template"], objects[-1]):
        entry["metadata"]["annotations"] = {"gpu-fraction": "0.5"}

    plan = planned(tmp_path, objects)

    fixes = {entry["object"]: entry["fix"] for entry in plan["held"]}
    fix = fixes["Namespace//llm"]
    assert fix.startswith(f"have {HAMI} publish devices on nodes that the pod may use"), fix


def test_a_share_is_not_told_to_request_a_share(tmp_path: Path) -> None:
    objects = [
        *(plugin_node(f"gpu-{number}") for number in range(2)),
        namespace("llm"),
        *workload("rank", SHARE, ["gpu-0"], namespace="llm"),
    ]

    plan = planned(tmp_path, objects)

    fixes = {entry["object"]: entry["fix"] for entry in plan["held"]}
    assert "let them request" not in fixes["Deployment/llm/rank"]
    assert "have a driver publish devices of that class" in fixes["Deployment/llm/rank"]


def test_a_share_of_a_node_for_shares_moves(tmp_path: Path) -> None:
    plan = planned(tmp_path, cluster(SHARE), "--wave-nodes", 5)

    assert {} == held_objects(plan)
    assert ["llm"] == [name for _, names in waves(plan) for name in names]


def test_a_preflight_names_a_pod_that_no_node_would_serve(tmp_path: Path) -> None:
    """The pod has come since the plan was made."""
    planned(tmp_path, cluster(SHARE), "--wave-nodes", 5)
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(cluster({GPU: "1"})))
    wave = tmp_path / "plan" / "wave-1"

    result = drawbridge("verify", "--snapshot", file, "--wave", wave, "--before")

    assert 1 == result.exit_code
    assert "Deployment/llm/rank" in result.stdout
    assert "no node would serve them" in " ".join(result.stdout.split())


def test_a_pod_that_runs_where_the_new_devices_would_not_do_is_not_drained(tmp_path: Path) -> None:
    """HAMi lets more run than its device has memory for; a pod of it does not count as waiting."""
    full = {GPU: "1", "nvidia.com/gpumem": "40960"}
    first = hami_node("hami-0", gpus=1)
    first["metadata"]["labels"]["pool"] = "shared"
    anywhere = workload("any", full, ["hami-0"])
    here = workload("here", full, ["hami-0"], nodeSelector={"pool": "shared"})

    plan = planned(tmp_path, [first, hami_node("hami-1", gpus=1), *anywhere, *here])

    assert "hami-0" not in [name for names, _ in waves(plan) for name in names]
    assert "1 of Deployment/team/here" in held_objects(plan)["Node//hami-0"]


def test_a_pod_whose_driver_has_no_devices_is_never_moved(tmp_path: Path) -> None:
    """Its wave restarted it for nothing, and its check after the wave waited for ever."""
    npu = workload("npu", {"huawei.com/Ascend910": "2"}, ["npu-0"], namespace="npu")
    ascend = node("npu-0", {"huawei.com/Ascend910": "8"}, {}, {})
    objects = [*cluster(SHARE), ascend, namespace("npu"), *npu]

    plan = planned(tmp_path, objects, "--wave-nodes", 5)

    assert ["llm"] == [name for _, names in waves(plan) for name in names]
    held = held_objects(plan)
    assert "devices of hami-vnpu-core.project-hami.io" in held["Deployment/npu/npu"]
    assert "Deployment/npu/npu" in held["Namespace//npu"]


@pytest.mark.parametrize("nics", [{}, {"rdma/hca_shared_devices_a": "1"}], ids=["GPUs", "and NICs"])
def test_a_pod_with_nics_that_no_driver_publishes_may_keep_them(
    tmp_path: Path, nics: dict[str, str]
) -> None:
    train = workload("train", {GPU: "1", **nics}, ["gpu-0"])
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    for entry in nodes:
        entry["status"]["allocatable"] |= nics
    objects = [*nodes, namespace("team"), *train, daemon_set("nvidia-device-plugin")]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    fixes = {entry["object"]: entry["fix"] for entry in plan["held"]}
    assert ("translation.keep" in fixes.get("Deployment/team/train", "")) is bool(nics)


@pytest.mark.parametrize(
    ("key", "device_class"),
    [
        ("vpc.amazonaws.com/efa", "efa.networking.k8s.aws"),
        ("rdma/hca_shared_devices_a", "dranet"),
    ],
)
def test_the_fix_for_missing_nics_is_not_a_share_of_a_gpu(
    tmp_path: Path, key: str, device_class: str
) -> None:
    """It named the class of the GPUs, too, a share of these, and another node selector: none brings NICs."""
    train = workload("train", {GPU: "1", key: "4"}, ["gpu-0"])
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    for entry in nodes:
        entry["status"]["allocatable"][key] = "4"
    objects = [*nodes, namespace("team"), *train, daemon_set("nvidia-device-plugin")]

    (own, *_) = planned(tmp_path, objects)["held"]

    assert "Deployment/team/train" == own["object"]
    assert own["reason"].endswith(f"none that they may use would have devices of {device_class}")
    assert own["fix"] == (
        "leave NICs with their device plugin by translation.keep of the settings, or have a driver publish devices of that "
        "class on nodes that these pods may use; then plan again from a new snapshot"
    )


def test_the_fix_for_a_whole_device_does_not_leave_nics_that_are_published(tmp_path: Path) -> None:
    """NICs that stay with their device plugin bring no GPU."""
    objects = cluster({GPU: "1", "rdma/hca_shared_devices_a": "1"})
    for entry in objects:
        if entry["metadata"]["name"].startswith("hami-") and entry["kind"] == "Node":
            entry["status"]["allocatable"]["rdma/hca_shared_devices_a"] = "4"
    nics = [
        class_of_driver("dra.net", "dranet"),
        *(resource_slice(f"hami-{number}", "dra.net", ["a", "b"]) for number in range(3)),
    ]

    plan = planned(tmp_path, [*objects, *nics], "--wave-nodes", 5)

    (own,) = (entry for entry in plan["held"] if entry["object"] == "Deployment/llm/rank")
    assert own["reason"].endswith("none that they may use would have devices of gpu.nvidia.com")
    assert "translation.keep" not in own["fix"]
    assert "let them request a share" in own["fix"]
    assert "or give them another node selector; then plan again" in own["fix"]


def test_a_pod_that_waits_for_a_driver_without_devices_holds_nothing(tmp_path: Path) -> None:
    npu = workload("npu", {"huawei.com/Ascend910": "2"}, [""], namespace="npu")

    plan = planned(tmp_path, [*cluster(SHARE), namespace("npu"), *npu], "--wave-nodes", 5)

    assert {} == held_objects(plan)


@pytest.mark.parametrize(
    ("limits", "annotations"),
    [
        ({"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "10240"}, {}),
        ({}, {"tensor-fusion.ai/vram-request": "8Gi", "tensor-fusion.ai/vram-limit": "8Gi"}),
    ],
    ids=["Volcano", "tensor-fusion"],
)
@pytest.mark.parametrize("place", ["vol-0", ""], ids=["runs", "waits"])
def test_assess_names_the_pods_that_a_plan_holds_for_lack_of_known_devices(
    tmp_path: Path, limits: dict[str, str], annotations: dict[str, str], place: str
) -> None:
    """It said that nothing blocked, and the plan held the cluster as a whole."""
    web = workload("web", limits, [place])
    metadata = [web[0]["spec"]["template"]["metadata"], web[1]["metadata"]]
    for entry in metadata if annotations else ():
        entry["labels"] = {**entry["labels"], "tensor-fusion.ai/enabled": "true"}
        entry["annotations"] = {**annotations, "tensor-fusion.ai/inject-container": "c"}
    objects = [node("vol-0", {"volcano.sh/vgpu-number": "40"}, {}, {}), namespace("team"), *web]
    plan = planned(tmp_path, objects)
    file = tmp_path / "cluster.yaml"

    result = drawbridge("assess", "--snapshot", file, "-o", "json")

    answer = json.loads(result.stdout)
    assert ["Deployment/team/web"] == answer["capacity"]["notCounted"]
    reason = held_objects(plan).get("Deployment/team/web", "")
    if place:
        (blocker,) = answer["blockers"]
        assert ("notPlaced", ["Deployment/team/web"]) == (blocker["code"], blocker["objects"])
        assert reason.startswith("its pods run, and after their move no node would serve them: ")
        assert f"its {blocker['message']}" == f"{reason}; plan holds them and their nodes"
    else:
        assert ([], "") == (answer["blockers"], reason)
    assert (1 if place else 0) == result.exit_code


def test_assess_names_no_pods_that_a_kept_name_lets_move(tmp_path: Path) -> None:
    nics = {"rdma/hca_shared_devices_a": "1"}
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    for entry in nodes:
        entry["status"]["allocatable"] |= nics
    train = workload("train", {GPU: "1", **nics}, ["gpu-0"])
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml([*nodes, namespace("team"), *train]))

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    assert {"rdma": ["Deployment/team/train"]} == answer["keysToKeep"]
    assert [] == answer["blockers"]


# --- labels that a switch changes -----------------------------------------------------------------

GPU_ON: Final = {"gpu": "on"}
"""The label of HAMi's nodes, which a switch sets to `off`."""


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
@pytest.mark.parametrize("by", ["nodeSelector", "affinity"])
def test_pods_that_select_a_label_which_the_switch_changes_are_held(
    tmp_path: Path, kind: str, by: str
) -> None:
    """Pods of the DaemonSet had left their nodes for good, and those of the Deployment lacked no devices."""
    term = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["on"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = (
        {"nodeSelector": GPU_ON}
        if by == "nodeSelector"
        else {"affinity": {"nodeAffinity": required}}
    )
    web = workload("web", SHARE, ["hami-0"], kind=kind, **spec)
    web[0]["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    nodes = [hami_node(f"hami-{number}") for number in range(3)]

    plan = planned(tmp_path, [*nodes, namespace("team"), *web])

    held = held_objects(plan)
    assert "select nodes by gpu=on, which the switch of a node changes" in held[f"{kind}/team/web"]
    assert "select it by a label that its switch changes" in held["Node//hami-0"]
    assert "Namespace//team" in held


@pytest.mark.parametrize(
    ("is_held", "spec"),
    [(False, {"nodeSelector": {"disk": "fast"}}), (True, {"nodeSelector": {"gpu": "on"}})],
)
def test_pods_that_select_another_label_move(
    tmp_path: Path, is_held: bool, spec: dict[str, Any]
) -> None:
    nodes = [hami_node(f"hami-{number}") for number in range(3)]
    for entry in nodes:
        entry["metadata"]["labels"]["disk"] = "fast"

    plan = planned(
        tmp_path, [*nodes, namespace("team"), *workload("web", SHARE, ["hami-0"], **spec)]
    )

    assert is_held is ("Deployment/team/web" in held_objects(plan))


_TERM: Final = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["on"]}]}
AFFINE: Final[dict[str, Any]] = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}
        }
    }
}


@pytest.mark.parametrize("spec", [{"nodeSelector": GPU_ON}, AFFINE], ids=["selector", "affinity"])
def test_a_daemon_set_without_devices_that_leaves_the_nodes_is_reported(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    objects = [hami_node("hami-0"), namespace("team"), *workload("web", SHARE, ["hami-0"])]
    objects += [
        daemon_set("exporter", **spec),
        daemon_set("hami-device-plugin", **spec),
        daemon_set("agent"),
    ]

    (wave, *_) = planned(tmp_path, [*objects, hami_node("hami-1")])["waves"]

    leaving = [note for note in wave["notes"] if "so its pods leave them" in note]
    assert ["DaemonSet/kube-system/exporter selects nodes by gpu=on"] == [
        note.partition(",")[0] for note in leaving
    ]


def test_a_note_on_leaving_pods_says_that_flux_takes_a_change_of_their_template_back(
    tmp_path: Path,
) -> None:
    """Notes on other workloads said so."""
    exporter = daemon_set("exporter", nodeSelector=GPU_ON)
    exporter["metadata"]["labels"] = {"kustomize.toolkit.fluxcd.io/name": "apps"}
    objects = [hami_node("hami-0"), namespace("team"), *workload("web", SHARE, ["hami-0"])]

    (wave, *_) = planned(tmp_path, [*objects, exporter, hami_node("hami-1")])["waves"]

    (note,) = (note for note in wave["notes"] if "so its pods leave them" in note)
    assert note.endswith(
        "label first; Flux manages DaemonSet/kube-system/exporter, and takes back what kubectl changes: "
        "change the template in its repository"
    )


def test_a_node_that_is_held_is_of_no_use_to_claims(tmp_path: Path) -> None:
    """It keeps the label that the pods select, so their namespace was held as a whole, and all nodes with it."""
    nodes = [hami_node(f"hami-{number}") for number in range(4)]
    rejected = workload("old", {GPU: "1.5"}, ["hami-3"], namespace="old")
    bound = workload("bound", SHARE, ["hami-0"], nodeSelector=GPU_ON)
    web = workload("web", SHARE, ["hami-1"])

    plan = planned(tmp_path, [*nodes, namespace("team"), *bound, *web, *rejected])

    held = held_objects(plan)
    assert "its pods select nodes by gpu=on" in held["Deployment/team/bound"]
    moved = [entry["object"] for wave in plan["waves"] for entry in wave["workloads"]]
    assert ["Deployment/team/web"] == moved


def test_a_driver_that_no_wave_needs_is_not_prepared(tmp_path: Path) -> None:
    """Its chart maps a resource name, and a person was asked to install it."""
    rejected = workload("old", {GPU: "1.5"}, ["hami-0"], namespace="old")
    hami = [hami_node("hami-0"), hami_node("hami-1")]
    nodes = [*hami, plugin_node("gpu-0"), plugin_node("gpu-1")]

    plan = planned(
        tmp_path, [*nodes, namespace("team"), *workload("web", {GPU: "1"}, ["gpu-0"]), *rejected]
    )

    assert {"Node//hami-0", "Node//hami-1"} <= held_objects(plan).keys()
    assert ["gpu.nvidia.com"] == list(plan["drivers"])
    assert HAMI not in (tmp_path / "plan" / "prepare.sh").read_text()


@pytest.mark.parametrize("spec", [{"nodeSelector": GPU_ON}, AFFINE], ids=["selector", "affinity"])
@pytest.mark.parametrize(
    ("limits", "nodes"), [({"cpu": "1"}, ["hami-0"]), (SHARE, [])], ids=["no devices", "no pods"]
)
def test_a_workload_that_has_no_node_after_the_last_wave_is_reported(
    tmp_path: Path, spec: dict[str, Any], limits: dict[str, str], nodes: list[str]
) -> None:
    """Before, the wave only said that its pods wait until a node is back."""
    proxy = workload("proxy", limits, nodes, namespace="tools", **spec)
    objects = [*map(hami_node, ("hami-0", "hami-1")), namespace("team"), namespace("tools")]
    objects += [*workload("web", SHARE, ["hami-1"]), *proxy]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    told = [
        wave["wave"]
        for wave in plan["waves"]
        for note in wave["notes"]
        if note.startswith("Deployment/tools/proxy selects nodes by gpu=on, which no node has")
    ]
    switching = [wave["wave"] for wave in plan["waves"] if wave["nodes"]]
    assert [switching[-1]] == told


def test_a_pod_without_devices_goes_to_no_node_that_has_lost_its_label(tmp_path: Path) -> None:
    """It was placed on the first switched node when the second was drained."""
    nodes = [hami_node(name) for name in ("hami-0", "hami-1")]
    for entry in nodes:
        entry["status"]["allocatable"] |= {"cpu": "8", "memory": "32Gi", "pods": "20"}
    proxy = workload("proxy", {"cpu": "1"}, ["hami-1"], kind="ReplicaSet", nodeSelector=GPU_ON)
    web = workload("web", SHARE, ["hami-1"])

    plan = planned(tmp_path, [*nodes, namespace("team"), *web, *proxy], "--wave-nodes", 1)

    unplaced = {
        name: wave["unplacedPods"] for wave in plan["waves"] for name in _names(wave["nodes"])
    }
    assert {"hami-0": [], "hami-1": ["Pod/team/proxy-0"]} == unplaced


def test_a_pod_that_no_node_takes_after_its_wave_waits_for_ever_in_every_sentence(
    tmp_path: Path,
) -> None:
    """One note said so, and the other one that it waits until a node of the wave is back."""
    hami = [hami_node("hami-0"), hami_node("hami-1")]
    hami[1]["status"]["allocatable"] |= {"cpu": "8", "memory": "32Gi", "pods": "20"}
    hami[0]["metadata"]["labels"]["pool"] = "a"
    objects = [*hami, namespace("team"), *workload("web", SHARE, ["hami-1"])]
    selector = {**GPU_ON, "pool": "a"}
    objects += workload("proxy", {"cpu": "1"}, ["hami-0"], kind="ReplicaSet", nodeSelector=selector)
    # The other node would take it, but has not the CPU.
    objects += workload("large", {"cpu": "64"}, ["hami-0"], kind="ReplicaSet")

    selects = {"drawbridge.internal/dra-driver": HAMI}
    registry = [{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}]
    objects += [daemon_set("hami-dra-driver", nodeSelector=selects, volumes=registry)]

    (wave, *_) = planned(tmp_path, objects, "--wave-nodes", 1)["waves"]
    assert ["hami-0"] == _names(wave["nodes"])
    folder = tmp_path / "plan" / "wave-1"
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))
    verified = drawbridge("verify", "--snapshot", file, "--wave", folder, "--before").stdout

    assert ["Pod/team/proxy-0"] == wave["strandedPods"]
    (note,) = (note for note in wave["notes"] if "its drains evict 2 pods" in note)
    assert (
        "takes team/large-0, or has the CPU and memory: they wait until a node that takes" in note
    )
    assert (
        "the labels that team/proxy-0 select, also after this wave, so they wait for ever" in note
    )
    lines = {line.split()[1]: line for line in verified.splitlines() if line.startswith("note")}
    assert "waits for ever" in lines["Pod/team/proxy-0"]
    assert "until a node that takes it is back" in lines["Pod/team/large-0"]
    page = (tmp_path / "plan" / "plan.html").read_text()
    assert (
        "<p>No node has the labels that these select, also after the wave, so they wait for ever:</p><ul><li>Pod/team/proxy-0</li>"
        in page
    )


def _names(nodes: list[dict[str, Any]]) -> list[str]:
    return [entry["name"] for entry in nodes]


# --- nodes that would be switched in vain ---------------------------------------------------------

_BAD: Final = "pods of Deployment/team/bad keep device keys and would lack "
_AT_HOME: Final = " once they lose their own nodes, which stay as they are"


def test_a_node_in_vain_names_the_pods_that_need_it(tmp_path: Path) -> None:
    """It named nobody, and no pod without claims, either."""
    refused = workload("bad", {GPU: "1.5"}, ["hami-0"], namespace="team")

    plan = planned(
        tmp_path, [hami_node("hami-0"), hami_node("hami-1"), namespace("team"), *refused]
    )

    reason = held_objects(plan)["Node//hami-1"]
    assert f"no pod with claims would use its devices, and {_BAD}them{_AT_HOME}" == reason


def test_a_node_in_vain_names_the_pods_that_wait_for_its_claims(tmp_path: Path) -> None:
    """It said that no pod with claims would use its devices."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    container = {"name": "c", "image": "a", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"containers": [container], "resourceClaims": claims}
    pod = {**api_object("Pod", "infer", "native", spec=spec), "status": {"phase": "Pending"}}
    request = {"name": "gpu", "exactly": {"deviceClassName": HAMI}}
    template_spec = {"spec": {"devices": {"requests": [request]}}}
    template = api_object("ResourceClaimTemplate", "gpu", "native", spec=template_spec)
    objects = [pod, {**template, "apiVersion": "resource.k8s.io/v1"}, namespace("native")]
    refused = workload("bad", {GPU: "1.5"}, ["hami-0"], namespace="team")
    nodes = [hami_node("hami-0"), hami_node("hami-1")]

    plan = planned(tmp_path, [*nodes, namespace("team"), *refused, *objects])

    waiting = "Pod/native/infer waits for claims with such devices, but "
    assert f"{waiting}{_BAD}its devices{_AT_HOME}" == held_objects(plan)["Node//hami-1"]


def test_a_node_in_vain_is_of_use_to_pods_of_whole_devices(tmp_path: Path) -> None:
    """Kubernetes serves these on both sides, so it is not said that nobody would use it."""
    whole = workload("llm", {GPU: "1"}, ["gpu-0", "gpu-0"], namespace="native")
    refused = workload("bad", {GPU: "1.5"}, [""], namespace="team")
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]

    plan = planned(
        tmp_path,
        [*nodes, namespace("team"), namespace("native"), *refused, *whole],
        "--wave-nodes",
        1,
    )

    assert [f"{_BAD}its devices"] == [
        reason for name, reason in held_objects(plan).items() if name.startswith("Node//")
    ]


def test_a_node_with_fewer_devices_than_each_pod_requests_does_not_stay_for_these(
    tmp_path: Path,
) -> None:
    """Nodes of 4 GPUs stayed for pods of 8, and can never serve one."""
    refused = workload("bad", {GPU: "7.5"}, ["big-0"], namespace="team")
    whole = workload("llm", {GPU: "1"}, ["small-0"], namespace="native")
    large = [plugin_node(f"big-{number}", 8) for number in range(2)]
    small = [plugin_node(f"small-{number}", 4) for number in range(3)]
    # One of the eight GPUs of a node is not healthy today.
    large.append(plugin_node("big-2", 7, **{"nvidia.com/gpu.count": "8"}))
    objects = [*large, *small, namespace("team"), namespace("native"), *refused, *whole]

    plan = planned(tmp_path, objects, "--spare-nodes", 0)

    assert f"{_BAD}its devices{_AT_HOME}" == held_objects(plan)["Node//big-2"]
    assert {"small-0", "small-1", "small-2"} <= {name for names, _ in waves(plan) for name in names}


def test_a_node_with_a_device_that_is_not_healthy_stays_for_pods_of_all_its_devices(
    tmp_path: Path,
) -> None:
    """Without GPU feature discovery it was too small for them, and its capacity did not count."""
    kept = workload("llm", {GPU: "8"}, ["big-0"], namespace="team", schedulerName="volcano")
    whole = workload("web", {GPU: "1"}, ["small-0"], namespace="native", nodeSelector={"pool": "s"})
    unhealthy, large = plugin_node("big-1", 7), plugin_node("big-0", 8)
    unhealthy["status"]["capacity"] = {**unhealthy["status"]["allocatable"], GPU: "8"}
    small = [plugin_node(f"small-{number}", 4, pool="s") for number in range(2)]
    objects = [large, unhealthy, *small, namespace("team"), namespace("native"), *kept, *whole]

    plan = planned(tmp_path, objects, "--spare-nodes", 0)

    held = {name for name in held_objects(plan) if name.startswith("Node//")}
    assert {"Node//big-0", "Node//big-1"} == held


# --- nodes that a person has taken out of service -------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"spec": {"unschedulable": True}}, "it is cordoned, and the end of its wave would"),
        ({"conditions": [{"type": "Ready", "status": "Unknown"}]}, "it is not ready"),
    ],
    ids=["cordoned", "not ready"],
)
def test_a_node_out_of_service_has_no_wave(
    tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    """Before, the end of its wave uncordoned it."""
    broken = plugin_node("gpu-0")
    broken["spec"] = fields.get("spec", {})
    broken["status"]["conditions"] = fields.get("conditions", [])
    nodes = [broken, plugin_node("gpu-1"), plugin_node("gpu-2")]

    plan = planned(tmp_path, [*nodes, namespace("team"), *workload("web", {GPU: "1"}, ["gpu-1"])])

    assert ["gpu-1", "gpu-2"] == sorted(name for names, _ in waves(plan) for name in names)
    assert reason in held_objects(plan)["Node//gpu-0"]


def test_pods_that_no_node_serves_do_not_move_by_themselves(tmp_path: Path) -> None:
    """A Deployment in wait for other nodes got claims of a driver that no wave brings, and would have waited for ever."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {native: translate}\n")
    container = {"name": "c", "image": "a", "resources": {"limits": {GPU: "1"}}}
    spec = {"containers": [container], "restartPolicy": "Never", "nodeSelector": {"pool": "a"}}
    jobs = {"spec": {"template": {"spec": spec}}}
    night = api_object(
        *("CronJob", "night", "team"),
        api_version="batch/v1",
        spec={"schedule": "0 3 * * *", "jobTemplate": jobs},
    )
    waiting, pod = workload("waiting", SHARE, ["gpu-0"], nodeSelector={"pool": "none"})
    del pod["spec"]["nodeName"]
    left_alone = namespace("other")
    left_alone["metadata"]["labels"] = {"drawbridge.internal/translate": "false"}
    stay = workload("stay", {GPU: "1"}, ["gpu-1"], namespace="other")
    web = workload("web", {GPU: "1"}, ["gpu-0"], namespace="web")
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1", pool="a"), plugin_node("gpu-2")]
    objects = [*nodes, *map(namespace, ("team", "web")), left_alone, *stay, *web]

    options = ("--settings", settings, "--spare-nodes", 0, "--keep-free", 0)
    plan = planned(tmp_path, [*objects, night, waiting, pod], *options)

    assert ["web"] == [name for wave in plan["waves"] for name in wave["namespaces"]]
    assert [] == [part for wave in plan["waves"] for part in wave["partialNamespaces"]]
    assert "Namespace//team" in held_objects(plan)
