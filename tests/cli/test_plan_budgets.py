"""`drawbridge plan` and its scripts: PodDisruptionBudgets that hold a drain are named, and no script hangs at them."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.reading.cluster_documents import DocumentFlags
from cli.verbs.verify import command
from kube.manifests.dump import dump_yaml
from kube.manifests.source import SourceObject
from migration.cluster.evidence import Disruptions, read_evidence
from migration.plan.checks.checks import State
from process.model.durations import Duration
from testing.command import drawbridge
from testing.counting import counted_calls
from testing.documents import api_object
from testing.migration import SHARE, budget, hami_node, workload
from testing.plan import Objects, call, held_objects, planned, question_of, run_script, script

EXHAUSTED = {"minAvailable": 1, "status": {"disruptionsAllowed": 0}}
NOW = (
    "PodDisruptionBudget team/budget allows no eviction of pod web-0{} now: disruptionsAllowed 0, minAvailable 1 of its "
    "2 pods"
)


def fleet(**limits: Any) -> Objects:
    status = limits.pop("status", {})
    nodes = [hami_node(f"h-{number}") for number in range(4)]
    web = workload("web", SHARE, ["h-0", "h-1"])
    return [*nodes, *web, {**budget(**limits), "status": status}]


@pytest.mark.parametrize(
    ("limits", "text", "fix"),
    [
        (
            *({"minAvailable": 2}, "minAvailable 2 of its 2 pods"),
            "lower minAvailable, or add replicas",
        ),
        (
            *({"minAvailable": "90%"}, "minAvailable 90% of its 2 pods"),
            "lower minAvailable, or add replicas",
        ),
        ({"minAvailable": "100%"}, "minAvailable 100% of its 2 pods", "lower minAvailable"),
        ({"maxUnavailable": 0}, "maxUnavailable 0 of its 2 pods", "raise maxUnavailable"),
        ({"maxUnavailable": "0%"}, "maxUnavailable 0% of its 2 pods", "raise maxUnavailable"),
    ],
)
def test_a_held_node_says_which_limit_holds_it(
    tmp_path: Path, limits: dict[str, Any], text: str, fix: str
) -> None:
    plan = planned(tmp_path, fleet(**limits))

    assert {"Node//h-0", "Node//h-1"} <= held_objects(plan).keys()
    reason = "PodDisruptionBudget team/budget never allows the eviction of its pods there: "
    assert reason + text == held_objects(plan)["Node//h-0"]
    assert {fix} == {entry["fix"] for entry in plan["held"] if entry["object"] == "Node//h-0"}


@pytest.mark.parametrize(
    ("limits", "is_held"),
    [({"maxUnavailable": 1}, True), ({"minAvailable": "50%"}, True), ({"minAvailable": 1}, False)],
)
def test_a_budget_of_pods_that_the_disruption_controller_cannot_count_holds_their_nodes(
    tmp_path: Path, limits: dict[str, Any], *, is_held: bool
) -> None:
    """A RayCluster has no scale, so a budget of its pods lets none go for ever."""
    condition = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed"}
    status = {"disruptionsAllowed": 0, "conditions": [condition]}

    plan = planned(tmp_path, fleet(**limits, status=status))

    held = {entry["object"]: entry for entry in plan["held"] if entry["object"] == "Node//h-0"}
    assert is_held is bool(held)
    for entry in held.values():
        assert entry["reason"].endswith(
            "and the disruption controller cannot count them (SyncFailed)"
        )
        assert entry["fix"].startswith("change it to minAvailable with a number, ")


def test_a_wave_names_the_budgets_that_allow_no_eviction_today(tmp_path: Path) -> None:
    plan = planned(tmp_path, fleet(**EXHAUSTED))

    notes = {
        note for wave in plan["waves"] for note in wave["notes"] if "PodDisruptionBudget" in note
    }
    assert any(NOW.format(" on h-0") in note for note in notes), notes
    assert all("switch.sh after ten minutes" in note for note in notes)


def test_a_drain_is_tried_once_budgets_were_looked_at_and_not_for_ever(tmp_path: Path) -> None:
    """`kubectl drain --dry-run=server` without a timeout tries an eviction again as long as a budget refuses it."""
    planned(tmp_path, fleet(**EXHAUSTED))

    preflight = script(tmp_path, "preflight").splitlines()
    (drain,) = [number for number, line in enumerate(preflight) if "kubectl drain" in line]
    (before,) = [number for number, line in enumerate(preflight) if "--before" in line]
    assert before < drain
    assert "--timeout=5m" in preflight[drain]
    switch = script(tmp_path, "switch", wave=2)
    assert switch.index("check_budgets h-") < switch.index("kubectl drain")


@pytest.mark.parametrize(
    ("limits", "status", "text"),
    [
        ({"minAvailable": 1}, 0, "no PodDisruptionBudget holds its drain"),
        ({"minAvailable": 2}, 1, "never allows the eviction of pod web-0: minAvailable 2 of its 2"),
        (EXHAUSTED, 1, NOW.format("")),
    ],
)
def test_verify_names_the_budgets_of_a_node(
    tmp_path: Path, limits: dict[str, Any], status: int, text: str
) -> None:
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(fleet(**limits)))

    result = drawbridge("verify", "--snapshot", file, "--node", "h-0", "--budgets")

    assert status == result.exit_code, result.output
    assert text in " ".join(result.stdout.split())


def test_verify_of_a_node_without_readable_budgets_lets_no_drain_begin(tmp_path: Path) -> None:
    origin = api_object("Snapshot", "cluster", unreadable=["poddisruptionbudgets"])
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml([origin, *fleet()]))

    result = drawbridge("verify", "--snapshot", file, "--node", "h-0", "--budgets")

    assert 1 == result.exit_code
    assert "poddisruptionbudgets could not be read" in result.stdout


@pytest.mark.parametrize(
    ("replicas", "state", "text"),
    [
        (2, "failed", "never allows the eviction of pod web-0: minAvailable 2 of its 2 pods"),
        (
            3,
            "waiting",
            NOW.format("").replace("minAvailable 1 of its 2", "minAvailable 2 of its 3"),
        ),
    ],
    ids=["too few", "one waits for a node"],
)
def test_a_pod_that_waits_for_a_node_counts_for_a_budget(
    tmp_path: Path, replicas: int, state: str, text: str
) -> None:
    """The pod that comes for an evicted one has no node at first, and the budget let none go for ever then."""
    objects = fleet(minAvailable=2, status={"disruptionsAllowed": 0})
    *_, waiting = workload("web", SHARE, ["", "", ""])
    waiting["status"] = {"phase": "Pending"}
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml([*objects, *([waiting] if replicas > 2 else [])]))

    result = drawbridge("verify", "--snapshot", file, "--node", "h-0", "--budgets", "-o", "json")

    (check,) = json.loads(result.stdout)["checks"]
    assert (state, True) == (check["state"], text in check["message"]), check


def test_no_time_goes_by_for_a_budget_that_never_allows_an_eviction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`switch.sh` waited ten minutes for it, with its nodes cordoned."""
    objects = [
        SourceObject(document=dict(document), source="now.yaml", line=1)
        for document in fleet(maxUnavailable=0)
    ]
    documents = SimpleNamespace(objects=tuple(objects), unreadable=())
    monkeypatch.setattr(command, "read_documents", lambda *_: documents)
    question = command._ask_node("h-0", {}, before=False, budgets=True)
    assert question is not None
    flags = DocumentFlags(
        snapshots=(),
        live=True,
        kubeconfig=None,
        context=None,
        profile_directory=None,
        settings=None,
    )

    begin = time.monotonic()
    answer = command._wait_until_right(flags, question, Duration(60))

    assert time.monotonic() - begin < 30
    assert [State.FAILED] == [check.state for check in answer.checks]


