"""`drawbridge plan` of large clusters: reuse of placements, progress, and an end by ^C."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cli.output.progress import INTERRUPTED, LongRun
from cli.verbs.plan import command as plan_command
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from kube.manifests.source import SourceObject
from migration.plan.facts.device_plugins import DevicePlugins
from migration.plan.facts.environment import with_environment
from migration.plan.model.nodes_by_use import NodesByUse
from migration.plan.planning import prepared
from migration.plan.planning.build import build_plan
from migration.plan.search.moments import Policy
from migration.plan.search.wave_pods import pod_keys
from migration.plan.stage.placement import Placer
from process.profiles.profile_files import load_profiles
from testing.command import drawbridge
from testing.counting import counted_calls, slow_by
from testing.migration import GPU, SHARE, hami_node, plugin_node, workload
from testing.migration_fleet import LARGE, FleetSize, fleet
from testing.plan import call, document, planned, question_of
from translation.cluster.snapshot import TranslationOptions
from translation.reading.arbiter import VOCABULARIES

USED: Final = (47, 60, 130)
"""Percent of the devices that pods need; above 100 they wait for some."""


@pytest.mark.parametrize("used_percent", USED)
def test_the_fleet_is_what_it_says(used_percent: int) -> None:
    size = FleetSize(nodes=200, workloads=1000, used_percent=used_percent)

    objects = fleet(size)

    kinds = [entry["kind"] for entry in objects]
    assert (200, 1000) == (kinds.count("Node"), kinds.count("Deployment"))
    large = [entry for entry in objects if entry["metadata"].get("namespace") == LARGE]
    assert len(large) > len(objects) // 2
    pending = [
        entry for entry in objects if entry["kind"] == "Pod" and not entry["spec"]["nodeName"]
    ]
    assert (used_percent > 100) is bool(pending)
    assert objects == fleet(size)


def test_waves_are_the_same_without_reuse_of_placements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = fleet(FleetSize(nodes=40, workloads=30, used_percent=40))
    nodes = [entry for entry in objects if entry["kind"] == "Node"]
    for node in nodes:
        node["status"]["allocatable"] |= {"cpu": "64", "memory": "512Gi", "pods": "110"}
    names = [node["metadata"]["name"] for node in nodes]
    objects += workload("web", {"cpu": "6"}, names * 4, namespace="web", kind="ReplicaSet")
    options = ("--wave-nodes", 14, "--spare-nodes", 1)
    with_reuse = planned(tmp_path, objects, *options)

    monkeypatch.setattr(
        prepared,
        "Placer",
        lambda *arguments, **options: Placer(*arguments, **options, reuses=False),
    )
    without = planned(tmp_path, objects, *options)

    assert with_reuse["waves"] == without["waves"]
    assert with_reuse["held"] == without["held"]
    assert any(wave["evictedOthers"] for wave in with_reuse["waves"])


@pytest.mark.long
@pytest.mark.parametrize("used_percent", [47, 60, 130])
def test_a_large_plan_needs_no_more_than_a_minute_and_a_gibibyte(
    tmp_path: Path, used_percent: int
) -> None:
    file = tmp_path / "cluster.yaml"
    size = FleetSize(nodes=200, workloads=1000, used_percent=used_percent)
    file.write_text(dump_yaml(fleet(size)))
    command = [sys.executable, "-m", "cli", "plan", "--snapshot", file, "-o", tmp_path / "plan"]

    slow_before = slow_by()
    child = os.spawnv(os.P_NOWAIT, sys.executable, list(map(str, command)))
    _, status, usage = os.wait4(child, 0)
    slow_after = slow_by()

    assert 0 <= os.waitstatus_to_exitcode(status) <= 1
    assert 60 * (slow_before + slow_after) / 2 > usage.ru_utime + usage.ru_stime
    assert 2**20 > usage.ru_maxrss  # In KiB, on Linux.


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A person: presses ^C once eight nodes have a wave."""

    class Run(LongRun):
        def __call__(self, done_count: int) -> None:
            super().__call__(done_count)
            if done_count >= 8 and not self.is_interrupted:
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(plan_command, "LongRun", Run)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupted")
def test_an_interrupted_plan_is_not_complete_and_nobody_runs_it(tmp_path: Path) -> None:
    objects = fleet(FleetSize(nodes=40, workloads=60, used_percent=47))

    result = call(tmp_path, objects)

    assert INTERRUPTED == result.exit_code
    assert "interrupted: planned nodes 8 of 40" in result.stderr
    assert "the scripts refuse to run; plan again" in " ".join(result.stdout.split())
    plan = document(tmp_path)
    assert (False, 2, []) == (plan["complete"], len(plan["waves"]), plan["held"])
    assert "is not complete" in (tmp_path / "plan" / "README.md").read_text()
    scripts = sorted((tmp_path / "plan").rglob("*.sh"))
    assert 1 + 2 * 4 == len(scripts)
    for script in scripts:
        ran = subprocess.run([script], env={}, capture_output=True, text=True, check=False)
        assert (1, "") == (ran.returncode, ran.stdout)
        assert "this plan is not complete" in ran.stderr
    verified = drawbridge(
        *("verify", "--wave", tmp_path / "plan" / "wave-1", "--before"),
        *("--snapshot", tmp_path / "cluster.yaml"),
    )
    assert 2 == verified.exit_code
    assert "is not complete" in verified.stderr


