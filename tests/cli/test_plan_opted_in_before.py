"""The way back of a wave for pods with claims by a label from before the plan."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from testing.documents import namespace
from testing.migration import SHARE, hami_node, workload
from testing.plan import planned, run_script, script
from testing.programs import needs_kubectl

LABEL: Final = "drawbridge.internal/translate"
NODES: Final = tuple(hami_node(f"hami-{number}") for number in range(3))
WEB: Final = "Deployment/team/web"
POD: Final = "web-7f-1 ReplicaSet/web-7f team hami-1 translated - 7f True"
"""A line for a pod, as the shared script asks for those with claims."""
SELECTED: Final = "web-7f-1 ReplicaSet/web-7f team hami-1 translated true 7f True"
MONITOR: Final = "DaemonSet/team/web"
DELETED: Final = "then delete those with claims: kubectl delete pods --namespace=team"
PATCH: Final = f'{{"spec":{{"template":{{"metadata":{{"labels":{{"{LABEL}":null}}}}}}}}}}'
OFF: Final = {
    "true": (
        f"kubectl label namespace team {LABEL}- (for the next pods of all its workloads)\n",
        "namespace",
    ),
    "selected": (
        (
            f"kubectl patch deployment/web --namespace=team --type=merge --patch='{PATCH}' "
            "(a new template: all its pods are created again, those on other nodes, too, unless it has OnDelete)\n"
        ),
        "template",
    ),
}


def web(
    value: str = "true", kind: str = "Deployment", nodes: Sequence[str] = ("hami-1",)
) -> list[dict[str, Any]]:
    """A workload that was opted in before the plan, with pods that have device keys still."""
    owner, *pods = workload("web", SHARE, nodes, kind=kind)
    owner["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    if value == "selected":
        owner["spec"]["template"]["metadata"]["labels"] |= {LABEL: "true"}
    return [namespace("team", {LABEL: value}), owner, *pods]


def other() -> list[dict[str, Any]]:
    """A workload of another namespace that the waves opt in."""
    return [namespace("other"), *workload("a", SHARE, ["hami-1"], namespace="other")]


def taken_back(
    tmp_path: Path,
    *,
    pods: str = POD,
    ready: str = "",
    after: str = "",
    label: str = "true",
    template: str = "true",
    mode: str = "In",
    options: Sequence[str] = (),
) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run the rollback of the wave with hami-1.

    Args:
        pods: Lines for pods of all namespaces, as the shared script asks for them.
        ready: Lines for pods of the workload before the drains.
        after: Lines for them after the drains.
        label: The label of the namespace as it is by now.
        template: The label of the workload's template.
        mode: The operator of the webhook for the label.
        options: The flags of the script.
    """
    answers = f"""case "$*" in
  *spec.nodeName=*status.phase*) ;;
  *--all-namespaces*) echo "{pods}" ;;
  *"get pods "*status.phase!=Succeeded*) if [ -f {tmp_path}/noted ]; then echo "{after}"; else echo "{ready or after}"; fi ;;
  *"get namespace/team "*) printf %s "{label}" ;;
  *"get "*/web*spec.template*) printf %s "Kind/{template}" ;;
  *"get mutatingwebhookconfiguration "*) printf %s "{mode}" ;;
  *jsonpath=*allocatable*) echo 4 ;;
  "annotate node "*-) rm {tmp_path}/noted ;;
  "annotate node "*) echo "$*" | sed 's/.*evicted=//' > {tmp_path}/noted ;;
  *internal/evicted}}*) cat {tmp_path}/noted 2>/dev/null || true ;;
esac"""
    shared = tmp_path / "plan" / "cluster.sh"
    text = shared.read_text()
    for name, value in (("most", 1800), ("fewer", 60)):
        text = text.replace(f"{name}_seconds={value}", f"{name}_seconds=0")
    shared.write_text(text)
    ran = run_script(tmp_path, f"wave-{_wave(tmp_path)}/rollback.sh", {"kubectl": answers}, options)
    return ran, (tmp_path / "calls").read_text()


