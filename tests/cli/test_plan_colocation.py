"""`drawbridge plan`: amounts of Koordinator's colocation leave nodes with koordlet, and pods that request these are held or named."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import api_object, namespace, node
from testing.migration import daemon_set, workload
from testing.plan import (
    checks_before,
    failed_before,
    held_objects,
    planned,
    prepare,
    run_script,
    script,
)

Document = dict[str, Any]
LABEL: Final = "drawbridge.internal/dra-driver"
HAMI: Final = "hami-core-gpu.project-hami.io"
BATCH: Final = {"kubernetes.io/batch-cpu": "4k", "kubernetes.io/batch-memory": "16Gi"}
MID: Final = {"kubernetes.io/mid-cpu": "4k"}
OFFERED: Final = {
    "kubernetes.io/batch-cpu": "60k",
    "kubernetes.io/batch-memory": "300Gi",
    "kubernetes.io/mid-cpu": "60k",
    "cpu": "64",
    "memory": "500Gi",
    "pods": "110",
}
SHARE: Final = {"koordinator.sh/gpu-core": "25", "koordinator.sh/gpu-memory-ratio": "25"}
WAYS: Final = "run a second DaemonSet of koordlet on switched nodes"


def koord_nodes(*names: str, offered: Mapping[str, str] = OFFERED) -> list[Document]:
    documents: list[Document] = []
    for name in names:
        gpus = [
            {
                "type": "gpu",
                "id": f"GPU-{name}-{n}",
                "resources": {"koordinator.sh/gpu-memory": "40Gi"},
            }
            for n in range(4)
        ]
        documents += [
            node(name, offered, {}, {}),
            api_object("Device", name, spec={"devices": gpus}),
        ]
    return documents


def second_koordlet(label: str = "false", selector: Mapping[str, str] = {LABEL: HAMI}) -> Document:
    """A koordlet of other nodes than the first, with the label about the registration of devices."""
    document = daemon_set("koordlet-colocation", nodeSelector={**selector})
    template = document["spec"]["template"]
    template["metadata"] = {"labels": {"drawbridge.internal/registers-devices": label}}
    return document


def cluster(*documents: Document, offered: Mapping[str, str] = OFFERED) -> list[Document]:
    nodes = koord_nodes("koord-0", "koord-1", offered=offered)
    asr = workload("asr", {**SHARE, "cpu": "1"}, ["koord-1"], namespace="infer")
    return [*nodes, daemon_set("koordlet"), *asr, namespace("infer"), namespace("team"), *documents]


def reason(*amounts: str) -> str:
    return f"would offer {', '.join(amounts)}, which Koordinator takes from nodes without koordlet"


@pytest.mark.parametrize("amounts", [BATCH, MID], ids=["batch", "mid"])
def test_pods_with_devices_and_amounts_that_leave_with_koordlet_are_held(
    tmp_path: Path, amounts: dict[str, str]
) -> None:
    """They counted on switched nodes for ever, and their pods waited from a quarter of an hour after the switch on."""
    pods = workload("embed", {**SHARE, **amounts}, ["koord-0"])

    plan = planned(tmp_path, cluster(*pods), "--wave-nodes", 1)

    held = held_objects(plan)
    assert reason(*amounts) in held["Deployment/team/embed"]
    assert {"Node//koord-0", "Namespace//team"} <= held.keys()
    (fix,) = {entry["fix"] for entry in plan["held"] if "embed" in entry["object"]}
    assert WAYS in fix


def test_amounts_that_no_node_offers_any_more_are_the_reason(tmp_path: Path) -> None:
    """It was that no node would have devices of the driver."""
    offered = {key: value for key, value in OFFERED.items() if key not in BATCH}
    pods = workload("embed", {**SHARE, **BATCH}, ["koord-0"])

    plan = planned(tmp_path, cluster(*pods, offered=offered), "--wave-nodes", 1)

    assert reason(*BATCH) in held_objects(plan)["Deployment/team/embed"]


@pytest.mark.parametrize(
    ("koordlets", "is_held"),
    [
        ([second_koordlet()], False),
        ([second_koordlet("true")], True),
        ([second_koordlet(selector={"pool": "cpu"})], True),
    ],
    ids=["for colocation", "with GPUs", "elsewhere"],
)
def test_a_second_koordlet_that_registers_no_devices_keeps_the_amounts(
    tmp_path: Path, koordlets: list[Document], is_held: bool
) -> None:
    """The guide names it as the way on, and prepare.sh kept it from switched nodes, too."""
    pods = workload("embed", {**SHARE, **BATCH}, ["koord-0"])

    plan = planned(tmp_path, cluster(*pods, *koordlets), "--wave-nodes", 1)

    assert is_held is ("Deployment/team/embed" in held_objects(plan))
    names = [entry["name"] for entry in plan["plugins"]]
    assert "koordlet" in names
    if not is_held:
        assert ["koordlet"] == names
        assert "koordlet-colocation" not in prepare(tmp_path)
        checks = checks_before(tmp_path, cluster(*pods, *koordlets))
        sets = [check["object"] for check in checks if check["object"].startswith("DaemonSet/")]
        assert ["DaemonSet/kube-system/koordlet"] == sets


KUBECTL: Final = r"""
case "$*" in
  "get pods --all-namespaces --field-selector=spec.nodeName="*) echo "agent-x DaemonSet/koordlet-colocation koordlet:1 @GATES@" ;;
