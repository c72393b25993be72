"""`drawbridge plan`: pods without devices that a drain evicts find CPU and memory elsewhere, or are named."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from allocator.pods.node_eligibility import counted_rejection
from kube.manifests.source import SourceObject
from migration.assessment.assess import assess_cluster
from migration.plan.planning.prepared import prepare_cluster
from migration.plan.stage.other_pods import PodName
from migration.plan.stage.placement import Placer
from migration.plan.stage.stage import PodKey, Stage
from migration.plan.stage.stage_allocator import Placement
from process.profiles.profile_files import load_profiles
from testing.counting import counted_calls
from testing.documents import api_object, namespace, node
from testing.migration import GPU, plugin_node, workload
from testing.plan import planned, question_of, script
from translation.cluster.snapshot import TranslationOptions

Objects = Sequence[Mapping[str, Any]]
HOSTNAME: Final = "kubernetes.io/hostname"
ROOM: Final = {"cpu": "8", "memory": "32Gi", "pods": "20"}


def gpu_node(name: str, room: Mapping[str, str] = {}) -> dict[str, Any]:
    document = plugin_node(name)
    document["status"]["allocatable"] |= {**ROOM, **room}
    return document


def others(
    name: str, nodes: Sequence[str], kind: str = "ReplicaSet", cpu: str = "2", **spec: Any
) -> list[dict[str, Any]]:
    """Pods without devices on nodes."""
    return workload(name, {"cpu": cpu}, nodes, kind=kind, **spec)


def cluster(*objects: Objects, second: Mapping[str, str] = ROOM) -> list[Mapping[str, Any]]:
    """Two nodes with GPUs; the first has pods and is switched last."""
    used = workload("train", {GPU: "1"}, ["gpu-1"])
    nodes = [gpu_node("gpu-0"), gpu_node("gpu-1", second), namespace("team")]
    return [*nodes, *used, *(document for entry in objects for document in entry)]


def wave_of(plan: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The wave that drains a node."""
    return next(
        wave for wave in plan["waves"] if name in [entry["name"] for entry in wave["nodes"]]
    )


def test_what_finds_a_place_is_counted(tmp_path: Path) -> None:
    wave = wave_of(
        planned(tmp_path, cluster(others("web", ["gpu-0"] * 3)), "--wave-nodes", 1), "gpu-0"
    )

    assert (3, []) == (wave["evictedOthers"], wave["unplacedPods"])
    assert (
        "its drains evict 3 pods without devices, too (team/web-0, team/web-1, team/web-2); other nodes have the CPU and memory for them"
        in wave["notes"]
    )


SMALL: Final = {"cpu": "3"}
TAINT: Final = [{"key": "a", "effect": "NoSchedule"}]
CPU_NODE: Final = node("cpu-0", ROOM, {}, {})


@pytest.mark.parametrize(
    ("objects", "names"),
    [
        (cluster(others("web", ["gpu-0"], cpu="7"), second=SMALL), ["web-0"]),
        (cluster(others("web", ["gpu-0"], cpu="7"), [CPU_NODE], second=SMALL), []),
        (
            cluster(
                others("web", ["gpu-0"], cpu="7"),
                [{**CPU_NODE, "spec": {"taints": TAINT}}],
                second=SMALL,
            ),
            ["web-0"],
        ),
        (
            cluster(
                others("web", ["gpu-0"], cpu="7"),
                [{**CPU_NODE, "spec": {"unschedulable": True}}],
                second=SMALL,
            ),
            ["web-0"],
        ),
        (cluster(others("web", ["gpu-0"] * 2), second=SMALL), ["web-0"]),
        (cluster(others("web", ["gpu-0"], nodeSelector={"zone": "a"})), ["web-0"]),
        (cluster(others("web", ["gpu-0"], kind="DaemonSet"), second=SMALL), []),
        (
            cluster(
                others("web", ["gpu-0"], kind="Job", restartPolicy="Never", cpu="7"), second=SMALL
            ),
            [],
        ),
    ],
    ids=[
        "too large",
        "a node without devices takes it",
        "a taint of that node",
        "a cordon of that node",
        "there is room for one",
        "a node selector",
        "pods of DaemonSets stay",
        "a Job is waited for",
    ],
)
def test_what_finds_none_is_named(tmp_path: Path, objects: Objects, names: list[str]) -> None:
    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    wave = wave_of(plan, "gpu-0")
    assert [f"Pod/team/{name}" for name in names] == wave["unplacedPods"]
    note = f"no other node takes team/{names[0] if names else ''}"
    if wave["strandedPods"]:
        note = "no node has the labels that team/web-0 select"
    assert bool(names) is any(note in text for text in wave["notes"])
    if names:
        assert note in script(tmp_path, "preflight", wave["wave"])
        page = (tmp_path / "plan" / "plan.html").read_text()
        assert f"<li>Pod/team/{names[0]}</li>" in page