def _wave(tmp_path: Path) -> int:
    return next(
        number for number in (1, 2, 3) if "drain hami-1 " in script(tmp_path, "rollback", number)
    )


@pytest.mark.parametrize("value", ["true", "selected"])
def test_the_way_back_asks_before_it_evicts_pods_that_get_claims_again(
    tmp_path: Path, value: str
) -> None:
    """They waited for ever, and the wave was said to be taken back."""
    planned(tmp_path, [*NODES, *web(value)], "--wave-nodes", 1)

    pods = SELECTED if value == "selected" else POD
    ran, calls = taken_back(tmp_path, label=value, pods=pods)

    assert 1 == ran.returncode
    assert [] == [
        word for word in ("cordon", "label", "taint", "drain") if f"kubectl {word} " in calls
    ]
    command, place = OFF[value]
    assert ran.stderr.startswith(
        f"{WEB} has pods with claims on nodes of this wave (web-7f-1), and its next ones get claims, too, by the label of its "
        f"{place}, which this way back leaves: they wait for ever unless another node with a DRA driver has devices "
        "for them\n"
        f"for device keys again take the label off, in your repository if it is there: {command}"
        "then go on: these pods come again with device keys, and need no restart\n"
        f"--evict-jobs={WEB} evicts them all the same\n"
        f"stopped at: look for pods of {WEB} with claims\n"
    )
    assert "is taken back" not in ran.stdout


@pytest.mark.parametrize(
    ("value", "answers"),
    [
        ("true", {"label": ""}),
        ("true", {"label": "false", "mode": "NotIn"}),
        ("selected", {"label": "selected", "template": ""}),
        ("selected", {"label": ""}),
        ("true", {"template": "false"}),
        ("true", {"pods": ""}),
        ("true", {"pods": POD.replace("hami-1", "hami-11")}),
        ("true", {"pods": POD.replace("hami-1", "-")}),
        ("true", {"options": [f"--evict-jobs={WEB}"]}),
        ("true", {"options": ["--evict-jobs=all"]}),
    ],
    ids=[
        *(
            "label off",
            "opted out",
            "template without it",
            "namespace without it",
            "template opted out",
            "no pods",
        ),
        *("another node", "no node", "named", "all"),
    ],
)
def test_the_way_back_goes_on_without_such_pods(
    tmp_path: Path, value: str, answers: Mapping[str, Any]
) -> None:
    planned(tmp_path, [*NODES, *web(value)], "--wave-nodes", 1)

    ran, calls = taken_back(tmp_path, **answers)

    assert 0 == ran.returncode, ran.stderr
    assert "kubectl drain hami-1 " in calls
    assert "is taken back" in ran.stdout


@pytest.mark.parametrize(
    ("objects", "answers", "text"),
    [
        ([], {}, "by the label of its namespace, which this way back leaves: "),
        (web(), {"pods": POD.replace(" translated ", " native ")}, "as its manifest has them: "),
        ([], {"label": "", "mode": "NotIn"}, "since its namespace is not opted out: "),
    ],
    ids=["not in the plan", "native", "opted out"],
)
def test_workloads_are_asked_about_that_the_plan_does_not_know(
    tmp_path: Path, objects: Sequence[Mapping[str, Any]], answers: Mapping[str, Any], text: str
) -> None:
    """A workload with claims that was scaled to the nodes of a wave, or created since, waited for ever."""
    planned(tmp_path, [*NODES, *objects, *other()], "--wave-nodes", 1)

    ran, calls = taken_back(tmp_path, **answers)

    assert 1 == ran.returncode, ran.stderr
    assert f"{WEB} has pods with claims on nodes of this wave (web-7f-1)" in ran.stderr
    assert text in ran.stderr
    assert "drain" not in calls


def test_a_namespace_that_is_not_opted_out_is_to_be(tmp_path: Path) -> None:
    """It has no label to take off."""
    planned(tmp_path, [*NODES, *other()], "--wave-nodes", 1)

    ran, _ = taken_back(tmp_path, label="", mode="NotIn")

    assert (
        f"for device keys again opt the namespace out, in your repository if it is there: kubectl label namespace team {LABEL}=false "
        "--overwrite (for the next pods of all its workloads)\n"
    ) in ran.stderr


