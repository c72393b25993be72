"""`drawbridge assess`: workloads by owner, their outcomes, an assumed inventory, and blockers."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from cli.__main__ import main
from kube.manifests.dump import dump_yaml
from migration.assessment import capacity
from testing import documents
from testing.command import drawbridge, translate
from testing.documents import api_object, class_of_driver, node, resource_quota
from testing.migration import origin, resource_slice
from testing.migration import plugin_node as plugin_objects

GPU = "nvidia.com/gpu"
HAMI_DEVICES = [
    {"id": f"GPU-{index}", "count": 10, "devmem": 40960, "devcore": 100, "type": "NVIDIA-A100"}
    for index in range(2)
]


def plugin_node(name: str, gpus: int = 8, driver: str = "580") -> dict[str, Any]:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/cuda.driver-version.major": driver,
    }
    return node(name, {GPU: str(gpus)}, labels=labels)


def hami_node(name: str, register: str | None = None) -> dict[str, Any]:
    text = json.dumps(HAMI_DEVICES) if register is None else register
    return node(name, {GPU: "20"}, annotations={"hami.io/node-nvidia-register": text})


def pod_spec(limits: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "a", "resources": {"limits": limits}}
    return {"containers": [container], **spec}


def pod(name: str, limits: Mapping[str, Any], owner: str = "", **spec: Any) -> dict[str, Any]:
    kind, _, owner_name = owner.partition("/")
    references = [{"apiVersion": "v1", "kind": kind, "name": owner_name, "controller": True}]
    metadata = {"name": name, "namespace": "team"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, **({"ownerReferences": references} if owner else {})},
        "spec": pod_spec(limits, **spec),
    }


def workload(
    kind: str,
    name: str,
    limits: Mapping[str, Any],
    *,
    replicas: int = 1,
    owner: str = "",
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    owned = pod(name, limits, owner)["metadata"]
    template = {"metadata": {"annotations": annotations or {}}, "spec": pod_spec(limits)}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": owned,
        "spec": {"replicas": replicas, "template": template},
    }


def assess(tmp_path: Path, *objects: Mapping[str, Any], output: str = "json") -> Result:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    return drawbridge("assess", "--snapshot", file, "-o", output)


def assessed(tmp_path: Path, *objects: Mapping[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(assess(tmp_path, *objects).stdout)
    return answer


def outcomes(answer: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    return {row["object"]: (row["outcome"], row["pods"]) for row in answer["workloads"]}


SHARE = {GPU: "1", "nvidia.com/gpumem": "8000", "nvidia.com/gpucores": "30"}


# --- workloads ------------------------------------------------------------------------------------


def test_pods_and_replica_sets_count_with_their_deployment(tmp_path: Path) -> None:
    answer = assessed(
        tmp_path,
        workload("Deployment", "d", SHARE, replicas=9),
        workload("ReplicaSet", "d-1", SHARE, owner="Deployment/d", replicas=2),
        workload("ReplicaSet", "d-0", SHARE, owner="Deployment/d", replicas=0),
        pod("d-1-a", SHARE, "ReplicaSet/d-1"),
        pod("d-1-b", SHARE, "ReplicaSet/d-1", nodeName="hami-0"),
    )

    assert outcomes(answer) == {"Deployment/team/d": ("translated", 2)}


def test_a_workload_without_pods_counts_as_many_as_it_requests(tmp_path: Path) -> None:
    job = workload("Job", "j", SHARE) | {"apiVersion": "batch/v1"}
    job["spec"]["parallelism"] = 4

    answer = assessed(tmp_path, workload("StatefulSet", "s", SHARE, replicas=3), job)

    assert outcomes(answer) == {
        "Job/team/j": ("translated", 4),
        "StatefulSet/team/s": ("translated", 3),
    }


def test_what_has_ended_is_no_workload(tmp_path: Path) -> None:
    ended_job = workload("Job", "j", SHARE) | {
        "apiVersion": "batch/v1",
        "status": {"conditions": [{"type": "Complete", "status": "True"}]},
    }
    ended_pod = pod("p", SHARE) | {"status": {"phase": "Succeeded"}}

    answer = assessed(tmp_path, ended_job, pod("j-a", SHARE, "Job/j"), ended_pod)

    assert outcomes(answer) == {}


def test_owners_that_own_each_other_end_the_chain(tmp_path: Path) -> None:
    answer = assessed(
        tmp_path,
        workload("ReplicaSet", "a", SHARE, owner="ReplicaSet/b"),
        workload("ReplicaSet", "b", SHARE, owner="ReplicaSet/a"),
    )

    assert sum(pods for _, pods in outcomes(answer).values()) == 2


def test_a_mirror_pod_is_its_own_workload(tmp_path: Path) -> None:
    answer = assessed(tmp_path, pod("static", SHARE, "Node/node-0"))

    assert list(outcomes(answer)) == ["Pod/team/static"]


# --- outcomes -------------------------------------------------------------------------------------


def test_outcomes_of_one_cluster(tmp_path: Path) -> None:
    answer = assessed(
        tmp_path,
        workload("Deployment", "whole", {GPU: "2"}),
        workload("Deployment", "share", SHARE),
        workload(
            "Deployment", "packed", SHARE, annotations={"hami.io/gpu-scheduler-policy": "binpack"}
        ),
        workload("Deployment", "wrong", {GPU: "1", "nvidia.com/gpumem": "1.5"}),
        workload("Deployment", "unread", {"cambricon.com/vmlu": "1"}),
        workload("Deployment", "plain", {"cpu": "1"}),
        pod("out", SHARE) | {},
    )

    assert outcomes(answer) == {
        "Deployment/team/packed": ("lossy", 1),
        "Deployment/team/share": ("translated", 1),
        "Deployment/team/unread": ("unknown", 1),
        "Deployment/team/whole": ("native", 1),
        "Deployment/team/wrong": ("refused", 1),
        "Pod/team/out": ("translated", 1),
    }
    assert answer["totals"] == {
        "native": 1, "translated": 2, "lossy": 1, "refused": 1, "unknown": 1
    }  # fmt: skip
    rows = {row["object"]: row for row in answer["workloads"]}
    assert rows["Deployment/team/whole"]["fix"] == (
        "add extendedResourceName: nvidia.com/gpu to DeviceClass gpu.nvidia.com"
    )
    assert rows["Deployment/team/packed"]["codes"] == ["policyDropped"]
    assert rows["Deployment/team/unread"]["codes"] == ["untranslatedDeviceKey"]


def test_an_opted_out_pod_is_unknown(tmp_path: Path) -> None:
    labelled = pod("out", SHARE)
    labelled["metadata"]["labels"] = {"drawbridge.internal/translate": "false"}

    answer = assessed(tmp_path, labelled)

    assert outcomes(answer) == {"Pod/team/out": ("unknown", 1)}
    assert answer["workloads"][0]["codes"] == ["optedOut"]
    assert answer["workloads"][0]["fix"] == (
        "remove label drawbridge.internal/translate=false where it is to be translated"
    )


@pytest.mark.parametrize("carrier", ["pod", "namespace"])
def test_whole_devices_that_are_opted_out_are_native(tmp_path: Path, carrier: str) -> None:
    """Assert that labels of Drawbridge change nothing for pods with claims of Kubernetes."""
    labels = {"drawbridge.internal/translate": "false"}
    whole = pod("out", {GPU: "1"})
    team: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}
    }  # fmt: skip
    (whole if carrier == "pod" else team)["metadata"]["labels"] = labels

    answer = assessed(tmp_path, plugin_node("plugin-0"), team, whole)

    assert outcomes(answer) == {"Pod/team/out": ("native", 1)}
    assert (answer["capacity"]["pods"], answer["capacity"]["placed"]) == (1, 1)
    notes = [note["objects"] for note in answer["notes"] if note["code"] == "optedOutNative"]
    assert ([["Pod/team/out"]] if carrier == "namespace" else []) == notes


@pytest.mark.parametrize("carrier", ["pod", "namespace"])
@pytest.mark.parametrize(
    ("limits", "outcome"), [({GPU: "1"}, "native"), (SHARE, "translated")], ids=["whole", "share"]
)
def test_hamis_own_label_does_not_count_where_a_namespace_is_opted_in(
    tmp_path: Path, limits: dict[str, Any], outcome: str, carrier: str
) -> None:
    """Whole devices that HAMi's webhook leaves alone are NVIDIA's, and removing the label would give them to HAMi."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {defaultGpuOwner: hami}\n")
    labelled = pod("out", limits)
    team: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}
    }  # fmt: skip
    metadata = (labelled if carrier == "pod" else team)["metadata"]
    metadata["labels"] = {"hami.io/webhook": "ignore"}
    nodes = [plugin_node("plugin-0"), hami_node("hami-0")]

    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([*nodes, team, labelled]))
    answer = json.loads(
        drawbridge("assess", "--snapshot", file, "--settings", settings, "-o", "json").stdout
    )

    assert outcomes(answer) == {"Pod/team/out": (outcome, 1)}
    assert [] == [entry for entry in answer["blockers"] if entry["code"] == "optedOut"]