@pytest.mark.parametrize("flags", [("--budgets",), ("--node", "a", "--budgets", "--before")])
def test_budgets_are_those_of_a_node(tmp_path: Path, flags: tuple[str, ...]) -> None:
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(fleet()))

    result = drawbridge("verify", "--snapshot", file, *flags)

    assert 2 == result.exit_code
    assert "--budgets requires --node" in result.stderr


def test_switch_stops_at_a_budget_and_uncordons(tmp_path: Path) -> None:
    assert call(tmp_path, fleet(minAvailable=1), "--wave-nodes", 2).exit_code in (0, 1)

    ran = run_script(
        tmp_path,
        "wave-1/switch.sh",
        {
            "drawbridge": 'case "$*" in *--budgets*) exit 1;; esac',
            "kubectl": 'case "$*" in "get node/"*) echo "$2";; esac',
        },
    )

    assert 1 == ran.returncode
    assert "a PodDisruptionBudget holds the drain of h-" in ran.stderr
    assert "given up; uncordoned: h-" in ran.stderr
    assert "kubectl drain" not in (tmp_path / "calls").read_text()


def assessed(tmp_path: Path, objects: Objects, form: str) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    return drawbridge("assess", "--snapshot", file, "-o", form).stdout


@pytest.mark.parametrize(
    ("limits", "never", "reason"),
    [
        (EXHAUSTED, False, NOW.replace("pod web-0{}", "2 pods on h-0, h-1")),
        (
            {"maxUnavailable": 0},
            True,
            "PodDisruptionBudget team/budget never allows the eviction of 2 pods on h-0, h-1: maxUnavailable 0 of its 2 pods",
        ),
    ],
    ids=["not now", "never"],
)
def test_assess_names_the_budgets_that_stop_drains(
    tmp_path: Path, limits: dict[str, Any], reason: str, *, never: bool
) -> None:
    (stop,) = json.loads(assessed(tmp_path, fleet(**limits), "json"))["drainStops"]

    assert ("PodDisruptionBudget/team/budget", "app=web", never) == (
        stop["budget"],
        stop["selects"],
        stop["never"],
    )
    assert reason == stop["reason"]
    assert (["Pod/team/web-0", "Pod/team/web-1"], ["h-0", "h-1"]) == (stop["pods"], stop["nodes"])
    text = " ".join(assessed(tmp_path, fleet(**limits), "text").split())
    assert f"budgets {reason}; selector app=web: " in text
    assert "<code>PodDisruptionBudget/team/budget</code>" in assessed(
        tmp_path, fleet(**limits), "html"
    )


