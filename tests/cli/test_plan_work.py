"""`drawbridge plan` and `verify --before`: work that an eviction would destroy is waited for."""

import json
import os
import pty
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from answers.model.redaction import redact
from cli.reading.cluster_documents import DocumentFlags
from cli.verbs.verify import command
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from kube.manifests.source import SourceObject
from migration.plan.checks.checks import State
from process.model.durations import Duration
from testing.command import drawbridge
from testing.documents import api_object, namespace
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload

Objects = Sequence[Mapping[str, Any]]
SINCE: Final = "2026-11-20T10:00:00Z"
NODES: Final = tuple(plugin_node(f"gpu-{number}") for number in range(3))
IGNORED: Final = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
}
EXIT_CODES: Final = {
    "rules": [
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [42]}},
        *IGNORED["rules"],
    ]
}


def job(node: str = "gpu-0", restart: str = "Never", **spec: Any) -> list[dict[str, Any]]:
    """A Job with a pod that runs, and more fields of its spec."""
    owner, pod = workload("train", {GPU: "1"}, [node], kind="Job", restartPolicy=restart)
    owner["apiVersion"] = pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    del owner["spec"]["replicas"]
    owner["spec"] |= spec
    pod["status"] = {"phase": "Running", "startTime": SINCE}
    return [owner, pod]


def service(
    notes: Mapping[str, str] | None = None, kind: str = "Deployment", **spec: Any
) -> list[dict[str, Any]]:
    """A workload with a pod that runs on gpu-0."""
    owner, pod = workload("web", {GPU: "1"}, ["gpu-0"], kind=kind, **spec)
    pod["metadata"]["annotations"] = dict(notes or {})
    return [owner, pod]


def planned(tmp_path: Path, objects: Objects, *options: object) -> Mapping[str, Any]:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([*NODES, namespace("team"), *objects]))
    result = drawbridge(
        "plan", "--snapshot", file, "--wave-nodes", 1, "-o", tmp_path / "plan", *options
    )
    assert result.exit_code in (0, 1), result.stderr
    (source,) = read_paths([str(tmp_path / "plan" / "plan.yaml")])
    return source.document


def works(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [work for wave in plan["waves"] for work in wave["work"]]


def before(tmp_path: Path, objects: Objects, node: str = "gpu-0") -> tuple[int, list[str]]:
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml([*NODES, *objects]))
    result = drawbridge("verify", "--snapshot", file, "--node", node, "--before", "-o", "json")
    checks = json.loads(result.stdout)["checks"]
    return result.exit_code, [f"{check['object']}: {check['message']}" for check in checks]


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        (job(backoffLimit=0), "it runs to its end (restartPolicy Never)"),
        (job(restart="OnFailure"), "it runs to its end (restartPolicy OnFailure)"),
        (job(podFailurePolicy=EXIT_CODES), "it runs to its end (restartPolicy Never)"),
        (
            workload("step", {}, ["gpu-0"], kind="Workflow", restartPolicy="Never")[1:],
            "it runs to its end",
        ),
        (
            service({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
            "cluster-autoscaler.kubernetes.io/safe-to-evict is false",
        ),
        (service({"karpenter.sh/do-not-disrupt": "true"}), "karpenter.sh/do-not-disrupt is true"),
    ],
    ids=[
        "a Job that fails at the first eviction",
        "a Job whose containers restart",
        "a Job whose policy counts the exit code first",
        "a pod of another controller that ends",
        "a pod that the autoscaler has to leave",
        "a pod that Karpenter has to leave",
    ],
)
def test_work_is_waited_for_and_its_node_comes_last(
    tmp_path: Path, objects: Objects, reason: str
) -> None:
    plan = planned(tmp_path, objects)

    (work,) = works(plan)
    assert (True, "gpu-0") == (work["waits"], work["node"])
    assert work["reasons"][0].startswith(reason)
    assert ["gpu-0"] == [node["name"] for node in plan["waves"][-1]["nodes"]]
    told = "never ends by itself" if work["neverEnds"] else "would lose work"
    assert any(told in note for note in plan["waves"][-1]["notes"])
    number = len(plan["waves"])
    for name in ("switch", "rollback"):
        script = (tmp_path / "plan" / f"wave-{number}" / f"{name}.sh").read_text()
        assert script.index("finish_work gpu-0") < script.index("kubectl drain gpu-0")
        assert script.index("kubectl cordon gpu-0") < script.index("finish_work gpu-0")
    page = (tmp_path / "plan" / "README.md").read_text()
    verb = "asked about" if work["neverEnds"] else "waited for"
    assert f"- wave {number}, {verb}: {work['pod']} of " in page
    status, checks = before(tmp_path, objects)
    assert 1 == status
    assert reason in checks[0]


def test_a_pod_that_is_evicted_twice_is_listed_twice_where_it_is_then(tmp_path: Path) -> None:
    """Every wave listed the pods that run on its nodes today."""
    cache = [{"name": "cache", "emptyDir": {}}]
    nodes = ["gpu-0", "gpu-0", "gpu-1", "gpu-2"]
    serve = workload("serve", {GPU: "1"}, nodes, volumes=cache)
    for pod in serve[1:]:
        pod["status"] = {"phase": "Running", "startTime": SINCE}

    plan = planned(tmp_path, serve)

    seen: set[str] = set()
    for wave in plan["waves"]:
        assert wave["movedPods"] == len(wave["work"])
        for work in wave["work"]:
            assert work["node"] in {node["name"] for node in wave["nodes"]}
            assert (work["pod"] in seen) is work["moved"] is (work["since"] == "")
            seen.add(work["pod"])
    assert any(work["moved"] for work in works(plan))
    assert (
        ", where an earlier wave moves it: what is in"
        in (tmp_path / "plan" / "README.md").read_text()
    )


