"""The scripts of a rehearsal, the commits that they ask for, and the objects that its API server rejects."""

import json
from pathlib import Path
from typing import Any

import yaml

from e2e.rehearsal_load import create, missing_pods
from e2e.rehearsal_repository import Repository
from e2e.rehearsal_scripts import TIMED_OUT, ScriptRunner
from e2e.rehearse import waves_left
from migration.rehearsal.model import RehearsalInput, RehearsedWave, ScriptRun
from testing.documents import namespace


class Rejecting:
    """A cluster that rejects namespaces, with pods that never change."""

    def __init__(self, **objects: list[dict[str, Any]]) -> None:
        self.commands: list[str] = []
        self._objects = objects

    def objects(self, kind: str) -> list[dict[str, Any]]:
        return self._objects.get(kind, [])

    def try_apply(self, document: dict[str, Any]) -> tuple[str, int, bytes]:
        status = {"kind": "Status", "message": "spec.nonsense: unknown field"}
        is_rejected = document["kind"] == "Namespace"
        return "/", 422 if is_rejected else 201, json.dumps(status).encode()

    def kubectl(self, *words: str, check: bool = True) -> None:
        self.commands.append(" ".join(words))


def plan_of(folder: Path, scripts: dict[str, str], **document: Any) -> Path:
    """A plan with these scripts, and a step of its folder kustomize."""
    (folder / "plan.yaml").write_text(yaml.safe_dump(document))
    step = folder / "kustomize" / "wave-1"
    step.mkdir(parents=True)
    (step / "kustomization.yaml").write_text("kind: Component\n")
    (step / "namespace.team.yaml").write_text(yaml.safe_dump(namespace("team")))
    (folder / "wave-1").mkdir()
    for name, text in scripts.items():
        (folder / name).write_text(text)
    return folder


def runner_of(plan: Path, cluster: Any, **options: float) -> tuple[ScriptRunner, Repository]:
    repository = Repository(cluster, plan)
    environment = {"PATH": "/usr/bin:/bin"}
    return ScriptRunner(plan, environment, cluster, repository, **options), repository


def test_a_commit_that_a_script_asks_for_is_made_and_it_is_run_again(tmp_path: Path) -> None:
    asks = "echo 'commit kustomize/wave-1 of the plan to your repository'; [ -e again ] || { touch again; exit 1; }"
    plan = plan_of(tmp_path, {"wave-1/switch.sh": asks})
    cluster = Rejecting()
    runner, repository = runner_of(plan, cluster)

    assert runner.run("wave-1/switch.sh")

    assert [1, 0] == [run.status for run in runner.runs]
    (command,) = cluster.commands
    assert command.startswith("patch namespace team --type=strategic --patch=")
    assert [
        "during wave-1/switch.sh: kustomize/wave-1 of the plan is committed, and applied as Argo CD or Flux would"
    ] == repository.done


def test_a_script_that_fails_for_another_reason_is_not_run_again(tmp_path: Path) -> None:
    runner, repository = runner_of(plan_of(tmp_path, {"prepare.sh": "exit 3"}), Rejecting())

    assert not runner.run("prepare.sh")

    assert [3] == [run.status for run in runner.runs]
    assert [] == repository.done


def test_lines_of_a_quota_are_taken_out_when_a_script_says_so(tmp_path: Path) -> None:
    lines = {"namespace": "team", "name": "gpus", "lines": ["requests.nvidia.com/gpu"]}
    asks = "echo 'ResourceQuota team/gpus has requests.nvidia.com/gpu still: take that out'"
    plan = plan_of(tmp_path, {"prepare.sh": asks}, replacedLines=[lines])
    cluster = Rejecting()
    runner, _ = runner_of(plan, cluster)

    assert runner.run("prepare.sh")

    (command,) = cluster.commands
    assert '{"spec": {"hard": {"requests.nvidia.com/gpu": null}}}' in command


def test_a_script_without_a_change_in_the_cluster_is_ended_and_says_why(tmp_path: Path) -> None:
    """verify.sh waited half an hour for a pod that a LimitRange did not allow."""
    owner = {
        "metadata": {"name": "big", "namespace": "team", "uid": "u"},
        "spec": {"replicas": 2},
    }
    event = {
        "reason": "FailedCreate",
        "involvedObject": {"uid": "u"},
        "message": "(combined from similar events): maximum cpu usage per Container is 4, but limit is 16",
    }
    cluster = Rejecting(replicasets=[owner], events=[event])
    plan = plan_of(tmp_path, {"prepare.sh": "echo waiting; exec sleep 600"})
    runner, _ = runner_of(plan, cluster, still_s=0)

    assert not runner.run("prepare.sh")

    (run,) = runner.runs
    assert TIMED_OUT == run.status
    assert "ended by the rehearsal, as no pod has changed" in run.output
    assert (
        "2 pods of ReplicaSet/team/big, not created: maximum cpu usage per Container is 4, but limit is 16"
        in run.output
    )


def test_pods_that_are_there_are_not_missing() -> None:
    """The event of a failed attempt stays after one that succeeded."""
    owner = {"metadata": {"name": "web", "namespace": "team", "uid": "u"}, "spec": {"replicas": 1}}
    pod = {"metadata": {"ownerReferences": [{"uid": "u"}]}}
    event = {"reason": "FailedCreate", "involvedObject": {"uid": "u"}, "message": "later"}
    cluster: Any = Rejecting(replicasets=[owner], events=[event], pods=[pod])

    assert [] == [*missing_pods(cluster)]


def test_an_object_that_is_rejected_is_left_out_and_named() -> None:
    """One unknown field of a snapshot ended the rehearsal."""
    cluster: Any = Rejecting()
    quota = {"kind": "ResourceQuota", "metadata": {"name": "gpus", "namespace": "team"}}

    assert [
        "Namespace/team: the API server of the rehearsal rejects it: spec.nonsense: unknown field"
    ] == [*create(cluster, [namespace("team"), quota])]


def test_waves_that_were_not_begun_are_named() -> None:
    """The answer counted those that were done, and said nothing of the others."""
    waves = tuple(RehearsedWave(wave=number) for number in (1, 2, 3))
    rehearsal = RehearsalInput(objects=(), nodes=(), workloads=(), places={}, waves=waves)
    runs = [
        ScriptRun(script="prepare.sh", seconds=1, status=0),
        ScriptRun(script="wave-1/preflight.sh", seconds=1, status=1),
    ]

    assert [f"wave {number}, since wave-1/preflight.sh stopped before it" for number in (2, 3)] == [
        *waves_left(rehearsal, runs)
    ]