def test_assess_is_silent_about_budgets_that_let_pods_go(tmp_path: Path) -> None:
    """Nor does a budget of pods on nodes count that nobody drains."""
    elsewhere = workload("db", {"cpu": "1"}, ["cpu-0"])
    objects = [*fleet(maxUnavailable=1), *elsewhere, {**budget(app="db", maxUnavailable=0)}]
    objects[-1]["metadata"] = {"name": "db", "namespace": "team"}  # type: ignore[index]

    assert [] == json.loads(assessed(tmp_path, objects, "json"))["drainStops"]


# --- what the eviction API lets go ----------------------------------------------------------------


def unready(**status: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "False"}]
    return {"status": {"phase": "Running", "conditions": conditions, **status}}


MET = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
LET_GO = "no PodDisruptionBudget holds its drain"
HELD = NOW.format("")
NEVER = "never allows the eviction of pod web-0: maxUnavailable 0 of its 2 pods"


@pytest.mark.parametrize(
    ("limits", "pod", "text"),
    [
        ({"minAvailable": 1, "status": MET}, {"status": READY}, HELD),
        ({"minAvailable": 1, "status": MET}, unready(), LET_GO),
        ({"minAvailable": 1, "status": {**MET, "currentHealthy": 0}}, unready(), HELD),
        (
            *({"minAvailable": 1, "status": {**MET, "currentHealthy": 0, "desiredHealthy": 0}},),
            *(unready(), HELD),
        ),
        ({"minAvailable": 1, "status": {**MET, "currentHealthy": "1"}}, unready(), HELD),
        ({"minAvailable": 1, "status": {"disruptionsAllowed": 0}}, unready(), HELD),
        (
            *({**EXHAUSTED, "unhealthyPodEvictionPolicy": "AlwaysAllow"},),
            *(unready(), LET_GO),
        ),
        (
            *({**EXHAUSTED, "unhealthyPodEvictionPolicy": "AlwaysAllow"},),
            *({"status": READY}, HELD),
        ),
        (
            *({**EXHAUSTED, "unhealthyPodEvictionPolicy": "IfHealthyBudget"},),
            *(unready(), HELD),
        ),
        (EXHAUSTED, {"status": {"phase": "Pending"}}, LET_GO),
        (EXHAUSTED, unready(phase="Pending"), LET_GO),
        (EXHAUSTED, {"metadata": {"deletionTimestamp": "2026-11-20T10:00:00Z"}}, LET_GO),
        ({"maxUnavailable": 0}, {"status": READY}, NEVER),
        ({"maxUnavailable": 0}, {"status": {"phase": "Pending"}}, LET_GO),
        (
            *({"maxUnavailable": 0, "unhealthyPodEvictionPolicy": "AlwaysAllow"},),
            *(unready(), LET_GO),
        ),
    ],
    ids=[
        "a ready pod",
        "an unready one, and enough others",
        "an unready one, and too few others",
        "a limit of no pods",
        "a status that is none",
        "a budget without a status",
        "a budget that always lets unready ones go",
        "such a budget, and a ready one",
        "a budget that lets unready ones go with others",
        "a pending one",
        "a pending one that is not ready",
        "a pod that is deleted",
        "never",
        "never, and a pending one",
        "never, and a budget that always lets unready ones go",
    ],
)
def test_a_budget_holds_what_the_eviction_api_refuses(
    tmp_path: Path, limits: dict[str, Any], pod: dict[str, Any], text: str
) -> None:
    """A drain waited ten minutes for a budget that the API server does not ask about the pod."""
    objects = list(fleet(**limits))
    (own,) = [entry for entry in objects if entry["metadata"]["name"] == "web-0"]
    own["metadata"] |= pod.get("metadata", {})  # type: ignore[index]
    own["status"] = pod.get("status", {})  # type: ignore[index]
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))

    result = drawbridge("verify", "--snapshot", file, "--node", "h-0", "--budgets")

    assert text in " ".join(result.stdout.split())
    assert (0 if text == LET_GO else 1) == result.exit_code