def test_a_job_has_ended_when_its_node_has_been_drained(tmp_path: Path) -> None:
    """A Job that ignores evictions is evicted twice, another one is waited for once."""
    waiting = job("gpu-0")
    ignoring = job("gpu-0", podFailurePolicy=IGNORED)
    for document in ignoring:
        document["metadata"]["name"] = document["metadata"]["name"].replace("train", "sweep")
    ignoring[1]["metadata"]["ownerReferences"][0]["name"] = "sweep"

    plan = planned(tmp_path, [*waiting, *ignoring])

    names = [work["pod"].rpartition("/")[2] for work in works(plan)]
    assert 1 == names.count("train-0")


def test_a_job_is_named_with_age_limit_and_policy(tmp_path: Path) -> None:
    (work,) = works(planned(tmp_path, job(backoffLimit=0, podFailurePolicy=EXIT_CODES)))

    assert (SINCE, 0, "may count an exit code", "Job/team/train") == (
        work["since"],
        work["backoffLimit"],
        work["podFailurePolicy"],
        work["owner"],
    )
    page = (tmp_path / "plan" / "README.md").read_text()
    assert f"since {SINCE}, backoffLimit 0, podFailurePolicy may count an exit code" in page


def bound_volume() -> list[dict[str, Any]]:
    """A claim with a volume on one node."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In"}]}
    return [
        api_object("PersistentVolumeClaim", "data", "team", spec={"volumeName": "disk-0"}),
        api_object(
            "PersistentVolume",
            "disk-0",
            spec={"csi": {}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
        ),
    ]


def on_disk(name: str, limits: Mapping[str, str], nodes: Sequence[str]) -> list[dict[str, Any]]:
    """A StatefulSet with pods that have the volume of one node."""
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    return [*workload(name, limits, nodes, kind="StatefulSet", volumes=volumes), *bound_volume()]


def test_a_pod_with_a_volume_of_its_node_that_would_get_claims_is_held(tmp_path: Path) -> None:
    """It waited from the wave of its node to that of its namespace, since no other node has its volume."""
    nodes = [*(hami_node(f"hami-{number}") for number in range(3)), namespace("team")]
    objects = [*nodes, *on_disk("db", SHARE, ["hami-0"]), *workload("web", SHARE, ["hami-1"])]
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))

    drawbridge("plan", "--snapshot", file, "-o", tmp_path / "plan", "--wave-nodes", 1)
    (source,) = read_paths([str(tmp_path / "plan" / "plan.yaml")])

    held = {entry["object"]: entry["reason"] for entry in source.document["held"]}
    assert {"StatefulSet/team/db", "Node//hami-0", "Namespace//team"} <= held.keys()
    assert "they could run nowhere" in held["StatefulSet/team/db"]
    waves = source.document["waves"]
    assert ["Deployment/team/web"] == [
        workload["object"] for wave in waves for workload in wave["workloads"]
    ]
    assert "hami-0" not in [node["name"] for wave in waves for node in wave["nodes"]]


def test_a_pod_of_whole_devices_with_a_volume_of_its_node_is_not_held(tmp_path: Path) -> None:
    """Kubernetes serves it on its node before and after the switch."""
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([*NODES, namespace("team"), *on_disk("db", {GPU: "1"}, ["gpu-0"])]))

    result = drawbridge("plan", "--snapshot", file, "-o", tmp_path / "plan", "--wave-nodes", 1)

    assert 0 == result.exit_code, result.stdout
    # The page said that it is created again elsewhere.
    page = (tmp_path / "plan" / "plan.html").read_text()
    title = "Evicted, and back with their node: a PersistentVolume of theirs stays on it"
    assert f"<h3>{title}</h3><ul><li>StatefulSet/team/db: 1 pod</li></ul>" in page
    assert "Evicted, and created again elsewhere</h3><ul><li>StatefulSet/team/db" not in page


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        (job(podFailurePolicy=IGNORED), "it runs to its end (restartPolicy Never)"),
        (
            service(volumes=[{"name": "cache", "emptyDir": {}}]),
            "what is in its emptyDir cache is lost",
        ),
        (
            [
                *service(volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]),
                *bound_volume(),
            ],
            "its PersistentVolume disk-0 stays on the node, so it waits until that is back",
        ),
    ],
    ids=["a Job that ignores disruptions", "an emptyDir", "a volume of the node"],
)
def test_what_is_lost_without_a_wait_is_listed(
    tmp_path: Path, objects: Objects, reason: str
) -> None:
    plan = planned(tmp_path, objects)

    (work,) = works(plan)
    assert (False, [reason]) == (work["waits"], work["reasons"])
    assert (0, ["Node//gpu-0: no pod would lose its work"]) == before(tmp_path, objects)


@pytest.mark.parametrize(
    "objects",
    [
        service(),
        service(volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}}]),
        service(kind="DaemonSet", restartPolicy="Never"),
        [job()[0], {**job()[1], "status": {"phase": "Succeeded"}}],
    ],
    ids=["a Deployment", "memory", "a DaemonSet", "a Job that has ended"],
)
def test_what_loses_nothing_is_not_listed(tmp_path: Path, objects: Objects) -> None:
    assert [] == works(planned(tmp_path, objects))
    assert 0 == before(tmp_path, objects)[0]


def test_a_bare_pod_that_ends_is_waited_for(tmp_path: Path) -> None:
    _, pod = job()
    del pod["metadata"]["ownerReferences"]

    plan = planned(tmp_path, [pod])

    (work,) = works(plan)
    assert ("", True) == (work["owner"], work["waits"])
    assert not any("kubectl drain stops" in note for note in plan["waves"][-1]["notes"])


def test_the_checks_before_a_wave_name_its_work(tmp_path: Path) -> None:
    plan = planned(tmp_path, job())
    wave = tmp_path / "plan" / f"wave-{len(plan['waves'])}"

    result = drawbridge(
        *("verify", "--snapshot", tmp_path / "cluster.yaml", "--wave", wave, "--before"),
        *("-o", "json"),
    )

    checks = json.loads(result.stdout)["checks"]
    (check,) = [check for check in checks if check["object"] == "Pod/team/train-0"]
    assert "note" == check["state"]
    assert "switch.sh waits for it: of Job/team/train on gpu-0" in check["message"]


@pytest.mark.parametrize(
    "flags",
    [("--before",), ("--node", "a", "--before", "--expect-devices", 1)],
)
def test_before_is_about_a_wave_or_a_node(tmp_path: Path, flags: tuple[object, ...]) -> None:
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(NODES))

    assert 2 == drawbridge("verify", "--snapshot", file, *flags).exit_code


def test_a_snapshot_has_of_volumes_what_a_plan_reads() -> None:
    volumes = [
        {"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "password", "secret": {"secretName": "s"}},
    ]
    pod = redact({**service(volumes=volumes)[1]})
    volume = redact(
        api_object(
            "PersistentVolume",
            "disk",
            spec={"csi": {"volumeAttributes": {"password": "p"}}, "local": {"path": "/a"}},
        )
    )

    assert [volumes[0], {"name": "password"}] == pod["spec"]["volumes"]
    assert {"local": {"path": "/a"}} == volume["spec"]


# --- the scripts ----------------------------------------------------------------------------------


QUESTIONS: Final = (
    "current-context",
    "spec.unschedulable",
    "get node/",
    "get pods --all-namespaces",
)
"""Parts of calls of kubectl that change nothing."""


class Runbook:
    """The switch of a wave of two nodes, with commands that note their arguments."""

    def __init__(
        self, tmp_path: Path, answers: Sequence[int], objects: Objects | None = None
    ) -> None:
        planned(tmp_path, objects or job("gpu-1"), "--wave-nodes", 2)
        self.calls = tmp_path / "calls"
        self.folder = tmp_path / "plan" / "wave-2"
        self.bin = tmp_path / "bin"
        self.bin.mkdir()
        (tmp_path / "answers").write_text("".join(f"{answer}\n" for answer in answers))
        self.pods = tmp_path / "pods"
        self.pods.touch()
        pods = f'*"get pods --all-namespaces --field-selector=spec.nodeName=gpu-1,"*) cat {self.pods} ;;'
        self._write("kubectl", f'case "$*" in *"get node/"*) echo "$2" ;; {pods} esac\n')
        self._write("helm", "")
        # Each question about work is answered by the next line; later ones find no work.
        self._write(
            "drawbridge",
            'case "$*" in *--before*)\n'
            f"status=$(head -n 1 {tmp_path}/answers)\n"
            f"sed -i 1d {tmp_path}/answers\n"
            'exit "${status:-0}";; esac\n',
        )

    def _write(self, program: str, rest: str) -> None:
        text = f'#!/bin/sh\necho {program} "$@" >> {self.calls}\n{rest}'
        (self.bin / program).write_text(text)
        (self.bin / program).chmod(0o755)

    def run(
        self, *arguments: str, typed: str | None = None, name: str = "switch"
    ) -> tuple[int, str]:
        """Return the status and the output; typed text comes from a terminal."""
        script = self.folder / f"{name}.sh"
        environment = {"PATH": f"{self.bin}:{os.environ['PATH']}"}
        if typed is None:
            ran = subprocess.run(
                [script, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            return ran.returncode, ran.stdout + ran.stderr
        terminal, end = pty.openpty()
        os.write(terminal, typed.encode())
        ran = subprocess.run(
            [script, *arguments],
            env=environment,
            stdin=end,
            capture_output=True,
            text=True,
            check=False,
        )
        os.close(terminal)
        os.close(end)
        return ran.returncode, ran.stdout + ran.stderr

    def lines(self, *starts: str) -> list[str]:
        return [
            line
            for line in self.calls.read_text().splitlines()
            if line.startswith(tuple(starts)) and not any(text in line for text in QUESTIONS)
        ]


def test_without_an_answer_the_nodes_are_uncordoned_and_none_is_drained(tmp_path: Path) -> None:
    runbook = Runbook(tmp_path, [1])

    status, text = runbook.run()

    assert 1 == status
    assert "waits for those that end, --evict-jobs=gpu-1 evicts all of this node" in text
    assert "given up; uncordoned: gpu-1" in text
    assert [] == runbook.lines("kubectl drain")
    assert [
        "kubectl label node gpu-1 --overwrite drawbridge.internal/cordoned=true",
        "kubectl cordon gpu-1",
        "kubectl uncordon gpu-1",
        "kubectl label node gpu-1 drawbridge.internal/cordoned-",
    ] == runbook.lines("kubectl")
    assert ["drawbridge verify --live --node=gpu-1 --before"] == runbook.lines("drawbridge")


@pytest.mark.parametrize("status", [2, 127])
def test_work_that_cannot_be_read_is_not_evicted(tmp_path: Path, status: int) -> None:
    runbook = Runbook(tmp_path, [status])

    assert 1 == runbook.run(typed="e\n")[0]
    assert [] == runbook.lines("kubectl drain")


def test_a_timeout_waits_for_the_work(tmp_path: Path) -> None:
    runbook = Runbook(tmp_path, [0])

    status, text = runbook.run("--job-timeout", "6h")

    assert 0 == status, text
    question = "drawbridge verify --live --node=gpu-1 --before --wait=6h"
    assert question in runbook.lines("drawbridge")
    assert 1 == len(runbook.lines("kubectl drain"))


def test_a_person_may_wait_and_then_evict(tmp_path: Path) -> None:
    runbook = Runbook(tmp_path, [1, 1])

    status, text = runbook.run(typed="w\ne\n")

    assert 0 == status, text
    assert runbook.lines("drawbridge")[:2] == [
        "drawbridge verify --live --node=gpu-1 --before",
        "drawbridge verify --live --node=gpu-1 --before --wait=30m",
    ]
    assert 1 == len(runbook.lines("kubectl drain"))


@pytest.mark.parametrize("names", ["gpu-1", "gpu-0,gpu-1", "all"])
def test_jobs_of_a_node_are_evicted_on_demand(tmp_path: Path, names: str) -> None:
    runbook = Runbook(tmp_path, [1])

    status, text = runbook.run("--evict-jobs", names)

    assert 0 == status, text
    assert not any("--before" in line for line in runbook.lines("drawbridge"))
    assert 1 == len(runbook.lines("kubectl drain"))


@pytest.mark.parametrize("names", ["gpu-0", "gpu-11", "gpu", ","])
def test_what_is_decided_for_one_node_decides_for_no_other(tmp_path: Path, names: str) -> None:
    """The flag had no names, so Jobs of every later node were killed with the one that a person meant."""
    runbook = Runbook(tmp_path, [1])

    assert 1 == runbook.run("--evict-jobs", names)[0]
    assert [] == runbook.lines("kubectl drain")


def test_the_flag_needs_names(tmp_path: Path) -> None:
    assert 2 == Runbook(tmp_path, [1]).run("--evict-jobs")[0]


def named(name: str, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A Job with another name."""
    owner, *pods = documents
    owner["metadata"]["name"] = name
    for number, pod in enumerate(pods):
        pod["metadata"]["name"] = f"{name}-{number}"
        pod["metadata"]["ownerReferences"][0]["name"] = name
    return [owner, *pods]


