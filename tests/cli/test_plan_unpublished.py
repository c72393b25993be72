"""`drawbridge plan`: namespaces with whole GPUs of a driver without devices, while another driver of GPUs has some."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from testing.builders import HAMI, hami_gpu
from testing.documents import api_object, device, device_class, namespace, node, resource_slice
from testing.migration import (
    GPU,
    SHARE,
    daemon_set,
    hami_node,
    plugin_node,
    running_job,
    workload,
)
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


def test_a_namespace_is_opted_in_early_in_vain_where_an_idle_node_brings_the_driver_first(
    tmp_path: Path,
) -> None:
    """The plan held the namespace, and the checks before its wave failed, though this wave was the cure."""
    idle = plugin_node("gpu-2", pool="infer")
    objects = mixed(*published("hami-9", HAMI), CLASS, PLUGIN, DRIVER, idle, team=OPT_IN)
    own = [entry for entry in objects if not entry["metadata"]["name"].startswith("hami")]

    assert {} == held_objects(planned(tmp_path, objects))
    (first, *_), _ = waves(planned(tmp_path, own))[0]
    assert "gpu-2" == first
    assert "Deployment/team/llm" not in failed_before(tmp_path, objects)


@pytest.mark.parametrize("kind", ["CronJob", "Job"])
def test_a_namespace_with_an_early_opt_in_is_named_where_a_workload_starts_pods_before_the_cure(
    tmp_path: Path, kind: str
) -> None:
    """Its next pods get claims of HAMi today, and no node that is drained before the cure has one of it."""
    container = {"name": "c", "image": "a", "resources": {"limits": {GPU: "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"schedule": "0 2 * * *", "jobTemplate": {"spec": {"template": template}}}
    later = {**api_object("CronJob", "nightly", "team", spec=spec), "apiVersion": "batch/v1"}
    idle = plugin_node("gpu-2", pool="infer")
    job, *pods = running_job("nightly", {GPU: "1"}, ["gpu-1"])
    job["spec"]["completions"] = 10
    own = [later] if kind == "CronJob" else [job, *pods]
    objects = mixed(*published("hami-9", HAMI), CLASS, PLUGIN, DRIVER, idle, *own, team=OPT_IN)

    assert f"{kind}/team/nightly" in held_objects(planned(tmp_path, objects))["Namespace//team"]
    assert f"{kind}/team/nightly" not in failed_before(tmp_path, objects)


def test_a_wave_that_drains_pods_before_it_brings_the_driver_says_how_to_keep_their_keys(
    tmp_path: Path,
) -> None:
    before = mixed(CLASS, PLUGIN, DRIVER)
    planned(
        tmp_path, [entry for entry in before if not entry["metadata"]["name"].startswith("hami")]
    )
    opted_in = mixed(*published("hami-9", HAMI), CLASS, PLUGIN, DRIVER, team=OPT_IN)

    message = failed_before(tmp_path, opted_in)["Deployment/team/llm"]

    assert "kubectl label namespace team drawbridge.internal/translate-" in message
    assert message.count("plan again") == 1


def test_a_namespace_whose_pods_have_claims_keeps_its_label(tmp_path: Path) -> None:
    """Without the label these would come again with device keys."""
    objects = mixed(*published("hami-9", HAMI), CLASS, team=OPT_IN)
    pod = next(entry for entry in objects if entry["metadata"]["name"] == "share-0")
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    served = {**pod, "spec": {**pod["spec"], "nodeName": "hami-9", "resourceClaims": claims}}

    def fix(*own: Mapping[str, Any]) -> str:
        plan = planned(tmp_path, own)
        fixes = {held["object"]: held["fix"] for held in plan["held"]}
        return str(fixes["Namespace//team"])

    assert "kubectl label namespace team drawbridge.internal/translate-" in fix(*objects)
    with_claims = [served if entry is pod else entry for entry in objects]
    assert 'the label drawbridge.internal/translate: "false"' in fix(*with_claims)


# --- pods that come later -------------------------------------------------------------------------

_RUNS: Final = "the next pods of CronJob/team/nightly find no node with devices until wave 2"


def with_later_shares(hami: int, kind: str = "CronJob") -> list[Mapping[str, Any]]:
    """Idle nodes of HAMi, and busy ones of NVIDIA, with a namespace that has whole GPUs, and shares later."""
    container = {"name": "c", "image": "a", "resources": {"limits": SHARE}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"template": template, "suspend": True}
    if kind == "CronJob":
        spec = {"schedule": "0 2 * * *", "jobTemplate": {"spec": {"template": template}}}
    later = {**api_object(kind, "nightly", "team", spec=spec), "apiVersion": "batch/v1"}
    return [
        *(hami_node(f"hami-{number}") for number in range(hami)),
        *(plugin_node(f"gpu-{number}", pool="infer") for number in range(2)),
        *(namespace("team"), namespace("other"), later),
        *workload("llm", {GPU: "1"}, ["gpu-0"], nodeSelector={"pool": "infer"}),
        *running_job("train", {GPU: "1"}, ["gpu-0", "gpu-1"], namespace="other"),
    ]


def last_switch(plan: dict[str, Any], place: str) -> int:
    """Return the last wave that switches a node of this prefix."""
    return max(
        number
        for number, (nodes, _) in enumerate(waves(plan), start=1)
        if any(name.startswith(place) for name in nodes)
    )


def notes(plan: dict[str, Any]) -> str:
    return "\n".join(note for wave in plan["waves"] for note in wave["notes"])


@pytest.mark.parametrize("kind", ["CronJob", "Job"])
@pytest.mark.parametrize("wave_nodes", [1, 2, 20])
def test_a_node_stays_for_later_shares_until_their_namespace_is_opted_in(
    tmp_path: Path, wave_nodes: int, kind: str
) -> None:
    """The last node of HAMi was switched before, and the runs found none until a training had ended."""
    plan = planned(tmp_path, with_later_shares(3, kind), "--wave-nodes", wave_nodes)

    assert {} == held_objects(plan)
    assert first_wave(plan, "hami-") < first_wave(plan, "team") < last_switch(plan, "hami-")
    assert "find no node with devices" not in notes(plan)
    if wave_nodes > 2:
        assert (
            f"no larger: {kind}/team/nightly needs hami-0 for its next pods until its namespace is opted in"
            in notes(plan)
        )


@pytest.mark.parametrize(("wave_nodes", "is_together"), [(1, False), (2, True)])
def test_the_only_node_for_later_shares_is_switched_with_their_namespace(
    tmp_path: Path, wave_nodes: int, *, is_together: bool
) -> None:
    """No other node would serve their claims; a wave without room for it has a note on the pods."""
    plan = planned(tmp_path, with_later_shares(1), "--wave-nodes", wave_nodes)

    assert {} == held_objects(plan)
    assert is_together is (last_switch(plan, "hami-") == first_wave(plan, "team"))
    assert is_together is (_RUNS not in notes(plan))
    assert [["hami-0"], ["gpu-1", "hami-0"]][is_together] == waves(plan)[0][0]


def test_a_node_for_later_shares_comes_with_the_next_nodes(tmp_path: Path) -> None:
    """It had a wave of its own, though another node without work came after it."""
    idle = [entry for entry in with_later_shares(2) if entry["metadata"]["name"][:5] != "train"]
    names = [f"gpu-{number}" for number in range(3)]
    busy = workload("web", {GPU: "1"}, names, namespace="other", nodeSelector={"pool": "infer"})

    plan = planned(tmp_path, [*idle, plugin_node("gpu-2", pool="infer"), *busy], "--wave-nodes", 2)

    assert {} == held_objects(plan)
    assert ["hami-1"] == waves(plan)[0][0]
    assert ["team"] == waves(plan)[1][1]
    assert [1, 2, 2] == [len(nodes) for nodes, _ in waves(plan)]


def test_the_wave_before_a_node_for_later_shares_says_why_that_comes_later(tmp_path: Path) -> None:
    """It said that the node's work would keep its namespaces waiting, and the node had none."""
    plan = planned(tmp_path, with_later_shares(3), "--wave-nodes", 2)

    (wave,) = [wave for wave in plan["waves"] if wave["namespaces"] == ["team"]]
    kept = "CronJob/team/nightly needs hami-2 for its next pods until its namespace is opted in"
    assert f"no larger: {kept}" in wave["notes"]
    assert "would wait for the work" not in notes(plan)