@pytest.mark.parametrize("template", ["true", ""])
def test_the_label_of_a_template_stays_where_a_wave_opts_in_the_rest(
    tmp_path: Path, template: str
) -> None:
    """Its namespace has the label of the wave when the question is asked, and goes back to its former one."""
    plan = planned(tmp_path, [*NODES, *web("selected"), *other()], "--wave-nodes", 1)
    (wave,) = (entry for entry in plan["waves"] if "team" in entry["namespaces"])
    (node,) = (entry["name"] for entry in wave["nodes"])
    answers = f"""case "$*" in
  *--all-namespaces*) echo "{SELECTED.replace("hami-1", node)}" ;;
  *"get namespace/team "*) printf true ;;
  *"get deployment/web "*) printf "Deployment/{template}" ;;
esac"""

    ran = run_script(
        *(tmp_path, f"wave-{wave['wave']}/rollback.sh", {"kubectl": answers}), ["--step=begin"]
    )

    assert (template == "true") is (ran.returncode == 1), ran.stderr
    assert (template == "true") is (OFF["selected"][0] in ran.stderr)


@pytest.mark.parametrize(
    ("value", "label", "template", "reason"),
    [
        ("", "true", "", "mode"),
        ("", "true", "false", ""),
        ("", "false", "", ""),
        ("", "selected", "true", "mode"),
        ("selected", "true", "", ""),
        ("selected", "true", "true", "template"),
    ],
    ids=["whole", "template out", "opted out", "in parts", "rest", "rest with label"],
)
@pytest.mark.parametrize("mode", ["NotIn", "In"])
def test_a_label_that_a_wave_takes_off_gives_no_device_keys_in_mode_opt_out(
    tmp_path: Path, *, mode: str, value: str, label: str, template: str, reason: str
) -> None:
    """The wave was said to be taken back while their pods waited, and the label that was to go changes nothing."""
    labels = {LABEL: value} if value else {}
    line = SELECTED if template == "true" else POD
    plan = planned(tmp_path, [*NODES, namespace("team", labels), *web(value)[1:]])
    (wave,) = (entry for entry in plan["waves"] if "team" in entry["namespaces"])
    node = wave["nodes"][0]["name"]
    answers = f"""case "$*" in
  *--all-namespaces*) echo "{line.replace("hami-1", node)}" ;;
  *"get namespace/team "*) printf %s "{label}" ;;
  *"get deployment/web "*) printf %s "Deployment/{template}" ;;
  *"get mutatingwebhookconfiguration "*) printf %s "{mode}" ;;
esac"""

    ran = run_script(
        *(tmp_path, f"wave-{wave['wave']}/rollback.sh", {"kubectl": answers}), ["--step=begin"]
    )

    is_asked = reason == "template" or (reason == "mode" and mode == "NotIn")
    assert is_asked is (ran.returncode == 1), ran.stderr
    assert (is_asked and reason == "mode") is (f"{LABEL}=false --overwrite " in ran.stderr)
    assert f"{LABEL}- " not in ran.stderr


def test_workloads_of_earlier_waves_and_of_before_are_opted_out_in_mode_opt_out(
    tmp_path: Path,
) -> None:
    """A label that is taken off changes nothing there."""
    planned(tmp_path, [*NODES, *web(), *other()], "--wave-nodes", 1)

    ran, _ = taken_back(tmp_path, mode="NotIn", template="")

    assert 1 == ran.returncode
    assert f"{LABEL}=false --overwrite " in ran.stderr
    assert f"{LABEL}- " not in ran.stderr