def test_a_node_with_work_is_cordoned_at_its_turn(tmp_path: Path) -> None:
    """All nodes of a wave were cordoned while the first pod was waited for, and their devices were idle."""
    jobs = [*job("gpu-0"), *named("sweep", job("gpu-1"))]
    planned(tmp_path, [*jobs, *named("eval", job("gpu-2"))], "--wave-nodes", 3)

    for name in ("switch", "rollback"):
        script = (tmp_path / "plan" / "wave-1" / f"{name}.sh").read_text()
        for node in ("gpu-0", "gpu-1", "gpu-2"):
            alone = (
                f"while others were waited for.\n  kubectl cordon {node}\n  finish_work {node}\n"
            )
            assert alone in script


def training(*nodes: str) -> list[dict[str, Any]]:
    """The pods of one training."""
    pods = workload("sft", {GPU: "4"}, nodes, kind="PyTorchJob", restartPolicy="OnFailure")[1:]
    for pod in pods:
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = "kubeflow.org/v1"
        pod["status"] = {"phase": "Running"}
    return pods


def test_nodes_of_one_training_are_cordoned_together(tmp_path: Path) -> None:
    """While the first was switched the second was open and empty, and the next training began there."""
    plan = planned(tmp_path, [*training("gpu-0", "gpu-2"), *job("gpu-1")], "--wave-nodes", 3)

    assert ["gpu-0", "gpu-1", "gpu-2"] == sorted(node["name"] for node in plan["waves"][0]["nodes"])
    for name, nodes in (("switch", ("gpu-0", "gpu-2")), ("rollback", ("gpu-2", "gpu-0"))):
        script = (tmp_path / "plan" / "wave-1" / f"{name}.sh").read_text()
        first, second = nodes
        assert f"kubectl cordon {first} {second}\n  finish_work {first} {second}\n" in script
        assert f"kubectl cordon {second}\n  finish_work {second}\n" in script
        assert "while others were waited for.\n  kubectl cordon gpu-1\n" in script
        assert 1 == script.count("while others were waited for")


