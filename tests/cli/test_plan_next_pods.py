"""`drawbridge plan`: namespaces that wait for devices for the next pods of their workloads."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from allocator.simulation.simulate import simulate_in_order
from migration.plan.stage import stage_allocator
from testing.documents import api_object, namespace, node, resource_quota
from testing.migration import GPU, budget, plugin_node, running_job, workload
from testing.plan import Objects, held_objects, planned, script, waves

SMALL: Final = {"nvidia.com/mig-1g.5gb": "1"}
LARGE: Final = {"nvidia.com/mig-2g.10gb": "1"}
KEY: Final = f"requests.{GPU}"
CLASS: Final = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
NEXT: Final = "it cannot move as a whole: the next pods of {}/team/later would get claims"


def mig_node(name: str, size: str, memory: str, number: str) -> dict[str, Any]:
    """A node with a GPU that is divided into MIG devices of equal size."""
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
        "nvidia.com/gpu.memory": "40960",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/mig.strategy": "mixed",
        f"nvidia.com/mig-{size}.count": number,
        f"nvidia.com/mig-{size}.memory": memory,
    }
    return node(name, {f"nvidia.com/mig-{size}": number}, labels, {})


def later_pods(kind: str, limits: Mapping[str, str] = LARGE) -> Objects:
    """A workload of the namespace `team` that starts pods later."""
    container = {"name": "c", "image": "a", "resources": {"limits": limits}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    if kind == "Deployment":
        return workload("later", limits, [])
    if kind == "Notebook":
        return stopped_notebook(limits)
    if kind == "CronJob":
        spec = {"schedule": "0 2 * * *", "jobTemplate": {"spec": {"template": template}}}
        return [{**api_object(kind, "later", "team", spec=spec), "apiVersion": "batch/v1"}]
    job, *pods = running_job("later", limits, ["big"])
    if kind == "suspended":
        job["spec"]["suspend"] = True
        return [job]
    job["spec"]["completions"] = 1 if kind == "last" else 10
    job["status"] = {"active": 1, "succeeded": 0 if kind == "last" else 2}
    return [job, *pods]


def stopped_notebook(limits: Mapping[str, str]) -> Objects:
    """A Notebook of Kubeflow as its controller stops it."""
    (stateful_set,) = workload("later", limits, [], kind="StatefulSet")
    reference = {"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "name": "later"}
    stateful_set["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return [api_object("Notebook", "later", "team", api_version="kubeflow.org/v1"), stateful_set]


def bare_pod(restart: str) -> Objects:
    """A pod that runs without a controller."""
    (_, pod) = workload("later", LARGE, ["big"], restartPolicy=restart)
    del pod["metadata"]["ownerReferences"]
    return [{**pod, "metadata": {**pod["metadata"], "name": "later"}}]


def fleet(*later: Mapping[str, Any], is_held: bool) -> list[Mapping[str, Any]]:
    """Nodes with small MIG devices in use, and one with large ones that a PodDisruptionBudget or a training keeps."""
    busy = (
        [
            *workload("pin", LARGE, ["big"], namespace="hold"),
            budget("hold", "pin", maxUnavailable=0),
        ]
        if is_held
        else running_job("train", LARGE, ["big"], namespace="hold")
    )
    return [
        *(mig_node(name, "1g.5gb", "4864", "7") for name in ("one", "two")),
        *(mig_node("big", "2g.10gb", "9856", "3"), namespace("team"), namespace("hold")),
        *(*workload("api", SMALL, ["one", "two"]), *busy, *later),
    ]


def opting(plan: dict[str, Any], name: str) -> list[int]:
    """Return the numbers of the waves that opt in a namespace."""
    return [number for number, (_, names) in enumerate(waves(plan), start=1) if name in names]


def switching(plan: dict[str, Any], name: str) -> list[int]:
    """Return the numbers of the waves that switch a node."""
    return [number for number, (names, _) in enumerate(waves(plan), start=1) if name in names]


def parts(plan: dict[str, Any]) -> list[str]:
    """Return the workloads that get a label of their own."""
    return [
        name
        for wave in plan["waves"]
        for part in wave["partialNamespaces"]
        for name in part["workloads"]
    ]


@pytest.mark.parametrize(
    ("kind", "owner"),
    [
        ("CronJob", "CronJob"),
        ("suspended", "Job"),
        ("Deployment", "Deployment"),
        ("on", "Job"),
        ("Notebook", "StatefulSet"),
    ],
)
def test_a_namespace_is_held_where_no_wave_brings_devices_for_next_pods(
    tmp_path: Path, kind: str, owner: str
) -> None:
    """It was opted in, and the next pods waited for devices for ever, without a word."""
    plan = planned(tmp_path, fleet(*later_pods(kind), is_held=True))

    reason = held_objects(plan)["Namespace//team"]
    assert NEXT.format(owner) in reason
    assert "no wave switches a node with devices for these: big;" in reason
    assert [] == opting(plan, "team")
    assert ["Deployment/team/api"] == parts(plan)


@pytest.mark.parametrize(
    ("restart", "is_held"),
    [
        *(("OnFailure", True), ("Never", True), ("Always", True)),
        *(("OnFailure", False), ("Never", False)),
    ],
)
def test_a_pod_without_a_controller_is_followed_by_others(
    tmp_path: Path, restart: str, is_held: bool
) -> None:
    """With a JupyterHub the next user waited for a device, while the device plugin had free ones."""
    plan = planned(tmp_path, fleet(*bare_pod(restart), is_held=is_held))

    reasons = held_objects(plan)
    assert is_held is (NEXT.format("Pod") in reasons.get("Namespace//team", ""))
    assert is_held is ([] == opting(plan, "team"))
    assert is_held or switching(plan, "big") <= opting(plan, "team")
    assert (["Deployment/team/api"] if is_held else []) == parts(plan)


@pytest.mark.parametrize("kind", ["CronJob", "suspended", "Deployment", "Notebook"])
@pytest.mark.parametrize("wave_nodes", [1, 20])
def test_a_namespace_waits_for_devices_of_next_pods(
    tmp_path: Path, kind: str, wave_nodes: int
) -> None:
    """It was opted in with the first node, and the next pods waited for the end of a training of others."""
    plan = planned(tmp_path, fleet(*later_pods(kind), is_held=False), "--wave-nodes", wave_nodes)

    assert {} == held_objects(plan)
    assert switching(plan, "big") <= opting(plan, "team")
    assert [] == parts(plan)


@pytest.mark.parametrize("later", [later_pods("last"), later_pods("CronJob", SMALL)])
def test_a_namespace_does_not_wait_for_devices_without_next_pods(
    tmp_path: Path, later: Objects
) -> None:
    """No other pod follows those of a Job with all completions under way."""
    plan = planned(tmp_path, fleet(*later, is_held=True))

    assert [1] == opting(plan, "team")


def test_a_namespace_does_not_wait_for_devices_that_no_node_offers_today(tmp_path: Path) -> None:
    missing = {"nvidia.com/mig-7g.40gb": "1"}

    plan = planned(tmp_path, fleet(*later_pods("CronJob", missing), is_held=True))

    assert [1] == opting(plan, "team")


@pytest.mark.parametrize("is_held", [True, False])
def test_pods_that_wait_for_a_node_that_no_wave_switches_keep_their_keys(
    tmp_path: Path, *, is_held: bool
) -> None:
    """They came again with claims, and that node has device keys alone once its devices are free."""
    full = workload("pin", LARGE, ["big"] * 3, namespace="hold")
    rules = [budget("hold", "pin", maxUnavailable=0)] if is_held else []
    names = ("one", "two", "three")
    objects = [
        *(mig_node(name, "1g.5gb", "4864", "7") for name in names),
        *(mig_node("big", "2g.10gb", "9856", "3"), namespace("team"), namespace("hold")),
        *(*workload("api", SMALL, ["one"]), *full, *rules, *workload("later", LARGE, [""])),
    ]

    plan = planned(tmp_path, objects)

    moved = [entry["object"] for wave in plan["waves"] for entry in wave["workloads"]]
    reason = held_objects(plan).get("Namespace//team", "")
    assert is_held is (NEXT.format("Deployment") in reason and "Deployment/team/later" not in moved)


def test_next_pods_that_differ_in_cpu_alone_are_simulated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan of many CronJobs placed a pod of each on every node."""
    questions: list[object] = []

    def simulate(*arguments: Any) -> Any:
        questions.append(arguments)
        return simulate_in_order(*arguments)

    monkeypatch.setattr(stage_allocator, "simulate_in_order", simulate)
    numbers = []
    for pods in (1, 4):
        questions.clear()
        jobs = []
        for number in range(pods):
            (job,) = later_pods("CronJob", {**LARGE, "cpu": f"{number + 1}"})
            jobs.append({**job, "metadata": {**job["metadata"], "name": f"later-{number}"}})
        planned(tmp_path, fleet(*jobs, is_held=False))
        numbers.append(len(questions))

    assert numbers[0] == numbers[1]


