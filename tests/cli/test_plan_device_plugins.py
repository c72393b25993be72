"""Device plugins node by node: one elsewhere in the cluster, or of somebody else, takes none away from a node."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.reader import read_paths
from testing.command import ROOT
from testing.documents import api_object, node
from testing.migration import daemon_set, hami_node, plugin_node
from testing.plan import changes, failed_before, planned, prepare

NAME: Final = "nvidia-device-plugin"
ABSENT: Final = "no DaemonSet of a device plugin comes to this node"
OF_THE_CLOUD: Final = "is managed by the cloud"
TAINT: Final = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
OWN_TAINT: Final = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
TOLERATION: Final = {"key": "nvidia.com/gpu", "operator": "Exists"}


def elsewhere(operator: str, *values: str) -> dict[str, Any]:
    """A required node affinity by the label `pool`."""
    expression = {"key": "pool", "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def managed(**spec: Any) -> dict[str, Any]:
    """The device plugin of GKE."""
    plugin = daemon_set("nvidia-gpu-device-plugin", **spec)
    plugin["metadata"]["labels"] = {"addonmanager.kubernetes.io/mode": "Reconcile"}
    return plugin


def notes(plan: dict[str, Any]) -> list[str]:
    return [
        note
        for wave in plan["waves"]
        for note in wave["notes"]
        if note.startswith("a device plugin")
    ]


def failed(tmp_path: Path, objects: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The nodes of the first wave that may not be switched, to the messages."""
    checks = failed_before(tmp_path, objects)
    return {name: message for name, message in checks.items() if name.startswith("Node/")}


def test_a_plugin_of_one_pool_takes_none_away_from_the_nodes_of_another(tmp_path: Path) -> None:
    """On GKE a team had its own plugin in a pool, and the one of the cloud counted for no node any more."""
    cluster = [
        *(plugin_node(f"g{number}", pool="a") for number in range(3)),
        plugin_node("b0", pool="b"),
        managed(affinity=elsewhere("NotIn", "b")),
        daemon_set(NAME, nodeSelector={"pool": "b"}),
    ]

    plan = planned(tmp_path, cluster, "--wave-nodes", 4)

    (note,) = notes(plan)
    assert note.startswith(
        "a device plugin, on g0, g1, g2: DaemonSet kube-system/nvidia-gpu-device"
    )
    assert OF_THE_CLOUD in note
    assert ["Node//g0", "Node//g1", "Node//g2"] == sorted(failed(tmp_path, cluster))
    patched = [name for name, _ in changes(prepare(tmp_path)) if "daemonset" in name]
    assert [f"kube-system/daemonset/{NAME}"] == patched


def test_a_plugin_that_comes_to_no_node_is_nobodys(tmp_path: Path) -> None:
    """A tenant had a DaemonSet of that name for no node: it was patched, and the plugin of the image forgotten."""
    plugin = daemon_set(NAME, nodeSelector={"nothing": "here"})
    plugin["metadata"]["namespace"] = "ai-team"
    cluster = [plugin_node("g0"), plugin_node("g1"), plugin]

    plan = planned(tmp_path, cluster, "--wave-nodes", 2)

    (note,) = notes(plan)
    assert note.startswith(f"a device plugin, on g0, g1: {ABSENT} (ai-team/{NAME} runs elsewhere")
    messages = failed(tmp_path, cluster)
    assert ["Node//g0", "Node//g1"] == sorted(messages)
    assert all(message.startswith(ABSENT) for message in messages.values())
    assert [] == plan["plugins"]
    assert NAME not in prepare(tmp_path)