def test_nodes_without_work_are_cordoned_together(tmp_path: Path) -> None:
    planned(tmp_path, service(), "--wave-nodes", 3)

    script = (tmp_path / "plan" / "wave-1" / "switch.sh").read_text()
    assert "kubectl cordon gpu-1 gpu-2\n  finish_work gpu-1 gpu-2\n" in script


ENDLESS: Final = {"karpenter.sh/do-not-disrupt": "true"}
WAY_ON: Final = "kubectl annotate pod web-0 --namespace=team karpenter.sh/do-not-disrupt-, and the drain evicts it then"


def test_pods_that_never_end_come_last_and_nothing_waits_behind_them(tmp_path: Path) -> None:
    """Their node was in one wave with Jobs, so --job-timeout went by in vain while those waited."""
    plan = planned(tmp_path, [*service(ENDLESS), *job("gpu-1")], "--wave-nodes", 3)

    assert [["gpu-2"], ["gpu-1"], ["gpu-0"]] == [
        [node["name"] for node in wave["nodes"]] for wave in plan["waves"]
    ]
    (note,) = [note for note in plan["waves"][-1]["notes"] if "never ends by itself" in note]
    assert note.startswith("1 pod never ends by itself, and asks not to be evicted: team/web-0")
    assert not any("would lose work" in note for note in plan["waves"][-1]["notes"])
    work = plan["waves"][-1]["work"][0]
    assert (True, True) == (work["waits"], work["neverEnds"])
    page = (tmp_path / "plan" / "README.md").read_text()
    assert "asked about: Pod/team/web-0" in page
    assert WAY_ON in page
    script = (tmp_path / "plan" / "wave-3" / "switch.sh").read_text()
    assert "# Asks about pod team/web-0 " in script
    assert WAY_ON in script


def test_nodes_with_pods_that_never_end_are_cordoned_together(tmp_path: Path) -> None:
    """The pods of the first node, created again, could get the second one, and were evicted from it next."""
    second = named("other", service(ENDLESS))
    second[1]["spec"]["nodeName"] = "gpu-1"
    plan = planned(tmp_path, [*service(ENDLESS), *second], "--wave-nodes", 2)

    number = len(plan["waves"])
    assert ["gpu-0", "gpu-1"] == [node["name"] for node in plan["waves"][-1]["nodes"]]
    for name, nodes in (("switch", "gpu-0 gpu-1"), ("rollback", "gpu-1 gpu-0")):
        text = (tmp_path / "plan" / f"wave-{number}" / f"{name}.sh").read_text()
        assert f"kubectl cordon {nodes}\n  finish_work {nodes}\n" in text
        assert "while others were waited for" not in text


