"""`drawbridge plan` for pods that anti-affinity or topology spread keep apart: a wave has a place for each of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from allocator.pods.node_eligibility import node_rejection
from cli.output.progress import LongRun
from kube.api.meta import LabelSelector
from migration.plan.planning.build import build_plan
from migration.plan.planning.prepared import prepare_cluster
from migration.plan.search.moments import Policy
from migration.plan.stage.separation import PodSeparation
from testing.builders import HAMI
from testing.counting import counted_calls
from testing.documents import api_object, namespace
from testing.migration import (
    SHARE,
    WHOLE,
    budget,
    daemon_set,
    hami_node,
    plugin_node,
    workload,
)
from testing.plan import failed_before, held_objects, planned, question_of, waves

HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
DRIVER: Final = daemon_set(
    "hami-dra",
    nodeSelector={"drawbridge.internal/dra-driver": HAMI},
    volumes=[{"name": "r", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}],
)
WEB: Final = "Deployment/team/web"
Rules = Mapping[str, Any]


def anti_affinity(key: str = HOST, app: str = "web", **term: Any) -> Rules:
    own = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **term}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [own]}
    return {"affinity": {"podAntiAffinity": rule}}


def spread(key: str = HOST, **constraint: Any) -> Rules:
    own = {
        "topologyKey": key,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return {"topologySpreadConstraints": [{**own, **constraint}]}


def nodes(number: int, zones: int = 9, *, hami: bool = True) -> list[dict[str, Any]]:
    """Nodes with the labels of their host and of one of some zones."""
    made = [(hami_node if hami else plugin_node)(f"n-{index}") for index in range(number)]
    for index, node in enumerate(made):
        node["metadata"]["labels"] |= {HOST: f"n-{index}", ZONE: f"z-{index % zones}"}
    return made


def cluster(
    objects: Sequence[Mapping[str, Any]], rules: Rules, limits: Mapping[str, str] = SHARE
) -> list[Mapping[str, Any]]:
    """A cluster with a pod of one workload on each of the first three nodes."""
    pods = workload("web", limits, ["n-0", "n-1", "n-2"], **rules)
    return [*objects, DRIVER, namespace("team"), *pods, budget(maxUnavailable=1)]


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (anti_affinity(), f"podAntiAffinity by {HOST}"),
        (anti_affinity(ZONE), f"podAntiAffinity by {ZONE}"),
        ({**anti_affinity(app="none"), **spread()}, f"topologySpreadConstraints by {HOST}"),
        (spread(ZONE), f"topologySpreadConstraints by {ZONE}"),
        (spread(ZONE, minDomains=2), f"topologySpreadConstraints by {ZONE}"),
    ],
)
def test_shares_are_held_that_no_node_takes_beside_the_others(
    tmp_path: Path, rules: Rules, text: str
) -> None:
    """The first wave had two nodes: after the first drain a pod waited for ever, and so did the script, for its budget."""
    plan = planned(tmp_path, cluster(nodes(3), rules))

    assert plan["waves"] == []
    held = held_objects(plan)
    assert held.keys() == {"Node//n-0", "Node//n-1", "Node//n-2", "Namespace//team"}
    assert f"1 pod has no devices: 1 of {WEB}; other nodes have some" in held["Node//n-0"]
    assert f"take no such pod beside those there: {WEB} ({text})" in held["Node//n-0"]
    assert f"let {WEB} only prefer that" in plan["held"][0]["fix"]


@pytest.mark.parametrize(
    "rules",
    [
        {},
        anti_affinity(app="other"),
        anti_affinity(namespaces=["other"]),
        anti_affinity(mismatchLabelKeys=["app"]),
        anti_affinity("kubernetes.io/arch"),
        spread(ZONE, whenUnsatisfiable="ScheduleAnyway"),
        spread(ZONE, maxSkew=3),
    ],
)
def test_rules_that_name_no_pods_here_hold_nothing(tmp_path: Path, rules: Rules) -> None:
    assert held_objects(planned(tmp_path, cluster(nodes(3), rules))) == {}


@pytest.mark.parametrize(
    ("rules", "zones"),
    [
        (anti_affinity(), 9),
        (anti_affinity(ZONE), 3),
        (spread(ZONE), 3),
        (spread(nodeTaintsPolicy="Honor"), 9),
    ],
)
def test_pods_that_are_kept_apart_move_where_there_is_a_place_for_each(
    tmp_path: Path, rules: Rules, zones: int
) -> None:
    """The nodes without pods come first, then all pods move to them, and then their former nodes come."""
    objects = cluster(nodes(6, zones), rules)

    plan = planned(tmp_path, objects)

    assert held_objects(plan) == {}
    order = waves(plan)
    opt_in = next(number for number, (_, names) in enumerate(order) if names == ["team"])
    switched = [name for names, _ in order[: opt_in + 1] for name in names]
    assert sorted(switched) == ["n-3", "n-4", "n-5"]
    assert failed_before(tmp_path, objects) == {}


def test_pods_of_whole_devices_come_back_to_their_nodes(tmp_path: Path) -> None:
    objects = cluster(nodes(3, hami=False), anti_affinity(), WHOLE)

    assert held_objects(planned(tmp_path, objects)) == {}


def test_the_anti_affinity_of_other_pods_keeps_a_pod_away_too(tmp_path: Path) -> None:
    """The rule of a pod counts for those that come to its node, as for itself."""
    lonely = workload("lonely", SHARE, ["n-1"], **anti_affinity())
    objects = [*nodes(2), namespace("team"), *workload("web", SHARE, ["n-0"]), *lonely]

    held = held_objects(planned(tmp_path, objects))

    assert f"{WEB} (podAntiAffinity by {HOST})" in held["Node//n-0"]


def test_one_more_pod_has_a_node_only_where_rules_leave_it_one(tmp_path: Path) -> None:
    """It was placed beside the pods that it keeps away from, and a rollout waited for ever without a note.

    One of an equal workload that has nodes to spare, and one without rules, wait for nothing.
    """
    others = [
        *workload("solo", SHARE, ["n-0"], **anti_affinity(app="solo")),
        *workload("api", SHARE, ["n-0"]),
    ]

    plan = planned(tmp_path, [*cluster(nodes(6), anti_affinity()), *others])

    opt_in = next(wave for wave in plan["waves"] if wave["namespaces"])
    notes = [note for note in opt_in["notes"] if note.startswith("no device for one more pod")]
    (note,) = notes
    assert note.startswith(f"no device for one more pod of {WEB} after this wave, 3 today: ")


def test_pods_of_an_autoscaler_have_nodes_only_where_rules_leave_them_some(tmp_path: Path) -> None:
    """All were counted with the free shares of the nodes of its other pods."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    scaler = api_object(
        "HorizontalPodAutoscaler",
        "web",
        "team",
        api_version="autoscaling/v2",
        spec={"scaleTargetRef": target, "maxReplicas": 8},
    )

    plan = planned(tmp_path, [*cluster(nodes(6), anti_affinity()), scaler], "--wave-nodes", 1)

    notes = [note for note in plan["waves"][0]["notes"] if "/team/web may add" in note]
    (note,) = notes
    assert "may add 5 pods to Deployment/team/web" in note
    assert "there are devices for 2 of them, 3 today" in note


