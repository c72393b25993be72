"""`drawbridge plan`: the values that the charts of DRA drivers need for the nodes, and the check of their pods."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import namespace, node
from testing.migration import SHARE, daemon_set, hami_node, plugin_node, workload
from testing.plan import failed_before, held_objects, planned, prepare, waves

HAMI: Final = "hami-core-gpu.project-hami.io"
TPU: Final = "tpu.google.com"
LABEL: Final = "drawbridge.internal/dra-driver"
SELECTOR: Final = (
    rf"'--set-string=kubeletPlugin.nodeSelector.drawbridge\.internal/dra-driver={HAMI}'"
)
REGISTRY: Final = [{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}]
OF_TEAM: Final = {"key": "team", "value": "hpc", "effect": "NoSchedule"}
OF_VENDOR: Final = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
CORDONED: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
PREFERRED: Final = {"key": "old", "effect": "PreferNoSchedule"}
TEAM: Final = {"key": "team", "operator": "Equal", "value": "hpc", "effect": "NoSchedule"}
VENDOR: Final = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def tainted(node: dict[str, Any], *taints: dict[str, str]) -> dict[str, Any]:
    return {**node, "spec": {"taints": list(taints)}}


@pytest.mark.parametrize(
    ("taints", "tolerations"),
    [
        ([], None),
        ([OF_VENDOR, CORDONED, PREFERRED], None),
        ([OF_VENDOR, OF_TEAM], [VENDOR, TEAM]),
        ([{**OF_TEAM, "effect": "NoExecute"}], [VENDOR, {**TEAM, "effect": "NoExecute"}]),
    ],
)
def test_nvidias_driver_tolerates_the_taints_of_planned_nodes(
    tmp_path: Path, taints: list[dict[str, str]], tolerations: list[dict[str, str]] | None
) -> None:
    planned(tmp_path, [tainted(plugin_node("gpu-0"), *taints), daemon_set("nvidia-device-plugin")])

    text = json.dumps(tolerations, separators=(",", ":"))
    flag = f"'--set-json=kubeletPlugin.tolerations={text}'"
    assert (flag in prepare(tmp_path)) is (tolerations is not None)
    assert ("kubeletPlugin.tolerations" in prepare(tmp_path)) is (tolerations is not None)


CONTAINER: Final = "true"
IMAGE: Final = "pre-installed"
PLACES: Final = {CONTAINER: "in the GPU Operator's container", IMAGE: "in the image"}
PLACE: Final = "nvidia.com/gpu.deploy.driver"
GPU_DRIVER: Final = daemon_set("nvidia-driver-daemonset", nodeSelector={PLACE: CONTAINER})
"""The DaemonSet of the GPU Operator with the GPU driver; there is none with driver.enabled=false."""


@pytest.mark.parametrize(
    ("value", "drivers"),
    [(CONTAINER, [GPU_DRIVER]), (CONTAINER, []), (IMAGE, [GPU_DRIVER]), (None, [])],
)
def test_hamis_driver_finds_the_libraries_of_the_operators_driver(
    tmp_path: Path, value: str | None, drivers: list[dict[str, Any]]
) -> None:
    node = tainted(hami_node("hami-0"), OF_TEAM)
    if value is not None:
        node["metadata"]["labels"][PLACE] = value

    planned(tmp_path, [node, *drivers])

    has_root = value == CONTAINER and drivers
    root = "--set=nvidiaDriverRoot=/run/nvidia/driver " if has_root else ""
    tolerations = (
        f"'--set-json=kubeletPlugin.tolerations={json.dumps([TEAM], separators=(',', ':'))}'"
    )
    assert f"#   {root}{tolerations} {SELECTOR}\n" in prepare(tmp_path)


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_to_be_changed_for_a_driver_manager_that_no_node_has(
    tmp_path: Path, place: str
) -> None:
    """With the GPU driver in the image of all nodes the Operator has no driver manager on any."""
    objects = [gpu_node("gpu-0", {PLACE: place}), GPU_DRIVER, daemon_set("nvidia-device-plugin")]

    planned(tmp_path, objects, "--gpu-operator", "v26.3.1")

    assert "GPU Operator v26.3.1: " in prepare(tmp_path)
    changes = "NODE_LABEL_FOR_GPU_POD_EVICTION"
    assert (changes in prepare(tmp_path)) is (place == CONTAINER)
    assert (changes in (tmp_path / "plan" / "README.md").read_text()) is (place == CONTAINER)


@pytest.mark.parametrize("is_switched", [False, True])
@pytest.mark.parametrize(
    ("places", "held_names", "held_if_switched"),
    [
        ((CONTAINER, CONTAINER), (), ()),
        ((IMAGE, IMAGE), (), ()),
        ((CONTAINER, IMAGE), ("gpu-1",), ("gpu-1",)),
        ((IMAGE, CONTAINER), ("gpu-0",), ("gpu-1",)),
        ((CONTAINER, IMAGE, IMAGE), ("gpu-0",), ("gpu-1", "gpu-2")),
        ((IMAGE, CONTAINER, CONTAINER), ("gpu-0",), ("gpu-1", "gpu-2")),
    ],
)
def test_nodes_with_the_gpu_driver_in_another_place_are_held(
    tmp_path: Path,
    places: tuple[str, ...],
    held_names: tuple[str, ...],
    held_if_switched: tuple[str, ...],
    *,
    is_switched: bool,
) -> None:
    """Hold nodes with nothing below the one nvidiaDriverRoot of the chart: that of switched nodes, or of most.

    One node of the Operator's container held all others, and none was held where the driver runs on a node with its image.
    """
    nodes = [gpu_node(f"gpu-{number}", {PLACE: place}) for number, place in enumerate(places)]
    if is_switched:
        nodes[0] = node("gpu-0", {}, {**nodes[0]["metadata"]["labels"], NVIDIA_LABEL: "true"}, {})

    plan = planned(tmp_path, [*nodes, GPU_DRIVER, daemon_set("nvidia-device-plugin")])

    expected = held_if_switched if is_switched else held_names
    assert [f"Node//{name}" for name in expected] == list(held_objects(plan))
    assert not {*expected} & {name for names, _ in waves(plan) for name in names}
    for name, text in held_objects(plan).items():
        own = places[int(name[-1])]
        assert text.startswith(f"its GPU driver is {PLACES[own]}")


def test_no_node_is_held_where_the_operator_brings_no_gpu_driver(tmp_path: Path) -> None:
    """With driver.enabled=false the label is true on nodes that the Operator has labelled since, those with the image among them."""
    nodes = [gpu_node(f"gpu-{place}", {PLACE: place}) for place in PLACES]

    plan = planned(tmp_path, [*nodes, daemon_set("nvidia-device-plugin")])

    assert {} == held_objects(plan)


@pytest.mark.parametrize("flags", [(), ("--gpu-operator", "v26.3.1")])
@pytest.mark.parametrize(
    ("place", "drivers"),
    [(CONTAINER, [GPU_DRIVER]), (CONTAINER, []), (IMAGE, [GPU_DRIVER]), (None, [])],
)
def test_nvidias_driver_has_the_root_of_the_gpu_driver(
    tmp_path: Path, place: str | None, drivers: list[dict[str, Any]], flags: tuple[str, ...]
) -> None:
    """Its chart had the root of the container on nodes with their own GPU driver, as with driver.enabled=false."""
    labels = {} if place is None else {PLACE: place}
    nodes = [gpu_node("gpu-0", labels), daemon_set("nvidia-device-plugin")]

    planned(tmp_path, [*nodes, *drivers], *flags)

    is_told = bool(drivers) if place == CONTAINER else place is None and bool(flags)
    assert ("--set=nvidiaDriverRoot=/run/nvidia/driver " in prepare(tmp_path)) is is_told


def test_nodes_without_operands_have_the_gpu_driver_in_their_image(tmp_path: Path) -> None:
    """The Operator runs none there, and deletes the label of its driver: they were given the root of its container."""
    without = {"nvidia.com/gpu.deploy.operands": "false"}
    nodes = [gpu_node(f"gpu-{number}", without) for number in range(2)]
    nodes.append(gpu_node("gpu-2", {PLACE: CONTAINER}))
    others_of_cluster = [daemon_set("nvidia-device-plugin"), GPU_DRIVER]

    plan = planned(tmp_path, [*nodes, *others_of_cluster], "--gpu-operator", "v26.3.1")

    assert ["Node//gpu-2"] == list(held_objects(plan))
    assert "--set=nvidiaDriverRoot=/run/nvidia/driver " not in prepare(tmp_path)
    others = [gpu_node("gpu-3", {PLACE: CONTAINER}), *nodes[1:]]
    held = held_objects(
        planned(tmp_path, [*others, *others_of_cluster], "--gpu-operator", "v26.3.1")
    )
    assert held["Node//gpu-1"].startswith(
        "its GPU driver is in the image (nvidia.com/gpu.deploy.operands=false), "
    )


def test_googles_driver_comes_to_nodes_without_the_label_of_its_chart(tmp_path: Path) -> None:
    """Its chart has an affinity beside the node selector, so a switched node had no driver."""
    taint = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}
    nodes = [tainted(node(f"tpu-{number}", {"google.com/tpu": "4"}), taint) for number in range(2)]

    planned(tmp_path, nodes)

    tolerations = (
        '[{"key":"google.com/tpu","operator":"Equal","value":"present","effect":"NoSchedule"}]'
    )
    flags = f"'--set-json=kubeletPlugin.tolerations={tolerations}' {SELECTOR.replace(HAMI, TPU)}"
    assert f"#   --set=kubeletPlugin.affinity=null {flags}\n" in prepare(tmp_path)
    assert "cloud.google.com/gke-tpu-dra-driver=true" in prepare(tmp_path)


@pytest.mark.parametrize(
    ("tolerations", "is_missing"),
    [
        ([], True),
        ([VENDOR], True),
        ([{**TEAM, "value": "ml"}], True),
        ([TEAM], False),
        ([{"operator": "Exists"}], False),
    ],
)
def test_a_driver_that_does_not_tolerate_a_taint_stops_the_wave(
    tmp_path: Path, tolerations: list[dict[str, str]], *, is_missing: bool
) -> None:
    driver = daemon_set(
        "hami-dra-driver",
        nodeSelector={LABEL: HAMI},
        volumes=REGISTRY,
        tolerations=tolerations,
    )
    objects = [
        *(tainted(hami_node("hami-0"), OF_TEAM), tainted(hami_node("hami-1"), OF_TEAM)),
        *(namespace("team"), driver),
        *workload("web", SHARE, ["hami-0"], tolerations=[TEAM]),
    ]
    plan = planned(tmp_path, objects, "--wave-nodes", 1)
    (node,) = plan["waves"][0]["nodes"]
    snapshot = tmp_path / "now.yaml"
    snapshot.write_text(dump_yaml(objects))

    wave = tmp_path / "plan" / "wave-1"
    result = drawbridge("verify", "--snapshot", snapshot, "--wave", wave, "--before")

    text = " ".join(result.stdout.split())
    assert is_missing is (
        "failed DaemonSet/kube-system/hami-dra-driver its pods do not tolerate the taints of "
        f"{node['name']}, so the driver would not come there: add {json.dumps(TEAM)} to its tolerations"
        in text
    )
    assert int(is_missing) == result.exit_code, result.stdout


# --- the nodes that the chart of NVIDIA's driver selects ------------------------------------------

NVIDIA_LABEL: Final = "nvidia.com/dra-kubelet-plugin"
OF_FEATURES: Final = "feature.node.kubernetes.io/pci-10de.present"
PRESENT: Final = "nvidia.com/gpu.present"
GKE: Final = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
UBUNTU: Final = {**GKE, "cloud.google.com/gke-os-distribution": "ubuntu"}
NO_AFFINITY: Final = "--set=kubeletPlugin.affinity=null"
GKE_FLAGS: Final = (
    "--set=nvidiaDriverRoot={} --set=controller.priorityClassName= "
    "--set=kubeletPlugin.priorityClassName= "
)


def requiring(*terms: tuple[str, str]) -> dict[str, Any]:
    """A required node affinity for one of these labels."""
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
                    for key, value in terms
                ]
            }
        }
    }


def gpu_node(name: str, labels: dict[str, str]) -> dict[str, Any]:
    """A node of NVIDIA's device plugin with more labels."""
    entry = plugin_node(name)
    entry["metadata"]["labels"] |= labels
    return entry