def test_a_node_with_devices_of_another_size_is_of_no_use_to_pods_that_stay(tmp_path: Path) -> None:
    """It was held for pods that could not use it, since one DeviceClass serves devices of all sizes."""
    pinned = workload("pin", LARGE, ["big"], namespace="hold")
    rule = budget("hold", "pin", maxUnavailable=0)
    nodes = [mig_node("one", "1g.5gb", "4864", "7"), mig_node("big", "2g.10gb", "9856", "3")]

    plan = planned(tmp_path, [*nodes, namespace("hold"), *pinned, rule])

    assert [(["one"], [])] == waves(plan)
    assert "Node//one" not in held_objects(plan)


# --- claims that a quota does not let be created --------------------------------------------------


OTHER: Final = [namespace("other"), *workload("api", {GPU: "1"}, ["gpu-1"], namespace="other")]


def team(gpus: str, nodes: Sequence[str] = ("gpu-0",), **spec: Any) -> list[dict[str, Any]]:
    """Three nodes, one of a pool, and a Deployment in a namespace without claims for devices."""
    return [
        *(plugin_node("gpu-0", pool="a"), plugin_node("gpu-1"), plugin_node("gpu-2")),
        namespace("team"),
        resource_quota({KEY: "4", CLASS: "0"}),
        *workload("web", {GPU: gpus}, nodes, **spec),
    ]


