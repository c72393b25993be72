"""A bridge with another schedulerName than the usual one, as its AllocatorOwnership tells commands."""

import json
from pathlib import Path
from typing import Any

import pytest

from kube.manifests.dump import dump_yaml
from kube.names import SCHEDULER_NAME
from testing.budgets import CLUSTER, OWNERSHIP, pending
from testing.command import drawbridge
from testing.documents import Document, api_object

THEIRS = "our-scheduler"


def cluster_of(tmp_path: Path, scheduler: str, *documents: Document) -> tuple[str | Path, ...]:
    """The example's cluster, with a bridge of this name as the driver's owner."""
    file = tmp_path / "state.yaml"
    ownership = {**OWNERSHIP, "status": {"schedulerName": scheduler} if scheduler else {}}
    file.write_text(dump_yaml((ownership, *documents)))
    return (*CLUSTER, "--snapshot", file)


def of_scheduler(name: str, memory: str = "28Gi") -> tuple[Document, Document]:
    claim, pod = pending(memory)
    pod["spec"]["schedulerName"] = name
    return claim, pod


def answer(*words: Any, stdin: str = "") -> Any:
    result = drawbridge(*words, "-o", "json", stdin=stdin)
    assert result.exit_code in (0, 1), result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("reported", "named", "is_of_bridge"),
    [
        (THEIRS, THEIRS, True),
        ("", SCHEDULER_NAME, True),
        ("", THEIRS, False),
        (THEIRS, SCHEDULER_NAME, False),
    ],
)
def test_commands_know_the_pods_of_the_bridge(
    reported: str, named: str, *, is_of_bridge: bool, tmp_path: Path
) -> None:
    objects = of_scheduler(named)
    cluster = cluster_of(tmp_path, reported, *objects)

    why = answer("why", "pod", "next", "-n", "vision", *cluster)
    assert len(why["quotas"]) == is_of_bridge
    assert bool(why["fenced"]) != is_of_bridge

    # Nothing is promised to pods of the bridge, which decides itself.
    status = answer("quota", "status", *cluster)
    (quota,) = status["quotas"]
    promised = {limit["name"]: limit["promised"] for limit in quota["limits"]}
    assert promised["gpus"] == ("0" if is_of_bridge else "1")

    cluster = cluster_of(tmp_path, reported)
    findings = answer("check", "-f", "-", *cluster, stdin=dump_yaml(objects))["findings"]
    codes = {finding["code"] for finding in findings}
    assert ("driverOwnedByBridge" in codes) != is_of_bridge


@pytest.mark.parametrize("scheduler", [THEIRS, SCHEDULER_NAME])
def test_new_pods_are_simulated_as_pods_of_the_bridge(scheduler: str, tmp_path: Path) -> None:
    claim, pod = pending("8Gi")
    cluster = cluster_of(tmp_path, scheduler)

    placed = answer("simulate", "-f", "-", *cluster, stdin=dump_yaml((claim, pod)))

    assert [entry["node"] for entry in placed["pods"]] == ["hami-0"]


def test_why_of_a_new_pod_has_the_quotas_of_its_bridge(tmp_path: Path) -> None:
    """It had the fence instead, as if the pod kept the scheduler that it does not name."""
    cluster = cluster_of(tmp_path, THEIRS)

    why = answer("why", "-f", "-", *cluster, stdin=dump_yaml(pending("28Gi")))

    assert not why["fenced"]
    assert len(why["quotas"]) == 1


def test_why_of_a_new_workload_has_one_verdict_on_its_pods(tmp_path: Path) -> None:
    claim, pod = pending("8Gi")
    spec = {"replicas": 1, "template": {"spec": pod["spec"]}}
    workload = api_object("Deployment", "web", "vision", spec=spec)
    cluster = cluster_of(tmp_path, THEIRS)

    why = answer("why", "-f", "-", *cluster, stdin=dump_yaml((claim, workload)))

    assert why["together"]["placed"] == 1
    (group,) = why["pending"]
    assert not group["answer"]["fenced"]
