"""The scripts of a wave that is aborted: no node keeps an annotation that only a drained node needs."""

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from testing.migration import daemon_set, plugin_node
from testing.plan import planned, run_script

KEY: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
POOL: Final = {"cloud.google.com/gke-nodepool": "a100"}


class Script:
    """The switch of a wave of two nodes of a pool, with commands that note their arguments."""

    def __init__(self, folder: Path, interrupted_by: str) -> None:
        nodes = [plugin_node(name, 4, **POOL) for name in ("gpu-0", "gpu-1")]
        plugin = daemon_set("nvidia-device-plugin")
        planned(folder, [*nodes, plugin], "--wave-nodes", 2)
        self._script = folder / "plan" / "wave-1" / "switch.sh"
        self._calls = folder / "calls"
        self._bin = folder / "bin"
        self._bin.mkdir()
        for program in ("kubectl", "drawbridge"):
            path = self._bin / program
            # ^C reaches the shell that waits for the command.
            path.write_text(
                f'#!/bin/sh\necho {program} "$@" >> {self._calls}\n'
                f'case "{program} $*" in "{interrupted_by}"*) kill -INT "$PPID"; exit 130;; esac\n'
            )
            path.chmod(0o755)

    def run(self) -> tuple[int, str]:
        """Return the status and the output."""
        ran = subprocess.run(
            [self._script],
            env={"PATH": f"{self._bin}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.returncode, ran.stdout + ran.stderr

    def annotated(self) -> list[str]:
        """Return the nodes that keep the annotation."""
        nodes: dict[str, bool] = {}
        for line in self._calls.read_text().splitlines():
            words = line.split()
            if words[1:3] == ["annotate", "node"]:
                nodes[words[3]] = f"{KEY}=true" in words
        assert nodes, "the script annotates nodes"
        return [node for node, has in nodes.items() if has]


def test_a_wave_that_is_done_leaves_none(tmp_path: Path) -> None:
    script = Script(tmp_path, "nothing")

    assert 0 == script.run()[0]
    assert [] == script.annotated()


@pytest.mark.parametrize(
    "interrupted_by", ["kubectl cordon", f"kubectl annotate node gpu-1 --overwrite {KEY}"]
)
def test_before_the_first_drain_no_node_keeps_it(tmp_path: Path, interrupted_by: str) -> None:
    script = Script(tmp_path, interrupted_by)

    status, text = script.run()

    assert 130 == status, text
    assert [] == script.annotated()


def test_while_it_waits_for_work_no_node_keeps_it(tmp_path: Path) -> None:
    script = Script(tmp_path, "drawbridge verify --live --node=gpu-0 --before")

    status, text = script.run()

    assert 130 == status, text
    assert "given up; uncordoned: gpu-0 gpu-1" in text
    assert [] == script.annotated()


def test_only_a_drained_node_keeps_it_and_that_is_said(tmp_path: Path) -> None:
    script = Script(tmp_path, "kubectl drain gpu-0")

    status, text = script.run()

    assert 130 == status, text
    assert ["gpu-0"] == script.annotated()
    assert f"gpu-0 keeps {KEY}, since it is drained: switch.sh or rollback.sh" in text


def test_a_switched_node_that_is_still_empty_keeps_it(tmp_path: Path) -> None:
    script = Script(tmp_path, "kubectl cordon gpu-1")

    status, text = script.run()

    assert 130 == status, text
    assert ["gpu-0"] == script.annotated()


def test_an_annotation_that_cannot_be_read_is_not_taken_for_missing(tmp_path: Path) -> None:
    """A failed question counted as no, so the end of the script took off an annotation of somebody else."""
    objects = [plugin_node(name, 4, **POOL) for name in ("gpu-0", "gpu-1")]
    planned(tmp_path, [*objects, daemon_set("nvidia-device-plugin")], "--wave-nodes", 2)
    kubectl = 'case "$*" in "get node gpu-1 "*metadata.annotations*) exit 1 ;; esac'

    ran = run_script(tmp_path, "wave-1/switch.sh", {"kubectl": kubectl})

    assert 1 == ran.returncode
    assert (
        f"the annotations of gpu-1 cannot be read, so it is not known whether {KEY}" in ran.stderr
    )
    calls = (tmp_path / "calls").read_text().splitlines()
    assert not any(call.startswith("kubectl annotate node gpu-1") for call in calls)
    assert f"kubectl annotate node gpu-0 {KEY}-" in calls


# --- the second run of a script that was stopped -----------------------------------------------------

STATEFUL: Final = r"""#!/bin/sh
# Nodes in the folder @NODES@: files for those that are cordoned, by a script too, switched, annotated, and drained on the way back.
cd "@NODES@" || exit
words="$*"
case "$1 $2" in
  cordon*) shift; for node in "$@"; do touch "$node.cordoned"; done ;;
  uncordon*) rm -f "$2.cordoned" ;;
  "label node")
    case "$words" in *cordoned=true*) touch "$3.own" ;; *cordoned-*) rm -f "$3.own" ;; esac
    case "$words" in *given-back=true*) touch "$3.given-back" ;; *given-back-*) rm -f "$3.given-back" ;; esac
    case "$words" in *plugin=true*) touch "$3.switched" ;; *plugin-*) rm -f "$3.switched" ;; esac ;;
  "annotate node")
    case "$words" in *=true*) touch "$3.annotated" ;; *) rm -f "$3.annotated" ;; esac ;;
  "get node/"*) echo "$2" ;;
  "get node") case "$words" in *allocatable*) echo 4; exit ;; esac; if [ -e "$3.annotated" ]; then echo true; fi ;;
  "get nodes")
    node="${words#*metadata.name=}"
    node="${node%%,*}"
    if [ ! -e "$node.cordoned" ]; then exit; fi
    case "$words" in
      *'--selector=!drawbridge.internal/cordoned'*) if [ -e "$node.own" ]; then exit; fi ;;
      *--selector=*given-back=true*) if [ ! -e "$node.given-back" ]; then exit; fi ;;
      *--selector=*) if [ ! -e "$node.switched" ]; then exit; fi ;;
    esac
    echo "node/$node" ;;
esac
"""


class SecondRun:
    """A script of a wave of two nodes that a first run has left in some state."""

    def __init__(self, folder: Path, phase: str, *files: str) -> None:
        Script(folder, "nothing")
        self._script = folder / "plan" / "wave-1" / f"{phase}.sh"
        self._nodes = folder / "nodes"
        self._nodes.mkdir()
        for name in files:
            (self._nodes / name).touch()
        self._bin = folder / "bin"
        (self._bin / "kubectl").write_text(STATEFUL.replace("@NODES@", str(self._nodes)))

    def run(self, fails_at: str = "", step: str = "") -> tuple[int, str, list[str]]:
        """Return the status, the output, and the files of nodes; a question about a node is answered by 1."""
        answer = f'#!/bin/sh\ncase "$*" in *"{fails_at or "nothing"}"*) exit 1 ;; esac\n'
        (self._bin / "drawbridge").write_text(answer)
        ran = subprocess.run(
            [self._script, *([f"--step={step}"] if step else [])],
            env={"PATH": f"{self._bin}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return (
            ran.returncode,
            ran.stdout + ran.stderr,
            sorted(path.name for path in self._nodes.iterdir()),
        )


def test_a_second_run_that_is_aborted_leaves_a_node_that_the_first_has_drained(
    tmp_path: Path,
) -> None:
    """It took pods while it was half switched, and an autoscaler could remove it."""
    script = SecondRun(tmp_path, "switch")
    status, _, files = script.run("--node=gpu-1 --expect-devices")
    stopped = ["gpu-0.annotated", "gpu-0.switched"]
    stopped += ["gpu-1.annotated", "gpu-1.cordoned", "gpu-1.own", "gpu-1.switched"]
    assert (1, stopped) == (status, files)

    status, text, files = script.run("--node=gpu-0 --before")

    assert (1, stopped) == (status, files), text
    assert "gpu-1 stays cordoned, since an earlier run has drained it" in text
    assert "given up; uncordoned: gpu-0; to go on" in text
    assert f"gpu-1 keeps {KEY}, which it had before this run" in text
    assert 0 == script.run()[0]


@pytest.mark.parametrize(
    ("phase", "files", "free", "left"),
    [
        ("switch", [], "gpu-0 gpu-1", []),
        ("switch", ["gpu-1.cordoned", "gpu-1.own"], "gpu-0 gpu-1", []),
        ("switch", ["gpu-1.cordoned"], "gpu-0", ["gpu-1.cordoned"]),
        ("switch", ["gpu-0.switched"], "gpu-0 gpu-1", ["gpu-0.switched"]),
        (
            "switch",
            ["gpu-0.cordoned", "gpu-0.own", "gpu-0.switched"],
            "gpu-1",
            ["gpu-0.cordoned", "gpu-0.own", "gpu-0.switched"],
        ),
        (
            "rollback",
            ["gpu-0.switched", "gpu-1.cordoned", "gpu-1.given-back", "gpu-1.own"],
            "gpu-0",
            ["gpu-0.switched", "gpu-1.cordoned", "gpu-1.given-back", "gpu-1.own"],
        ),
        (
            "rollback",
            ["gpu-0.cordoned", "gpu-0.own", "gpu-1.cordoned", "gpu-1.own"],
            "gpu-1 gpu-0",
            [],
        ),
        (
            "rollback",
            ["gpu-0.cordoned", "gpu-1.cordoned", "gpu-1.own"],
            "gpu-1",
            ["gpu-0.cordoned"],
        ),
        (
            "rollback",
            ["gpu-0.switched", "gpu-1.cordoned", "gpu-1.own", "gpu-1.switched"],
            "gpu-1 gpu-0",
            ["gpu-0.switched", "gpu-1.switched"],
        ),
    ],
    ids=[
        "none was drained",
        "an earlier run has cordoned it, and not drained it",
        "somebody else has cordoned it",
        "an earlier run has done it",
        "an earlier run has drained it",
        "an earlier run has given it back",
        "a switch has cordoned both, and drained none",
        "somebody else has cordoned one",
        "an earlier run has not given it back",
    ],
)
def test_only_nodes_that_an_earlier_run_has_drained_stay_cordoned(
    tmp_path: Path, phase: str, files: list[str], free: str, left: list[str]
) -> None:
    status, text, found = SecondRun(tmp_path, phase, *files).run("--before")

    assert (1, left) == (status, found), text
    assert f"given up; uncordoned: {free}; to go on" in text


def test_a_way_back_that_is_stopped_leaves_the_node_that_it_has_drained(tmp_path: Path) -> None:
    script = SecondRun(tmp_path, "rollback", "gpu-0.switched", "gpu-1.switched")
    (tmp_path / "plan" / "cluster.sh").write_text(
        (tmp_path / "plan" / "cluster.sh")
        .read_text()
        .replace("offer_seconds=600", "offer_seconds=0")
    )
    kubectl = tmp_path / "bin" / "kubectl"
    text = kubectl.read_text()
    kubectl.write_text(text.replace("echo 4; exit", "echo 0; exit"))
    assert 1 == script.run()[0]
    drained = ["gpu-1.annotated", "gpu-1.cordoned", "gpu-1.given-back", "gpu-1.own"]

    status, told, files = script.run("--node=gpu-1 --before")

    assert (1, ["gpu-0.switched", *drained]) == (status, files), told
    assert "gpu-1 stays cordoned, since an earlier run has drained it" in told
    kubectl.write_text(text)
    assert (0, []) == script.run()[::2]


# --- nodes that somebody else has cordoned ------------------------------------------------------------

OTHERS: Final = "gpu-1.cordoned"


def test_a_wave_uncordons_a_node_at_its_end_as_its_check_says(tmp_path: Path) -> None:
    status, text, files = SecondRun(tmp_path, "switch", OTHERS).run()

    assert (0, ["gpu-0.switched", "gpu-1.switched"]) == (status, files), text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["gpu-0.own", "gpu-0.cordoned", OTHERS], [OTHERS]),
        (["gpu-0.switched", "gpu-1.switched", OTHERS], [OTHERS]),
        (["gpu-0.switched", "gpu-1.switched", "gpu-1.own", OTHERS], []),
    ],
    ids=["none was switched", "it was switched", "a script has cordoned it"],
)
def test_a_way_back_leaves_a_node_cordoned_that_it_has_found_so(
    tmp_path: Path, before: list[str], after: list[str]
) -> None:
    """A node that somebody had cordoned for a repair took pods again."""
    status, text, files = SecondRun(tmp_path, "rollback", *before).run()

    assert (0, after) == (status, files), text
    said = "gpu-1 stays cordoned, since no script of this plan has cordoned it; kubectl uncordon gpu-1 lets pods come"
    assert (said in text) is (after != [])