def test_next_pods_whose_claims_are_not_created_get_no_switched_node(tmp_path: Path) -> None:
    """They were placed on a switched node, and waited there though another one had room."""
    plan = planned(tmp_path, [*team("1"), *OTHER])

    assert not waves(plan)
    held = held_objects(plan)
    assert {"Node//gpu-0", "Node//gpu-1", "Node//gpu-2"} <= held.keys()
    for name in ("gpu-1", "gpu-2"):
        assert "the next pods of Deployment/team/web may be placed on it" in held[f"Node//{name}"]


def test_nodes_that_such_pods_do_not_select_are_switched(tmp_path: Path) -> None:
    plan = planned(tmp_path, [*team("1", nodeSelector={"pool": "a"}), *OTHER], "--wave-nodes", 1)

    assert {"gpu-1", "gpu-2"} == {name for names, _ in waves(plan) for name in names}


def test_pods_that_a_quota_rejects_today_hold_no_node(tmp_path: Path) -> None:
    objects = [*team("5", []), *OTHER]

    assert {"gpu-0", "gpu-1", "gpu-2"} == {
        name for names, _ in waves(planned(tmp_path, objects)) for name in names
    }


def test_no_node_is_switched_where_no_class_is_mapped_and_nobody_gets_claims(
    tmp_path: Path,
) -> None:
    """A node went to a driver that nobody used, and was missing to pods with device keys."""
    plan = planned(tmp_path, team("1"))

    assert not waves(plan)
    reason = held_objects(plan)["Node//gpu-1"]
    assert "the next pods of Deployment/team/web may be placed on it, and would have no" in reason


