"""`drawbridge plan`: workloads that a drain leaves without any pod, or with half of them, are named before."""

from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import api_object, namespace
from testing.migration import GPU, budget, plugin_node, ray_cluster, workload
from testing.plan import planned, script

ALL: Final = "its drains evict all pods of a workload at once, 3 of Deployment/team/web, and no PodDisruptionBudget selects them: "
LET_GO: Final = (
    "its drains evict all pods of a workload at once, 3 of Deployment/team/web, and their PodDisruptionBudget lets all of "
    "these go at once: none runs until new ones are ready; where some have to run, change it to maxUnavailable 1 first"
)
ONLY: Final = (
    "its drains evict the only pod of Deployment/team/web: none runs until a new one is ready"
)

VERSION: Final = {
    "RayCluster": "ray.io/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "PyTorchJob": "kubeflow.org/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
}


def wave_of_the_first_node(
    tmp_path: Path, pods: list[str], others: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the wave of gpu-0 in a plan of three nodes, with the pods of one workload on the given nodes."""
    return wave_with(tmp_path, [*workload("web", {GPU: "1"}, pods), *others])


def wave_with(tmp_path: Path, workloads: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the wave of gpu-0 in a plan of three nodes with these objects."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(3)]
    plan = planned(tmp_path, [*nodes, namespace("team"), *workloads], "--wave-nodes", 1)
    waves: list[dict[str, Any]] = plan["waves"]
    (wave,) = [wave for wave in waves if ["gpu-0"] == [node["name"] for node in wave["nodes"]]]
    return wave


@pytest.mark.parametrize(
    ("pods", "others", "expected"),
    [
        (["gpu-0"] * 3, [], ALL),
        (["gpu-0"], [], ONLY),
        (["gpu-0", "gpu-1", "gpu-2"], [], ""),
        (["gpu-0"] * 3, [budget(app="web", maxUnavailable=1)], ""),
        (["gpu-0"] * 3, [budget(app="other", maxUnavailable=1)], ALL),
        (["gpu-0"] * 3, [budget(app="web", maxUnavailable=2)], ""),
        (["gpu-0"] * 3, [budget(app="web", maxUnavailable=3)], LET_GO),
        (["gpu-0"] * 3, [budget(app="web", minAvailable=0)], LET_GO),
        (["gpu-0"], [budget(app="web", maxUnavailable=1)], ONLY),
        (["gpu-0"], [budget(app="web", minAvailable=0)], ONLY),
    ],
    ids=[
        *("all on one node", "one pod", "one elsewhere", "a budget", "another budget"),
        *(
            "a budget of two",
            "a budget of all",
            "a budget of none",
            "one pod that its budget lets go",
        ),
        "one pod, and a budget of none",
    ],
)
def test_a_workload_whose_pods_all_leave_at_once_is_named(
    tmp_path: Path, pods: list[str], others: list[dict[str, Any]], expected: str
) -> None:
    """A reader found six pods of six on one node of a wave, and nothing that said so.

    Another found the only pod of a workload, whose budget lets it go at once.
    """
    wave = wave_of_the_first_node(tmp_path, pods, others)

    notes = [note for note in wave["notes"] if note.startswith("its drains evict")]
    assert bool(expected) is bool(notes)
    assert all(note.startswith(expected) for note in notes)
    assert (["Deployment/team/web"] if expected else []) == wave["emptiedWorkloads"]
    assert bool(expected) is ("its drains evict" in script(tmp_path, "preflight", wave["wave"]))


@pytest.mark.parametrize(
    ("pods", "others", "expected"),
    [
        (["gpu-0", "gpu-0", "gpu-0", "gpu-2"], [], "3 of 4 of Deployment/team/web"),
        (["gpu-0", "gpu-0", "gpu-2", "gpu-2"], [], "2 of 4 of Deployment/team/web"),
        (["gpu-0", "gpu-2", "gpu-2"], [], ""),
        (["gpu-0", "gpu-0", "gpu-2"], [budget(app="web", maxUnavailable=1)], ""),
        (["gpu-0", "gpu-2"], [budget(app="web", maxUnavailable=1)], ""),
    ],
    ids=["most of them", "half of them", "fewer", "a budget", "one at a time"],
)
def test_a_workload_that_loses_half_of_its_pods_is_named_with_their_number(
    tmp_path: Path, pods: list[str], others: list[dict[str, Any]], expected: str
) -> None:
    """Only those that lose all were named: a reader found five pods of six on one node."""
    wave = wave_of_the_first_node(tmp_path, pods, others)

    halved = {"Deployment/team/web": pods.count("gpu-0")} if expected else {}
    notes = [note for note in wave["notes"] if "at least half" in note]
    text = "its drains evict at least half of the pods of a workload at once, {}, and no PodDisruptionBudget selects them: "
    assert halved == wave["halvedWorkloads"]
    assert bool(expected) is bool(notes)
    assert all(note.startswith(text.format(expected)) for note in notes)
    assert bool(expected) is ("at least half" in script(tmp_path, "preflight", wave["wave"]))


def test_one_of_two_pods_needs_another_replica_and_no_budget(tmp_path: Path) -> None:
    """A reader was to create a PodDisruptionBudget with maxUnavailable 1, and that lets this one pod go."""
    wave = wave_of_the_first_node(tmp_path, ["gpu-0", "gpu-2"], [])

    (note,) = [note for note in wave["notes"] if note.startswith("its drains evict")]
    assert {"Deployment/team/web": 1} == wave["halvedWorkloads"]
    assert note.startswith("its drains evict one of two pods of Deployment/team/web: the other one")
    assert "add a replica first" in note
    # Another note says to scale placeholders down.
    assert "where one is too few, and pods are there for more than to be evicted, add" in note
    assert "create one" not in note


def test_a_budget_that_lets_half_of_the_pods_go_at_once_is_named(tmp_path: Path) -> None:
    wave = wave_of_the_first_node(
        tmp_path, ["gpu-0", "gpu-0", "gpu-2"], [budget(app="web", minAvailable="30%")]
    )

    assert {"Deployment/team/web": 2} == wave["halvedWorkloads"]
    (note,) = [note for note in wave["notes"] if "at least half" in note]
    assert "and their PodDisruptionBudget lets all of these go at once: " in note
    assert note.endswith("where they are too few, change it to maxUnavailable 1 first")


def test_an_only_pod_with_a_volume_of_its_node_and_a_budget_that_lets_it_go_is_named(
    tmp_path: Path,
) -> None:
    volume = api_object("PersistentVolume", "disk", spec={"local": {"path": "/disk"}})
    claim = api_object("PersistentVolumeClaim", "data", "team", spec={"volumeName": "disk"})
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    pods = workload("web", {GPU: "1"}, ["gpu-0"], kind="StatefulSet", volumes=volumes)

    wave = wave_with(tmp_path, [*pods, volume, claim, budget(maxUnavailable=1)])

    assert (
        "its drains evict all pods of StatefulSet/team/web, with volumes of their node: none runs until that is back"
        in wave["notes"]
    )


def test_pods_that_are_asked_about_and_pods_with_volumes_of_their_node_have_words_of_their_own(
    tmp_path: Path,
) -> None:
    """No budget helps there: new pods that wait for the node would hold its drain for ever."""
    asked = workload("asked", {GPU: "1"}, ["gpu-0"] * 2)
    for pod in asked[1:]:
        pod["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    volume = api_object("PersistentVolume", "disk", spec={"local": {"path": "/disk"}})
    claim = api_object("PersistentVolumeClaim", "data", "team", spec={"volumeName": "disk"})
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    bound = workload("bound", {GPU: "1"}, ["gpu-0"], kind="StatefulSet", volumes=volumes)
    nodes = [plugin_node(f"gpu-{number}") for number in range(3)]

    plan = planned(
        tmp_path, [*nodes, namespace("team"), *asked, *bound, volume, claim], "--wave-nodes", 1
    )

    notes = [note for wave in plan["waves"] for note in wave["notes"]]
    assert any(
        "at once, 2 of Deployment/team/asked (asked about first), and no" in note for note in notes
    )
    assert (
        "its drains evict all pods of StatefulSet/team/bound, with volumes of their node: none runs until that is back"
        in notes
    )


def test_a_pod_that_an_earlier_wave_moves_is_named_again_with_the_next_one(tmp_path: Path) -> None:
    """A reader found the only pod of a workload on a node of a later wave, and that said nothing of it."""
    near: Any = {"nodeSelector": {"zone": "a"}}
    objects = [
        *(plugin_node(f"gpu-{number}", zone="a") for number in range(2)),
        *(plugin_node("gpu-2", zone="b"), namespace("team")),
        *workload("web", {GPU: "1"}, ["gpu-0"], **near),
        *workload("other", {GPU: "1"}, ["gpu-1", "gpu-1"]),
    ]

    plan = planned(tmp_path, objects, "--wave-nodes", 1, "--spare-nodes", 0)

    told = {
        wave["nodes"][0]["name"]: [
            note.partition(": none runs")[0].partition("only pod of ")[2]
            for note in wave["notes"]
            if note.startswith("its drains evict the only pod of ")
        ]
        for wave in plan["waves"]
    }
    web = "Deployment/team/web"
    assert ["gpu-2", "gpu-0", "gpu-1"] == list(told)
    assert [[], [web], [f"{web} (moved there by an earlier wave, as simulated)"]] == [
        *told.values()
    ]
    assert [False, True, True] == [web in wave["emptiedWorkloads"] for wave in plan["waves"]]


def owned(kind: str, between: str, nodes: list[str], **spec: Any) -> list[dict[str, Any]]:
    """A workload of Kubernetes, and its pods on these nodes, that an object of another project owns."""
    owner, *pods = workload("web", {GPU: "1"}, nodes, kind=between, **spec)
    version = VERSION.get(kind, "example.com/v1")
    reference = {"apiVersion": version, "kind": kind, "name": "own", "controller": True}
    owner["metadata"]["ownerReferences"] = [reference]
    if between == "Job":
        owner["apiVersion"] = "batch/v1"
    return [owner, *pods]


def custom_pods(
    kind: str, limits: dict[str, str], nodes: list[str], name: str = "tune", **spec: Any
) -> list[dict[str, Any]]:
    """Pods on these nodes of a controller of another project, without the controller."""
    pods = workload(name, limits, nodes, kind=kind, **spec)[1:]
    for pod in pods:
        reference = pod["metadata"]["ownerReferences"][0]
        reference |= {"apiVersion": VERSION.get(kind, "example.com/v1"), "name": "tune"}
    return pods


@pytest.mark.parametrize(
    ("kind", "between", "pods"),
    [
        ("Notebook", "StatefulSet", 1),
        ("InferenceService", "Deployment", 2),
        ("Service", "Deployment", 1),
        ("LeaderWorkerSet", "StatefulSet", 2),
    ],
)
def test_a_workload_of_another_project_that_loses_all_of_its_pods_is_named(
    tmp_path: Path, kind: str, between: str, pods: int
) -> None:
    """A reader's notebook was killed without a word."""
    wave = wave_with(tmp_path, owned(kind, between, ["gpu-0"] * pods))

    own = f"{kind}/team/own"
    evicted = (
        f"the only pod of {own}: "
        if pods == 1
        else f"all pods of a workload at once, {pods} of {own}, and no PodDisruptionBudget selects them: "
    )
    assert [own] == wave["emptiedWorkloads"]
    assert any(note.startswith(f"its drains evict {evicted}") for note in wave["notes"])
    is_notebook = kind == "Notebook"
    memory = [note for note in wave["notes"] if "in memory" in note]
    assert [True] * is_notebook == [note.startswith(f"pods of {own} end ") for note in memory]
    assert is_notebook is ("(ReadWriteOnce), or it is a Notebook's" in str(wave["notes"]))
    told = "tell their users first" in script(tmp_path, "preflight", wave["wave"])
    assert is_notebook is told


def test_a_workload_of_another_project_that_loses_half_of_its_pods_is_named(tmp_path: Path) -> None:
    wave = wave_with(tmp_path, owned("InferenceService", "Deployment", ["gpu-0", "gpu-2"]))

    assert [] == wave["emptiedWorkloads"]
    assert {"InferenceService/team/own": 1} == wave["halvedWorkloads"]
    assert any("one of two pods of InferenceService/team/own" in note for note in wave["notes"])


def test_a_budget_guards_a_workload_of_another_project(tmp_path: Path) -> None:
    pods = owned("InferenceService", "Deployment", ["gpu-0"] * 2)

    wave = wave_with(tmp_path, [*pods, budget(app="web", maxUnavailable=1)])

    assert [] == wave["emptiedWorkloads"]
    assert not any("its drains evict" in note for note in wave["notes"])


NUMBER: Final = (
    "create one with minAvailable first, a number one below that of its pods: with maxUnavailable, or a percentage, none "
    "would go, unless the custom resource that owns them has a scale"
)


@pytest.mark.parametrize(
    ("objects", "fix"),
    [
        (
            owned("InferenceService", "Deployment", ["gpu-0"] * 2),
            "create one with maxUnavailable 1 first",
        ),
        (custom_pods("RayCluster", {GPU: "1"}, ["gpu-0"] * 2), NUMBER),
        (custom_pods("RayCluster", {GPU: "1"}, ["gpu-0", "gpu-0", "gpu-2"]), NUMBER),
        (
            [
                *custom_pods("RayCluster", {GPU: "1"}, ["gpu-0"] * 2),
                budget(app="tune", minAvailable=0),
            ],
            NUMBER.replace("create one with", "change it to"),
        ),
    ],
    ids=[
        "pods of a ReplicaSet",
        "pods of a RayCluster",
        "half of the pods of a RayCluster",
        "a number of none",
    ],
)
def test_a_budget_of_pods_that_a_custom_resource_owns_itself_has_a_number(
    tmp_path: Path, objects: list[dict[str, Any]], fix: str
) -> None:
    """The disruption controller asks a RayCluster for its scale, and allows no eviction for ever."""
    wave = wave_with(tmp_path, objects)

    (note,) = [note for note in wave["notes"] if note.startswith("its drains evict")]
    assert note.endswith(f", {fix}")


@pytest.mark.parametrize(
    ("objects", "named"),
    [
        (custom_pods("RayCluster", {GPU: "1"}, ["gpu-0"]), True),
        (custom_pods("LeaderWorkerSet", {GPU: "1"}, ["gpu-0"]), True),
        (custom_pods("PyTorchJob", {GPU: "1"}, ["gpu-0"]), False),
        (custom_pods("JobSet", {GPU: "1"}, ["gpu-0"]), False),
        (custom_pods("Workflow", {GPU: "1"}, ["gpu-0"], restartPolicy="Never"), False),
        (owned("JobSet", "Job", ["gpu-0"], restartPolicy="Never"), False),
        (owned("LeaderWorkerSet", "DaemonSet", ["gpu-0"]), False),
    ],
    ids=[
        *("a RayCluster", "a LeaderWorkerSet", "a training", "a JobSet", "a Workflow"),
        *("a Job of an owner", "a DaemonSet of an owner"),
    ],
)
def test_only_workloads_of_another_project_that_run_on_are_named(
    tmp_path: Path, objects: list[dict[str, Any]], named: bool
) -> None:
    """A drain waits for pods with an end, and leaves those of a DaemonSet."""
    wave = wave_with(tmp_path, objects)

    assert named is bool(wave["emptiedWorkloads"])
    assert named is any("its drains evict the only pod" in note for note in wave["notes"])


def test_a_ray_cluster_of_a_ray_job_is_waited_for(tmp_path: Path) -> None:
    """Its end is that of its RayJob."""
    pods = custom_pods("RayCluster", {GPU: "1"}, ["gpu-0"])

    wave = wave_with(tmp_path, [*pods, ray_cluster("tune", "RayJob")])

    assert [] == wave["emptiedWorkloads"]
    assert any("would lose work" in note for note in wave["notes"])


def test_pods_of_a_ray_cluster_are_asked_about_in_the_note_and_beside_its_head(
    tmp_path: Path,
) -> None:
    """Its head without devices on another node is no pod that the note counts."""
    head = custom_pods("RayCluster", {"cpu": "1"}, ["gpu-2"], "head")
    workers = custom_pods("RayCluster", {GPU: "1"}, ["gpu-0", "gpu-0"])

    wave = wave_with(tmp_path, [*head, *workers])

    assert ["RayCluster/team/tune"] == wave["emptiedWorkloads"]
    assert any(
        "at once, 2 of RayCluster/team/tune (asked about first), and no" in note
        for note in wave["notes"]
    )
