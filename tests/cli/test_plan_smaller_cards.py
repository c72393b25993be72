"""`drawbridge plan`: pods that may get smaller cards once nodes of two systems have one driver."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from allocator.pods.node_eligibility import counted_rejection
from kube.api.core import Node, Pod
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from testing.builders import HAMI, hami_gpu, nvidia_gpu
from testing.command import drawbridge
from testing.documents import api_object, namespace, node, resource_slice
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import planned

WHOLE: Final = {"koordinator.sh/gpu": "100"}
HALF: Final = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
AMOUNT: Final = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory": "20Gi"}

LOSS: Final = "they may get cards of 40Gi, and have cards of 80Gi today"


def koordinator_node(name: str, memory: str, **labels: str) -> list[dict[str, Any]]:
    gpus = [
        {"type": "gpu", "id": f"GPU-{name}-{index}", "resources": resources}
        for index in range(2)
        for resources in [{"koordinator.sh/gpu-memory": memory}]
    ]
    device = api_object("Device", name, spec={"devices": gpus})
    return [node(name, {"koordinator.sh/gpu": "200"}, labels, {}), device]


def with_selector(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A workload of apps/v1 with its selector; a Job has its own group."""
    owner, pod = objects
    if owner["kind"] == "Job":
        owner["apiVersion"] = pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    owner["spec"]["selector"] = {"matchLabels": {"app": "infer"}}
    return objects


def notes(
    tmp_path: Path, limits: Mapping[str, str], memory: str = "80Gi", **spec: Any
) -> list[str]:
    """The notes on smaller cards for a workload on Koordinator's nodes beside a node of HAMi with cards of 40Gi."""
    objects = [
        *koordinator_node("koord-0", memory, cards="large"),
        *koordinator_node("koord-1", memory, cards="large"),
        hami_node("hami-0"),
        namespace("team"),
        *with_selector(workload("infer", limits, ["koord-0"], **spec)),
    ]
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    result = drawbridge("plan", "--snapshot", file, "--wave-nodes", 1, "-o", tmp_path / "plan")
    assert result.exit_code in (0, 1), result.stderr
    (source,) = read_paths([str(tmp_path / "plan" / "plan.yaml")])
    waves = source.document["waves"]
    assert any("team" in wave["namespaces"] for wave in waves)
    losses = [loss for wave in waves for entry in wave["workloads"] for loss in entry["losses"]]
    smaller = [note for wave in waves for note in wave["notes"] if "smaller cards" in note]
    is_restarted = spec.get("kind", "Deployment") == "Deployment"
    assert [LOSS for _ in smaller if is_restarted] == losses
    return smaller


@pytest.mark.parametrize("limits", [WHOLE, HALF], ids=["whole cards", "a percentage"])
def test_pods_that_may_get_smaller_cards_have_a_note(
    tmp_path: Path, limits: Mapping[str, str]
) -> None:
    """A StatefulSet of 80 GB cards was restarted while only a node with cards of 40 GB had the driver."""
    (note,) = notes(tmp_path, limits)

    assert note.startswith("pods of Deployment/team/infer may get smaller cards")
    assert "run on cards of 80Gi today, and fit hami-0 with cards of 40Gi" in note
    assert (
        "give them the node selector cards=large, which their nodes have and these have not,"
        in note
    )


def switched_node(**labels: str) -> list[dict[str, Any]]:
    """A node with a card of 40Gi that HAMi's driver publishes."""
    labels = {"drawbridge.internal/dra-driver": HAMI, **labels}
    slice_ = resource_slice(hami_gpu("40Gi"), driver=HAMI, node="hami-0", name="slice-0")
    return [node("hami-0", {}, labels, {}), slice_]


def moving(tmp_path: Path, *nodes: list[dict[str, Any]], number: int = 1) -> dict[str, Any]:
    """A plan that moves workloads of Koordinator with such nodes."""
    objects = [
        *koordinator_node("koord-0", "80Gi", cards="large"),
        *koordinator_node("koord-1", "80Gi", cards="large"),
        *(entry for own in nodes for entry in own),
        namespace("team"),
        *with_selector(workload("infer", HALF, ["koord-0"])),
    ]
    for index in range(1, number):
        objects += workload(f"infer-{index}", HALF, ["koord-1"])
    plan = planned(tmp_path, objects, "--wave-nodes", 1)
    assert any("team" in wave["namespaces"] for wave in plan["waves"])
    return plan


def test_smaller_cards_of_a_switched_node_are_told_still(tmp_path: Path) -> None:
    """A plan made anew after the wave of the small node said nothing, and its pods were restarted without a question."""
    plan = moving(tmp_path, switched_node(gpu="off"))

    (note,) = {note for wave in plan["waves"] for note in wave["notes"] if "smaller cards" in note}
    assert "and fit hami-0 with cards of 40Gi, which have the same driver already;" in note
    assert "give them the node selector cards=large, which their nodes have" in note
    losses = [
        loss for wave in plan["waves"] for entry in wave["workloads"] for loss in entry["losses"]
    ]
    assert [LOSS] == losses