def test_a_plan_that_was_not_interrupted_is_complete(tmp_path: Path) -> None:
    assert planned(tmp_path, [plugin_node("gpu-0")])["complete"]


class Followed:
    """Notes the news about a search."""

    def __init__(self) -> None:
        self.totals: list[int] = []
        self.counts: list[int] = []

    def expect(self, total: int) -> None:
        self.totals.append(total)

    def __call__(self, done_count: int) -> None:
        self.counts.append(done_count)

    def stops(self) -> bool:
        return False


def test_progress_counts_the_nodes_of_all(tmp_path: Path) -> None:
    followed = Followed()
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([hami_node(f"hami-{number}") for number in range(6)]))
    question = prepared.PlanQuestion(
        objects=tuple(read_paths([str(file)])),
        profiles=load_profiles(),
        options=TranslationOptions(),
        namespace="default",
        version="",
    )

    build_plan(question, Policy(wave_nodes=4, keep_free=0), followed)

    assert ([6], [4, 6]) == (followed.totals, followed.counts)


def test_a_run_counts_up_to_a_total_that_it_learns_later(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = iter([0.0, 30.0])

    with LongRun("planned nodes", clock=lambda: next(times)) as run:
        run.expect(40)
        run(15)

    assert "planned nodes: 15 of 40" in capsys.readouterr().err


# --- notes ----------------------------------------------------------------------------------------


def test_a_note_says_why_a_wave_is_no_larger_with_its_nodes(tmp_path: Path) -> None:
    nodes = [plugin_node(f"gpu-{number}") for number in range(8)]
    busy = workload("web", {GPU: "4"}, ["gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"])

    plan = planned(tmp_path, [*nodes, *busy], "--wave-nodes", 4, "--spare-nodes", 0)

    reason = (
        "no larger: while draining gpu-0, gpu-5, gpu-6, gpu-7, 1 pod has no devices: "
        "1 of Deployment/team/web"
    )
    notes = plan["waves"][0]["notes"]
    assert [note for note in notes if note.startswith("no larger")] == [reason]
    assert not [note for note in plan["waves"][2]["notes"] if note.startswith("no larger")]


def test_each_reason_has_one_line(tmp_path: Path) -> None:
    """Eight nodes lack devices, and four lack those that stay free."""
    nodes = [plugin_node(f"gpu-{number}") for number in range(8)]
    busy = workload("web", {GPU: "4"}, ["gpu-0", "gpu-1", "gpu-2"])
    options = ("--wave-nodes", 8, "--spare-nodes", 0, "--keep-free", 25)

    plan = planned(tmp_path, [*nodes, *busy], *options)

    notes = [note for note in plan["waves"][0]["notes"] if note.startswith("no larger")]
    assert 2 == len(notes)
    assert any("pods have no devices" in note or "pod has no" in note for note in notes)
    assert any("--keep-free 25 asks" in note for note in notes)


def test_no_wave_looks_at_the_pods_of_controllers_for_its_notes(tmp_path: Path) -> None:
    """With 500 waves and 100,000 pods the notes took a quarter of an hour."""
    number, names = 300, [f"hami-{index}" for index in range(8)]
    plain = workload("plain", {"cpu": "1m"}, names[:1] * number, kind="ReplicaSet")
    objects = [*map(hami_node, names), *workload("web", SHARE, names[:2]), *plain]
    question = question_of(tmp_path, objects)
    with LongRun("tried", 5) as progress, counted_calls() as calls:
        plan = build_plan(question, Policy(wave_nodes=1, keep_free=0), progress).plan
    assert len(plan.waves) >= 8
    assert calls[pod_keys.__code__] < len(plan.waves)

    plugins = DevicePlugins(question.objects)
    with counted_calls() as calls:
        again = with_environment(plan, question.objects, VOCABULARIES, NodesByUse(), plugins)

    assert len(plan.waves) == len(again.waves)
    kind = vars(SourceObject)["kind"].fget.__code__
    assert number <= calls[kind] < 3 * number