def test_nodes_with_both_kinds_of_work_are_cordoned_together(tmp_path: Path) -> None:
    """A worker of a RayCluster that was evicted from one node was evicted from the next one, too."""
    second = named("other", service(ENDLESS))
    second[1]["spec"]["nodeName"] = "gpu-1"
    jobs = [*job("gpu-0"), *named("sweep", job("gpu-1"))]
    plan = planned(tmp_path, [*service(ENDLESS), *second, *jobs], "--wave-nodes", 2)

    number = len(plan["waves"])
    for name, nodes in (("switch", "gpu-0 gpu-1"), ("rollback", "gpu-1 gpu-0")):
        text = (tmp_path / "plan" / f"wave-{number}" / f"{name}.sh").read_text()
        assert f"kubectl cordon {nodes}\n  finish_work {nodes}\n" in text
        assert "while others were waited for" not in text


@pytest.mark.parametrize(
    ("objects", "nodes"),
    [
        ([*job("gpu-0"), *named("sweep", job("gpu-1"))], "gpu-0 gpu-1"),
        (service(ENDLESS), "gpu-0"),
        (service(), ""),
    ],
    ids=["Jobs", "a pod that never ends", "no work"],
)
def test_a_note_has_the_command_that_keeps_new_work_away(
    tmp_path: Path, objects: Objects, nodes: str
) -> None:
    """A reader saw that the head of a RayCluster may come to a node of the last wave between two waves."""
    plan = planned(tmp_path, objects, "--wave-nodes", 3)

    notes = [note for note in plan["waves"][-1]["notes"] if "may get" in note]
    assert [bool(nodes)] * len(notes) == [
        f"kubectl cordon {nodes} before" in note for note in notes
    ]
    assert bool(nodes) is bool(notes)


FLAGS: Final = DocumentFlags(
    snapshots=(), live=True, kubeconfig=None, context=None, profile_directory=None, settings=None
)


def test_a_node_does_not_wait_behind_jobs_for_a_pod_that_an_earlier_wave_restarts(
    tmp_path: Path,
) -> None:
    """It came after all Jobs for a pod that had left it with the first wave."""
    notebook = workload("nb", SHARE, ["hami-0"], kind="StatefulSet")
    notebook[1]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    stays = workload("stays", {GPU: "1"}, ["gpu-1"])
    stays[1]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    objects = [*job(), hami_node("hami-0"), hami_node("hami-1"), *notebook, *stays]

    waves = planned(tmp_path, objects, "--wave-nodes", 1, "--spare-nodes", 0)["waves"]

    nodes = [wave["nodes"][0]["name"] for wave in waves]
    assert nodes.index("hami-1") < nodes.index("hami-0") < nodes.index("gpu-0")
    # What no wave moves before stays last.
    assert "gpu-1" == nodes[-1]
    (note,) = [
        note
        for wave in waves
        for note in wave["notes"]
        if "ask not to be evicted" in note and "restarts them" in note
    ]
    assert note == (
        "pods of StatefulSet/team/nb ask not to be evicted: switch.sh asks before it restarts them, and where they are "
        "left as they are, before it drains their node"
    )


def test_no_time_goes_by_for_pods_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = [
        SourceObject(document=dict(document), source="now.yaml", line=1)
        for document in (*NODES, *service(ENDLESS))
    ]
    documents = SimpleNamespace(objects=tuple(objects), unreadable=())
    monkeypatch.setattr(command, "read_documents", lambda *_: documents)
    question = command._ask_node("gpu-0", {}, before=True, budgets=False)
    assert question is not None

    begin = time.monotonic()
    answer = command._wait_until_right(FLAGS, question, Duration(60))

    assert time.monotonic() - begin < 30
    (check,) = answer.checks
    assert State.FAILED is check.state
    assert WAY_ON in check.message


def test_a_pod_that_ends_is_waited_for_though_it_asks_not_to_be_evicted(tmp_path: Path) -> None:
    documents = job()
    documents[1]["metadata"]["annotations"] = dict(ENDLESS)

    (work,) = works(planned(tmp_path, documents))

    assert (True, False) == (work["waits"], work["neverEnds"])


# --- the other pods of a Job ----------------------------------------------------------------------


def pair(**spec: Any) -> list[dict[str, Any]]:
    """A Job with pods on gpu-0 and gpu-1."""
    owner, first = job(**spec)
    second = json.loads(json.dumps(first))
    second["metadata"]["name"] = "train-1"
    second["spec"]["nodeName"] = "gpu-1"
    owner["spec"] |= {"parallelism": 2, "completions": 2}
    return [owner, first, second]