@pytest.mark.parametrize(
    "small",
    [
        switched_node(**{"node.koordinator.sh/gpu-model": "A100"}),
        [
            node("hami-0", {}, {}, {}),
            resource_slice(hami_gpu("80Gi"), driver=HAMI, node="hami-0", name="slice-0"),
        ],
        [
            *switched_node()[:1],
            resource_slice(
                {"name": "nic-0", "capacity": {"memory": {"value": "40Gi"}}},
                driver="dra.net",
                node="hami-0",
                name="slice-0",
            ),
        ],
    ],
    ids=["of their own system", "of the same size", "of another driver"],
)
def test_other_switched_nodes_have_no_smaller_cards_for_pods(
    tmp_path: Path, small: list[dict[str, Any]]
) -> None:
    plan = moving(tmp_path, small)

    assert not [note for wave in plan["waves"] for note in wave["notes"] if "smaller cards" in note]


def test_pods_on_a_cordoned_node_with_a_driver_may_stay_with_its_cards(tmp_path: Path) -> None:
    """No wave has their node, and its driver serves their claims: a node selector keeps their cards."""
    large, device = koordinator_node("koord-0", "80Gi", cards="large")
    objects = [
        *({**large, "spec": {"unschedulable": True}}, device),
        resource_slice(hami_gpu("80Gi"), driver=HAMI, node="koord-0", name="slice-0"),
        *koordinator_node("koord-1", "80Gi", cards="large"),
        *(hami_node("hami-0"), namespace("team")),
        *with_selector(workload("infer", HALF, ["koord-0"])),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    assert "koord-0" not in {node["name"] for wave in plan["waves"] for node in wave["nodes"]}
    (note,) = {note for wave in plan["waves"] for note in wave["notes"] if "smaller cards" in note}
    assert "give them the node selector cards=large, which their nodes have" in note


def test_a_device_plugin_gave_pods_any_card(tmp_path: Path) -> None:
    gpu = resource_slice(nvidia_gpu("40Gi"), driver="gpu.nvidia.com", node="gpu-2", name="slice-2")
    memory: dict[str, Any] = {"nvidia.com/gpu.memory": "81920"}
    nodes = [plugin_node(f"gpu-{number}", **memory) for number in (0, 1)]
    objects = [*nodes, node("gpu-2", {}, {}, {}), gpu, namespace("team")]

    infer = with_selector(workload("infer", WHOLE, ["gpu-0"]))
    plan = planned(tmp_path, objects + infer)

    assert any("team" in wave["namespaces"] for wave in plan["waves"])
    assert not [note for wave in plan["waves"] for note in wave["notes"] if "smaller cards" in note]


def test_workloads_of_one_form_are_compared_with_smaller_nodes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each workload of each wave was compared with each node."""
    calls = []

    def counted(pod: Pod, entry: Node) -> str | None:
        calls.append(entry.metadata.name)
        return counted_rejection(pod, entry)

    monkeypatch.setattr("migration.plan.search.smaller_cards.counted_rejection", counted)

    plan = moving(tmp_path, [hami_node("hami-0")], number=4)

    assert ["hami-0"] == calls
    losses = [
        loss for wave in plan["waves"] for entry in wave["workloads"] for loss in entry["losses"]
    ]
    assert [LOSS] * 4 == losses


def test_no_script_restarts_a_job_for_smaller_cards(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, HALF, kind="Job", restartPolicy="Never")

    assert note.startswith("pods of Job/team/infer may get smaller cards")


def test_pods_of_a_daemon_set_stay_on_their_node(tmp_path: Path) -> None:
    assert [] == notes(tmp_path, HALF, kind="DaemonSet")


@pytest.mark.parametrize(
    ("limits", "memory", "spec"),
    [
        (AMOUNT, "80Gi", {}),
        (HALF, "40Gi", {}),
        (HALF, "80Gi", {"nodeSelector": {"cards": "large"}}),
    ],
    ids=["an amount of memory", "cards of one size", "a node selector"],
)
def test_other_pods_have_no_note(
    tmp_path: Path, limits: Mapping[str, str], memory: str, spec: Mapping[str, Any]
) -> None:
    assert [] == notes(tmp_path, limits, memory, **spec)


def test_pods_whose_nodes_get_another_driver_are_offered_no_node_selector(tmp_path: Path) -> None:
    """The note had a node selector for nodes that never get the driver of their claims."""
    memory: dict[str, Any] = {"nvidia.com/gpu.memory": "24564"}
    objects = [
        *(hami_node(f"hami-{number}") for number in range(2)),
        *(plugin_node(f"gpu-{number}", **memory) for number in range(2)),
        namespace("team"),
        *workload("share", SHARE, ["hami-0"]),
        *with_selector(workload("infer", {GPU: "1"}, ["hami-0"], schedulerName="hami-scheduler")),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    (note,) = {note for wave in plan["waves"] for note in wave["notes"] if "smaller cards" in note}
    assert note == (
        "pods of Deployment/team/infer leave their cards of 40Gi, and may get smaller cards: they request whole cards or "
        "a percentage, their nodes get no driver of such claims, and gpu-0, gpu-1 with cards of 24564Mi get it; a node "
        "selector would leave them without a node, so request an amount of memory before this wave if they need more"
    )