@pytest.mark.parametrize("label", ["", "true"])
@pytest.mark.parametrize("step", ["begin", "drain"])
def test_a_mode_that_cannot_be_read_stops_a_way_back(tmp_path: Path, label: str, step: str) -> None:
    """It was taken for OptIn: pods were evicted without a question and a note, and waited. The note needs no mode."""
    plan = planned(tmp_path, [*NODES, namespace("team"), *web()[1:]])
    (wave,) = (entry for entry in plan["waves"] if "team" in entry["namespaces"])
    node = wave["nodes"][0]["name"]
    lines = "\n".join(POD.replace("team hami-1", f"{place} {node}") for place in ("team", "own"))
    answers = f"""case "$*" in
  *--all-namespaces*) echo "{lines if label else lines.splitlines()[-1]}" ;;
  *"get namespace/own "*) printf %s "{label}" ;;
  *"get mutatingwebhookconfiguration "*) exit 1 ;;
esac"""

    name = step if step == "begin" else f"{step}/{node}"
    ran = run_script(
        *(tmp_path, f"wave-{wave['wave']}/rollback.sh", {"kubectl": answers}), [f"--step={name}"]
    )

    calls = (tmp_path / "calls").read_text()
    assert "has pods with claims" not in ran.stderr
    if step == "begin":
        assert 1 == ran.returncode, ran.stderr
        assert [] == [word for word in ("cordon", "label", "drain") if f"kubectl {word} " in calls]
    else:
        noted = f"kubectl annotate node {node} --overwrite drawbridge.internal/evicted="
        assert calls.index(noted) < calls.index("kubectl drain ")
        assert "Deployment/own/" in calls[calls.index(noted) :].splitlines()[0]


def test_a_question_without_an_answer_stops_a_script_once(tmp_path: Path) -> None:
    """It was said to stop at `return`, and then once more."""
    planned(tmp_path, [*NODES, *other()], "--wave-nodes", 1)
    answers = 'case "$*" in *--all-namespaces*) echo "no answer" >&2; exit 1 ;; esac'

    ran = run_script(
        *(tmp_path, f"wave-{_wave(tmp_path)}/rollback.sh", {"kubectl": answers}), ["--step=begin"]
    )

    assert 1 == ran.returncode
    first, second, *_ = ran.stderr.splitlines()
    assert "no answer" == first
    assert 'stopped at: a question to the cluster, see above: all="$(print_lasting)"' == second
    assert 1 == ran.stderr.count("stopped at: ")
    assert 1 == ran.stderr.count("to go on, run again: ")


def test_a_script_needs_a_bash_with_all_that_it_uses(tmp_path: Path) -> None:
    """The bash of macOS is 3.2, and stopped in the middle with an error of its own."""
    planned(tmp_path, [*NODES, *other()])
    shared = tmp_path / "plan" / "cluster.sh"
    text = shared.read_text()
    assert text.index("BASH_VERSINFO[0]") < text.index("expected_uid=")
    shared.write_text(text.replace("BASH_VERSINFO[0]", "3"))

    ran = run_script(tmp_path, "wave-1/rollback.sh")

    assert 1 == ran.returncode
    assert ran.stderr.startswith("the scripts of a plan need bash 4.4 or later, and this is bash ")
    assert 1 == len(ran.stderr.splitlines())


@pytest.mark.parametrize("form", ["", "kustomize"])
def test_a_way_back_leaves_a_namespace_opted_out(tmp_path: Path, form: str) -> None:
    """It stopped at the label that it had asked for itself."""
    words = ["--format", form] if form else []
    plan = planned(tmp_path, [*NODES, namespace("team"), *web()[1:]], *words)
    (number,) = (entry["wave"] for entry in plan["waves"] if "team" in entry["namespaces"])
    answers = """case "$*" in *"get namespace/team "*) printf false ;; *"patch namespace"*) exit 1 ;; esac"""

    ran = run_script(
        *(tmp_path, f"wave-{number}/rollback.sh", {"kubectl": answers}), ["--step=namespaces"]
    )

    assert 0 == ran.returncode, ran.stderr
    calls = (tmp_path / "calls").read_text()
    assert "kubectl patch" not in calls
    if form:
        assert f"=team,{LABEL},{LABEL}!=false --output=name" in calls
    else:
        assert "namespace/team is opted out, and stays so\n" == ran.stdout