def failed(number: int, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    documents[0]["status"] = {"failed": number}
    return documents


FAIL_JOB: Final = {
    "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]
}


@pytest.mark.parametrize(
    ("objects", "text", "ending"),
    [
        (pair(backoffLimit=0), "the Job fails with it, and 1 other pod on gpu-1 ends", True),
        (
            failed(3, pair(backoffLimit=3)),
            "the Job fails with it, and 1 other pod on gpu-1 ends",
            True,
        ),
        (
            pair(podFailurePolicy=FAIL_JOB),
            "the Job fails with it, and 1 other pod on gpu-1 ends",
            True,
        ),
        (job(backoffLimit=0), "the Job fails with it", False),
        (
            failed(1, pair(backoffLimit=3)),
            "its eviction counts as 1 of 2 failures that its Job survives",
            False,
        ),
        (pair(), "its eviction counts as 1 of 6 failures that its Job survives", False),
        (
            pair(backoffLimitPerIndex=1),
            "its eviction counts as a failure of its index",
            False,
        ),
    ],
)
def test_an_eviction_tells_what_becomes_of_the_job(
    tmp_path: Path, objects: Objects, text: str, *, ending: bool
) -> None:
    """One evicted pod killed others of its Job on other nodes, and nobody named these."""
    plan = planned(tmp_path, objects)

    (work,) = [work for work in works(plan) if work["pod"] == "Pod/team/train-0"]
    assert text == work["reasons"][-1]
    assert ({"Pod/team/train-1": "gpu-1"} if ending else {}) == work["ending"]
    assert text in (tmp_path / "plan" / "README.md").read_text()
    status, checks = before(tmp_path, objects)
    assert 1 == status
    assert checks[0].endswith(text)
    notes = [note for wave in plan["waves"] for note in wave["notes"]]
    told = "one evicted pod fails Job/team/train, and the other pods of the Job end with it"
    assert ending is any(
        note.startswith(told) and "team/train-1 on gpu-1" in note for note in notes
    )


def volcano_pod(node: str) -> dict[str, Any]:
    """A pod of a Job of Volcano with the name of Kubernetes' one."""
    _, pod = job(node)
    pod["metadata"]["name"] = "train-task-0"
    pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch.volcano.sh/v1alpha1"
    return pod


def test_a_pod_of_another_project_has_no_limit_of_a_job_of_that_name(tmp_path: Path) -> None:
    """It had the backoffLimit of Kubernetes' Job, and counted as one of its other pods."""
    plan = planned(tmp_path, [*job(backoffLimit=0), volcano_pod("gpu-1")])

    by_owner = {work["owner"]: work for work in works(plan)}
    assert {"Job/team/train", "Job.batch.volcano.sh/team/train"} == by_owner.keys()
    own, other = by_owner["Job/team/train"], by_owner["Job.batch.volcano.sh/team/train"]
    assert (0, True, {}) == (own["backoffLimit"], own["failsJob"], own["ending"])
    assert "the Job fails with it" == own["reasons"][-1]
    assert (None, False) == (other["backoffLimit"], other["failsJob"])
    assert [
        "it runs to its end (restartPolicy Never)",
        "its Job may start its other pods anew, too, and their work with them",
    ] == other["reasons"]
    # The pods of both run out, so no script waits until they are back.
    folder = tmp_path / "plan"
    scripts = "".join(path.read_text() for path in sorted(folder.glob("wave-*/*.sh")))
    assert "/team/train=" not in scripts


def test_pods_that_an_earlier_wave_waits_for_are_not_those_that_end_with_a_later_one(
    tmp_path: Path,
) -> None:
    """A reader found a pod among those that a drain ends, though the wave before had waited for its end."""
    plan = planned(tmp_path, pair(backoffLimit=0))

    first, second = works(plan)
    assert {second["pod"]: second["node"]} == first["ending"]
    assert f"1 other pod on {second['node']} ends" in first["reasons"][-1]
    assert ({}, "the Job fails with it") == (second["ending"], second["reasons"][-1])
    assert not any("one evicted pod fails" in note for note in plan["waves"][-1]["notes"])


def test_a_policy_that_ignores_evictions_fails_no_job(tmp_path: Path) -> None:
    for work in works(planned(tmp_path, pair(backoffLimit=0, podFailurePolicy=IGNORED))):
        assert ["it runs to its end (restartPolicy Never)"] == work["reasons"]
        assert not work["failsJob"]


def test_a_group_of_jobs_may_fail_as_well(tmp_path: Path) -> None:
    objects = job(backoffLimit=0)
    objects[0]["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "name": "s",
            "controller": True,
        }
    ]

    (_, checks) = before(tmp_path, objects)

    assert "its JobSet may start its other pods anew, too, and their work with them" in checks[0]
    assert checks[0].endswith("the Job fails with it; its JobSet may fail, too")


BARE: Final = "team own-0\nteam web-0 ReplicaSet/web\nteam odd-0 a b/c\nhub lab-0\n"
"""The pods of a node, as kubectl prints them, two of them without a controller."""
DELETED: Final = [
    f"kubectl delete pods --namespace={namespace} "
    f"--field-selector=metadata.name={name},spec.nodeName=gpu-1 --timeout=10m"
    for namespace, name in (("team", "own-0"), ("hub", "lab-0"))
]


@pytest.mark.parametrize(
    ("arguments", "typed", "deleted"),
    [
        (["--evict-jobs=gpu-1"], None, True),
        (["--evict-jobs", "gpu-1", "--step", "wait/gpu-1"], None, True),
        ([], "e\n", True),
        ([], None, False),
        (["--job-timeout", "1h"], None, False),
    ],
)
def test_a_drain_stops_at_a_bare_pod_unless_somebody_has_it_evicted(
    tmp_path: Path, arguments: list[str], typed: str | None, *, deleted: bool
) -> None:
    """kubectl drain refuses a pod without a controller, so the choice to evict it ended with an error.

    Its user may have created it since the plan. By its name alone it was deleted on any other node, too.
    """
    runbook = Runbook(tmp_path, [1 if not arguments or typed else 0])
    runbook.pods.write_text(BARE)

    runbook.run(*arguments, typed=typed)

    assert (DELETED if deleted else []) == runbook.lines("kubectl delete")


@pytest.mark.parametrize(
    ("arguments", "typed", "deleted"),
    [(["--evict-jobs=gpu-1"], None, True), ([], "e\n", True), ([], None, False)],
)
def test_a_way_back_deletes_bare_pods_of_a_node_likewise(
    tmp_path: Path, arguments: list[str], typed: str | None, *, deleted: bool
) -> None:
    runbook = Runbook(tmp_path, [1])
    runbook.pods.write_text(BARE)

    runbook.run(*arguments, "--step", "wait/gpu-1", typed=typed, name="rollback")

    assert (DELETED if deleted else []) == runbook.lines("kubectl delete")