OF_CHART: Final = requiring((OF_FEATURES, "true"), (PRESENT, "true"))


def nvidias_driver(name: str = "driver", **spec: Any) -> dict[str, Any]:
    return daemon_set(name, nodeSelector={NVIDIA_LABEL: "true"}, volumes=REGISTRY, **spec)


def driver_failures(tmp_path: Path, objects: list[dict[str, Any]]) -> dict[str, str]:
    """The failed checks of drivers before the only wave: DaemonSet to message."""
    planned(tmp_path, objects, "--wave-nodes", 9)
    checks = failed_before(tmp_path, objects)
    return {name: text for name, text in checks.items() if "driver would not come" in text}


def test_a_driver_that_does_not_select_a_node_stops_the_wave(tmp_path: Path) -> None:
    """On GKE no node has a label that the chart requires: the first one was drained, and got no driver."""
    nodes = [plugin_node("g0"), plugin_node("g1"), gpu_node("g2", {PRESENT: "true"})]
    plugin = daemon_set("nvidia-device-plugin")

    failures = driver_failures(tmp_path, [*nodes, plugin, nvidias_driver(affinity=OF_CHART)])

    (message,) = failures.values()
    assert ["DaemonSet/kube-system/driver"] == list(failures)
    assert message == (
        f"its pods do not select g0, g1, so the driver would not come there (required node affinity needs {OF_FEATURES} In "
        f"[true], or {PRESENT} In [true]): set kubeletPlugin.affinity=null in the values of its chart, since the node selector "
        f"alone chooses the driver's nodes, or run kubectl label node g0 g1 {PRESENT}=true, unless a device plugin waits for "
        "that label"
    )