def test_pods_of_the_wave_and_of_earlier_ones_are_not_asked_about(tmp_path: Path) -> None:
    """These get device keys again, or had devices on the nodes of earlier waves."""
    objects = [*NODES, namespace("team"), *web(nodes=["hami-1", "hami-1", "hami-1"])[1:], *other()]
    plan = planned(tmp_path, objects, "--wave-nodes", 1)
    (first,) = (wave["wave"] for wave in plan["waves"] if "team" in wave["namespaces"])
    states = {}
    for wave in plan["waves"][first - 1 :]:
        (node,) = (entry["name"] for entry in wave["nodes"])
        for amount in (3, 4):
            lines = "\n".join([POD.replace("hami-1", node)] * amount)
            answers = f"""case "$*" in
  *--all-namespaces*) echo "{lines}" ;;
  *"get namespace/team "*) printf true ;;
esac"""
            ran = run_script(
                *(tmp_path, f"wave-{wave['wave']}/rollback.sh", {"kubectl": answers}),
                ["--step=begin"],
            )
            states[wave["wave"], amount] = ran.returncode
            assert (ran.returncode == 1) is ("with fewer pods in its namespace then" in ran.stderr)

    assert {(wave, amount): int(wave > first and amount == 4) for wave, amount in states} == states
    assert {0, 1} == set(states.values())


@pytest.mark.parametrize("name", ["web", "monitor"])
def test_daemon_sets_that_were_created_since_are_asked_about(tmp_path: Path, name: str) -> None:
    """Those of a namespace of an earlier wave were evicted without a question, and nothing waited for them."""
    objects = [*NODES, namespace("team"), *web(kind="DaemonSet", nodes=["hami-0", "hami-1"])[1:]]
    plan = planned(tmp_path, [*objects, *other()], "--wave-nodes", 1)
    (first,) = (wave["wave"] for wave in plan["waves"] if "team" in wave["namespaces"])
    (wave, node) = next(
        (wave["wave"], node["name"])
        for wave in plan["waves"]
        for node in wave["nodes"]
        if wave["wave"] > first and node["name"] in {"hami-0", "hami-1"}
    )
    lines = f"{name}-1 DaemonSet/{name} team {node} translated - - True"
    answers = f"""case "$*" in
  *--all-namespaces*) echo "{lines}" ;;
  *"get namespace/team "*) printf true ;;
esac"""

    ran = run_script(
        *(tmp_path, f"wave-{wave}/rollback.sh", {"kubectl": answers}), ["--step=begin"]
    )

    is_asked = name == "monitor"
    assert is_asked is (ran.returncode == 1), ran.stderr
    assert is_asked is (
        "its next ones get claims, too, since an earlier wave has opted it in: they wait for ever on nodes"
        in ran.stderr
    )


@pytest.mark.parametrize(
    ("line", "options", "is_back"),
    [
        ("web-2 ReplicaSet/web-7f claims unplaced", ["--evict-jobs=hami-1"], False),
        ("web-2 ReplicaSet/web-7f claims unplaced", [f"--evict-jobs={WEB}"], True),
        ("web-2 ReplicaSet/web-7f keys unplaced", [], True),
        ("web-2 ReplicaSet/web-7f claims True", [], True),
        ("web-2 ReplicaSet/web-7f keys", [], True),
        ("web-2 ReplicaSet/web-other-7f claims unplaced", [], True),
    ],
    ids=["claims", "named", "keys", "ready", "has a node", "another workload"],
)
def test_a_wave_is_not_taken_back_while_such_pods_wait_for_a_node(
    tmp_path: Path, line: str, options: Sequence[str], *, is_back: bool
) -> None:
    """Pods that the switch has evicted wait, too, so no node has one of the workload."""
    planned(tmp_path, [*NODES, *web()], "--wave-nodes", 1)

    ran, calls = taken_back(tmp_path, pods=POD.replace("hami-1", "-"), after=line, options=options)

    assert is_back is (ran.returncode == 0), ran.stderr
    assert is_back is ("is taken back" in ran.stdout)
    assert "kubectl uncordon hami-1" in calls
    is_waiting = "unplaced" in line and "other" not in line
    assert is_waiting is (f"{WEB}: no node takes web-2\n" in ran.stderr)
    assert is_back is (f"stopped at: wait for pods of {WEB}\n" not in ran.stderr)
    assert (is_waiting and " claims " in line) is (OFF["true"][0] in ran.stderr)
    assert (is_waiting and " claims " in line) is (f"{DELETED} web-2\n" in ran.stderr)