def bare_share(restart: str) -> list[dict[str, Any]]:
    """Two nodes of HAMi, and on one of them a pod with a share that nothing creates again."""
    (_, pod) = workload("once", SHARE, ["hami-0"], restartPolicy=restart)
    del pod["metadata"]["ownerReferences"]
    pod["status"] = {"phase": "Running", "startTime": SINCE}
    return [hami_node("hami-0"), hami_node("hami-1"), pod]


@pytest.mark.parametrize(("restart", "ends"), [("OnFailure", True), ("Always", False)])
def test_a_pod_that_runs_to_its_end_is_not_to_be_deleted(
    tmp_path: Path, restart: str, ends: bool
) -> None:
    """It was waited for by one script, to be deleted by another, and the next wave did not begin before."""
    plan = planned(tmp_path, bare_share(restart))

    scripts = [path.read_text() for path in sorted((tmp_path / "plan").glob("wave-*/*.sh"))]
    assert any("delete Pod/team/once-0" in text for text in scripts) is not ends
    workloads = [entry for wave in plan["waves"] for entry in wave["workloads"]]
    assert [entry["ends"] for entry in workloads if entry["object"] == "Pod/team/once-0"] == [ends]


@pytest.mark.parametrize(("restart", "state"), [("OnFailure", "ok"), ("Always", "waiting")])
def test_a_pod_that_runs_to_its_end_goes_on_with_device_keys(
    tmp_path: Path, restart: str, state: str
) -> None:
    objects = [*NODES, namespace("team"), *bare_share(restart)]
    plan = planned(tmp_path, bare_share(restart))
    number = next(wave["wave"] for wave in plan["waves"] if "team" in wave["namespaces"])
    file = tmp_path / "after.yaml"
    file.write_text(dump_yaml(objects))

    folder = tmp_path / "plan" / f"wave-{number}"
    result = drawbridge("verify", "--wave", folder, "--snapshot", file, "-o", "json")

    checks = {entry["object"]: entry["state"] for entry in json.loads(result.stdout)["checks"]}
    assert checks["Pod/team/once-0"] == state


def test_what_has_no_work_does_not_wait_for_a_node_with_work(tmp_path: Path) -> None:
    """A namespace waited for a Job of days, with a switched node that none of its pods could use meanwhile."""
    daemon_set = workload("probe", SHARE, ["hami-0"], kind="DaemonSet", namespace="other")
    daemon_set[0]["spec"]["selector"] = {"matchLabels": {"app": "probe"}}
    objects = [*job(), hami_node("hami-0"), namespace("other"), *daemon_set]

    waves = planned(tmp_path, objects, "--wave-nodes", 4)["waves"]

    nodes = [sorted(node["name"] for node in wave["nodes"]) for wave in waves]
    assert ["gpu-0"] in nodes
    opted_in = next(index for index, wave in enumerate(waves) if "other" in wave["namespaces"])
    assert opted_in < nodes.index(["gpu-0"])


def full(name: str, node: str, since: str) -> list[dict[str, Any]]:
    """A Job with all devices of a node, since some time."""
    owner, pod = named(name, job(node))
    pod["spec"]["containers"][0]["resources"] = {"limits": {GPU: "4"}}
    owner["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {GPU: "4"}}
    pod["status"]["startTime"] = since
    return [owner, pod]


@pytest.mark.parametrize(
    ("size", "left"),
    [
        (3, "theirs needs the end of the work on gpu-1, gpu-3, so these nodes come"),
        (2, "its own needs the end of the work on gpu-1, so this node comes"),
    ],
)
def test_no_wave_waits_for_work_whose_end_it_does_not_need(
    tmp_path: Path, size: int, left: str
) -> None:
    """All later waves waited for a Job of weeks, and its devices were idle after them.

    Waves of two left the last node, which nobody waits for either, in a wave of its own.
    """
    objects = [
        *full("short", "gpu-0", "2026-11-25T10:00:00Z"),
        *full("weeks", "gpu-1", "2026-11-10T10:00:00Z"),
        *full("days", "gpu-3", "2026-11-20T10:00:00Z"),
        *workload("web", {GPU: "4"}, ["gpu-2"]),
        plugin_node("gpu-3"),
    ]

    waves = planned(tmp_path, objects, "--wave-nodes", size)["waves"]

    # Of those that nobody waits for, what began last may end first.
    assert [["gpu-0"], ["gpu-2"], ["gpu-3", "gpu-1"]] == [
        [node["name"] for node in wave["nodes"]] for wave in waves
    ]
    assert [0, 1, 0] == [wave["evictedPods"] for wave in waves]
    reason = f"no larger: no wave before {left} later"
    assert [reason] == [note for note in waves[0]["notes"] if note.startswith("no larger: no wave")]


def test_waves_of_work_that_others_need_the_end_of_come_together(tmp_path: Path) -> None:
    """A reader found the nodes of one Job in two waves, each with places for both."""
    zone: dict[str, Any] = {"nodeSelector": {"zone": "a"}}
    names = ("gpu-0", "gpu-2", "gpu-4")
    objects = [
        *(plugin_node(name, zone="a" if name in names else "b") for name in ("gpu-3", "gpu-4")),
        *full("short", "gpu-0", "2026-11-25T10:00:00Z"),
        *full("weeks", "gpu-1", "2026-11-10T10:00:00Z"),
        *full("hours", "gpu-2", "2026-11-25T10:00:00Z"),
        *full("days", "gpu-3", "2026-11-20T10:00:00Z"),
        *workload("web", {GPU: "4"}, ["gpu-4"], **zone),
        *workload("waits", {GPU: "4"}, [""], **zone),
    ]
    for entry in NODES:
        labels = {"zone": "a" if entry["metadata"]["name"] in names else "b"}
        objects.append(
            {
                **entry,
                "metadata": {
                    **entry["metadata"],
                    "labels": {**entry["metadata"]["labels"], **labels},
                },
            }
        )

    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([namespace("team"), *objects]))
    drawbridge("plan", "--snapshot", file, "-o", tmp_path / "plan", "--wave-nodes", 2)
    (source,) = read_paths([str(tmp_path / "plan" / "plan.yaml")])

    assert [["gpu-0", "gpu-2"], ["gpu-4"], ["gpu-3", "gpu-1"]] == [
        [node["name"] for node in wave["nodes"]] for wave in source.document["waves"]
    ]