esac
"""


@pytest.mark.parametrize(
    ("gates", "status"),
    [
        (r"-feature-gates\\u003DBECPUEvict\\u003Dtrue", 0),
        (r"-feature-gates\\u003DAccelerators\\u003Dfalse,BECPUEvict\\u003Dtrue", 0),
        (r"-feature-gates\\u003DBECPUEvict\\u003Dtrue,Accelerators\\u003Dtrue", 1),
        ("", 1),
    ],
)
def test_the_switch_waits_for_no_koordlet_that_registers_no_devices(
    tmp_path: Path, gates: str, status: int
) -> None:
    """It waited for ten minutes, and stopped with the node drained."""
    plan = planned(tmp_path, cluster(second_koordlet()), "--wave-nodes", 1)
    (name,) = (entry["name"] for entry in plan["waves"][0]["nodes"])
    shared = tmp_path / "plan" / "cluster.sh"
    shared.write_text(shared.read_text().replace("leave_seconds=600", "leave_seconds=0"))

    step = ("--step", f"drain/{name}")
    ran = run_script(
        tmp_path, "wave-1/switch.sh", {"kubectl": KUBECTL.replace("@GATES@", gates)}, step
    )

    assert status == ran.returncode, ran.stderr
    deleted = f"kubectl delete devices.scheduling.koordinator.sh {name} "
    assert (status == 0) is (deleted in (tmp_path / "calls").read_text())


def test_pods_without_devices_that_lose_their_amounts_are_named(tmp_path: Path) -> None:
    """A note said that other nodes have the CPU and memory for them."""
    etl = workload("etl", BATCH, ["koord-0", "koord-1"], kind="ReplicaSet")

    plan = planned(tmp_path, cluster(*etl), "--wave-nodes", 1)

    first, last = (wave for wave in plan["waves"] if wave["nodes"])
    assert [] == first["strandedPods"]
    names = ["Pod/team/etl-0", "Pod/team/etl-1"]
    assert names == last["strandedPods"] == last["unplacedPods"] == last["uncolocatedPods"]
    (note,) = (text for text in last["notes"] if "without devices, too" in text)
    assert "offers the batch or mid amounts that team/etl-0, team/etl-1 request" in note
    assert WAYS in note
    assert "select" not in note
    assert WAYS in script(tmp_path, "preflight", last["wave"])


def test_pods_without_devices_go_to_a_node_that_keeps_koordlet(tmp_path: Path) -> None:
    etl = workload("etl", BATCH, ["koord-0", "koord-1"], kind="ReplicaSet")

    plan = planned(tmp_path, cluster(*etl, node("cpu-0", OFFERED, {}, {})), "--wave-nodes", 1)

    assert [[], []] == [wave["unplacedPods"] for wave in plan["waves"] if wave["nodes"]]


ROOTS: Final = [{"name": "kubelet", "hostPath": {"path": "/var/lib/kubelet/"}}]


def test_a_second_koordlet_is_not_taken_for_the_driver(tmp_path: Path) -> None:
    """It mounts the directory of the kubelet, and drivers register below that."""
    second = second_koordlet()
    second["spec"]["template"]["spec"]["volumes"] = ROOTS
    planned(tmp_path, cluster(second), "--wave-nodes", 1)

    failed = failed_before(tmp_path, cluster(second))

    assert "only kube-system/koordlet-colocation waits for" in failed[f"Driver//{HAMI}"]


def test_the_preflight_names_pods_that_lose_their_amounts(tmp_path: Path) -> None:
    driver = daemon_set("hami-dra-driver", nodeSelector={LABEL: HAMI}, volumes=ROOTS)
    away = [{"matchExpressions": [{"key": LABEL, "operator": "DoesNotExist"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": away}}
    own = daemon_set("koordlet", affinity={"nodeAffinity": required})
    objects = [*koord_nodes("koord-0"), own, driver]
    planned(tmp_path, objects)
    etl = workload("etl", BATCH, ["koord-0"], kind="ReplicaSet")

    checks = checks_before(tmp_path, [*objects, *etl])

    (message,) = (entry["message"] for entry in checks if entry["object"] == "Pod/team/etl-0")
    assert "it waits for ever" in message
    assert WAYS in message