def test_a_reason_that_no_label_of_nvidia_cures_has_no_command(tmp_path: Path) -> None:
    driver = nvidias_driver(affinity=requiring(("pool", "a")))
    cluster = [plugin_node("g0", pool="b"), daemon_set("nvidia-device-plugin"), driver]

    (message,) = driver_failures(tmp_path, cluster).values()

    assert message == (
        "its pods do not select g0, so the driver would not come there (required node affinity needs pool In [a]): "
        "let its node selector and affinity take them"
    )


@pytest.mark.parametrize(
    ("drivers", "failures"),
    [
        ([nvidias_driver(affinity=OF_CHART)], ["driver"]),
        ([nvidias_driver()], []),
        # The labels of the switch count.
        ([nvidias_driver(affinity=requiring((NVIDIA_LABEL, "true")))], []),
        (
            [
                nvidias_driver("a", affinity=requiring(("pool", "a"))),
                nvidias_driver("b", affinity=requiring(("pool", "b"))),
            ],
            [],
        ),
        (
            [
                nvidias_driver("a", affinity=requiring(("pool", "a"))),
                nvidias_driver("c", affinity=requiring(("pool", "c"))),
            ],
            ["a", "c"],
        ),
    ],
    ids=["of the chart", "none", "by its label", "one for each pool", "none for a pool"],
)
def test_each_node_of_a_wave_needs_one_daemon_set_of_its_driver(
    tmp_path: Path, drivers: list[dict[str, Any]], failures: list[str]
) -> None:
    nodes = [plugin_node("g0", pool="a"), plugin_node("g1", pool="b")]

    answer = driver_failures(tmp_path, [*nodes, daemon_set("nvidia-device-plugin"), *drivers])

    assert [f"DaemonSet/kube-system/{name}" for name in failures] == sorted(answer)