def two_budgets() -> Objects:
    """A budget of one workload, and one of two, each with room; nothing else is wrong."""
    other = budget(minAvailable=1)
    other["metadata"] = {"name": "operator", "namespace": "team"}
    other["spec"]["selector"] = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    other["status"] = {"disruptionsAllowed": 2}
    return [*fleet(maxUnavailable=1), *workload("api", SHARE, ["h-2"]), other]


TWO = (
    "PodDisruptionBudgets team/budget, team/operator allow no eviction of {}: the API server evicts no pod that two of "
    "them select"
)


def test_the_node_of_a_pod_with_two_budgets_is_held(tmp_path: Path) -> None:
    """The API server answers with an internal error, and `kubectl drain` does not try again."""
    plan = planned(tmp_path, two_budgets())

    held = {entry["object"]: entry for entry in plan["held"]}
    assert {"Node//h-0", "Node//h-1"} == {name for name in held if name.startswith("Node//")}
    assert TWO.format("its pods there") == held["Node//h-0"]["reason"]
    assert "let only one of them select the pods" == held["Node//h-0"]["fix"]
    result = drawbridge(
        "verify", "--snapshot", tmp_path / "cluster.yaml", "--node", "h-0", "--budgets"
    )
    assert 1 == result.exit_code
    assert TWO.format("pod web-0") in " ".join(result.stdout.split())


def test_assess_names_two_budgets_of_one_pod(tmp_path: Path) -> None:
    (stop,) = json.loads(assessed(tmp_path, two_budgets(), "json"))["drainStops"]

    assert ("PodDisruptionBudget/team/budget", True) == (stop["budget"], stop["never"])
    assert TWO.format("2 pods on h-0, h-1") == stop["reason"]
    assert (["Pod/team/web-0", "Pod/team/web-1"], ["h-0", "h-1"]) == (stop["pods"], stop["nodes"])
    text = " ".join(assessed(tmp_path, two_budgets(), "text").split())
    reason = TWO.format("2 pods on h-0, h-1")
    assert f"{reason}; selector app=web; app exists: plan holds these nodes; let only one" in text


@pytest.mark.parametrize(("selector", "nodes"), [(None, set()), ({}, {"Node//h-0", "Node//h-1"})])
def test_an_empty_selector_selects_all_pods_and_none_selects_no_pod(
    tmp_path: Path, selector: dict[str, Any] | None, nodes: set[str]
) -> None:
    objects = two_budgets()
    objects[-1]["spec"]["selector"] = selector

    plan = planned(tmp_path, objects)

    assert nodes == {name for name in held_objects(plan) if name in {"Node//h-0", "Node//h-1"}}


def test_a_budget_is_compared_with_the_pods_of_its_namespace_alone(tmp_path: Path) -> None:
    """Thousands of budgets were compared with each pod of a large cluster."""
    names, number = [f"team-{index}" for index in range(20)], 5
    objects = [
        entry
        for name in names
        for entry in (
            *workload("web", {"cpu": "1"}, [f"gpu-{name}"] * number, namespace=name),
            budget(name, minAvailable=1),
        )
    ]
    sources = question_of(tmp_path, objects).objects

    with counted_calls() as calls:
        evidence = read_evidence(sources, "default")

    assert [number] * len(names) == [entry.pods for entry in evidence.budgets]
    assert len(names) * number == calls[Disruptions.covers.__code__]

    with counted_calls() as calls:
        assert [] == [*evidence.blocking_budgets("gpu-team-2")]

    assert number >= calls[Disruptions.covers.__code__]
