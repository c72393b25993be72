"""`drawbridge verify --before` with pods that came to the nodes of a wave since the plan was made."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import namespace
from testing.migration import SHARE, WHOLE, hami_node, plugin_node, running_job, workload
from testing.plan import checks_before, failed_before, planned, run_script

Objects = Sequence[Mapping[str, Any]]


def cluster(*more: Mapping[str, Any]) -> Objects:
    nodes = [plugin_node(f"gpu-{number}") for number in range(3)]
    web = workload("web", WHOLE, ["gpu-0", "gpu-1"])
    return [*nodes, namespace("team"), *web, *more]


def notebook(name: str, node: str) -> list[dict[str, Any]]:
    """A StatefulSet of a Notebook, and its pod."""
    owner, pod = workload(name, WHOLE, [node], kind="StatefulSet")
    reference = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "Notebook",
        "name": name,
        "controller": True,
    }
    owner["metadata"]["ownerReferences"] = [reference]
    return [owner, pod]


def wave_of(plan: Mapping[str, Any], name: str) -> int:
    """Return the wave that switches a node."""
    (number,) = (
        wave["wave"] for wave in plan["waves"] if name in {node["name"] for node in wave["nodes"]}
    )
    return int(number)


def failed(tmp_path: Path, before: Objects, now: Objects) -> dict[str, str]:
    """Return the workloads that stop the wave of gpu-0 since the plan does not have them."""
    plan = planned(tmp_path, before, "--wave-nodes", 1)
    return {
        name: text
        for name, text in failed_before(tmp_path, now, wave_of(plan, "gpu-0")).items()
        if text.startswith("the plan does not have it")
    }


def test_a_notebook_that_came_since_is_not_drained_unannounced(tmp_path: Path) -> None:
    """Its kernel was lost with a drain that no page and no script told of."""
    new = failed(tmp_path, cluster(), cluster(*notebook("lab", "gpu-0")))

    assert ["Notebook/team/lab"] == [*new]
    assert new["Notebook/team/lab"].startswith(
        "the plan does not have it, and lab-0 on gpu-0 would be evicted, "
    )
    assert new["Notebook/team/lab"].endswith("plan again from a new snapshot")


def test_pods_that_a_plan_moves_stop_no_wave_wherever_they_are(tmp_path: Path) -> None:
    """A drain, or a rollout, brings pods of planned workloads to nodes of later waves."""
    lab = notebook("lab", "gpu-1")

    assert {} == failed(tmp_path, cluster(*lab), cluster(*notebook("lab", "gpu-0")))


@pytest.mark.parametrize(
    "new",
    [
        running_job("train", WHOLE, ["gpu-0"]),
        notebook("lab", "gpu-2"),
        workload("plain", {"cpu": "1"}, ["gpu-0"]),
    ],
    ids=["waited for", "elsewhere", "without devices"],
)
def test_other_new_pods_stop_no_wave(tmp_path: Path, new: Objects) -> None:
    assert {} == failed(tmp_path, cluster(), cluster(*new))


def test_a_pod_on_its_way_out_stops_no_wave(tmp_path: Path) -> None:
    owner, pod = notebook("lab", "gpu-0")
    pod["metadata"]["deletionTimestamp"] = "2026-11-30T06:00:00Z"

    assert {} == failed(tmp_path, cluster(), cluster(owner, pod))


def test_a_daemon_set_that_came_since_would_keep_its_devices(tmp_path: Path) -> None:
    """Its pod stayed on the node, and the driver handed its device out again."""
    new = failed(
        tmp_path, cluster(), cluster(*workload("probe", WHOLE, ["gpu-0"], kind="DaemonSet"))
    )

    assert ["DaemonSet/team/probe"] == [*new]
    assert "keep its devices there, which the DRA driver would hand out again" in str(new)


def test_the_reason_that_nothing_moves_a_new_pod_is_named(tmp_path: Path) -> None:
    nodes = [hami_node("hami-0"), hami_node("hami-1"), hami_node("hami-2"), namespace("team")]
    web = workload("web", SHARE, ["hami-0"])
    ray = workload("tune", SHARE, ["hami-0"], kind="RayService")[1:]
    ray[0]["metadata"]["ownerReferences"][0]["apiVersion"] = "ray.io/v1"
    plan = planned(tmp_path, [*nodes, *web], "--wave-nodes", 1)

    new = failed_before(tmp_path, [*nodes, *web, *ray], wave_of(plan, "hami-0"))

    assert "nothing here restarts a RayService" in new["RayService/team/tune"]


@pytest.mark.parametrize(
    ("before", "now", "state"),
    [
        (workload("idle", WHOLE, []), workload("idle", WHOLE, ["gpu-0"]), "note"),
        ([], workload("idle", WHOLE, ["gpu-0"]), "failed"),
        (
            workload("idle", WHOLE, [], kind="DaemonSet"),
            workload("idle", WHOLE, ["gpu-0"], kind="DaemonSet"),
            "failed",
        ),
    ],
    ids=["it had no pods", "it came since", "a DaemonSet"],
)
def test_a_native_workload_that_the_plan_saw_without_pods_stops_no_wave(
    tmp_path: Path, before: Objects, now: Objects, state: str
) -> None:
    """Its pods come again on any node with devices, so a plan again changed nothing but the wave's list."""
    plan = planned(tmp_path, cluster(*before), "--wave-nodes", 1)

    checks = checks_before(tmp_path, cluster(*now), wave_of(plan, "gpu-0"))

    (check,) = [check for check in checks if check["object"].endswith("/team/idle")]
    assert state == check["state"]
    if state == "note":
        assert check["message"].startswith(
            "no wave of the plan has it, and idle-0 on gpu-0 will be evicted: its pods come again"
        )