def test_a_translated_pod_without_a_controller_counts_as_the_pods_of_a_deployment(
    tmp_path: Path,
) -> None:
    written = pod("notebook", SHARE)
    *templates, translated = yaml.load_all(translate(written).stdout, Loader=yaml.CSafeLoader)
    assert translated["spec"]["resourceClaims"], "the pod has claims in place of its keys"
    running = {**translated, "spec": {**translated["spec"], "nodeName": "hami-0"}}

    before = assessed(tmp_path, hami_node("hami-0"), written)
    answer = assessed(tmp_path, hami_node("hami-0"), running, *templates)

    assert outcomes(answer) == {"Pod/team/notebook": ("translated", 1)} == outcomes(before)
    assert answer["capacity"] == before["capacity"]
    assert (answer["capacity"]["placed"], answer["capacity"]["notCounted"]) == (1, [])


def test_a_pod_that_wrote_its_own_claims_is_no_workload(tmp_path: Path) -> None:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "own"}]

    assert {} == outcomes(assessed(tmp_path, pod("notebook", {}, resourceClaims=claims)))


def test_a_running_pod_of_another_scheduler_is_assessed_as_if_it_were_adopted(
    tmp_path: Path,
) -> None:
    running = pod("a", SHARE, nodeName="hami-0", schedulerName="hami-scheduler")

    answer = assessed(tmp_path, running)

    assert outcomes(answer) == {"Pod/team/a": ("translated", 1)}
    assert answer["workloads"][0]["codes"] == ["foreignScheduler"]
    assert "adoptSchedulers" in answer["workloads"][0]["fix"]


def test_whole_devices_that_another_scheduler_hands_out_become_claims(tmp_path: Path) -> None:
    """HAMi's webhook names its scheduler in pods, not in their owners."""
    owners = [workload("Deployment", name, {GPU: "1"}) for name in ("hami", "plugin")]
    pods = [
        pod("a", {GPU: "1"}, "Deployment/hami", schedulerName="hami-scheduler"),
        pod("b", {GPU: "1"}, "Deployment/plugin", schedulerName="default-scheduler"),
    ]

    answer = assessed(tmp_path, hami_node("hami-0"), plugin_node("plugin-0"), *owners, *pods)

    assert outcomes(answer) == {
        "Deployment/team/hami": ("translated", 1),
        "Deployment/team/plugin": ("native", 1),
    }