@pytest.mark.parametrize(
    ("plugins", "taints", "message"),
    [
        ([daemon_set(NAME)], [], ""),
        ([daemon_set(NAME, nodeSelector={"pool": "a"})], [], ""),
        ([daemon_set(NAME, affinity=elsewhere("In", "a"))], [], ""),
        ([daemon_set(NAME, affinity=elsewhere("In", "b"))], [], ABSENT),
        ([daemon_set(NAME)], [TAINT], ABSENT),
        ([daemon_set(NAME, tolerations=[TOLERATION])], [TAINT], ""),
        ([daemon_set(NAME)], [OWN_TAINT], ""),
        ([managed(), daemon_set(NAME)], [], OF_THE_CLOUD),
        ([managed(nodeSelector={"pool": "b"}), daemon_set(NAME)], [], ""),
        ([managed(nodeSelector={"pool": "b"})], [], ABSENT),
    ],
    ids=[
        "for all nodes",
        "its node selector",
        "its affinity",
        "the affinity for others",
        "a taint",
        "a taint that it tolerates",
        "a taint of Kubernetes itself",
        "beside that of the cloud",
        "that of the cloud for others",
        "only that of the cloud, for others",
    ],
)
def test_a_node_has_the_plugins_with_a_template_for_it(
    tmp_path: Path, plugins: list[dict[str, Any]], taints: list[dict[str, str]], message: str
) -> None:
    node = plugin_node("g0", pool="a")
    node["spec"] = {"taints": taints}
    cluster = [node, *plugins]

    plan = planned(tmp_path, cluster)

    assert [message] * bool(message) == [message for note in notes(plan) if message in note]
    assert bool(message) is bool(notes(plan))
    assert bool(message) is bool(failed(tmp_path, cluster))


def test_a_pod_of_a_plugin_shows_that_it_serves_its_node(tmp_path: Path) -> None:
    """With the updateStrategy OnDelete a template may have changed since the pod was created."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": NAME, "controller": True}
    pod = api_object(
        "Pod",
        f"{NAME}-x",
        "kube-system",
        ownerReferences=[owner],
        spec={"containers": [{"name": "c", "image": "a"}], "nodeName": "g0"},
    )
    cluster = [plugin_node("g0"), plugin_node("g1"), daemon_set(NAME, nodeSelector={"x": "y"}), pod]

    plan = planned(tmp_path, cluster, "--wave-nodes", 2)

    (note,) = notes(plan)
    assert note.startswith(f"a device plugin, on g1: {ABSENT}")
    assert ["Node//g1"] == list(failed(tmp_path, cluster))


# --- of other vendors -----------------------------------------------------------------------------

AMD: Final = ("amdgpu-device-plugin-daemonset", "rocm/k8s-device-plugin:1.31")


def vendor_nodes(resource: str = "amd.com/gpu") -> list[dict[str, Any]]:
    return [node(f"a{number}", {resource: "8"}) for number in range(2)]


def plugin(name: str, image: str, **spec: Any) -> dict[str, Any]:
    entry = daemon_set(name, **spec)
    entry["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return entry


@pytest.mark.parametrize(
    ("name", "image", "resource", "driver"),
    [
        (*AMD, "amd.com/gpu", "gpu.amd.com"),
        ("plugin", "mirror.example.com/rocm/k8s-device-plugin", "amd.com/gpu", "gpu.amd.com"),
        (
            "intel-gpu-plugin",
            "intel/intel-gpu-plugin:0.34.0",
            "gpu.intel.com/i915",
            "gpu.intel.com",
        ),
        ("qat", "intel/intel-qat-plugin:0.34.0", "intel.com/qat", "qat.intel.com"),
        (
            "habanalabs-device-plugin-daemonset",
            "vault.habana.ai/docker-k8s-device-plugin/docker-k8s-device-plugin:latest",
            "habana.ai/gaudi",
            "gaudi.intel.com",
        ),
        (
            "neuron-device-plugin-daemonset",
            "public.ecr.aws/neuron/neuron-device-plugin:2.2",
            "aws.amazon.com/neuron",
            "neuron.aws.com",
        ),
        ("rbln", "rebellions/k8s-device-plugin:v0.3.6", "rebellions.ai/npu", "npu.rebellions.ai"),
    ],
)
def test_the_plugin_of_another_vendor_leaves_by_the_label_of_its_driver(
    tmp_path: Path, name: str, image: str, resource: str, driver: str
) -> None:
    """It got the affinity of NVIDIA's or none, stayed beside the driver, and its devices could be handed out twice."""
    cluster = [*vendor_nodes(resource), plugin(name, image)]

    plan = planned(tmp_path, cluster, "--wave-nodes", 2)

    (wave,) = plan["waves"]
    label = {"drawbridge.internal/dra-driver": driver}
    assert [label, label] == [entry["labels"] for entry in wave["nodes"]]
    (entry,) = plan["plugins"]
    assert (name, [f"drawbridge.internal/dra-driver={driver}"]) == (entry["name"], entry["labels"])
    expression = {"key": "drawbridge.internal/dra-driver", "operator": "NotIn", "values": [driver]}
    assert [{"matchExpressions": [expression]}] == entry["nodeSelectorTerms"]
    assert [] == notes(plan)
    assert {} == failed(tmp_path, cluster)


