"""`drawbridge plan`: namespaces with whole GPUs of a driver without devices, while another driver of GPUs has some."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from testing.builders import HAMI, hami_gpu
from testing.documents import device, device_class, namespace, node, resource_slice
from testing.migration import GPU, SHARE, daemon_set, hami_node, plugin_node, workload
from testing.plan import Objects, failed_before, held_objects, planned, waves

NVIDIA: Final = "gpu.nvidia.com"
IS_GPU: Final = f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == 'gpu'"
CLASS: Final = device_class(IS_GPU, name=NVIDIA, extendedResourceName=GPU)
OPT_IN: Final = {"drawbridge.internal/translate": "true"}
OPT_OUT: Final = {"drawbridge.internal/translate": "false"}
LABEL: Final = "nvidia.com/dra-kubelet-plugin"
REGISTRY: Final = [{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}]
AWAY: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": LABEL, "operator": "DoesNotExist"}]}
            ]
        }
    }
}
PLUGIN: Final = daemon_set("nvidia-device-plugin", affinity=AWAY)
DRIVER: Final = daemon_set("nvidia-dra", nodeSelector={LABEL: "true"}, volumes=REGISTRY)
EARLY: Final = "the next ones would get claims while its driver publishes no GPUs"


def whole(limits: Mapping[str, str], *labels: Mapping[str, str]) -> Objects:
    """Pods with whole devices of the nodes `gpu-0` and `gpu-1`."""
    owner, *pods = workload("llm", limits, ["gpu-0", "gpu-1"], nodeSelector={"pool": "infer"})
    for own in labels:
        owner["spec"]["template"]["metadata"]["labels"] |= own
    return [owner, *pods]


def mixed(
    *more: Mapping[str, Any], team: Mapping[str, str] = {}, labels: Objects = ()
) -> list[Mapping[str, Any]]:
    """Nodes of HAMi, two of them idle, and busy ones of NVIDIA, with a namespace that has pods of both."""
    return [
        *(hami_node(f"hami-{number}") for number in range(4)),
        *(plugin_node(f"gpu-{number}", pool="infer") for number in range(2)),
        *(namespace("team", team), *workload("share", SHARE, ["hami-2", "hami-3"])),
        *(*whole({GPU: "1"}, *labels), *more),
    ]


def published(name: str, driver: str) -> Objects:
    """A switched node with a GPU of a driver."""
    gpu = device(attributes={"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{name}"}})
    own = hami_gpu() if driver == HAMI else gpu
    slice_ = resource_slice(own, driver=driver, node=name, name=f"slice-{name}")
    return [node(name, {}, {"pool": "infer"}, {}), slice_]


def first_wave(plan: dict[str, Any], place: str) -> int:
    """Return the first wave with the namespace, or with a node of this prefix."""
    return next(
        number
        for number, (nodes, namespaces) in enumerate(waves(plan), start=1)
        if any(name.startswith(place) for name in (*nodes, *namespaces))
    )


@pytest.mark.parametrize("wave_nodes", [1, 2, 20])
def test_a_namespace_waits_for_the_driver_of_its_whole_gpus(
    tmp_path: Path, wave_nodes: int
) -> None:
    """Its next pods got claims of HAMi's driver, and the drain of the first node of NVIDIA's could not end."""
    plan = planned(tmp_path, mixed(), "--wave-nodes", wave_nodes)

    assert {} == held_objects(plan)
    assert first_wave(plan, "gpu-") <= first_wave(plan, "team")
    assert {GPU: NVIDIA} == plan["mappedClasses"]


def test_a_namespace_waits_where_another_driver_has_gpus_today(tmp_path: Path) -> None:
    plan = planned(tmp_path, mixed(*published("hami-9", HAMI)), "--wave-nodes", 1)

    assert {} == held_objects(plan)
    assert first_wave(plan, "gpu-") <= first_wave(plan, "team")


def test_a_namespace_does_not_wait_for_a_driver_that_has_gpus_today(tmp_path: Path) -> None:
    plan = planned(tmp_path, mixed(*published("gpu-9", NVIDIA), CLASS), "--wave-nodes", 1)

    assert first_wave(plan, "team") < first_wave(plan, "gpu-")


def test_a_namespace_does_not_wait_for_pods_that_are_opted_out(tmp_path: Path) -> None:
    plan = planned(tmp_path, mixed(labels=[OPT_OUT]), "--wave-nodes", 1)

    assert first_wave(plan, "team") < first_wave(plan, "gpu-")


def test_a_namespace_does_not_wait_for_a_name_of_another_vendor(tmp_path: Path) -> None:
    """The webhook leaves such pods to Kubernetes in any case."""
    amd = "amd.com/gpu"
    nodes = [node(f"gpu-{number}", {amd: "4"}, {"pool": "infer"}, {}) for number in range(2)]
    hami = [hami_node(f"hami-{number}") for number in range(4)]
    share = workload("share", SHARE, ["hami-2", "hami-3"])

    plan = planned(
        tmp_path,
        [*hami, *nodes, namespace("team"), *share, *whole({amd: "1"})],
        *("--wave-nodes", 1),
    )

    assert first_wave(plan, "team") < first_wave(plan, "gpu-")


def test_a_namespace_moves_in_parts_where_no_wave_brings_the_driver(tmp_path: Path) -> None:
    """It was opted in as a whole, since a class maps the name."""
    objects = [
        {**entry, "spec": {"unschedulable": True}}
        if entry["metadata"]["name"].startswith("gpu-")
        else entry
        for entry in mixed(CLASS)
    ]

    plan = planned(tmp_path, objects)

    assert EARLY in held_objects(plan)["Namespace//team"]
    assert [] == [name for _, names in waves(plan) for name in names]
    assert ["Deployment/team/share"] == [
        workload
        for wave in plan["waves"]
        for part in wave["partialNamespaces"]
        for workload in part["workloads"]
    ]


@pytest.mark.parametrize(
    ("labels", "other", "is_held"),
    [([], HAMI, True), ([OPT_OUT], HAMI, False), ([], NVIDIA, False)],
)
def test_a_namespace_that_is_opted_in_too_early_is_named(
    tmp_path: Path, labels: Objects, other: str, *, is_held: bool
) -> None:
    """The plan had no word on it."""
    objects = mixed(*published("other-9", other), CLASS, team=OPT_IN, labels=labels)

    plan = planned(tmp_path, objects)

    assert is_held is (
        f"it is opted in already: pods of Deployment/team/llm keep {GPU}"
        in held_objects(plan).get("Namespace//team", "")
    )


def test_a_wave_does_not_drain_pods_whose_next_ones_get_claims_of_another_driver(
    tmp_path: Path,
) -> None:
    """The drain failed after half an hour."""
    before = mixed(CLASS, PLUGIN, DRIVER)
    planned(
        tmp_path, [entry for entry in before if not entry["metadata"]["name"].startswith("hami")]
    )
    opted_in = mixed(*published("hami-9", HAMI), CLASS, PLUGIN, DRIVER, team=OPT_IN)

    assert "Deployment/team/llm" not in failed_before(tmp_path, before)
    assert EARLY in failed_before(tmp_path, opted_in)["Deployment/team/llm"]