@pytest.mark.parametrize("names", [[], [OTHERS], [OTHERS, "gpu-1.own"]])
def test_a_step_that_only_uncordons_knows_who_has_cordoned_the_node(
    tmp_path: Path, names: list[str]
) -> None:
    """`drawbridge wave back` runs no other step of a node that was not drained."""
    script = SecondRun(tmp_path, "rollback", *names)

    status, text, files = script.run(step="uncordon/gpu-1")

    assert (0, [OTHERS] if names == [OTHERS] else []) == (status, files), text
    assert (0, files) == script.run(step="uncordon/gpu-1")[::2]


WHO: Final = "*unschedulable=true*'--selector=!drawbridge.internal/cordoned'*"
DRAINED: Final = "*unschedulable=true*--selector=[!!]*"
"""The question for a node with the labels of one that was drained."""


@pytest.mark.parametrize(
    ("phase", "step", "names", "unanswered"),
    [
        ("switch", "", [OTHERS], WHO),
        ("switch", "", ["gpu-0.cordoned", "gpu-0.own", "gpu-0.switched"], DRAINED),
        ("rollback", "uncordon/gpu-1", [OTHERS], WHO),
    ],
    ids=["before it is cordoned", "drained by an earlier run", "before it is uncordoned"],
)
def test_a_cluster_that_does_not_say_who_has_cordoned_a_node_stops_the_script(
    tmp_path: Path, phase: str, step: str, names: list[str], unanswered: str
) -> None:
    """No answer was taken for `nobody`, so a node of somebody else, or a half switched one, took pods again."""
    script = SecondRun(tmp_path, phase, *names)
    kubectl = tmp_path / "bin" / "kubectl"
    text = kubectl.read_text()
    fails = f"case \"$words\" in {unanswered}) echo 'cannot connect' >&2; exit 1 ;; esac\n"
    kubectl.write_text(text.replace('words="$*"\n', f'words="$*"\n{fails}'))

    status, told, files = script.run(step=step)

    assert (1, sorted(names)) == (status, files), told
    assert "cannot connect" in told
    assert "see that the API server answers: it has not said who has cordoned gpu-" in told
    assert f"then run again: {tmp_path}/plan/wave-1/{phase}.sh" in told
    kubectl.write_text(text)
    assert 0 == script.run(step=step)[0]