def test_a_cordon_keeps_no_driver_away(tmp_path: Path) -> None:
    node = tainted(plugin_node("g0"), CORDONED)
    cluster = [node, daemon_set("nvidia-device-plugin"), nvidias_driver()]
    planned(tmp_path, [plugin_node("g0"), *cluster[1:]])
    node["spec"]["unschedulable"] = True
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(cluster))
    wave = tmp_path / "plan" / "wave-1"

    result = drawbridge("verify", "--snapshot", file, "--wave", wave, "--before")

    assert "driver would not come" not in result.stdout


@pytest.mark.parametrize(
    ("labels", "is_removed"),
    [
        ({}, True),
        ({PRESENT: "false"}, True),
        ({PRESENT: "true"}, False),
        ({OF_FEATURES: "true"}, False),
        ({"feature.node.kubernetes.io/pci-0302_10de.present": "true"}, False),
        ({"feature.node.kubernetes.io/pci-0300_10de.present": "true"}, False),
        ({"feature.node.kubernetes.io/cpu-model.vendor_id": "NVIDIA"}, False),
        ({"feature.node.kubernetes.io/cpu-model.vendor_id": "Intel"}, True),
    ],
)
def test_a_new_release_selects_nodes_without_the_labels_of_its_chart(
    tmp_path: Path, labels: dict[str, str], *, is_removed: bool
) -> None:
    nodes = [gpu_node("g0", labels), gpu_node("g1", {PRESENT: "true"})]

    plan = planned(tmp_path, [*nodes, daemon_set("nvidia-device-plugin")], "--wave-nodes", 2)

    assert is_removed is (f" {NO_AFFINITY} " in prepare(tmp_path))
    assert is_removed is ("# g0 has none of them. " in prepare(tmp_path))
    values = plan["driverValues"].get("gpu.nvidia.com", {"unlabelledNodes": []})
    assert ["g0"] * is_removed == values["unlabelledNodes"]


