"""`drawbridge plan`: pods that may get smaller cards once nodes of two systems have one driver."""

import json
from collections.abc import Mapping, Sequence
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

PERCENTAGE: Final = {GPU: "1", "nvidia.com/gpumem-percentage": "50"}
TAINTS: Final = {"taints": [{"key": "own", "effect": "NoSchedule"}]}
KOORDINATORS: Final = {"node.koordinator.sh/gpu-model": "A100"}

ADOPTED: Final = "translation: {adoptSchedulers: {kai-scheduler: default-scheduler}}\n"

LOSS: Final = (
    "with claims they may get cards of 40Gi, with their device keys they have cards of 80Gi"
)


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
    owner, *pods = objects
    if owner["kind"] == "Job":
        for document in (owner, *(pod["metadata"]["ownerReferences"][0] for pod in pods)):
            document["apiVersion"] = "batch/v1"
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
    assert bool(smaller) <= bool(assessed(tmp_path))
    return smaller


def assessed(tmp_path: Path) -> list[dict[str, Any]]:
    """Return the notes of an assessment on smaller cards, of the cluster of the last plan."""
    file = tmp_path / "cluster.yaml"
    answer = json.loads(drawbridge("assess", "--snapshot", file, "-o", "json").stdout)
    return [note for note in answer["notes"] if note["code"] == "smallerCards"]


@pytest.mark.parametrize("limits", [WHOLE, HALF], ids=["whole cards", "a percentage"])
def test_pods_that_may_get_smaller_cards_have_a_note(
    tmp_path: Path, limits: Mapping[str, str]
) -> None:
    """A StatefulSet of 80 GB cards was restarted while only a node with cards of 40 GB had the driver."""
    (note,) = notes(tmp_path, limits)

    (own,) = assessed(tmp_path)
    assert ["Deployment/team/infer"] == own["objects"]
    assert own["message"].startswith(
        "whole cards or a percentage are requested on cards of 80Gi, and"
    )
    assert own["message"].endswith("fit the cards of 40Gi of hami-0, too")
    assert note.startswith("pods of Deployment/team/infer may get smaller cards")
    assert "run on cards of 80Gi today, and fit hami-0 with cards of 40Gi" in note
    assert (
        "give them the node selector cards=large, which their nodes have and these have not,"
        in note
    )


def switched_node(
    name: str = "hami-0", memory: str = "40Gi", **labels: str
) -> list[dict[str, Any]]:
    """A node with a card that HAMi's driver publishes."""
    labels = {"drawbridge.internal/dra-driver": HAMI, **labels}
    slice_ = resource_slice(hami_gpu(memory), driver=HAMI, node=name, name=f"slice-{name}")
    return [node(name, {}, labels, {}), slice_]


def moving(
    tmp_path: Path,
    *nodes: list[dict[str, Any]],
    number: int = 1,
    limits: Mapping[str, str] = HALF,
    places: Sequence[str] = ("koord-0",),
) -> dict[str, Any]:
    """A plan that moves workloads of Koordinator with such nodes, and with an affinity of each of its own.

    Args:
        nodes: The nodes beside two of Koordinator with cards of 80Gi.
        number: The number of workloads.
        limits: The limits of the first one.
        places: Its nodes.
    """
    objects = [
        *koordinator_node("koord-0", "80Gi", cards="large"),
        *koordinator_node("koord-1", "80Gi", cards="large"),
        *(entry for own in nodes for entry in own),
        namespace("team"),
        *with_selector(workload("infer", limits, places)),
    ]
    for index in range(1, number):
        spread = {"podAffinityTerm": {"topologyKey": str(index)}, "weight": 1}
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [spread]}
        affinity = {"podAntiAffinity": preferred}
        objects += workload(f"infer-{index}", HALF, ["koord-1"], affinity=affinity)
    plan = planned(tmp_path, objects, "--wave-nodes", 1)
    assert any("team" in wave["namespaces"] for wave in plan["waves"])
    return plan


def notes_of(plan: Mapping[str, Any]) -> set[str]:
    return {note for wave in plan["waves"] for note in wave["notes"] if "smaller cards" in note}


def test_smaller_cards_of_a_switched_node_are_told_still(tmp_path: Path) -> None:
    """A plan made anew after the wave of the small node said nothing, and its pods were restarted without a question."""
    plan = moving(tmp_path, switched_node(gpu="off"))

    (note,) = notes_of(plan)
    assert "and fit hami-0 with cards of 40Gi, which have the same driver already;" in note
    assert "give them the node selector cards=large, which their nodes have" in note
    losses = [
        loss for wave in plan["waves"] for entry in wave["workloads"] for loss in entry["losses"]
    ]
    assert [LOSS] == losses