def test_an_owner_of_an_unknown_kind_is_known_by_its_pods(tmp_path: Path) -> None:
    answer = assessed(
        tmp_path, pod("a", SHARE, "Trainer/t"), pod("b", {GPU: "1.5"}, "Trainer/broken")
    )

    assert outcomes(answer) == {
        "Trainer/team/broken": ("refused", 1),
        "Trainer/team/t": ("unknown", 1),
    }


# --- inventory and capacity -----------------------------------------------------------------------


def test_nodes_of_each_source(tmp_path: Path) -> None:
    koordinator = api_object(
        "Device",
        "koord-0",
        spec={
            "devices": [
                {"type": "gpu", "id": "GPU-9", "resources": {"koordinator.sh/gpu-memory": "80Gi"}},
                {"type": "rdma", "id": "0000:01:00.0"},
            ]
        },
    )

    answer = assessed(
        tmp_path,
        plugin_node("plugin-0"),
        hami_node("hami-0"),
        hami_node("hami-old", "GPU-a,10,40960,100,NVIDIA-A100,0,true:GPU-b,10,40960,100,A,0,true:"),
        node("koord-0", {"koordinator.sh/gpu-core": "100"}),
        koordinator,
        node("amd-0", {"amd.com/gpu": "4"}),
        node("cpu-0", {"cpu": "4"}),
        node("odd-0", {"nvidia.com/gpu": "500m"}),
    )

    assert [(row["name"], row["source"], row["devices"]) for row in answer["nodes"]] == [
        ("amd-0", "devicePlugin", 4),
        ("hami-0", "hami", 2),
        ("hami-old", "hami", 2),
        ("koord-0", "koordinator", 1),
        ("plugin-0", "devicePlugin", 8),
    ]
    assert all(row["assumed"] for row in answer["nodes"])


def test_published_nodes_are_not_assumed(tmp_path: Path) -> None:
    answer = json.loads(drawbridge("assess", "--snapshot", "examples/cluster", "-o", "json").stdout)

    assert {row["source"] for row in answer["nodes"]} == {"dra"}
    assert not any(row["assumed"] for row in answer["nodes"])


def test_every_pod_is_placed_on_the_assumed_inventory(tmp_path: Path) -> None:
    result = assess(
        tmp_path,
        plugin_node("plugin-0"),
        hami_node("hami-0"),
        workload("Deployment", "whole", {GPU: "4"}, replicas=2),
        workload("Deployment", "share", {**SHARE, "nvidia.com/gpumem": "20000"}, replicas=4),
        workload("Deployment", "mi300", {"amd.com/gpu": "1"}),
    )
    answer = json.loads(result.stdout)

    assert answer["capacity"] == {
        "pods": 6, "placed": 6, "unplaced": [], "notCounted": ["Deployment/team/mi300"]
    }  # fmt: skip
    assert (result.exit_code, answer["blockers"]) == (0, [])


def test_pods_need_the_cpu_of_their_nodes_beside_devices(tmp_path: Path) -> None:
    """The pod that runs there without devices counts, those of the workload are placed anew."""
    small = node(
        "plugin-0",
        {GPU: "8", "cpu": "8", "memory": "64Gi", "pods": "110"},
        {"nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/gpu.memory": "81559"},
    )
    busy = {**pod("busy", {"cpu": "3"}), "status": {"phase": "Running"}}
    busy["spec"]["nodeName"] = "plugin-0"

    result = assess(
        tmp_path, small, busy, workload("Deployment", "whole", {GPU: "1", "cpu": "2"}, replicas=3)
    )

    capacity = json.loads(result.stdout)["capacity"]
    assert (3, 2) == (capacity["pods"], capacity["placed"])


def moved_cluster(owner: str) -> list[dict[str, Any]]:
    """Return a node with two devices, a workload of two whole GPUs, and its pod with both of them."""
    device_class = class_of_driver("gpu.nvidia.com")
    pool = {"name": "node-0", "generation": 1, "resourceSliceCount": 1}
    published = api_object(
        "ResourceSlice",
        "node-0",
        spec={
            "driver": "gpu.nvidia.com",
            "nodeName": "node-0",
            "pool": pool,
            "devices": [{"name": f"gpu-{number}"} for number in range(2)],
        },
    )
    results = [
        {"request": "r", "driver": "gpu.nvidia.com", "pool": "node-0", "device": f"gpu-{number}"}
        for number in range(2)
    ]
    claim = api_object(
        "ResourceClaim",
        "moved-gpu",
        "team",
        ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": owner}],
        spec={
            "devices": {
                "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
            }
        },
        status={"allocation": {"devices": {"results": results}}},
    )
    moved = pod("moved", {}, "Deployment/train")
    return [
        node("node-0", {}),
        device_class,
        published,
        claim,
        moved,
        workload("Deployment", "train", {GPU: "2"}),
    ]


@pytest.mark.parametrize(("owner", "placed"), [("moved", 1), ("another", 0)])
def test_a_pod_that_has_moved_counts_once(owner: str, placed: int, tmp_path: Path) -> None:
    """Its claim is not counted beside it; that of another pod stays allocated."""
    answer = assessed(tmp_path, *moved_cluster(owner))

    assert outcomes(answer) == {"Deployment/team/train": ("native", 1)}
    assert (answer["capacity"]["pods"], answer["capacity"]["placed"]) == (1, placed)


def test_shares_of_other_vendors_and_percentages_use_the_assumed_sizes(tmp_path: Path) -> None:
    half = {GPU: "1", "nvidia.com/gpumem-percentage": "50"}

    answer = assessed(tmp_path, hami_node("hami-0"), workload("Deployment", "h", half, replicas=4))

    assert outcomes(answer) == {"Deployment/team/h": ("translated", 4)}
    assert answer["capacity"]["placed"] == 4