def test_a_notebook_that_was_stopped_when_the_plan_was_made_is_not_drained(tmp_path: Path) -> None:
    """The plan says to start it after the last wave."""
    owner, _ = notebook("lab", "gpu-0")
    owner["spec"]["replicas"] = 0

    new = failed(tmp_path, cluster(owner), cluster(*notebook("lab", "gpu-0")))

    assert ["Notebook/team/lab"] == [*new]


def kept_nic(node: str) -> list[dict[str, Any]]:
    return workload("nic", {"rdma/hca": "1"}, [node])


def test_pods_with_kept_names_alone_are_evicted_as_others_are(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation:\n  keep: [rdma]\n")
    before, now = cluster(), cluster(*kept_nic("gpu-0"))
    plan = planned(tmp_path, before, "--wave-nodes", 1, "--settings", settings)
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(now))

    result = drawbridge(
        *("verify", "--snapshot", file, "--settings", settings, "--before", "-o", "json"),
        *("--wave", tmp_path / "plan" / f"wave-{wave_of(plan, 'gpu-0')}"),
    )

    objects = {entry["object"] for entry in json.loads(result.stdout)["checks"]}
    assert "Deployment/team/nic" not in objects


# --- before the drain of one node -----------------------------------------------------------------


def checks_of_node(
    tmp_path: Path, before: Objects, now: Objects, node: str = "gpu-0"
) -> dict[str, tuple[str, str]]:
    """Return object to state and message of the checks before the drain of a node of a wave."""
    plan = planned(tmp_path, before, "--wave-nodes", 1)
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(now))
    result = drawbridge(
        *("verify", "--snapshot", file, "--node", node, "--before", "-o", "json"),
        *("--wave", tmp_path / "plan" / f"wave-{wave_of(plan, 'gpu-0')}"),
    )
    if result.exit_code == 2:
        return {"": ("wrong", result.stderr)}
    checks = json.loads(result.stdout)["checks"]
    assert result.exit_code == any(check["state"] == "failed" for check in checks)
    return {check["object"]: (check["state"], check["message"]) for check in checks}


def test_a_node_with_planned_pods_alone_is_drained(tmp_path: Path) -> None:
    job = running_job("train", WHOLE, ["gpu-0"])

    checks = checks_of_node(tmp_path, cluster(), cluster(*job))

    assert {"Node//gpu-0": ("ok", "the plan has all of its pods with devices")} == checks


