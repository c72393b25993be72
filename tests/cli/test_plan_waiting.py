"""`drawbridge assess` and `plan`: the devices of waiting, suspended and ended pods."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from testing.command import drawbridge
from testing.migration import GPU, plugin_node, running_job, workload

Objects = Sequence[Mapping[str, Any]]


def planned(tmp_path: Path, objects: Objects, *options: object) -> Mapping[str, Any]:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    result = drawbridge(
        "plan", "--snapshot", file, "--wave-nodes", 1, "-o", tmp_path / "plan", *options
    )
    assert result.exit_code in (0, 1), result.stderr
    (source,) = read_paths([str(tmp_path / "plan" / "plan.yaml")])
    return source.document


def assessed(tmp_path: Path, objects: Objects, *options: object) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    return drawbridge("assess", "--snapshot", file, *options).stdout


def suspended(name: str = "train", **limits: str) -> dict[str, Any]:
    """A Job that a queue has not admitted."""
    owner, *_ = workload(name, limits or {GPU: "4"}, [], kind="Job", restartPolicy="Never")
    owner["apiVersion"] = "batch/v1"
    owner["spec"] |= {"parallelism": 2, "suspend": True}
    del owner["spec"]["replicas"]
    return owner


def cron_job() -> dict[str, Any]:
    inside = suspended("nightly")
    del inside["spec"]["suspend"]
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": inside["metadata"],
        "spec": {"schedule": "0 0 * * *", "suspend": True, "jobTemplate": {"spec": inside["spec"]}},
    }


@pytest.mark.parametrize(("owner", "kind"), [(suspended(), "Job"), (cron_job(), "CronJob")])
def test_a_suspended_job_takes_no_devices(
    tmp_path: Path, owner: Mapping[str, Any], kind: str
) -> None:
    """It was counted with pods that wait, and a node that it filled in the plan was held."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(3)]
    objects = [*nodes, *workload("web", {GPU: "4"}, ["gpu-0", "gpu-1"]), owner]

    plan = planned(tmp_path, objects)

    reference = f"{kind}/team/{owner['metadata']['name']}"
    assert [] == plan["held"]
    assert {4} == {wave["freeAfter"] for wave in plan["waves"]}
    told = (
        f"{reference} is suspended, and counted with no pods: once resumed, it needs free devices"
    )
    assert [told] == [
        note for wave in plan["waves"] for note in wave["notes"] if "suspended" in note
    ]
    text = assessed(tmp_path, objects)
    assert "2 workloads with devices, 2 pods" in text
    assert f"{reference} is suspended" in text
    assert "all 2 pods placed" in text or "2 of 2 pods placed" in text
    document = json.loads(assessed(tmp_path, objects, "-o", "json"))
    pods = {entry["object"]: entry["pods"] for entry in document["workloads"]}
    assert 0 == pods[reference]


def test_the_pods_of_a_job_that_ends_its_run_still_count(tmp_path: Path) -> None:
    owner, *pods = running_job("train", {GPU: "4"}, ["gpu-0"])
    owner["spec"]["suspend"] = True

    text = assessed(tmp_path, [plugin_node("gpu-0"), owner, *pods])

    assert "1 workload with devices, 1 pod" in text
    assert "suspended" not in text


@pytest.mark.parametrize(
    ("kind", "api_version", "spec"),
    [
        ("JobSet", "jobset.x-k8s.io/v1alpha2", {"suspend": True}),
        ("MPIJob", "kubeflow.org/v2beta1", {"runPolicy": {"suspend": True}}),
        ("PyTorchJob", "kubeflow.org/v1", {"runPolicy": {"suspend": True}}),
    ],
)
def test_jobs_of_other_projects_that_are_suspended_take_no_devices(
    tmp_path: Path, kind: str, api_version: str, spec: Mapping[str, Any]
) -> None:
    group = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "train", "namespace": "team"},
        "spec": spec,
    }
    own = suspended()
    own["metadata"]["ownerReferences"] = [
        {"apiVersion": api_version, "kind": kind, "name": "train", "controller": True}
    ]

    text = assessed(tmp_path, [plugin_node("gpu-0"), group, own])

    assert "1 workload with devices, 0 pods" in text
    assert "Job/team/train is suspended, and counted with no pods" in text