def test_pods_without_devices_are_a_blocker(tmp_path: Path) -> None:
    result = assess(
        tmp_path, plugin_node("plugin-0"), workload("Deployment", "whole", {GPU: "4"}, replicas=3)
    )
    answer = json.loads(result.stdout)

    assert result.exit_code == 1
    assert answer["capacity"]["unplaced"] == [{"object": "Deployment/team/whole", "pods": 1}]
    assert [entry["code"] for entry in answer["blockers"]] == ["notPlaced"]


def test_pods_that_no_node_would_ever_serve_are_told_what_would_help(tmp_path: Path) -> None:
    """Devices are free, but those of HAMi's DRA driver are for shares: to free more would not help."""
    whole = workload("Deployment", "whole", {GPU: "1"})
    whole["spec"]["template"]["spec"]["nodeSelector"] = {"gpu": "on"}
    answer = assessed(
        tmp_path,
        hami_node("hami-0"),
        plugin_node("plugin-0"),
        whole,
        workload("Deployment", "many", {GPU: "5"}, replicas=2),
    )

    fixes = {entry["objects"][0]: entry["fix"] for entry in answer["blockers"]}
    assert {"Deployment/team/whole", "Deployment/team/many"} == fixes.keys()
    assert "free devices" in fixes["Deployment/team/many"]
    assert "free devices" not in fixes["Deployment/team/whole"]
    assert "node selector" in fixes["Deployment/team/whole"]


# --- blockers -------------------------------------------------------------------------------------


def test_an_old_gpu_driver_is_a_blocker(tmp_path: Path) -> None:
    answer = assessed(
        tmp_path,
        plugin_node("old", driver="570"),
        plugin_node("new"),
        plugin_node("odd", driver="x"),
    )

    (blocker,) = answer["blockers"]
    assert (blocker["code"], blocker["objects"]) == ("gpuDriverTooOld", ["Node//old"])
    assert "570" in blocker["message"]


def test_an_old_cluster_is_a_blocker(tmp_path: Path) -> None:
    old = {**origin(version="v1.31.2"), "unreadable": ["pods", 7]}

    answer = assessed(tmp_path, old)

    assert [entry["code"] for entry in answer["blockers"]] == ["kubernetesTooOld", "notReadable"]
    assert "pods could not be read" in answer["blockers"][1]["message"]
    assert answer["unreadable"] == ["pods"]


SHARED_SLICE = resource_slice("other", "other.example.com", ["GPU-0"])
SHARED_SLICE["spec"]["devices"][0]["allowMultipleAllocations"] = True


@pytest.mark.parametrize(
    ("version", "gate", "others", "outcome", "codes"),
    [
        pytest.param("v1.34.4", None, (), "refused", ["sharesNotSupported"], id="1.34"),
        pytest.param("v1.35.4", None, (), "refused", ["sharesNotSupported"], id="1.35"),
        pytest.param("v1.36.3", None, (), "translated", [], id="1.36 has the gate on"),
        pytest.param("", None, (), "translated", [], id="an unknown version is the newest"),
        pytest.param(
            "v1.31.2",
            *(None, (), "translated", ["kubernetesTooOld"]),
            id="a version without claims is validated as after its upgrade",
        ),
        pytest.param("v1.35.4", True, (), "translated", [], id="the settings say on"),
        pytest.param(
            "v1.37.1", False, (), "refused", ["sharesNotSupported"], id="the settings say off"
        ),
        pytest.param(
            "v1.35.4", None, [SHARED_SLICE], "translated", [], id="a slice shows that it is on"
        ),
        pytest.param(
            "v1.34.4", True, (), "translated", ["gateDefective"], id="on where it is defective"
        ),
    ],
)
def test_shares_need_a_cluster_that_can_hold_them(
    tmp_path: Path,
    *,
    version: str,
    gate: bool | None,
    others: Iterable[Mapping[str, Any]],
    outcome: str,
    codes: list[str],
) -> None:
    file, settings = tmp_path / "cluster.yaml", tmp_path / "settings.yaml"
    gates = {} if gate is None else {"DRAConsumableCapacity": gate}
    settings.write_text(dump_yaml([{"validation": {"featureGates": gates}}]))
    share = workload("Deployment", "share", SHARE)
    file.write_text(dump_yaml([origin(version=version), hami_node("hami-0"), share, *others]))

    options = ("--snapshot", file, "--settings", settings, "-o", "json")
    answer = json.loads(drawbridge("assess", *options).stdout)

    assert outcomes(answer)["Deployment/team/share"] == (outcome, 1)
    assert [entry["code"] for entry in answer["blockers"]] == codes
    if codes and codes != ["kubernetesTooOld"]:
        assert answer["blockers"][0]["objects"] == ["Deployment/team/share"]


MAPPED_CLASS = api_object(
    "DeviceClass", "fpga.example.com", spec={"extendedResourceName": "example.com/fpga"}
)


@pytest.mark.parametrize(
    ("version", "others", "outcome"),
    [
        pytest.param("v1.34.4", (), "translated", id="1.34"),
        pytest.param("v1.35.4", (), "translated", id="1.35"),
        pytest.param("v1.35.4", [MAPPED_CLASS], "native", id="a class shows that the gate is on"),
        pytest.param("v1.36.3", (), "native", id="1.36 has the gate on"),
        pytest.param("", (), "native", id="an unknown version is the newest"),
    ],
)
def test_whole_devices_keep_their_keys_where_a_class_can_map_them(
    tmp_path: Path, version: str, others: Iterable[Mapping[str, Any]], outcome: str
) -> None:
    whole = workload("Deployment", "whole", {GPU: "1"})

    answer = assessed(tmp_path, origin(version=version), plugin_node("plugin-0"), whole, *others)

    assert outcomes(answer) == {"Deployment/team/whole": (outcome, 1)}
    fix = f"add extendedResourceName: {GPU} to DeviceClass gpu.nvidia.com"
    assert [entry["fix"] for entry in answer["workloads"]] == [fix if outcome == "native" else ""]