def test_pods_that_a_way_back_evicts_are_waited_for(tmp_path: Path) -> None:
    """The plan did not know that they were there."""
    planned(tmp_path, [*NODES, *other()], "--wave-nodes", 1)
    other_pod = "a-7f-1 ReplicaSet/a-7f free hami-2 translated - 7f True"
    pods = f"{POD}\n{POD.replace('hami-1', 'hami-2')}\n{other_pod}"
    ready = "\n".join(f"web-{number} ReplicaSet/web-7f claims True" for number in range(2))
    after = "web-2 ReplicaSet/web-7f keys unplaced"

    ran, calls = taken_back(tmp_path, pods=pods, ready=ready, after=after, label="")

    assert 1 == ran.returncode, ran.stdout
    assert f"stopped at: wait for pods of {WEB}\n" in ran.stderr
    noted = f"kubectl annotate node hami-1 --overwrite drawbridge.internal/evicted={WEB}=2\n"
    assert calls.index(noted) < calls.index("kubectl drain hami-1 ")

    (tmp_path / "calls").write_text("")
    ran, calls = taken_back(tmp_path, pods="", after="web-2 ReplicaSet/web-7f keys True")

    assert 0 == ran.returncode, ran.stderr
    assert "kubectl annotate node hami-1 drawbridge.internal/evicted-\n" in calls


def test_a_pod_of_a_daemon_set_is_said_to_wait_for_its_own_node(tmp_path: Path) -> None:
    """No other node takes it, and a rollout took devices from its pods on nodes of other waves."""
    planned(tmp_path, [*NODES, *web(kind="DaemonSet")], "--wave-nodes", 1)

    ran, _ = taken_back(tmp_path, pods="web-1 DaemonSet/web team hami-1 translated - - True")

    assert 1 == ran.returncode
    assert "leaves: they wait for ever on nodes that the DRA driver has left\n" in ran.stderr
    assert "rollout" not in ran.stderr


@pytest.mark.parametrize(
    ("line", "options", "is_back"),
    [
        ("web-2 DaemonSet/web claims unplaced", [f"--evict-jobs={MONITOR}"], True),
        ("web-2 DaemonSet/web keys unplaced", [], True),
        ("web-2 DaemonSet/web claims unplaced", [], False),
    ],
    ids=["claims", "keys", "not named"],
)
def test_pods_of_a_daemon_set_wait_with_claims_where_somebody_says_so(
    tmp_path: Path, line: str, options: Sequence[str], *, is_back: bool
) -> None:
    """They never got a node, so neither this wave nor an earlier one could be taken back."""
    planned(tmp_path, [*NODES, *web(kind="DaemonSet")], "--wave-nodes", 1)
    pods = "web-2 DaemonSet/web team - translated - -"

    ran, _ = taken_back(tmp_path, pods=pods, after=line, options=options)

    assert is_back is (ran.returncode == 0), ran.stderr
    assert f"{MONITOR}: no node takes web-2\n" in ran.stderr
    assert (" claims " in line) is (f"{DELETED} web-2\n" in ran.stderr)


def test_the_cluster_is_asked_for_the_pods_of_all_nodes_at_once(tmp_path: Path) -> None:
    """A question for each workload and node took minutes before the first node was given back."""
    plan = planned(tmp_path, [*NODES, *web()], "--wave-nodes", 2)
    number, nodes, *_ = (
        part
        for wave in plan["waves"]
        if len(wave["nodes"]) > 1
        for part in (wave["wave"], [node["name"] for node in wave["nodes"]])
    )
    lines = "\n".join(
        POD.replace("hami-1", node).replace("web", name)
        for node in nodes
        for name in ("web", "other")
    )
    answers = f"""case "$*" in
  *--all-namespaces*) echo "{lines}" ;;
  *"get namespace/team "*) printf false ;;
esac"""

    ran = run_script(
        *(tmp_path, f"wave-{number}/rollback.sh", {"kubectl": answers}), ["--step=begin"]
    )

    calls = (tmp_path / "calls").read_text()
    assert (0, 2) == (ran.returncode, calls.count("kubectl get namespace/team ")), ran.stderr
    assert 1 == calls.count("kubectl get pods ")