@pytest.mark.parametrize(
    ("labels", "flags", "root", "is_mixed"),
    [
        ([{}, {}], (), None, False),
        ([GKE, GKE], (), "/home/kubernetes/bin/nvidia", False),
        ([UBUNTU, UBUNTU], (), "/opt/nvidia", False),
        ([GKE, UBUNTU], (), "/home/kubernetes/bin/nvidia", True),
        ([GKE, GKE], ("--gpu-operator", "v26.3.1"), "/run/nvidia/driver", False),
    ],
    ids=["elsewhere", "the usual image", "Ubuntu", "both", "with the GPU Operator"],
)
def test_the_driver_finds_its_libraries_on_gke_and_has_no_priority(
    tmp_path: Path,
    labels: list[dict[str, str]],
    flags: tuple[str, ...],
    root: str | None,
    *,
    is_mixed: bool,
) -> None:
    nodes = [gpu_node(f"g{number}", own) for number, own in enumerate(labels)]

    planned(tmp_path, [*nodes, daemon_set("nvidia-device-plugin")], "--wave-nodes", 2, *flags)

    text = prepare(tmp_path)
    assert (root is not None) is (f" {GKE_FLAGS.format(root)}" in text)
    assert (root is not None) is ("priorityClassName" in text)
    assert is_mixed is ("# BEWARE: a release has one of these roots" in text)
    assert bool(flags) is ("# On GKE the driver that Google installs is in /home/kub" in text)


@pytest.mark.parametrize(("labels", "root"), [(GKE, "/home/kubernetes/bin/nvidia"), ({}, None)])
def test_hamis_driver_finds_its_libraries_on_gke(
    tmp_path: Path, labels: dict[str, str], root: str | None
) -> None:
    node = hami_node("hami-0")
    node["metadata"]["labels"] |= labels

    planned(tmp_path, [node])

    own = f"--set=nvidiaDriverRoot={root} --set=kubeletPlugin.priorityClassName= " if root else ""
    assert f"#   {own}{SELECTOR}\n" in prepare(tmp_path)
    assert "controller.priorityClassName" not in prepare(tmp_path)


def test_one_daemon_set_of_several_tolerates_the_taints_of_each_node(tmp_path: Path) -> None:
    """Each of two releases was named for the pool of the other one."""
    ml = {**OF_TEAM, "value": "ml"}
    nodes = [tainted(plugin_node("g0"), OF_TEAM), tainted(plugin_node("g1"), ml)]
    drivers = [
        nvidias_driver("a", tolerations=[TEAM]),
        nvidias_driver("b", tolerations=[{**TEAM, "value": "ml"}]),
    ]
    plugin = daemon_set("nvidia-device-plugin", tolerations=[{"operator": "Exists"}])

    assert {} == driver_failures(tmp_path, [*nodes, plugin, *drivers])