@pytest.mark.parametrize(
    "small",
    [
        switched_node(**KOORDINATORS),
        switched_node(**KOORDINATORS, gpu="on"),
        switched_node(memory="80Gi"),
        [{**entry, "spec": {**TAINTS, **entry.get("spec", {})}} for entry in switched_node()],
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
    ids=[
        *("of their own system", "with another mark", "of the same size", "with a taint"),
        "of another driver",
    ],
)
def test_other_switched_nodes_have_no_smaller_cards_for_pods(
    tmp_path: Path, small: list[dict[str, Any]]
) -> None:
    assert set() == notes_of(moving(tmp_path, small, limits=WHOLE))


def test_smaller_nodes_of_which_one_is_switched_have_no_driver_yet(tmp_path: Path) -> None:
    plan = moving(tmp_path, switched_node(gpu="off"), [hami_node("hami-1")])

    (note,) = notes_of(plan)
    assert "and fit hami-0, hami-1 with cards of 40Gi as soon as these have the same driver" in note


def test_the_largest_card_of_a_workload_is_compared(tmp_path: Path) -> None:
    small = koordinator_node("koord-2", "30Gi")

    (note,) = notes_of(moving(tmp_path, small, switched_node(), places=["koord-0", "koord-2"]))

    assert "run on cards of 80Gi today, and fit hami-0 with cards of 40Gi" in note


@pytest.mark.parametrize("mark", [KOORDINATORS, {"gpu": "off"}], ids=["own", "of HAMi"])
def test_a_workload_that_has_moved_in_part_may_get_smaller_cards_still(
    tmp_path: Path, mark: Mapping[str, str]
) -> None:
    """A plan made anew said nothing of its pods with device keys, as some others were on a node with a driver."""
    own = switched_node("koord-2", "80Gi", **mark)

    (note,) = notes_of(
        moving(tmp_path, own, switched_node(gpu="off"), places=["koord-0", "koord-2"])
    )

    assert note.startswith("pods of Deployment/team/infer may get smaller cards")


@pytest.mark.parametrize(
    ("labels", "is_told"),
    [({"gpu": "off"}, False), ({"gpu": "on"}, False), ({"gpu": "true"}, True), ({}, True)],
)
def test_a_label_for_hami_has_a_value_of_hami(
    tmp_path: Path, labels: Mapping[str, str], *, is_told: bool
) -> None:
    """A former node of another system with a label `gpu` of somebody else was taken for one of HAMi."""
    objects = [
        *(hami_node("hami-1"), hami_node("hami-2"), *switched_node(memory="20Gi", **labels)),
        *(namespace("team"), *workload("infer", PERCENTAGE, ["hami-1"])),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    assert any("team" in wave["namespaces"] for wave in plan["waves"])
    assert is_told is bool(notes_of(plan))


def test_workloads_of_other_conditions_are_of_another_form(tmp_path: Path) -> None:
    """One of them selects nodes with large cards."""
    objects = [
        *koordinator_node("koord-0", "80Gi", cards="large"),
        *koordinator_node("koord-1", "80Gi", cards="large"),
        *(hami_node("hami-0"), namespace("team")),
        *with_selector(workload("any", HALF, ["koord-0"])),
        *with_selector(workload("large", HALF, ["koord-0"], nodeSelector={"cards": "large"})),
    ]

    (note,) = notes_of(planned(tmp_path, objects, "--wave-nodes", 1))

    assert note.startswith("pods of Deployment/team/any may get smaller cards")


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
    assert set() == notes_of(plan)


def test_workloads_of_one_form_are_compared_with_smaller_nodes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each workload of each wave was compared with each node, later each with an affinity to other pods."""
    calls = []

    def counted(pod: Pod, entry: Node) -> str | None:
        calls.append(entry.metadata.name)
        return counted_rejection(pod, entry)

    monkeypatch.setattr("migration.legacy.smaller_cards.counted_rejection", counted)

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

    (note,) = notes_of(plan)
    assert note == (
        "pods of Deployment/team/infer leave their cards of 40Gi, and may get smaller cards: they request whole cards or "
        "a percentage, their nodes get no driver of such claims, and gpu-0, gpu-1 with cards of 24564Mi get it; a node "
        "selector would leave them without a node, so request an amount of memory before this wave if they need more"
    )


def shares_of_kai(tmp_path: Path, annotation: str, value: str) -> dict[str, Any]:
    """A plan of pods of KAI with an annotation, from nodes with cards of 80Gi to nodes with shared cards of 40Gi."""
    memory: dict[str, Any] = {"nvidia.com/gpu.memory": "81920"}
    share = with_selector(workload("share", {"cpu": "1"}, ["gpu-0"], schedulerName="kai-scheduler"))
    for metadata in (share[0]["spec"]["template"]["metadata"], share[1]["metadata"]):
        metadata["annotations"] = {annotation: value}
    objects = [
        *(hami_node(f"hami-{number}") for number in range(2)),
        *(plugin_node(f"gpu-{number}", **memory) for number in range(2)),
        namespace("team"),
        *share,
    ]
    settings = tmp_path / "settings.yaml"
    settings.write_text(ADOPTED)
    return planned(tmp_path, objects, "--wave-nodes", 1, "--settings", settings)


def test_a_share_of_the_only_published_size_is_one_of_a_smaller_card(tmp_path: Path) -> None:
    """Its claims have one amount, and it was taken for an own request of the pods."""
    (note,) = notes_of(shares_of_kai(tmp_path, "gpu-fraction", "0.5"))

    assert note.startswith("pods of Deployment/team/share leave their cards of 80Gi, and may get")
    assert "and hami-0, hami-1 with cards of 40Gi get it" in note
    (own,) = assessed(tmp_path)
    assert ["Deployment/team/share"] == own["objects"]
    assert "cards of 80Gi, and the cards of 40Gi of hami-0, hami-1 alone have" in own["message"]


def test_an_amount_of_memory_is_the_same_on_a_smaller_card(tmp_path: Path) -> None:
    assert set() == notes_of(shares_of_kai(tmp_path, "gpu-memory", "8000"))
    assert [] == assessed(tmp_path)
