"""The way back of a wave for pods that Kubernetes serves by their device keys, before it and after it."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from testing.documents import namespace
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.plan import planned, run_script, script
from testing.plan_functions import CLUSTER, run_functions
from testing.programs import needs_kubectl

NODES: Final = tuple(plugin_node(f"gpu-{number}") for number in range(3))
WEB: Final = "Deployment/team/web"
LINE: Final = "web-7f-1 ReplicaSet/web-7f team gpu-0 native - 7f True"
"""A line for a pod, as the shared script asks for those with devices."""
UNPLACED: Final = "web-7f-2 ReplicaSet/web-7f keys unplaced"
STARTING: Final = "web-7f-2 ReplicaSet/web-7f keys"
READY: Final = "web-7f-2 ReplicaSet/web-7f keys True"
BACK: Final = "\n".join([READY] * 7)


def functions(
    tmp_path: Path,
    before: str,
    after: str,
    *,
    wanted: str = "1",
    planned: str = "",
    last: str = "",
    native: str = LINE,
) -> str:
    """Return the text of the functions around the drain of a node: the note on its pods, and the wait for them.

    Args:
        tmp_path: The folder for the answers.
        before: The lines of the pods of the workload before the drain.
        after: Those after the wait began.
        wanted: The number of pods that the workload asks for by then.
        planned: The workload with its number of pods when the plan was made, for the note and the wait.
        last: The last lines of the script.
        native: The lines of the pods on the node that Kubernetes serves by their device keys.
    """
    (tmp_path / "pods").write_text(f"{native}\n")
    (tmp_path / "noted").write_text("")
    answers = f"""kubectl() {{ case "$*" in
  *spec.nodeName=gpu-0,*) cat pods ;;
  *--all-namespaces*) ;;
  *'get pods --namespace=team '*) if [ -f drained ]; then echo '{after}'; else echo '{before}'; fi ;;
  'annotate node '*-) rm noted ;;
  'annotate node '*) echo "$*" | sed 's/.*evicted=//' > noted ;;
  'get node '*) cat noted ;;
  *'get deployment/web '*) echo '{wanted}' ;;