def test_work_that_a_later_wave_needs_the_end_of_stays_before_it(tmp_path: Path) -> None:
    objects = [
        *full("short", "gpu-0", "2026-11-25T10:00:00Z"),
        *full("weeks", "gpu-1", "2026-11-10T10:00:00Z"),
        *workload("web", {GPU: "4"}, ["gpu-2"]),
        *workload("api", {GPU: "4"}, ["gpu-3"]),
        plugin_node("gpu-3"),
    ]

    waves = planned(tmp_path, objects, "--wave-nodes", 2)["waves"]

    assert [["gpu-0", "gpu-1"], ["gpu-2", "gpu-3"]] == [
        [node["name"] for node in wave["nodes"]] for wave in waves
    ]


def test_namespaces_move_with_one_node_with_work(tmp_path: Path) -> None:
    """The wave of both nodes waited for the work of both before it opted the namespace in."""
    objects: list[Mapping[str, Any]] = [hami_node("hami-0"), hami_node("hami-1")]
    for node in ("hami-0", "hami-1"):
        owner, pod = workload(f"train-{node}", SHARE, [node], kind="Job", restartPolicy="Never")
        owner["apiVersion"] = pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
        pod["status"] = {"phase": "Running", "startTime": SINCE}
        objects += [owner, pod]

    waves = planned(tmp_path, objects, "--wave-nodes", 4)["waves"]

    (wave,) = [wave for wave in waves if "team" in wave["namespaces"]]
    assert ["hami-0"] == [node["name"] for node in wave["nodes"]]


def test_a_job_of_an_opted_in_namespace_uses_its_devices_until_its_node_is_drained(
    tmp_path: Path,
) -> None:
    """Its device was free for other pods with keys in the plan while it still ran there."""
    owner, pod = workload("train", SHARE, ["hami-1"], kind="Job", restartPolicy="Never")
    owner["apiVersion"] = pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    pod["status"] = {"phase": "Running", "startTime": SINCE}
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    objects = [*nodes, namespace("team"), *workload("web", SHARE, ["hami-0"]), owner, pod]
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))

    drawbridge("plan", "--snapshot", file, "--wave-nodes", 1, "-o", tmp_path / "plan")

    (source,) = read_paths([str(tmp_path / "plan" / "plan.yaml")])
    first = source.document["waves"][0]
    assert (["hami-0"], ["team"]) == (
        [node["name"] for node in first["nodes"]],
        first["namespaces"],
    )
    assert {"before": 2, "after": 1} == first["freeForKeys"]
    assert {"before": 0, "after": 1} == first["freeForClaims"]


def test_a_cron_job_without_a_run_uses_no_device(tmp_path: Path) -> None:
    """A pod that did not exist was placed, counted as running, and evicted."""
    (owner, _) = workload("nightly", {GPU: "4"}, ["gpu-0"])
    spec = {"template": owner["spec"]["template"]}
    cron_job = api_object(
        "CronJob", "nightly", "team", spec={"schedule": "0 3 * * *", "jobTemplate": {"spec": spec}}
    )

    waves = planned(tmp_path, [cron_job])["waves"]

    assert [0, 0, 0] == [wave["movedPods"] for wave in waves]
    assert {"before": 12, "after": 8} == waves[0]["freeForKeys"]


@pytest.mark.parametrize(
    ("deadline", "advice"),
    [
        (None, ": it need not be suspended"),
        (600, "kubectl patch cronjob nightly --namespace=team "),
    ],
)
@pytest.mark.parametrize("suspended", [False, True])
def test_a_cron_job_that_starts_pods_is_named_with_its_schedule(
    tmp_path: Path, deadline: int | None, advice: str, *, suspended: bool
) -> None:
    """A nightly run began in the middle of a wave, and no page had said that there is one."""
    (owner, _) = workload("nightly", {GPU: "1"}, ["gpu-0"])
    spec = {"schedule": "0 3 * * *", "timeZone": "Europe/Oslo", "suspend": suspended}
    run = {"template": owner["spec"]["template"], "activeDeadlineSeconds": deadline}
    spec["jobTemplate"] = {"spec": run}
    nodes = [plugin_node(f"gpu-{number}", 4) for number in range(2)]

    plan = planned(tmp_path, [*nodes, api_object("CronJob", "nightly", "team", spec=spec)])

    notes = [note for wave in plan["waves"] for note in wave["notes"] if " at 0 3 * * *" in note]
    assert len(notes) == int(not suspended)
    for note in notes:
        assert note.startswith("CronJob/team/nightly starts pods with devices at 0 3 * * * Europe")
        assert advice in note


# --- the sizes of waves with work -----------------------------------------------------------------


def test_a_wave_that_leaves_nodes_with_work_to_later_ones_says_so(tmp_path: Path) -> None:
    """Nodes with Jobs are left to later waves though they would fit, and no note gave a reason."""
    plan = planned(tmp_path, [*job("gpu-1"), *service(ENDLESS)], "--wave-nodes", 3)

    assert [
        [
            "no larger: on all other nodes scripts wait for pods, or ask about them, and these nodes come last"
        ],
        ["no larger: on all other nodes pods never end by themselves, and these nodes come last"],
        [],
    ] == [
        [note for note in wave["notes"] if note.startswith("no larger")] for wave in plan["waves"]
    ]