def test_a_native_workload_without_pods_in_the_plan_stops_no_drain(tmp_path: Path) -> None:
    """`checks_of_node` compares the exit status, too."""
    checks = checks_of_node(
        tmp_path,
        cluster(*workload("idle", WHOLE, [])),
        cluster(*workload("idle", WHOLE, ["gpu-0"])),
    )

    assert ["Deployment/team/idle"] == [*checks]
    assert "note" == checks["Deployment/team/idle"][0]


def test_pods_that_came_while_others_were_waited_for_are_not_drained(tmp_path: Path) -> None:
    """Preflight had looked at them hours before, and a node with work is cordoned at its turn."""
    (bare,) = workload("own", WHOLE, ["gpu-0"], kind="Pod")[1:]
    del bare["metadata"]["ownerReferences"]

    checks = checks_of_node(tmp_path, cluster(), cluster(*notebook("lab", "gpu-0"), bare))

    assert {"Node//gpu-0", "Notebook/team/lab"} == checks.keys()
    assert {"failed"} == {state for state, _ in checks.values()}
    assert "nothing creates team/own-0 again" in checks["Node//gpu-0"][1]


def lone(pod: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return a pod without its controller."""
    rest = {key: value for key, value in pod["metadata"].items() if key != "ownerReferences"}
    return {**pod, "metadata": {**rest, **metadata}}


def test_a_server_that_came_since_and_that_a_person_has_evicted_stops_no_drain(
    tmp_path: Path,
) -> None:
    """`switch.sh` had asked about it by then, and said that its drain would end pods that the plan does not have."""
    (_, pod) = workload("lab", WHOLE, ["gpu-0"], restartPolicy="Always")
    server = lone(pod, labels={"component": "singleuser-server"})

    checks = checks_of_node(tmp_path, cluster(), cluster(server))

    assert {"Node//gpu-0": ("ok", "the plan has all of its pods with devices")} == checks


def test_a_planned_pod_that_nothing_asks_about_is_not_drained(tmp_path: Path) -> None:
    """The plan has the loss of its emptyDir, and kubectl drain stopped at it with the node cordoned."""
    (_, pod) = workload("own", WHOLE, ["gpu-0"], volumes=[{"name": "work", "emptyDir": {}}])
    objects = cluster(lone(pod))

    checks = checks_of_node(tmp_path, objects, objects)

    assert ["Node//gpu-0"] == [*checks]
    assert "nothing creates team/own-0 again" in checks["Node//gpu-0"][1]


def test_a_node_of_another_wave_is_no_question(tmp_path: Path) -> None:
    checks = checks_of_node(tmp_path, cluster(), cluster(), "gpu-9")

    assert "of the plan has no node gpu-9" in checks[""][1]


@pytest.mark.parametrize(
    ("options", "status", "drains"), [((), 1, False), (("--evict-jobs=gpu-0",), 0, True)]
)
def test_a_switch_stops_before_the_drain_unless_somebody_says_otherwise(
    tmp_path: Path, options: Sequence[str], status: int, *, drains: bool
) -> None:
    plan = planned(tmp_path, cluster(), "--wave-nodes", 1)
    folder = f"wave-{wave_of(plan, 'gpu-0')}"
    answers = {
        "drawbridge": 'case "$*" in *--wave*--node=gpu-0*) exit 1;; esac',
        "kubectl": 'case "$*" in "get node/gpu-0"*) echo node/gpu-0;; esac',
    }

    ran = run_script(tmp_path, f"{folder}/switch.sh", answers, options)

    calls = (tmp_path / "calls").read_text().splitlines()
    assert status == ran.returncode, ran.stderr
    assert drains is any(line.startswith("kubectl drain gpu-0") for line in calls)
    assert "kubectl uncordon gpu-0" in calls
    assert drains is ("--evict-jobs=gpu-0 evicts all" not in ran.stderr)