esac; }}
on_nodes() {{ kubectl "$@"; }}"""
    note = f"evicted_before {planned.partition('=')[0]}\nnote_evicted gpu-0"
    wait = f"cat noted\nwait_for_evicted gpu-0 {planned}"
    text = f"{CLUSTER}\n{answers}\n{last}\n{note}\ntouch drained\n{wait}\necho done"
    ran = run_functions(tmp_path, text)
    assert (ran.returncode == 0) is ran.stdout.endswith("done\n"), ran.stderr
    return ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (UNPLACED, f"{WEB}: no node takes web-7f-2\n"),
        (STARTING, f"{WEB}: 0 of 1 pods are ready; not yet: web-7f-2\n"),
        ("", f"{WEB}: 0 of 1 pods are ready\n"),
        (READY, "done\n"),
    ],
    ids=["no node", "not ready", "not created", "ready"],
)
def test_pods_that_a_way_back_evicts_are_ready_at_its_end(
    tmp_path: Path, after: str, text: str
) -> None:
    """The way back ended at once, while none of them ran."""
    said = functions(tmp_path, before=READY, after=after)

    assert said.startswith(f"{WEB}=1\n")
    assert text in said


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (STARTING, STARTING, "1"),
        (f"{STARTING}\n{UNPLACED}", f"{STARTING}\n{UNPLACED}", "2"),
        (f"{READY}\n{READY}", READY, "1"),
        (READY, "", "0"),
        (f"{READY}\n{UNPLACED}", f"{READY}\n{UNPLACED}", "2"),
    ],
    ids=[
        *("none was ready", "one had no node", "scaled down"),
        *("scaled to 0", "as many as before"),
    ],
)
def test_no_way_back_waits_for_more_pods_than_before(
    tmp_path: Path, before: str, after: str, wanted: str
) -> None:
    assert functions(tmp_path, before=before, after=after, wanted=wanted).endswith("done\n")


@pytest.mark.parametrize(
    ("before", "after", "planned", "text"),
    [
        (BACK, f"{BACK}\n{UNPLACED}", f"{WEB}=8", f"{WEB}: no node takes web-7f-2\n"),
        (BACK, f"{READY}\n{UNPLACED}", f"{WEB}=8", ""),
        (BACK, BACK, f"{WEB}=8", f"{WEB}: 7 of 8 pods are ready\n"),
        ("", UNPLACED, f"{WEB}=8", f"{WEB}: no node takes web-7f-2\n"),
        ("", UNPLACED, f"{WEB}=0", "done\n"),
        ("", UNPLACED.replace("keys", "claims"), f"{WEB}=8", ""),
    ],
    ids=["a node is lost", "evicted", "ended", "none ran", "none in the plan", "claims"],
)
def test_pods_that_did_not_run_before_a_way_back_do_not_stop_it(
    tmp_path: Path, before: str, after: str, planned: str, text: str
) -> None:
    """One had no device since a node was lost: no wave could be switched or taken back from then on."""
    said = functions(tmp_path, before=before, after=after, wanted="8", planned=planned)

    assert bool(text) is ("done\n" in said)
    assert text in said
    assert bool(text) is ("--evict-jobs=" not in said)


@pytest.mark.parametrize("after", [f"{READY}\n{UNPLACED}", f"{READY}\n{STARTING}", UNPLACED])
def test_pods_with_devices_of_the_plugin_are_waited_for_after_an_aborted_switch(
    tmp_path: Path, after: str
) -> None:
    """The drains of the way back evict them, too: they counted as pods that did not run before it."""
    before = f"{READY}\n{READY}"

    said = functions(
        tmp_path, before=before, after=after, wanted="2", planned=f"{WEB}=2", native=""
    )

    assert said.startswith(f"{WEB}=2\n")
    assert f"--evict-jobs={WEB} goes on while these wait\n" in said
    assert "done\n" not in said


@pytest.mark.parametrize(
    "change",
    [
        "print_wanted() { if [ -f later ]; then echo 0; else echo 1; fi; }",
        "is_gone() { [ -f later ]; }",
    ],
    ids=["scaled to 0", "deleted"],
)
def test_a_way_back_follows_a_workload_that_changes_meanwhile(tmp_path: Path, change: str) -> None:
    """It waited for half an hour, and stopped."""
    turns = "most_seconds=600\nsleep() { if [ -f later ]; then exit 1; fi; touch later; }"

    said = functions(tmp_path, before=READY, after=STARTING, last=f"{turns}\n{change}")

    assert said.endswith(f"waiting for pods of {WEB}: 0 of 1 are ready\ndone\n")


def test_a_workload_that_cannot_be_read_stops_a_way_back(tmp_path: Path) -> None:
    """No answer would be no pod that it asks for."""
    unread = "print_wanted() { return 1; }"

    assert "done\n" not in functions(tmp_path, before=READY, after=READY, last=unread)


@pytest.mark.parametrize("after", [STARTING, UNPLACED])
def test_a_way_back_goes_on_without_pods_that_somebody_names(tmp_path: Path, after: str) -> None:
    named = f'evicts() {{ [ "$1" = {WEB} ]; }}'

    said = functions(tmp_path, before=READY, after=after)
    assert f"--evict-jobs={WEB} goes on while these wait\n" in said
    assert "done\n" not in said

    assert "done\n" in functions(tmp_path, before=READY, after=after, last=named)


def test_a_way_back_names_the_native_workloads_that_its_switch_has_evicted(tmp_path: Path) -> None:
    """A switch that was aborted may have left their pods without a node."""
    objects = [*NODES, namespace("team"), *workload("web", {GPU: "1"}, ["gpu-0", "gpu-1"])]

    plan = planned(tmp_path, objects, "--wave-nodes", 1)

    evicting = {
        wave["wave"]: any(entry["object"] == WEB for entry in wave["workloads"])
        for wave in plan["waves"]
    }
    named = {number: f"{WEB}=2\n" in script(tmp_path, "rollback", number) for number in evicting}
    assert evicting == named
    assert {False, True} == {*named.values()}


def test_native_workloads_are_noted_before_each_drain_of_a_way_back(tmp_path: Path) -> None:
    """Their pods run until then, if their devices are those of the plugin.

    They were noted with the first drain alone, which drawbridge wave back leaves out if the switch has not drained that node.
    """
    objects = [*NODES, namespace("team"), *workload("web", {GPU: "1"}, ["gpu-0", "gpu-1"])]

    plan = planned(tmp_path, objects, "--wave-nodes", 3)

    nodes = [node["name"] for node in plan["waves"][0]["nodes"]]
    assert 2 == len(nodes)
    text = script(tmp_path, "rollback", 1)
    assert 1 == text.count(f"evicted_before \\\n  {WEB}\n")
    # It may have waited for the end of others.
    assert "# The switch has evicted pods of these, unless they ended before;" in text
    for node in nodes:
        _, _, step = text.partition(f"if step drain/{node}; then\n")
        assert step.startswith(f"  note_evicted {node}\n")
        assert step.index("note_evicted ") < step.index(f"kubectl drain {node} ")


@pytest.mark.parametrize("options", [[], ["--step=drain/gpu-0"]], ids=["all", "one step"])
def test_the_pods_of_a_node_are_noted_before_its_drain(
    tmp_path: Path, options: Sequence[str]
) -> None:
    """The plan does not know them all: others may have come to the node since."""
    objects = [*NODES, namespace("team"), *workload("web", {GPU: "1"}, ["gpu-1"])]
    plan = planned(tmp_path, objects, "--wave-nodes", 1)
    number = next(wave["wave"] for wave in plan["waves"] if wave["nodes"][0]["name"] == "gpu-0")
    answers = f"""case "$*" in
  *spec.nodeName=gpu-0,*status.phase*) echo "{LINE}" ;;
  *"get pods --namespace=team "*) echo "{READY}" ;;
  *jsonpath=*allocatable*) echo 4 ;;
