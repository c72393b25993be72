"""`drawbridge plan` and `verify --before`: pods without devices that fit nowhere else, and a PodDisruptionBudget that holds them.

The drain evicted the first of them, which waited for the cordoned node, and tried the next one for half an hour.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from cli.output.progress import LongRun
from migration.plan.notes.stuck_drains import with_stuck_drains
from migration.plan.planning.build import build_plan
from migration.plan.planning.prepared import prepare_cluster
from migration.plan.search.moments import Policy
from testing.counting import counted_calls
from testing.documents import namespace
from testing.migration import SHARE, budget, daemon_set, hami_node, workload
from testing.plan import checks_before, planned, question_of

Objects = Sequence[Mapping[str, Any]]
DRIVER: Final = daemon_set(
    "hami-dra-driver",
    nodeSelector={"drawbridge.internal/dra-driver": "hami-core-gpu.project-hami.io"},
    volumes=[{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}],
)
STUCK: Final = (
    "PodDisruptionBudget team/budget lets 1 of 2 pods go that no other node takes, or has the CPU and memory for (team/logs-0, "
    "team/logs-1), and evicted ones wait until hami-1 is back, so its drain would not end: {}"
)


def cluster(*more: Mapping[str, Any], free_cpu: str = "3") -> list[dict[str, Any]]:
    """Two nodes; the first one has a pod with devices and little CPU, and the second one is switched first."""
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    for node, cpu in zip(nodes, (free_cpu, "8"), strict=True):
        node["status"]["allocatable"] |= {"cpu": cpu, "memory": "32Gi", "pods": "20"}
    web = workload("web", SHARE, ["hami-0"])
    return [*nodes, namespace("team"), *web, DRIVER, *map(dict, more)]


def logs(nodes: Sequence[str] = ("hami-1", "hami-1"), **spec: Any) -> Objects:
    return workload("logs", {"cpu": "4"}, nodes, kind="ReplicaSet", **spec)


def of_wave(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the wave of hami-1."""
    return next(
        wave for wave in plan["waves"] if "hami-1" in [node["name"] for node in wave["nodes"]]
    )


@pytest.mark.parametrize(
    ("limits", "end"),
    [
        (
            {"maxUnavailable": 1},
            "maxUnavailable 1 of its 2 pods; raise maxUnavailable to 2 until hami-1 is switched, or scale down before",
        ),
        (
            {"minAvailable": 1},
            "minAvailable 1 of its 2 pods; lower minAvailable to 0 until hami-1 is switched",
        ),
    ],
    ids=["maxUnavailable", "minAvailable"],
)
def test_a_drain_that_would_not_end_is_named_before(
    tmp_path: Path, limits: dict[str, Any], end: str
) -> None:
    objects = cluster(*logs(), budget(app="logs", **limits))

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    wave, text = of_wave(plan), STUCK.format(end)
    assert f"{text}; preflight.sh stops at it" in wave["notes"]
    failed = {
        check["message"]
        for check in checks_before(tmp_path, objects, wave["wave"])
        if (check["object"], check["state"]) == ("Node//hami-1", "failed")
    }
    assert {text} == failed


@pytest.mark.parametrize(
    ("pods", "limits", "free_cpu"),
    [
        (logs(), {"maxUnavailable": 2}, "3"),
        (logs(), {"maxUnavailable": 1}, "7"),
        (logs(["hami-1"]), {"maxUnavailable": 1}, "3"),
        (logs(), {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}, "3"),
    ],
    ids=["it lets both go", "one finds a place", "one pod", "a budget of others"],
)
def test_a_drain_that_ends_is_not_named(
    tmp_path: Path, pods: Objects, limits: dict[str, Any], free_cpu: str
) -> None:
    objects = cluster(*pods, budget(app="logs", **limits), free_cpu=free_cpu)

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    wave = of_wave(plan)
    assert not any("would not end" in note for note in wave["notes"])
    checks = checks_before(tmp_path, objects, wave["wave"])
    assert {"ok", "note"} >= {check["state"] for check in checks}, checks


def test_pods_count_on_the_node_that_an_earlier_wave_brings_them_to(tmp_path: Path) -> None:
    """Both go to hami-0 first, the only one with their label then."""
    limits = budget(app="logs", maxUnavailable=1)
    objects = cluster(*logs(nodeSelector={"gpu": "on"}), limits, free_cpu="9")

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    assert not any("would not end" in note for note in of_wave(plan)["notes"])
    *_, last = [wave for wave in plan["waves"] if wave["nodes"]]
    assert ["hami-0"] == [node["name"] for node in last["nodes"]]
    text = STUCK.format("maxUnavailable 1 of its 2 pods; ").replace("hami-1", "hami-0")
    assert any(note.startswith(text) for note in last["notes"]), last["notes"]


def test_the_pods_of_a_cluster_are_looked_at_once_for_all_waves(tmp_path: Path) -> None:
    """With 500 waves a text was made for each of 100,000 pods 500 times."""
    count = 200
    plain = workload("plain", {"cpu": "1m"}, ["hami-0"] * count, kind="ReplicaSet")
    more = [hami_node(f"hami-{number}") for number in range(2, 6)]
    question = question_of(tmp_path, cluster(*plain, *more))
    with LongRun("tried", 5) as progress:
        built = build_plan(question, Policy(wave_nodes=1, keep_free=0), progress)
    evidence = prepare_cluster(question).evidence
    assert len(built.plan.waves) >= 5

    with counted_calls() as calls:
        waves = [*with_stuck_drains(built.plan.waves, built.details, evidence)]

    assert waves == [*built.plan.waves]
    assert count <= calls.total() < 2 * count
