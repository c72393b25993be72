"""`assess`, `plan` and `verify`: nodes of a device plugin and a DRA driver that both hand out their devices."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing import documents
from testing.command import drawbridge
from testing.documents import namespace, node
from testing.migration import GPU, WHOLE, hami_node, plugin_node, resource_slice, workload
from testing.plan import Objects, held_objects, planned, waves

NVIDIA: Final = "gpu.nvidia.com"
HAMI: Final = "hami-core-gpu.project-hami.io"
UUIDS: Final = tuple(f"GPU-{number}" for number in range(4))


def published(name: str, driver: str = NVIDIA) -> dict[str, Any]:
    return resource_slice(name, driver, UUIDS)


def registered(name: str) -> dict[str, Any]:
    """A card of a node that koord-scheduler allocates."""
    card = {
        "type": "gpu",
        "id": "GPU-0",
        "health": True,
        "resources": {"koordinator.sh/gpu-memory": "40Gi"},
    }
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": name},
        "spec": {"devices": [card]},
    }


ADDRESS: Final = "0000:1a:00.0"


def registered_nic(name: str, address: str = ADDRESS, function: str = "") -> dict[str, Any]:
    """A NIC of a node that koord-scheduler allocates, or a virtual function of it."""
    nic = {"type": "rdma", "id": address, "health": True, "topology": {"busID": address}}
    groups = [{"vfs": [{"minor": 0, "busID": function}]}] if function else []
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": name},
        "spec": {"devices": [{**nic, "vfGroups": groups}]},
    }


def published_nic(name: str, address: str = ADDRESS) -> dict[str, Any]:
    attributes = {"resource.kubernetes.io/pciBusID": {"string": address}}
    return documents.resource_slice(
        {"name": "nic-0", "attributes": attributes}, driver="dra.net", node=name, name=f"nic-{name}"
    )


def doubled_gpus_and_nics(name: str) -> list[Mapping[str, Any]]:
    return [registered_nic(name), published_nic(name), published(name)]


def claim_of_nic(name: str, device: str = "nic-0") -> dict[str, Any]:
    """A claim that has a device of dra.net of a node."""
    request = {"name": "nic", "exactly": {"deviceClassName": "dra.net"}}
    result = {"request": "nic", "driver": "dra.net", "pool": name, "device": device}
    allocation = {"devices": {"results": [result]}}
    claim = documents.claim(request, name=f"claim-{name}", namespace="team")
    return {**claim, "status": {"allocation": allocation}}


def cluster(*more: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    web = workload("web", WHOLE, ["gpu-1"], kind="StatefulSet")
    return [plugin_node("gpu-1"), plugin_node("gpu-2"), namespace("team"), *web, *more]


def blockers(tmp_path: Path, objects: Objects) -> dict[str, list[str]]:
    file = tmp_path / "assessed.yaml"
    file.write_text(dump_yaml(objects))
    result = drawbridge("assess", "--snapshot", file, "-o", "json")
    return {entry["code"]: entry["objects"] for entry in json.loads(result.stdout)["blockers"]}


@pytest.mark.parametrize(
    "doubled",
    [
        [plugin_node("gpu-0"), published("gpu-0")],
        [hami_node("gpu-0"), published("gpu-0", HAMI)],
        [{**plugin_node("gpu-0"), "spec": {"unschedulable": True}}, published("gpu-0")],
        [node("gpu-0"), registered("gpu-0"), published("gpu-0", HAMI)],
        [plugin_node("gpu-0"), *doubled_gpus_and_nics("gpu-0")],
    ],
    ids=["plugin", "HAMi", "cordoned", "Koordinator", "GPUs and NICs"],
)
def test_a_node_of_both_is_a_blocker_and_held(tmp_path: Path, doubled: Objects) -> None:
    """Two pods might have the same GPU, and an ordinary wave switched it without a note."""
    objects = cluster(*doubled)

    plan = planned(tmp_path, objects)

    assert ["Node//gpu-0"] == blockers(tmp_path, objects)["handedOutTwice"]
    assert "both hand out the devices" in held_objects(plan)["Node//gpu-0"]
    (fix,) = (entry["fix"] for entry in plan["held"] if entry["object"] == "Node//gpu-0")
    assert fix.startswith("cordon it now; set the label back")
    assert {"gpu-1", "gpu-2"} == {name for names, _ in waves(plan) for name in names}


@pytest.mark.parametrize(
    "doubled",
    [
        [registered_nic("gpu-0"), published_nic("gpu-0", "0000:1A:00.0")],
        [registered_nic("gpu-0", "0000:00:0", ADDRESS), published_nic("gpu-0")],
        [registered_nic("gpu-0"), published_nic("gpu-0"), claim_of_nic("gpu-1")],
    ],
    ids=["NICs", "functions of NICs", "claim elsewhere"],
)
def test_a_node_of_doubled_nics_alone_is_to_lose_their_driver(
    tmp_path: Path, doubled: Objects
) -> None:
    """The first fix was to cordon all such nodes, though no claim had a NIC, and no word said that NICs are meant."""
    objects = cluster(plugin_node("gpu-0"), *doubled)

    plan = planned(tmp_path, objects)

    assert ["Node//gpu-0"] == blockers(tmp_path, objects)["handedOutTwice"]
    (entry,) = (entry for entry in plan["held"] if entry["object"] == "Node//gpu-0")
    assert "Koordinator and a DRA driver (dra.net) both hand out the NICs there" in entry["reason"]
    assert entry["fix"].startswith("take dra.net away there: let its DaemonSet select the label")
    assert "cordon" not in entry["fix"]
    assert {"gpu-1", "gpu-2"} == {name for names, _ in waves(plan) for name in names}


def test_nodes_with_nics_in_claims_alone_are_to_be_cordoned(tmp_path: Path) -> None:
    nics = [(registered_nic(name), published_nic(name)) for name in ("gpu-1", "gpu-2")]
    objects = cluster(*(entry for pair in nics for entry in pair), claim_of_nic("gpu-1"))
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))

    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)

    doubled = [entry for entry in answer["blockers"] if entry["code"] == "handedOutTwice"]
    fixes = {name: entry["fix"] for entry in doubled for name in entry["objects"]}
    assert {"Node//gpu-1", "Node//gpu-2"} == fixes.keys()
    assert fixes["Node//gpu-2"].startswith("take dra.net away")
    assert fixes["Node//gpu-1"] == (
        f"cordon it now, since claims have devices of dra.net there; then {fixes['Node//gpu-2']}"
    )


def test_verify_has_a_note_on_nodes_of_doubled_nics_alone(tmp_path: Path) -> None:
    gpus = [plugin_node("gpu-0"), *doubled_gpus_and_nics("gpu-0")]
    nics = [node("gpu-3"), registered_nic("gpu-3"), published_nic("gpu-3")]

    exit_code, answer, notes = verified(tmp_path, cluster(*gpus, *nics))

    assert 1 == exit_code
    assert "gpu-3" in answer["doubledNodes"]
    assert (
        "note: Node/gpu-3: Koordinator and a DRA driver (dra.net) both hand out the NICs" in notes
    )
    assert "take dra.net away there" in notes


def test_verify_asks_for_no_cordon_of_a_node_of_doubled_nics_alone(tmp_path: Path) -> None:
    """Its answer asked to cordon all nodes of two systems, and only a note took that back."""
    gpus = [plugin_node("gpu-0"), *doubled_gpus_and_nics("gpu-0")]
    nics = [
        entry
        for name in ("gpu-3", "gpu-4", "gpu-5")
        for entry in (node(name), registered_nic(name), published_nic(name))
    ]
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(cluster(*gpus, *nics, claim_of_nic("gpu-5"))))

    result = drawbridge("verify", "--snapshot", file)

    lines = [line for line in result.stdout.splitlines() if line.startswith("Node/")]
    fixes = {line.partition(": ")[0]: line for line in lines}
    assert {"Node/gpu-0", "Node/gpu-3, Node/gpu-4", "Node/gpu-5"} == fixes.keys()
    assert "same one: cordon it now; set the label back" in fixes["Node/gpu-0"]
    assert "same one: take dra.net away there" in fixes["Node/gpu-3, Node/gpu-4"]
    assert "same one: cordon it now, since claims have devices of dra.net" in fixes["Node/gpu-5"]
    assert "4 are wrong" in result.stdout


def test_devices_of_a_node_of_both_are_not_free(tmp_path: Path) -> None:
    """An evicted pod was placed there, beside one that might have its GPU by a claim."""
    web = workload("web", {GPU: "4"}, ["gpu-1"], kind="StatefulSet")
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    assert waves(planned(tmp_path, [*nodes, namespace("team"), *web]))

    plan = planned(tmp_path, [*nodes, published("gpu-0"), namespace("team"), *web])

    assert [] == plan["waves"]


@pytest.mark.parametrize(
    "others",
    [
        [node("gpu-0"), published("gpu-0")],
        [plugin_node("gpu-0"), published("gpu-0", "nic.example.com")],
        [{**hami_node("gpu-0"), "status": {"allocatable": {}}}, published("gpu-0", HAMI)],
        [plugin_node("gpu-0"), registered_nic("gpu-0"), published_nic("gpu-0", "0000:1b:00.0")],
        [plugin_node("gpu-0"), registered_nic("gpu-1"), published_nic("gpu-0")],
    ],
    ids=["switched", "other devices", "annotation of HAMi left", "other NICs", "other node"],
)
def test_a_node_of_one_system_is_no_blocker(tmp_path: Path, others: Objects) -> None:
    assert "handedOutTwice" not in blockers(tmp_path, cluster(*others))


QAT: Final = "intel.com/qat"
QAT_STAYS: Final = "translation: {keep: [resources]}\n"
HAMI_RENAMED: Final = "translation: {renamedKeys: {hami.io/vgpu: nvidia.com/gpu}}\n"


def renamed_node(name: str) -> dict[str, Any]:
    """A node of HAMi with another name for its cards."""
    return {**hami_node(name), "status": {"allocatable": {"hami.io/vgpu": "20"}}}


@pytest.mark.parametrize(
    ("objects", "settings"),
    [
        ([plugin_node("gpu-0"), published("gpu-0")], ""),
        ([renamed_node("gpu-0"), published("gpu-0", HAMI)], HAMI_RENAMED),
        ([node("gpu-0", {QAT: "4"}), published("gpu-0", "qat.intel.com")], ""),
        ([node("gpu-0"), registered("gpu-0"), published("gpu-0", HAMI)], ""),
        ([node("gpu-0"), registered_nic("gpu-0"), published_nic("gpu-0")], ""),
    ],
    ids=["plugin", "renamed key", "other devices", "Koordinator", "NICs"],
)
def test_verify_fails_for_a_node_of_both(tmp_path: Path, objects: Objects, settings: str) -> None:
    """It compared allocations alone, and its note changed no exit status, so `verify.sh` said that the wave is done."""
    file, settings_file = tmp_path / "now.yaml", tmp_path / "settings.yaml"
    file.write_text(dump_yaml(cluster(*objects)))
    settings_file.write_text(settings or "{}\n")
    call = ("verify", "--snapshot", file, "--settings", settings_file)

    result, machine = drawbridge(*call), drawbridge(*call, "-o", "json")

    assert (1, 1) == (result.exit_code, machine.exit_code)
    assert (
        "Node/gpu-0: a legacy system (a device plugin or Koordinator) and a DRA driver both hand out"
        in result.stdout
    )
    assert "1 is wrong" in result.stdout
    assert ["gpu-0"] == json.loads(machine.stdout)["doubledNodes"]


@pytest.mark.parametrize(
    ("objects", "settings"),
    [
        ([node("gpu-0"), published("gpu-0")], ""),
        ([plugin_node("gpu-0"), published("gpu-0", "nic.example.com")], ""),
        ([renamed_node("gpu-0"), published("gpu-0", HAMI)], ""),
        ([node("gpu-0", {QAT: "4"}), published("gpu-0", "qat.intel.com")], QAT_STAYS),
    ],
    ids=["switched", "other devices", "a key of others", "a key that stays"],
)
def test_verify_fails_for_no_node_of_one_system(
    tmp_path: Path, objects: Objects, settings: str
) -> None:
    file, settings_file = tmp_path / "now.yaml", tmp_path / "settings.yaml"
    file.write_text(dump_yaml(cluster(*objects)))
    settings_file.write_text(settings or "{}\n")

    result = drawbridge("verify", "--snapshot", file, "--settings", settings_file)

    assert 0 == result.exit_code, result.stdout


CORDONED: Final = {**plugin_node("gpu-0"), "spec": {"unschedulable": True}}
TOLERANT: Final[Mapping[str, Any]] = {"tolerations": [{"operator": "Exists"}]}
PINNED: Final[Mapping[str, Any]] = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": ["gpu-0"]}
                        ]
                    }
                ]
            }
        }
    }
}
"""The affinity by which the pod of a DaemonSet belongs to its node."""


def verified(tmp_path: Path, objects: Objects) -> tuple[int, dict[str, Any], str]:
    """Return the exit status of `verify`, its answer and its notes."""
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))
    result = drawbridge("verify", "--snapshot", file, "-o", "json")
    return result.exit_code, json.loads(result.stdout), result.stderr


@pytest.mark.parametrize(
    "others",
    [
        [],
        workload("agent", {}, ["gpu-0"], kind="DaemonSet", **TOLERANT),
        workload("tool", WHOLE, ["gpu-2"], **TOLERANT, nodeSelector={"disk": "ssd"}),
        workload("tool", WHOLE, ["gpu-2"]),
    ],
    ids=["none", "no devices", "other nodes", "no toleration"],
)
def test_verify_has_a_note_on_a_node_of_both_that_is_cordoned(
    tmp_path: Path, others: Objects
) -> None:
    """The plan goes on without it, and `verify.sh` of each wave has to."""
    objects = cluster(CORDONED, published("gpu-0"), *others)

    exit_code, answer, notes = verified(tmp_path, objects)

    assert (0, []) == (exit_code, answer["doubledNodes"])
    assert ["gpu-0"] == answer["cordonedDoubledNodes"]
    assert (
        "note: Node/gpu-0: a legacy system (a device plugin or Koordinator) and a DRA driver both"
        in notes
    )
    assert "those that run there may have the same one already" in notes


@pytest.mark.parametrize(
    "others",
    [
        workload("tool", WHOLE, ["gpu-0"], kind="DaemonSet", **TOLERANT, **PINNED),
        workload("tool", WHOLE, [""], kind="DaemonSet", **TOLERANT, **PINNED),
        workload("tool", WHOLE, ["gpu-2"], **TOLERANT),
        workload("tool", {}, ["gpu-0"], **TOLERANT, resourceClaims=[{"name": "gpu"}]),
    ],
    ids=["DaemonSet", "DaemonSet that waits", "Deployment elsewhere", "claims"],
)
def test_verify_fails_for_a_cordoned_node_that_pods_with_devices_come_to(
    tmp_path: Path, others: Objects
) -> None:
    """It said that no new pod comes there, and a DaemonSet creates its pods there all the same."""
    exit_code, answer, notes = verified(tmp_path, cluster(CORDONED, published("gpu-0"), *others))

    assert (1, ["gpu-0"]) == (exit_code, answer["doubledNodes"])
    assert [] == answer["cordonedDoubledNodes"]
    assert "note: Node/gpu-0 is cordoned" in notes
    assert "since they tolerate it: team/tool-" in notes