def test_a_quota_that_would_not_count_is_a_blocker_and_a_reader(tmp_path: Path) -> None:
    quota = resource_quota({"requests.nvidia.com/gpumem": "480000", "pods": "10"})

    answer = assessed(tmp_path, quota, workload("Deployment", "share", SHARE))

    assert outcomes(answer) == {"Deployment/team/share": ("refused", 1)}
    assert [entry["code"] for entry in answer["blockers"]] == ["quotaNotCounted"]
    assert answer["readers"] == {"ResourceQuota/team/gpus": ["nvidia.com/gpumem"]}


def test_the_fix_of_a_quota_of_a_percentage_is_no_conversion(tmp_path: Path) -> None:
    """The fix was `quota convert`, and it has no counterpart for such a line."""
    quota = resource_quota({"requests.nvidia.com/gpumem-percentage": "400"})
    half = {GPU: "1", "nvidia.com/gpumem-percentage": "50"}
    objects = [hami_node("hami-0"), quota, workload("Deployment", "half", half)]

    (blocker,) = assessed(tmp_path, *objects)["blockers"]
    converted = drawbridge(
        "quota", "convert", "--snapshot", tmp_path / "cluster.yaml", "--to", "device"
    )

    assert ("quotaNotCounted", 1) == (blocker["code"], converted.exit_code)
    assert "requests.nvidia.com/gpumem-percentage has no counterpart" in converted.stderr
    assert (
        "drawbridge quota convert prints none: limit their memory or their number by a "
        in (blocker["fix"])
    )


def test_a_pod_that_is_rejected_for_its_keys_blocks_no_quota(tmp_path: Path) -> None:
    """It was told to count claims instead, beside a quota that is converted."""
    quota = resource_quota({f"requests.{GPU}": "8"})
    wrong = workload("Deployment", "wrong", {GPU: "1", "nvidia.com/gpumem-percentage": "150"})

    answer = assessed(tmp_path, hami_node("hami-0"), quota, wrong)

    assert [entry["code"] for entry in answer["blockers"]] == ["outOfRange"]


def test_pods_are_validated_as_if_quotas_that_can_be_converted_were(tmp_path: Path) -> None:
    quota, share = resource_quota({f"requests.{GPU}": "8"}), workload("Deployment", "share", SHARE)
    objects = (hami_node("hami-0"), quota, share)

    result = assess(tmp_path, *objects)
    answer = json.loads(result.stdout)
    file = tmp_path / "cluster.yaml"
    as_they_are = drawbridge("assess", "--snapshot", file, "-o", "json", "--quotas", "as-they-are")

    assert result.exit_code == 0
    assert outcomes(answer) == {"Deployment/team/share": ("translated", 1)}
    assert answer["quotasToConvert"] == ["ResourceQuota/team/gpus"]
    assert as_they_are.exit_code == 1
    refused = json.loads(as_they_are.stdout)
    assert outcomes(refused) == {"Deployment/team/share": ("refused", 1)}
    (blocker,) = refused["blockers"]
    assert "runbooks of `drawbridge plan` convert the quotas" in blocker["fix"]


def test_a_quota_with_scopes_that_counts_no_claims_is_named_with_the_reason(tmp_path: Path) -> None:
    quota = resource_quota({f"requests.{GPU}": "8"})
    quota["spec"]["scopes"] = ["NotTerminating"]
    objects = (hami_node("hami-0"), quota, workload("Deployment", "share", SHARE))

    answer = json.loads(assess(tmp_path, *objects).stdout)
    text = drawbridge("assess", "--snapshot", tmp_path / "cluster.yaml").stdout
    page = drawbridge("assess", "--snapshot", tmp_path / "cluster.yaml", "-o", "html").stdout

    reason = "a quota with scopes counts no claims"
    assert answer["quotasLeft"] == {"ResourceQuota/team/gpus": {f"requests.{GPU}": reason}}
    assert reason in " ".join(text.split())
    assert reason in page


def test_a_bare_pod_that_hami_has_scheduled_is_read_like_one_that_it_has_not(
    tmp_path: Path,
) -> None:
    """The annotations that HAMi's scheduler had written on it made it unknown."""
    scheduled = pod("debug", SHARE)
    scheduled["metadata"]["annotations"] = {
        "hami.io/vgpu-node": "hami-0",
        "hami.io/vgpu-devices-allocated": "GPU-hami-0-0,NVIDIA,8000,0:;",
        "hami.io/bind-phase": "success",
    }

    answer = assessed(tmp_path, scheduled)

    assert outcomes(answer) == {"Pod/team/debug": ("translated", 1)}


def test_a_quota_on_memory_blocks_also_where_one_on_devices_is_converted(tmp_path: Path) -> None:
    quota = resource_quota({f"requests.{GPU}": "8", "requests.nvidia.com/gpumem": "30000"})

    result = assess(tmp_path, hami_node("a"), quota, workload("Deployment", "share", SHARE))
    answer = json.loads(result.stdout)

    assert result.exit_code == 1
    assert outcomes(answer) == {"Deployment/team/share": ("refused", 1)}
    (blocker,) = answer["blockers"]
    assert "translation.quota: warn" in blocker["fix"]
    assert "plan` holds these namespaces" in blocker["fix"]