def test_as_many_ready_pods_as_before_the_plan_are_enough(tmp_path: Path) -> None:
    """One that waited then is no reason to stop."""
    planned(tmp_path, [*NODES, *web(nodes=["hami-1", ""])], "--wave-nodes", 1)
    lines = "web-2 ReplicaSet/web-7f claims True\nweb-3 ReplicaSet/web-7f claims unplaced"

    ran, _ = taken_back(tmp_path, pods="", after=lines)

    assert 0 == ran.returncode, ran.stderr


def test_a_wave_waits_for_no_pods_of_other_waves(tmp_path: Path) -> None:
    """It waited for half an hour for pods on nodes of another wave, and stopped."""
    plan = planned(tmp_path, [*NODES, *web()], "--wave-nodes", 1)

    waiting = {
        wave["wave"]: f"{WEB}=1\n" in script(tmp_path, "rollback", wave["wave"])
        for wave in plan["waves"]
    }

    assert {wave: wave == _wave(tmp_path) for wave in waiting} == waiting


@needs_kubectl
@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "web-7f-1 ReplicaSet/web-7f team hami-1 translated true 7f True"),
        ({"annotations": {}}, "web-7f-1 ReplicaSet/web-7f team hami-1 native true 7f True"),
        ({"annotations": None}, "web-7f-1 ReplicaSet/web-7f team hami-1 native true 7f True"),
        ({"labels": {"a": "b"}}, "web-7f-1 ReplicaSet/web-7f team hami-1 translated - - True"),
        ({"ownerReferences": []}, ""),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, ""),
    ],
    ids=["all", "no annotation", "no annotations", "other labels", "no owner", "ending"],
)
def test_kubectl_prints_the_lines_of_pods(
    tmp_path: Path, changes: Mapping[str, Any], line: str
) -> None:
    planned(tmp_path, [*NODES, *web()], "--wave-nodes", 1)
    metadata = {
        "name": "web-7f-1",
        "namespace": "team",
        "annotations": {"drawbridge.internal/request": "{}"},
        "labels": {LABEL: "true", "pod-template-hash": "7f"},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "web-7f",
                "uid": "1",
                "controller": True,
            }
        ],
        **changes,
    }
    claims = [{"name": "a", "resourceClaimName": "b"}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "hami-1", "containers": [], "resourceClaims": claims},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    (tmp_path / "pod.json").write_text(json.dumps(pod))
    real = shutil.which("kubectl")
    # kubectl prints objects of a file alone, without the list of them.
    answers = f"""for word in "$@"; do case "$word" in --output=go-template=*)
  word="$(printf %s "$word" | sed 's/{{{{range .items}}}}//; s/{{{{end}}}}$//')"
  {real} annotate --local --filename={tmp_path}/pod.json a=b "$word" >> {tmp_path}/lines
  cat {tmp_path}/lines ;; esac; done"""

    run_script(
        *(tmp_path, f"wave-{_wave(tmp_path)}/rollback.sh"), {"kubectl": answers}, ["--step=begin"]
    )

    lines = (tmp_path / "lines").read_text().splitlines()
    printed = [text for text in lines if "/" in text.split()[1]]
    assert [line] * bool(line) == printed


def test_other_workloads_are_not_asked_about(tmp_path: Path) -> None:
    plan = planned(tmp_path, [*NODES, namespace("team"), *web()[1:]], "--wave-nodes", 1)

    assert [] == plan["optedInBefore"]
    texts = [script(tmp_path, "rollback", wave["wave"]) for wave in plan["waves"]]
    assert [] == [text for text in texts if f"{WEB}=" in text]