# --- free devices ---------------------------------------------------------------------------------


LACKS: Final = "no device for one more pod of {} after this wave, {} today: "
ONE_BY_ONE: Final = ("--wave-nodes", 1, "--spare-nodes", 0)


def free_nodes(
    *later: Mapping[str, Any], free: Sequence[str], is_held: bool = False
) -> list[Mapping[str, Any]]:
    """A node with large MIG devices in use by a Deployment, after nodes with three free ones each."""
    rule = budget("team", "web", maxUnavailable=0)
    return [
        *(mig_node(name, "2g.10gb", "9856", "3") for name in (*free, "used")),
        *(namespace("team"), *later, *workload("web", LARGE, ["used"] * 3)),
        *([rule] if is_held else []),
    ]


def notes_on_next_pods(plan: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the notes on next pods without devices, each with the number of its wave."""
    return [
        (wave["wave"], note)
        for wave in plan["waves"]
        for note in wave["notes"]
        if note.startswith("no device for one more pod")
    ]


@pytest.mark.parametrize("kind", ["CronJob", "suspended", "Deployment", "Notebook"])
def test_next_pods_that_have_no_devices_until_a_later_wave_are_named(
    tmp_path: Path, kind: str
) -> None:
    """Its own pods took all devices of the nodes that were switched, and the next ones waited without a word."""
    plan = planned(tmp_path, free_nodes(*later_pods(kind), free=["a", "b"]), *ONE_BY_ONE)

    assert [["a"], ["b"], ["used"]] == [names for names, _ in waves(plan)]
    ((number, note),) = notes_on_next_pods(plan)
    assert (1, True) == (number, "/team/later" in note)
    assert note.endswith("waits until wave 2")


def test_a_stopped_notebook_has_the_template_of_its_stateful_set(tmp_path: Path) -> None:
    """The namespace was opted in with a node without free devices, and the plan did not name the Notebook."""
    objects = free_nodes(*stopped_notebook(LARGE), free=["a"])

    plan = planned(tmp_path, objects, *ONE_BY_ONE)

    ((_, note),) = notes_on_next_pods(plan)
    assert note.startswith(LACKS.format("Deployment/team/web, StatefulSet/team/later", 3))
    # Its controller writes the template, and no script changes it.
    assert [["Deployment/team/web"]] == [
        [entry["object"] for entry in wave["workloads"]] for wave in plan["waves"][:1]
    ]
    assert not any("statefulset" in script(tmp_path, name) for name in ("switch", "rollback"))


def test_a_stateful_set_of_a_notebook_that_runs_is_no_workload_by_itself(tmp_path: Path) -> None:
    owner, stateful_set = stopped_notebook(LARGE)
    stateful_set["spec"]["replicas"] = 1
    pod = workload("later", LARGE, ["used"], kind="StatefulSet")[1]

    plan = planned(tmp_path, free_nodes(owner, stateful_set, pod, free=["a"]), *ONE_BY_ONE)

    names = {entry["object"] for wave in plan["waves"] for entry in wave["workloads"]}
    assert "StatefulSet/team/later" not in names | held_objects(plan).keys()
    assert "a pod of Notebook/team/later (unknown) uses" in held_objects(plan)["Node//used"]


def test_a_note_names_next_pods_that_no_later_opt_in_would_serve(tmp_path: Path) -> None:
    """Its own pods have to move first."""
    for is_held, end in ((False, "until wave 2"), (True, "until devices are free")):
        objects = free_nodes(*later_pods("CronJob"), free=["a"], is_held=is_held)
        plan = planned(tmp_path, objects, *ONE_BY_ONE)

        assert [1] == opting(plan, "team")
        ((wave, note),) = notes_on_next_pods(plan)
        assert 1 == wave
        assert note.startswith(LACKS.format("CronJob/team/later, Deployment/team/web", 3))
        assert note.endswith(f"waits {end}")


def test_a_note_names_a_deployment_without_a_device_for_a_rollout(tmp_path: Path) -> None:
    """Its next rollout or scale-up waited; today there are devices for three more pods."""
    plan = planned(tmp_path, free_nodes(free=["a"]), *ONE_BY_ONE)

    ((wave, note),) = notes_on_next_pods(plan)
    assert 1 == wave
    assert note.startswith(LACKS.format("Deployment/team/web", 3))
    assert note.endswith("waits until wave 2")


@pytest.mark.parametrize(("unavailable", "is_named"), [("25%", True), (1, False)])
def test_a_note_says_how_a_rollout_goes_on_without_a_device_to_spare(
    tmp_path: Path, unavailable: object, *, is_named: bool
) -> None:
    """The plan named the Deployment until a later wave, and no way for a rollout before."""
    objects = free_nodes(free=["a"])
    for entry in objects:
        if entry["kind"] == "Deployment":
            entry["spec"]["strategy"] = {"rollingUpdate": {"maxUnavailable": unavailable}}

    (wave, *_) = planned(tmp_path, objects, *ONE_BY_ONE)["waves"]

    note = (
        "a rollout of Deployment/team/web after this wave starts a pod before it ends one, and waits until "
        "wave 2: set maxUnavailable: 1 for a rollout before that"
    )
    assert is_named is (note in wave["notes"])


def test_a_note_says_that_a_repository_takes_another_strategy_back(tmp_path: Path) -> None:
    """It said to set `maxUnavailable: 1`, and Flux set it back at once."""
    objects = free_nodes(free=["a"])
    for entry in objects:
        if entry["kind"] == "Deployment":
            entry["metadata"]["labels"] = {"kustomize.toolkit.fluxcd.io/name": "apps"}

    (wave, *_) = planned(tmp_path, objects, *ONE_BY_ONE)["waves"]

    (note,) = (note for note in wave["notes"] if note.startswith("a rollout of "))
    assert note.endswith(
        "set maxUnavailable: 1 for a rollout before that; Flux manages Deployment/team/web, and takes back what kubectl "
        "changes: change maxUnavailable in its repository"
    )


def test_a_note_says_that_a_single_replica_stops_for_its_rollout(tmp_path: Path) -> None:
    """The plan said to set `maxUnavailable: 1`, and not that no pod serves then."""
    objects = [
        *(mig_node(name, "2g.10gb", "9856", "3") for name in ("a", "used")),
        *(namespace("team"), *workload("one", LARGE, ["used"])),
        *workload("web", LARGE, ["used"] * 2),
    ]

    (wave, *_) = planned(tmp_path, objects, *ONE_BY_ONE)["waves"]

    (note,) = (note for note in wave["notes"] if note.startswith("a rollout of "))
    assert note.startswith("a rollout of Deployment/team/one, Deployment/team/web after this wave")
    assert note.endswith(
        "; with a single replica (Deployment/team/one), no pod runs then until the new one is ready"
    )


def test_no_note_is_on_next_pods_without_devices_today(tmp_path: Path) -> None:
    """They wait today, too."""
    rule = budget("team", "web", maxUnavailable=0)
    busy = [mig_node("used", "2g.10gb", "9856", "3"), *workload("web", LARGE, ["used"] * 3), rule]
    small = [mig_node("a", "1g.5gb", "4864", "7"), *workload("api", SMALL, ["a"], namespace="api")]
    objects = [*busy, *small, namespace("team"), namespace("api")]

    notes = notes_on_next_pods(planned(tmp_path, objects, *ONE_BY_ONE))

    assert not any("Deployment/team/web" in note for _, note in notes)