def test_plugins_of_several_vendors_leave_the_nodes_of_their_own(tmp_path: Path) -> None:
    cluster = [*vendor_nodes(), plugin_node("g0"), plugin(*AMD), daemon_set(NAME)]

    plan = planned(tmp_path, cluster, "--wave-nodes", 3)

    assert {
        AMD[0]: ["drawbridge.internal/dra-driver=gpu.amd.com"],
        NAME: ["nvidia.com/dra-kubelet-plugin=true"],
    } == {entry["name"]: entry["labels"] for entry in plan["plugins"]}


@pytest.mark.parametrize(
    "other",
    [
        plugin("amdgpu-labeller-daemonset", "rocm/k8s-device-plugin:labeller-latest"),
        plugin("aws-efa-k8s-device-plugin-daemonset", "amazon/aws-efa-k8s-device-plugin:v0.5"),
        daemon_set(NAME),
    ],
    ids=["labels of nodes", "NICs", "another vendor"],
)
def test_daemon_sets_for_something_else_stay(tmp_path: Path, other: dict[str, Any]) -> None:
    """They got NVIDIA's label, since they have a part of its plugin's name."""
    plan = planned(tmp_path, [*vendor_nodes(), plugin(*AMD), other])

    assert [AMD[0]] == [entry["name"] for entry in plan["plugins"]]