def test_the_text_says_what_to_do_next_and_names_equal_readers_once(tmp_path: Path) -> None:
    quotas = [
        resource_quota(
            {"requests.nvidia.com/gpumem": "480000", f"requests.{GPU}": "8"},
            namespace=f"team-{number}",
        )
        for number in range(7)
    ]
    share, other = (workload("Deployment", "share", SHARE) for _ in range(2))
    share["metadata"]["namespace"] = "team-0"

    text, free = (
        " ".join(assess(tmp_path, *objects, output="text").stdout.split())
        for objects in (
            (*quotas, share, resource_quota({f"requests.{GPU}": "8"}), other),
            (plugin_node("a"), workload("Deployment", "whole", {GPU: "1"})),
        )
    )

    assert "ResourceQuota/team-4/gpus and 2 more count nvidia.com/gpu, nvidia.com/gpumem" in text
    assert "2 quotas to convert: ResourceQuota/team-0/gpus, ResourceQuota/team/gpus" in text
    assert "`drawbridge quota convert` prints" in text
    assert "the runbooks of `drawbridge plan` apply those that its waves need" in text
    assert "translation.quota: warn admits the pods, and gives this limit up" in text
    assert "next remove what blocks, and assess a new snapshot" in text
    assert "next drawbridge plan -o FOLDER, with the same" in free


def test_a_queue_of_a_scheduler_that_counts_claims_is_not_told_to_count_none(
    tmp_path: Path,
) -> None:
    """The row said that a Queue of KAI counts no claims, and the notes of `plan` said that KAI does, so a quota was set twice."""
    limits = {"resources": {"gpu": {"quota": 8, "limit": 8}}}
    queue = api_object("Queue", "research", api_version="scheduling.run.ai/v2", spec=limits)
    kept = workload("Deployment", "whole", {GPU: "1"})
    kept["spec"]["template"]["spec"]["schedulerName"] = "kai-scheduler"

    text = " ".join(assess(tmp_path, plugin_node("a"), queue, kept, output="text").stdout.split())

    assert (
        "Queue/research counts nvidia.com/gpu: not for pods with claims, unless their scheduler keeps the pods and counts claims"
        in text
    )


# --- forms, and bad input -------------------------------------------------------------------------


def test_the_table_holds_no_formula(tmp_path: Path) -> None:
    hostile = workload("Deployment", "d", {GPU: "1", "nvidia.com/gpumem": "1.5"})
    hostile["kind"] = "Deployment"
    bare = pod("=1+1", SHARE)

    table = list(csv.reader(io.StringIO(assess(tmp_path, hostile, bare, output="csv").stdout)))

    assert table[0] == ["object", "pods", "outcome", "codes", "fix"]
    assert {row[0] for row in table[1:]} == {"Deployment/team/d", "Pod/team/=1+1"}


@pytest.mark.parametrize("output", ["text", "csv"])
def test_the_text_has_no_control_characters(tmp_path: Path, output: str) -> None:
    hostile = plugin_node("node\x1b[2J")
    result = assess(tmp_path, hostile, pod("p\x1b\u202e[2J", SHARE), output=output)

    assert not {"\x1b", "\u202e"} & set(result.stdout)
    assert "Pod/team/p" in result.stdout


def test_more_pods_than_any_cluster_has_are_counted_and_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "MAX_PODS", 100)
    huge = workload("Deployment", "huge", {GPU: "4"}, replicas=10**18)

    placing = json.loads(assess(tmp_path, plugin_node("node"), huge).stdout)["capacity"]

    unplaced = {"object": "Deployment/team/huge", "pods": 10**18 - 2}
    assert (placing["pods"], placing["placed"]) == (10**18, 2)
    assert placing["unplaced"] == [unplaced]


@pytest.mark.parametrize(
    "register",
    [
        "[",
        "[" * 5000,
        "{}",
        "[1]",
        '[{"devmem": 1e99}]',
        ",,,,,,:",
        "\x00",
        '[{"id": 7}]',
        f"GPU-0,10,{'9' * 5000},100,A,0,true:",
    ],
)
def test_a_malformed_register_is_a_blocker_and_no_whole_devices(
    register: str, tmp_path: Path
) -> None:
    """The plugin offers each card ten times, and they counted as so many whole devices."""
    answer = assessed(tmp_path, hami_node("hami-0", register))

    assert [(row["source"], row["devices"]) for row in answer["nodes"]] == [("hami", 0)]
    (blocker,) = [entry for entry in answer["blockers"] if entry["code"] == "registerNotRead"]
    assert blocker["objects"] == ["Node//hami-0"]
    assert "hami.io/node-nvidia-register" in blocker["message"]


@pytest.mark.parametrize("register", ["", " ", "[]"])
def test_a_register_without_devices_leaves_those_of_the_plugin(
    register: str, tmp_path: Path
) -> None:
    answer = assessed(tmp_path, hami_node("hami-0", register))

    assert [(row["source"], row["devices"]) for row in answer["nodes"]] == [("devicePlugin", 20)]


def test_malformed_objects_end_no_call(tmp_path: Path) -> None:
    answer = assess(
        tmp_path,
        api_object("Pod", "a", spec=7),
        api_object("Pod", "b", ownerReferences=7),
        {"apiVersion": "v1", "kind": "Pod", "metadata": 7, "spec": pod_spec(SHARE)},
        api_object("Deployment", "d", spec=[]),
        api_object("Node", "n", status={"allocatable": 3}),
        api_object("Device", "n", spec={"devices": {"a": 1}}),
    )

    assert answer.exit_code in {0, 1}, answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_cluster_has_to_be_named(tmp_path: Path) -> None:
    result = drawbridge("assess")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "--snapshot FILE, or --live" in result.stderr