def test_a_rule_that_came_since_the_plan_stops_the_wave(tmp_path: Path) -> None:
    planned(tmp_path, cluster(nodes(3), {}))
    assert failed_before(tmp_path, cluster(nodes(3), {})) == {}

    failed = failed_before(tmp_path, cluster(nodes(3), anti_affinity()))

    assert f"{WEB} (podAntiAffinity by {HOST})" in failed["Wave//1"]


def test_pods_that_are_kept_apart_cost_about_as_much_as_others(tmp_path: Path) -> None:
    """Each was compared with all nodes of the cluster, and each reason was told: 100 nodes took minutes."""
    cost = {}
    for name, rules in (("free", {}), ("apart", anti_affinity())):
        pods = workload("web", SHARE, [f"n-{index}" for index in range(10)], **rules)
        question = question_of(tmp_path, [*nodes(20), DRIVER, namespace("team"), *pods])
        with LongRun("tried", 100) as progress, counted_calls() as calls:
            plan = build_plan(question, Policy(wave_nodes=4, keep_free=0), progress).plan
        assert plan.waves
        cost[name] = calls[node_rejection.__code__]

    assert cost["apart"] < 4 * cost["free"]


@pytest.mark.parametrize(
    "selector",
    [{}, {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}],
    ids=["of each its own pods", "of all the same pods"],
)
def test_rules_are_compared_once_with_the_pods_that_they_may_match(
    tmp_path: Path, selector: Mapping[str, Any]
) -> None:
    """Each rule was compared with all pods of its namespace: 2,000 Deployments were four million comparisons."""
    number = 20
    pods = [
        entry
        for index in range(number)
        for entry in workload(
            f"web-{index}",
            SHARE,
            ["n-0"],
            **anti_affinity(app=f"web-{index}", **selector),
            **spread(labelSelector={"matchLabels": {"app": f"web-{index}"}}),
        )
    ]
    prepared = prepare_cluster(question_of(tmp_path, [*nodes(2), namespace("team"), *pods]))
    workloads = prepared.cluster.workloads

    with counted_calls() as calls:
        separation = PodSeparation(workloads, {})

    names = {f"Deployment/team/web-{index}" for index in range(number)}
    assert {workload.key.reference for workload in workloads} == names
    for name in names:
        assert separation.apart(name) == {HOST: names if selector else {name}}
        assert [spread.workloads for spread in separation.spreads(name)] == [{name}]
    assert calls[LabelSelector.matches.__code__] <= 3 * number