def owned() -> dict[str, Any]:
    entry = plugin("gpu-config-device-plugin", AMD[1])
    owner = {"apiVersion": "amd.com/v1alpha1", "kind": "DeviceConfig", "name": "gpu-config"}
    entry["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return entry


@pytest.mark.parametrize(
    ("resource", "plugins", "message"),
    [
        (
            "amd.com/gpu",
            [],
            "no DaemonSet of a device plugin for amd.com/gpu is in the cluster, so the plugin may be part of the node's image",
        ),
        (
            "amd.com/gpu",
            [plugin(*AMD, nodeSelector={"pool": "x"})],
            "no DaemonSet of a device plugin for amd.com/gpu comes to this node (kube-system/amdgpu-device-plugin-daemonset",
        ),
        (
            "amd.com/gpu",
            [owned()],
            "DaemonSet kube-system/gpu-config-device-plugin is of a DeviceConfig, whose operator takes a patch back",
        ),
        (
            "google.com/tpu",
            [plugin("tpu-device-plugin", "gke.gcr.io/tpu-device-plugin")],
            "on GKE gke-no-default-tpu-device-plugin=true",
        ),
        (
            "nvidia.com/gpu",
            [plugin(*AMD)],
            "no DaemonSet of a device plugin is in the cluster",
        ),
    ],
    ids=["absent", "elsewhere", "of an operator", "of the cloud", "of another vendor"],
)
def test_a_plugin_of_another_vendor_that_would_stay_is_named(
    tmp_path: Path, resource: str, plugins: list[dict[str, Any]], message: str
) -> None:
    if "tpu" in resource:
        plugins[0]["metadata"]["labels"] = {"addonmanager.kubernetes.io/mode": "Reconcile"}
    cluster = [*vendor_nodes(resource), *plugins]

    plan = planned(tmp_path, cluster, "--wave-nodes", 2)

    (note,) = notes(plan)
    assert note.startswith("a device plugin, on a0, a1: ")
    assert message in note
    assert [] == plan["plugins"]
    messages = failed(tmp_path, cluster)
    assert ["Node//a0", "Node//a1"] == sorted(messages)
    assert all(message in text for text in messages.values())


def test_a_plugin_that_nobody_knows_is_named_as_far_as_it_can_be(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "npu.acme.example.yaml").write_text(
        "driver: npu.acme.example\nclaims: pod\ndevices:\n  device:\n    class: npu.acme.example\n"
        "    sharing: never\n    resources:\n      acme.example/npu: {}\n"
    )
    cluster = [*vendor_nodes("acme.example/npu"), plugin("acme-npu-plugin", "acme/npu")]
    flags = ("--wave-nodes", 2, "--profiles", profiles)

    plan = planned(tmp_path, cluster, *flags)

    (note,) = notes(plan)
    text = (
        "a device plugin, on a0, a1: the device plugin that offers acme.example/npu is not known (kube-system/acme-npu-plugin "
        "may be it), so nothing keeps it away, and it would stay beside the DRA driver: find its DaemonSet, give it a required "
        "node affinity that leaves out the nodes with a label of yours (KEY NotIn [VALUE]), and name that label with plan "
        "--plugin-label KEY=VALUE"
    )
    assert text == note
    assert ["Node//a0", "Node//a1"] == sorted(failed(tmp_path, cluster))

    plan = planned(tmp_path, cluster, *flags, "--plugin-label", "acme.example/plugin=off")

    assert [] == notes(plan)
    (wave,) = plan["waves"]
    assert {"off"} == {entry["labels"]["acme.example/plugin"] for entry in wave["nodes"]}
    assert {} == failed(tmp_path, cluster)


GPU_LABEL: Final = "gke-no-default-nvidia-gpu-device-plugin"
TPU_LABEL: Final = "gke-no-default-tpu-device-plugin"
OWN_LABEL: Final = "example.com/no-plugin"


@pytest.mark.parametrize(
    ("confirmed", "on_gpus", "on_tpus", "left"),
    [
        ([], [], [], ["a0, a1", "g0"]),
        ([GPU_LABEL], [GPU_LABEL], [], ["a0, a1"]),
        ([TPU_LABEL], [], [TPU_LABEL], ["g0"]),
        ([GPU_LABEL, TPU_LABEL], [GPU_LABEL], [TPU_LABEL], []),
        ([OWN_LABEL], [OWN_LABEL], [OWN_LABEL], []),
    ],
    ids=["none", "of GPUs", "of TPUs", "of both", "of the team"],
)
def test_a_label_of_gke_answers_for_its_own_vendor_only(
    tmp_path: Path, confirmed: list[str], on_gpus: list[str], on_tpus: list[str], left: list[str]
) -> None:
    """One label silenced the notes on all vendors, and TPUs got that of GPUs."""
    tpu_plugin = plugin("tpu-device-plugin", "gke.gcr.io/tpu-device-plugin")
    tpu_plugin["metadata"]["labels"] = {"addonmanager.kubernetes.io/mode": "Reconcile"}
    cluster = [*vendor_nodes("google.com/tpu"), plugin_node("g0"), managed(), tpu_plugin]
    flags = ("--plugin-label", ",".join(f"{key}=true" for key in confirmed)) if confirmed else ()

    plan = planned(tmp_path, cluster, "--wave-nodes", 3, *flags)

    labels = {
        node["name"]: [key for key in node["labels"] if "plugin" in key and "dra" not in key]
        for wave in plan["waves"]
        for node in wave["nodes"]
    }
    assert {"g0": on_gpus, "a0": on_tpus, "a1": on_tpus} == labels
    assert left == sorted(note.split(": ")[0].partition("on ")[2] for note in notes(plan))
    nodes = sorted(name.removeprefix("Node//") for name in failed(tmp_path, cluster))
    assert ", ".join(left).split(", ") == (nodes or [""])


def test_nvidias_plugin_leaves_by_the_label_of_the_driver_that_takes_over(tmp_path: Path) -> None:
    """The settings give its GPUs to another driver, and the plugin kept away from NVIDIA's label alone."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation:\n  profiles: {nvidia: gpu.drawbridge.internal}\n")

    plan = planned(tmp_path, [plugin_node("g0"), daemon_set(NAME)], "--settings", settings)

    assert [["drawbridge.internal/driver=true"]] == [entry["labels"] for entry in plan["plugins"]]


# --- on the nodes of HAMi and Koordinator ---------------------------------------------------------

HAMI: Final = "drawbridge.internal/dra-driver=hami-core-gpu.project-hami.io"
NOT_ON: Final = {"key": "gpu", "operator": "NotIn", "values": ["on"]}


def leaving(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


@pytest.mark.parametrize(
    "spec",
    [{"affinity": leaving(NOT_ON)}, {}, {"nodeSelector": {"gpu": "off"}}],
    ids=["it comes after the switch", "it is there today", "only after the switch"],
)
def test_nvidias_plugin_is_kept_from_switched_nodes_of_hami(
    tmp_path: Path, spec: dict[str, Any]
) -> None:
    """With `gpu=off` it started on the drained node, and offered GPUs that the DRA driver hands out, too."""
    cluster = [hami_node("h0"), hami_node("h1"), daemon_set(NAME, **spec)]

    plan = planned(tmp_path, cluster, "--wave-nodes", 2)

    assert [(NAME, [HAMI])] == [(entry["name"], entry["labels"]) for entry in plan["plugins"]]
    assert [] == notes(plan)


def test_a_plugin_of_both_kinds_of_nodes_leaves_them_by_the_labels_of_both(tmp_path: Path) -> None:
    cluster = [hami_node("h0"), plugin_node("g0"), daemon_set(NAME, affinity=leaving(NOT_ON))]

    plan = planned(tmp_path, cluster, "--wave-nodes", 2)

    (entry,) = plan["plugins"]
    assert ["nvidia.com/dra-kubelet-plugin=true", HAMI] == entry["labels"]


def test_a_plugin_that_never_comes_to_nodes_of_hami_stays_as_it_is(tmp_path: Path) -> None:
    plugin = daemon_set(NAME, nodeSelector={"pool": "a"})

    assert [] == planned(tmp_path, [hami_node("h0"), plugin])["plugins"]


def test_nvidias_plugin_on_nodes_of_koordinator_leaves_by_the_label_that_they_get(
    tmp_path: Path,
) -> None:
    """It kept away from NVIDIA's label, and these nodes get another one."""
    sources = read_paths([str(ROOT / "examples/migration/koordinator/before.yaml")])
    cluster = [dict(source.document) for source in sources]

    plan = planned(tmp_path, [*cluster, daemon_set(NAME)], "--wave-nodes", 1)

    assert [HAMI] == next(entry["labels"] for entry in plan["plugins"] if entry["name"] == NAME)


def test_a_plugin_of_the_cloud_that_would_come_to_nodes_of_hami_is_named(tmp_path: Path) -> None:
    cluster = [hami_node("h0"), hami_node("h1"), managed(affinity=leaving(NOT_ON))]

    plan = planned(tmp_path, cluster, "--wave-nodes", 2)

    (note,) = notes(plan)
    assert note.startswith("a device plugin, on h0, h1: DaemonSet kube-system/nvidia-gpu-device")
    assert OF_THE_CLOUD in note
    assert ["Node//h0", "Node//h1"] == sorted(failed(tmp_path, cluster))

    label = "gke-no-default-nvidia-gpu-device-plugin=true"
    plan = planned(tmp_path, cluster, "--wave-nodes", 2, "--plugin-label", label)

    assert [] == notes(plan)
    (wave,) = plan["waves"]
    assert all(label.partition("=")[0] in entry["labels"] for entry in wave["nodes"])


# --- two drivers of a node ------------------------------------------------------------------------


def test_a_node_with_two_drivers_that_one_label_would_choose_is_held(tmp_path: Path) -> None:
    """Its label had the name of the last driver, the other one never came, and the node stayed drained."""
    both = node("a0", {"amd.com/gpu": "8", "intel.com/qat": "2"})
    beside = plugin_node("g0")
    beside["status"]["allocatable"]["intel.com/qat"] = "2"
    qat = plugin("intel-qat-plugin", "intel/intel-qat-plugin:0.34.0")

    plan = planned(tmp_path, [both, beside, plugin(*AMD), daemon_set(NAME), qat])

    (entry,) = plan["held"]
    assert entry["object"] == "Node//a0"
    assert entry["reason"] == (
        "the DRA drivers gpu.amd.com, qat.intel.com would take its devices over, and all of them are chosen by the node label "
        "drawbridge.internal/dra-driver, which has one value: only one of them would come"
    )
    assert "keep their device plugin away from it" in entry["fix"]
    (wave,) = plan["waves"]
    (switched,) = wave["nodes"]
    assert switched["labels"] == {
        "nvidia.com/dra-kubelet-plugin": "true",
        "drawbridge.internal/dra-driver": "qat.intel.com",
    }