def test_a_plugin_of_kubectl_assesses_the_cluster_of_the_context(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")

    results = [
        CliRunner().invoke(main, ["assess", *options], prog_name=program)
        for program, options in (
            ("kubectl drawbridge", ["--kubeconfig", absent]),
            ("drawbridge", ["--kubeconfig", absent]),
        )
    ]

    assert [result.exit_code for result in results] == [2, 2]
    assert "no kubeconfig at" in results[0].stderr
    assert "--live" in results[1].stderr


# --- names that a class would serve with other devices --------------------------------------------

MIG = "nvidia.com/mig-3g.40gb"


def mig_node(name: str, profile: str) -> dict[str, Any]:
    return node(name, {f"nvidia.com/mig-{profile}": "2"}, {"nvidia.com/cuda.driver.major": "580"})


def test_a_mig_profile_is_translated_since_the_class_has_all_of_them(tmp_path: Path) -> None:
    answer = assessed(
        tmp_path,
        mig_node("a", "1g.10gb"),
        mig_node("b", "3g.40gb"),
        workload("Deployment", "small", {"nvidia.com/mig-1g.10gb": "1"}),
        workload("Deployment", "large", {MIG: "1"}),
    )

    assert outcomes(answer) == {
        "Deployment/team/large": ("translated", 1),
        "Deployment/team/small": ("translated", 1),
    }
    assert not any("extendedResourceName" in row["fix"] for row in answer["workloads"])


def mig_class(name: str, expression: str) -> dict[str, Any]:
    return documents.device_class(expression, name=name, extendedResourceName=MIG)


@pytest.mark.parametrize(
    ("profile", "outcome"), [("profile == '3g.40gb'", "native"), ("type == 'mig'", "translated")]
)
def test_a_class_of_one_profile_keeps_its_pods_as_they_are(
    profile: str, outcome: str, tmp_path: Path
) -> None:
    expression = f"device.attributes['gpu.nvidia.com'].{profile}"

    answer = assessed(
        tmp_path,
        mig_node("a", "1g.10gb"),
        mig_node("b", "3g.40gb"),
        mig_class("mig-3g.40gb", expression),
        workload("Deployment", "large", {MIG: "1"}),
    )

    assert outcomes(answer) == {"Deployment/team/large": (outcome, 1)}


def test_each_fix_of_a_code_names_its_own_workloads(tmp_path: Path) -> None:
    """The workload with a share of memory had the fix of those with MIG devices."""
    mig = {"nvidia.com/mig-1g.10gb": "1"}
    hard = {
        "requests.nvidia.com/mig-1g.10gb": "9",
        "requests.nvidia.com/mig-3g.40gb": "9",
        "limits.nvidia.com/gpumem": "100000",
    }
    quota = resource_quota(hard)
    names = {name: workload("Deployment", name, mig) for name in ("a", "b")}
    share = workload("Deployment", "share", SHARE)

    answer = assessed(tmp_path, hami_node("hami-0"), quota, *names.values(), share)

    blockers = [entry for entry in answer["blockers"] if entry["code"] == "quotaNotCounted"]
    assert [["Deployment/team/a", "Deployment/team/b"], ["Deployment/team/share"]] == [
        entry["objects"] for entry in blockers
    ]
    assert "counts devices of all sizes" in blockers[0]["fix"]
    assert "a DeviceQuota does" in blockers[1]["fix"]


def test_nodes_of_unknown_devices_and_of_gpus_in_parts_are_named(tmp_path: Path) -> None:
    """They were on no line, or a line of whole GPUs."""
    shared = node("ts-0", {"nvidia.com/gpu.shared": "32"})
    labels = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "4"}
    shares = plugin_objects("mps-0", 16, **labels)
    objects = [shared, shares, plugin_node("gpu-0")]

    answer = assessed(tmp_path, *objects)

    assert {"ts-0": ["nvidia.com/gpu.shared"]} == answer["unknownDevices"]
    assert {"gpu-0": 1, "mps-0": 4} == {
        entry["name"]: entry["replicas"] for entry in answer["nodes"]
    }
    text = " ".join(drawbridge("assess", "--snapshot", tmp_path / "cluster.yaml").stdout.split())
    assert (
        "1 node offers each GPU 4 times (time slicing or MPS): plan holds them, since with claims each pod would get "
        "a whole one" in text
    )
    assert "1 node with nvidia.com/gpu.shared: which devices a DRA driver would publish" in text


def test_nodes_with_devices_that_take_no_pods_are_named(tmp_path: Path) -> None:
    """A plan held them, and nothing had said so before."""
    cordoned = {**plugin_node("gpu-1"), "spec": {"unschedulable": True}}
    broken = plugin_node("gpu-2")
    broken["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    idle = {**node("cpu-0", {"cpu": "8"}), "spec": {"unschedulable": True}}

    answer = assessed(tmp_path, plugin_node("gpu-0"), cordoned, broken, idle)

    assert {"gpu-1": "cordoned", "gpu-2": "not ready"} == answer["outOfService"]
    text = drawbridge("assess", "--snapshot", tmp_path / "cluster.yaml").stdout
    assert "gpu-1 is cordoned: plan holds it" in text
    assert "gpu-2 is not ready: plan holds it" in text


def test_the_class_for_a_mig_size_in_the_documentation_makes_its_pods_native(
    tmp_path: Path,
) -> None:
    """No command prints one before a driver publishes such devices."""
    text = (Path(__file__).parents[2] / "docs" / "assess.md").read_text()
    (block,) = (block for block in text.split("```yaml\n")[1:] if "kind: DeviceClass" in block)
    device_class = yaml.safe_load(block.partition("```")[0])
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.count": "1"}
    small = node("mig-0", {"nvidia.com/mig-1g.5gb": "7"}, labels=labels)
    objects = [small, pod("small", {"nvidia.com/mig-1g.5gb": "1"})]

    outcomes = [
        assessed(tmp_path, *objects, *classes)["workloads"][0]["outcome"]
        for classes in ((), (device_class,))
    ]

    assert ["translated", "native"] == outcomes


def test_a_label_with_too_many_digits_is_no_number_of_gpus(tmp_path: Path) -> None:
    """Python reads no number of so many, and the command ended with an error."""
    labels = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "9" * 5000}

    answer = assessed(tmp_path, plugin_objects("mps-0", 16, **labels))

    assert {"mps-0": 4} == {entry["name"]: entry["replicas"] for entry in answer["nodes"]}