def test_all_workloads_that_wait_in_the_place_of_others_are_named(tmp_path: Path) -> None:
    """A person scaled the named one down, and found the next one in the next plan."""
    nodes = [plugin_node(f"gpu-{number}", 2) for number in range(3)]
    pods = [workload(f"web-{number}", {GPU: "1"}, [f"gpu-{number}"]) for number in range(3)]
    pending = [*workload("big", {GPU: "2"}, [""]), *workload("large", {GPU: "2"}, [""])]

    plan = planned(tmp_path, [*nodes, *itertools.chain(*pods), *pending])

    reasons = {entry["reason"] for entry in plan["held"]}
    named = (
        ", while pods that wait today have some: 1 of Deployment/team/big, 1 of "
        "Deployment/team/large"
    )
    assert reasons
    assert all(reason.endswith(named) for reason in reasons), reasons


def test_pods_that_wait_for_other_nodes_are_not_named(tmp_path: Path) -> None:
    """A note named a Job of another pool."""
    own, other = {"pool": "a"}, {"pool": "b"}
    nodes = [
        *(plugin_node(f"a-{number}", 2, pool="a") for number in range(2)),
        *(plugin_node(f"b-{number}", 2, pool="b") for number in range(2)),
    ]
    pods = [
        *workload("full", {GPU: "2"}, ["a-0", "a-1"], nodeSelector=own),
        *workload("small", {GPU: "1"}, ["b-0", "b-1"], nodeSelector=other),
        *workload("big", {GPU: "2"}, [""], nodeSelector=other),
    ]

    plan = planned(tmp_path, [*nodes, *pods])

    reasons = {entry["object"]: entry["reason"] for entry in plan["held"]}
    assert {"Node//a-0", "Node//a-1"} <= reasons.keys()
    for name in ("Node//a-0", "Node//a-1"):
        assert "of Deployment/team/full" in reasons[name]
        assert "wait today" not in reasons[name]


def test_pods_that_are_waited_for_have_ended_afterwards(tmp_path: Path) -> None:
    """They were placed anew, so they held their node for want of devices, or used others in the picture."""
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    train = running_job("train", {GPU: "4"}, ["gpu-0"])
    objects = [*nodes, *train, *workload("web", {GPU: "4"}, ["gpu-1"])]

    plan = planned(tmp_path, objects)

    assert [] == plan["held"]
    (first, second) = plan["waves"]
    assert ["gpu-0"] == [node["name"] for node in first["nodes"]]
    assert (0, 4) == (first["freeBefore"], first["freeAfter"])
    assert (4, 4) == (second["freeBefore"], second["freeAfter"])


def test_a_job_that_creates_another_pod_keeps_its_devices(tmp_path: Path) -> None:
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1")]
    train = running_job("train", {GPU: "4"}, ["gpu-0"])
    train[0]["spec"] |= {"completions": 3, "parallelism": 1}
    train[0]["status"] = {"succeeded": 1}

    plan = planned(tmp_path, [*nodes, *train, *workload("web", {GPU: "4"}, ["gpu-1"])])

    assert {"Node//gpu-0", "Node//gpu-1"} == {entry["object"] for entry in plan["held"]}


def test_a_job_runs_on_with_its_devices_where_no_wave_waits_for_it(tmp_path: Path) -> None:
    nodes = [plugin_node("gpu-0"), plugin_node("gpu-1"), plugin_node("gpu-2")]
    train = running_job("train", {GPU: "4"}, ["gpu-0"])
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    train[0]["spec"]["podFailurePolicy"] = policy

    plan = planned(tmp_path, [*nodes, *train])

    assert {8} == {wave["freeAfter"] for wave in plan["waves"]}


def test_a_job_that_may_start_on_a_switched_node_is_named_for_the_way_back(tmp_path: Path) -> None:
    """A reader's rollback would have waited for a Job that nothing had spoken of."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(2)]
    owner, waiting = running_job("probe", {GPU: "4"}, [""])
    waiting["status"] = {"phase": "Pending"}
    objects = [
        *nodes,
        *workload("web", {GPU: "1"}, ["gpu-0"]),
        *workload("other", {GPU: "1"}, ["gpu-1", "gpu-1"]),
        *(owner, waiting),
    ]

    plan = planned(tmp_path, objects, "--spare-nodes", 0)
    without = planned(tmp_path, objects[:-2], "--spare-nodes", 0)

    told = [
        [note for note in wave["notes"] if "waits for devices today" in note]
        for wave in plan["waves"]
    ]
    note = (
        "Job/team/probe waits for devices today, and may start on gpu-0 once that is switched: rollback.sh waits for its "
        "end then, or asks"
    )
    assert [note] == told[0]
    assert not any(
        "waits for devices today" in note for wave in without["waves"] for note in wave["notes"]
    )