def volume(*nodes: str) -> list[dict[str, Any]]:
    """A claim with a volume of these nodes; with a local one for none."""
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [*nodes]}]}
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}} if nodes else {"local": {}}
    return [
        api_object("PersistentVolumeClaim", "data", "team", spec={"volumeName": "disk"}),
        api_object("PersistentVolume", "disk", spec=spec),
    ]


@pytest.mark.parametrize(
    ("nodes", "is_placed"),
    [
        ([], False),
        (["gpu-0"], False),
        (["gpu-0", "gpu-1"], False),
        (["gpu-0", "cpu-0"], True),
    ],
    ids=["local", "of its node", "of its node and a small one", "of its node and one with room"],
)
def test_a_pod_goes_only_to_nodes_that_reach_its_volume(
    tmp_path: Path, nodes: list[str], is_placed: bool
) -> None:
    """A note said that other nodes have the CPU and memory for it, and that it waits until its node is back."""
    web = others(
        "web",
        ["gpu-0"],
        kind="StatefulSet",
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    )
    objects = cluster(web, volume(*nodes), [CPU_NODE], second={"cpu": "1"})
    for entry in objects:
        if entry["kind"] == "Node":
            entry["metadata"]["labels"][HOSTNAME] = entry["metadata"]["name"]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    wave = wave_of(plan, "gpu-0")
    (note,) = [text for text in wave["notes"] if "without devices, too" in text]
    assert (1, [] if is_placed else ["Pod/team/web-0"]) == (
        wave["evictedOthers"],
        wave["unplacedPods"],
    )
    assert is_placed is ("other nodes have the CPU and memory" in note)
    assert is_placed is not ("no other node takes team/web-0" in note)
    # It has no devices, so it is none of the pods with devices that leave.
    assert 0 == wave["movedPods"]
    assert [] == wave["emptiedWorkloads"]


def test_what_has_moved_takes_cpu_from_pods_with_devices() -> None:
    """The pod of the first node goes to the third, without room left there for the pod of the second."""
    nodes = [gpu_node(f"gpu-{number}") for number in range(3)]
    train = workload("train", {GPU: "1", "cpu": "6"}, ["gpu-1"])
    web = others("web", ["gpu-0"], cpu="6")
    sources = tuple(
        SourceObject(document=document, source="", line=0) for document in [*nodes, *train, *web]
    )
    assessed = assess_cluster(
        sources, load_profiles(), TranslationOptions(), namespace="default", version=""
    )
    placer = Placer(assessed, [PodName("team", "web-0")])
    key = PodKey("Deployment/team/train", 0)
    stage = Stage(switched=frozenset(), opted_in=frozenset(), labels={})
    begin = placer.place(stage, Placement(nodes={key: "gpu-1"}))

    first = placer.place(msgspec.structs.replace(stage, draining=frozenset({"gpu-0"})), begin)
    both = frozenset({"gpu-0", "gpu-1"})
    second = placer.place(msgspec.structs.replace(stage, draining=both), first)

    assert {("team", "web-0"): "gpu-2"} == first.others
    assert (frozenset({key}), first.others) == (second.unplaced, second.others)
    # Without the other pod there is room.
    alone = Placer(assessed).place(msgspec.structs.replace(stage, draining=both), begin)
    assert "gpu-2" == alone.nodes[key]


def test_a_pod_with_a_volume_of_its_node_is_compared_with_that_node_alone(tmp_path: Path) -> None:
    """Each was compared with all nodes, thousands of both in a large cluster."""
    names = [f"gpu-{number}" for number in range(20)]
    data = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    nodes = map(gpu_node, names)
    objects = [*nodes, namespace("team"), *others("web", names, volumes=data), *volume()]
    prepared = prepare_cluster(question_of(tmp_path, objects))
    pods = [PodName("team", f"web-{number}") for number in range(20)]
    placer = Placer(prepared.cluster, pods, volume_nodes=prepared.volume_nodes)
    stage = Stage(switched=frozenset(), opted_in=frozenset(), labels={})

    with counted_calls() as calls:
        places = placer.others.place(
            msgspec.structs.replace(stage, draining=frozenset(names)), {}, {}
        )

    assert dict.fromkeys(pods, "") == places
    assert 0 < calls[counted_rejection.__code__] <= 20


def test_evicted_again_is_counted_again(tmp_path: Path) -> None:
    """The pod goes to the node with the most CPU, though that is drained later."""
    plan = planned(tmp_path, cluster(others("web", ["gpu-0"])), "--wave-nodes", 1)

    assert [1, 1] == [wave["evictedOthers"] for wave in plan["waves"]]