esac"""

    ran = run_script(tmp_path, f"wave-{number}/rollback.sh", {"kubectl": answers}, options)

    calls = (tmp_path / "calls").read_text()
    assert 0 == ran.returncode, ran.stderr
    noted = f"kubectl annotate node gpu-0 --overwrite drawbridge.internal/evicted={WEB}=1\n"
    assert calls.index(noted) < calls.index("kubectl drain gpu-0 ")


@pytest.mark.parametrize(
    ("line", "noted"),
    [
        ("agent-1 DaemonSet/agent team gpu-0 translated - - True", "DaemonSet/team/agent=1"),
        ("new-7f-1 ReplicaSet/new-7f team gpu-0 translated - 7f True", "Deployment/team/new=1"),
        ("web-7f-1 ReplicaSet/web-7f team gpu-0 translated - 7f True", ""),
        ("new-7f-1 ReplicaSet/new-7f team gpu-1 translated - 7f True", ""),
        ("old-1 DaemonSet/old early gpu-0 translated - - True", ""),
    ],
    ids=["waits on later nodes", "newer than the plan", "restarted", "other node", "earlier wave"],
)
def test_pods_that_get_keys_again_and_are_not_restarted_are_waited_for(
    tmp_path: Path, line: str, noted: str
) -> None:
    """The way back ended while none of them ran: it noted only pods that get claims again."""
    pod, owner, *_ = line.split()
    answers = f"""kubectl() {{ case "$*" in
  *spec.nodeName=*) ;;
  'get pods --all-namespaces '*) echo '{line}' ;;
  'get pods --namespace='*) echo '{pod} {owner} claims True' ;;
  'annotate node '*) echo "$*" ;;
esac; }}
on_nodes() {{ kubectl "$@"; }}
driver_leaves gpu.nvidia.com
keys_again namespace/team
restarts {WEB}
switched_before early 1 old"""

    ran = run_functions(tmp_path, f"{CLUSTER}\n{answers}\nnote_evicted gpu-0")

    call = "annotate node gpu-0 --overwrite drawbridge.internal/evicted="
    assert (0, f"{call}{noted}\n" if noted else "") == (ran.returncode, ran.stdout), ran.stderr


def test_a_way_back_names_the_workloads_that_it_restarts(tmp_path: Path) -> None:
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    objects = [*nodes, namespace("team"), *workload("share", SHARE, ["hami-0"])]

    planned(tmp_path, objects)

    assert "restarts \\\n  Deployment/team/share\n" in script(tmp_path, "rollback", 1)


def test_a_way_back_waits_for_evicted_pods_that_no_controller_replaces(tmp_path: Path) -> None:
    """It left them out as restarted ones, and ended while none of them ran: the wait for rollouts has none of these."""
    database = workload("db", SHARE, ["hami-0"], kind="StatefulSet")
    database[0]["spec"]["updateStrategy"] = {"type": "OnDelete"}
    nodes = [hami_node("hami-0"), hami_node("hami-1")]

    planned(tmp_path, [*nodes, namespace("team"), *database, *workload("web", SHARE, ["hami-0"])])

    text = script(tmp_path, "rollback", 1)
    assert "restarts \\\n  Deployment/team/web\n" in text
    assert "restarts \\\n  StatefulSet" not in text


@needs_kubectl
@pytest.mark.parametrize("is_native", [True, False])
def test_kubectl_prints_the_pods_that_kubernetes_serves_by_their_keys(
    tmp_path: Path, *, is_native: bool
) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7f", "uid": "1"}
    status = {"resourceClaimName": "c", "requestMappings": []} if is_native else None
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-7f-1",
            "namespace": "team",
            "labels": {"pod-template-hash": "7f"},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"nodeName": "gpu-0", "containers": []},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "extendedResourceClaimStatus": status,
        },
    }
    (tmp_path / "pod.json").write_text(json.dumps(pod))
    # kubectl prints objects of a file alone, without the list of them.
    answers = f"""kubectl() {{ for word in "$@"; do case "$word" in --output=go-template=*)
  word="$(printf %s "$word" | sed 's/{{{{range .items}}}}//; s/{{{{end}}}}$//')"
  {shutil.which("kubectl")} annotate --local --filename=pod.json a=b "$word" ;; esac; done; }}"""

    ran = run_functions(tmp_path, f"{CLUSTER}\n{answers}\nprint_native gpu-0")

    assert (0, f"{LINE}\n" if is_native else "") == (ran.returncode, ran.stdout), ran.stderr