def test_a_line_that_a_device_quota_counts_with_claims_blocks_nothing(tmp_path: Path) -> None:
    """The pods were rejected for a line that the wave removes: the plan held the namespace for ever."""
    quota = resource_quota({f"requests.{GPU}": "8", "requests.nvidia.com/gpumem": "30000"})
    objects = (hami_node("hami-0"), quota, workload("Deployment", "share", SHARE))
    file = tmp_path / "quota.yaml"
    file.write_text(dump_yaml([quota]))
    converted = drawbridge("quota", "convert", "--snapshot", file, "--to", "device", "-o", "json")
    (conversion,) = json.loads(converted.stdout)["conversions"]

    result = assess(tmp_path, *objects, *conversion["documents"])
    answer = json.loads(result.stdout)
    text = drawbridge("assess", "--snapshot", tmp_path / "cluster.yaml").stdout
    page = drawbridge("assess", "--snapshot", tmp_path / "cluster.yaml", "-o", "html").stdout
    as_they_are = ("--quotas", "as-they-are", "-o", "json")
    today = drawbridge("assess", "--snapshot", tmp_path / "cluster.yaml", *as_they_are).stdout

    assert result.exit_code == 0, result.stdout
    assert outcomes(answer) == {"Deployment/team/share": ("translated", 1)}
    assert (answer["quotasToConvert"], answer["quotasLeft"]) == ([], {})
    assert answer["replacedLines"] == [
        {
            "namespace": "team",
            "name": "gpus",
            "lines": ["requests.nvidia.com/gpu", "requests.nvidia.com/gpumem"],
            "amounts": {"requests.nvidia.com/gpu": "8", "requests.nvidia.com/gpumem": "30k"},
            "deviceQuotas": ["team-gpus"],
        }
    ]
    words = "counts requests.nvidia.com/gpu, requests.nvidia.com/gpumem and claims together"
    assert words in " ".join(text.split())
    assert words in page
    assert outcomes(json.loads(today)) == {"Deployment/team/share": ("refused", 1)}


def test_only_components_of_the_cluster_are_named(tmp_path: Path) -> None:
    """A cluster without Karpenter and Kueue got statements about both."""
    objects = [plugin_node("gpu-0"), workload("Deployment", "web", {GPU: "1"})]

    def native_row(*more: dict[str, Any]) -> str:
        assess(tmp_path, *objects, *more)
        text = drawbridge("assess", "--snapshot", tmp_path / "cluster.yaml").stdout
        return " ".join(text.partition("  native ")[2].partition("  capacity")[0].split())

    queue = api_object("LocalQueue", "q", api_version="kueue.x-k8s.io/v1beta2")
    karpenter = plugin_objects("gpu-1", 4, **{"karpenter.sh/nodepool": "gpus"})
    assert [name for name in ("Karpenter", "Kueue") if name in native_row()] == []
    assert "Kueue (0.19 and later)" in native_row(queue)
    assert "Karpenter (1.14)" in native_row(karpenter)
    assert "Kubernetes (1.37)" in native_row()


@pytest.mark.parametrize(
    ("release", "is_told"), [("0.16.0", False), ("0.18.2", False), ("0.19.0", True), ("", True)]
)
def test_only_statements_about_the_release_of_a_component_are_named(
    tmp_path: Path, release: str, *, is_told: bool
) -> None:
    """A cluster with Kueue 0.16 was told of 0.19, and `plan` left that out."""
    web = workload("Deployment", "web", {GPU: "1"})
    web["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    image = f"registry.k8s.io/kueue/kueue:v{release}"
    spec = {"template": {"spec": {"containers": [{"name": "manager", "image": image}]}}}
    manager = api_object(
        "Deployment", "kueue-controller-manager", "kueue-system", api_version="apps/v1", spec=spec
    )
    assess(tmp_path, plugin_node("gpu-0"), web, *([manager] if release else []))
    file = tmp_path / "cluster.yaml"

    text = drawbridge("assess", "--snapshot", file).stdout
    page = drawbridge("assess", "--snapshot", file, "-o", "html").stdout

    assert is_told is ("Kueue (0.19 and later)" in " ".join(text.split()))
    assert is_told is ("Kueue (0.19 and later)" in page)
    assert "Kubernetes (1.37)" in text


def test_assess_says_what_translation_keep_leaves(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {keep: [rdma, nvidia.com/sriov_rdma]}\n")
    (tmp_path / "cluster.yaml").write_text(dump_yaml([plugin_node("gpu-0")]))
    call = ("assess", "--snapshot", tmp_path / "cluster.yaml", "--settings", settings)

    text = " ".join(drawbridge(*call).stdout.split())
    answer = json.loads(drawbridge(*call, "-o", "json").stdout)
    page = drawbridge(*call, "-o", "html").stdout

    assert (
        "kept translation.keep leaves nvidia.com/sriov_rdma, rdma with their device plugin" in text
    )
    assert ["nvidia.com/sriov_rdma", "rdma"] == answer["kept"]
    assert "translation.keep leaves nvidia.com/sriov_rdma, rdma" in page
