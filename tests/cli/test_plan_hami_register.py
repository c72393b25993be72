"""`drawbridge plan`: HAMi's scheduler forgets a node before the register of its GPUs goes, and counts it no more."""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import namespace
from testing.migration import GPU, SHARE, hami_node, plugin_node, resource_slice, workload
from testing.plan import planned, script

DRIVER: Final = "hami-core-gpu.project-hami.io"
HANDSHAKE: Final = "hami.io/node-handshake"
REGISTER: Final = "hami.io/node-nvidia-register"
OLD: Final = "Deleted_2026-11-01 10:00:00"
MARK: Final = "Deleted_2026-11-28 10:00:00"
ASKED: Final = "Requesting_2026-11-28 10:00:00"
KUBECTL: Final = r"""#!/bin/sh
# The folder has a line for each answer: the first is that before the label is taken, and the last one stays.
echo "kubectl $*" >> "@FOLDER@/calls"
case "$1 $2 $*" in
  "get node "*allocatable*) echo "$OFFERED" ;;
  "get node "*node-handshake*)
    line="$(head -n 1 "@FOLDER@/answers")"
    if [ "$(wc -l < "@FOLDER@/answers")" -gt 1 ]; then sed -i 1d "@FOLDER@/answers"; fi
    printf '%s' "$line" ;;
  "patch node "*)
    if [ -n "$REJECTED" ] && [ ! -e "@FOLDER@/patched" ]; then touch "@FOLDER@/patched"; exit 1; fi ;;
esac
"""
DRAWBRIDGE: Final = '#!/bin/sh\necho "drawbridge $1" >> "@FOLDER@/calls"\n'


def run_drain(
    folder: Path, *answers: str, offered: str = "20", rejected: str = ""
) -> tuple[list[str], str, int]:
    """Return the changes of a node of HAMi in the step that drains it, standard error, and the status.

    Args:
        folder: A folder for the plan and the programs.
        answers: The handshakes with the register, one after another.
        offered: The devices that its plugin offers when the step begins.
        rejected: Whether the first patch is rejected.
    """
    nodes = [hami_node("hami-0"), hami_node("hami-1")]
    planned(folder, [*nodes, namespace("team"), *workload("web", SHARE, ["hami-0"])])
    shared = folder / "plan" / "cluster.sh"
    text = shared.read_text().replace("handshake_seconds=120", "handshake_seconds=4")
    text = text.replace("unasked_seconds=20", "unasked_seconds=2")
    shared.write_text(text.replace("  sleep 2\n", "  sleep 0.1\n"))
    (folder / "answers").write_text("".join(f"{answer}\n" for answer in answers))
    binaries = folder / "bin"
    binaries.mkdir()
    for program, lines in (("kubectl", KUBECTL), ("drawbridge", DRAWBRIDGE)):
        (binaries / program).write_text(lines.replace("@FOLDER@", str(folder)))
        (binaries / program).chmod(0o755)
    ran = subprocess.run(
        [folder / "plan" / "wave-1" / "switch.sh", f"--step=drain/{first_node(folder)}"],
        env={
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "OFFERED": offered,
            "REJECTED": rejected,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    calls = [line for line in (folder / "calls").read_text().splitlines() if " get " not in line]
    return [call for call in calls if " config " not in call], ran.stderr, ran.returncode


def first_node(folder: Path) -> str:
    """Return the first node of the first wave."""
    lines = script(folder, "switch").splitlines()
    return next(line.split()[1] for line in lines if line.strip().startswith("note_handshake "))


def kinds(calls: list[str]) -> list[str]:
    """Return the first words of calls."""
    return [" ".join(call.split()[:2]) for call in calls]


LABELLED: Final = ["kubectl drain", "kubectl label", "drawbridge verify"]
REMOVED: Final = [*LABELLED, "kubectl patch"]


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [
        (ASKED, [ASKED, MARK], MARK),
        ("Reported 2026-11-28 10:00:00.1 +0000 UTC m=+1", [ASKED, MARK], MARK),
        ("", [MARK], MARK),
        (OLD, [OLD, MARK], MARK),
        (ASKED, [ASKED, ""], None),
    ],
    ids=["2.9", "2.7", "2.8", "2.8, after a restart of the plugin", "2.10"],
)
def test_the_register_goes_once_the_scheduler_has_forgotten_the_node(
    tmp_path: Path, before: str, after: list[str], value: str | None
) -> None:
    """HAMi 2.9 and 2.10 counted it again, and bound pods there that the kubelet rejected."""
    calls, errors, status = run_drain(tmp_path, *(f"{text}|[]" for text in (before, *after)))

    assert (0, REMOVED) == (status, kinds(calls)), errors
    patch = json.loads(calls[-1].partition("--patch=")[2].removesuffix(" --context="))
    path = "/metadata/annotations/hami.io~1node-"
    assert patch == [
        {"op": "test", "path": f"{path}handshake", "value": value},
        {"op": "remove", "path": f"{path}nvidia-register"},
    ]


@pytest.mark.parametrize(
    ("answers", "offered"),
    [
        (["|[]", "|[]"], "20"),
        ([f"{ASKED}|[]", f"{MARK}|"], "20"),
        ([f"{ASKED}|[]", ""], "20"),
        (["|[]"], "0"),
    ],
    ids=["no handshake", "no register", "the node is gone", "no plugin, and no handshake"],
)
def test_nothing_is_deleted(tmp_path: Path, answers: list[str], offered: str) -> None:
    calls, errors, status = run_drain(tmp_path, *answers, offered=offered)

    assert (0, LABELLED, "") == (status, kinds(calls), errors)


@pytest.mark.parametrize(
    "answers",
    [[ASKED, ASKED], [OLD, OLD], [ASKED, 'Deleted_"},{"op":"remove","path":"/spec']],
    ids=["the scheduler is away", "a mark from before", "no mark of HAMi"],
)
def test_a_scheduler_that_does_not_forget_stops_no_wave(tmp_path: Path, answers: list[str]) -> None:
    """Without its register HAMi 2.7 to 2.9 would count the node until the scheduler restarts."""
    calls, errors, status = run_drain(tmp_path, *(f"{text}|[]" for text in answers))

    assert (0, LABELLED) == (status, kinds(calls)), errors
    assert 1 == len(errors.splitlines())
    assert f"keeps {REGISTER}, since HAMi's scheduler has not forgotten its GPUs" in errors
    assert f"kubectl annotate node {first_node(tmp_path)} {REGISTER}-" in errors


def test_a_second_run_takes_a_mark_from_before_it(tmp_path: Path) -> None:
    """The plugin has left in the first one, and nobody marks the node again."""
    calls, errors, status = run_drain(tmp_path, f"{MARK}|[]", offered="0")

    assert (0, REMOVED) == (status, kinds(calls)), errors


@pytest.mark.parametrize(
    ("answers", "offered"),
    [
        (["", ASKED, ""], "0"),
        ([ASKED, ASKED, ""], "0"),
        (["", "", ASKED, ""], "20"),
        (["", "", ASKED, MARK], "0"),
    ],
    ids=["begun without", "begun with one", "the first run", "2.9"],
)
def test_a_scheduler_that_asks_again_is_waited_for(
    tmp_path: Path, answers: list[str], offered: str
) -> None:
    """HAMi 2.10 has no handshake with a node that it has forgotten, for 15 seconds: the register stayed without a word."""
    calls, errors, status = run_drain(
        tmp_path, *(f"{text}|[]" for text in answers), offered=offered
    )

    assert (0, REMOVED, "") == (status, kinds(calls), errors)


def test_a_handshake_that_changes_meanwhile_is_read_again(tmp_path: Path) -> None:
    answers = [f"{text}|[]" for text in (ASKED, MARK, MARK)]

    calls, errors, status = run_drain(tmp_path, *answers, rejected="yes")

    assert (0, [*REMOVED, "kubectl patch"]) == (status, kinds(calls)), errors


def test_other_nodes_have_no_register(tmp_path: Path) -> None:
    planned(tmp_path, [plugin_node("gpu-0"), plugin_node("gpu-1")])

    text = script(tmp_path, "switch")

    assert "handshake" not in text
    assert "register" not in text


def test_no_way_back_writes_it(tmp_path: Path) -> None:
    """HAMi's plugin registers its GPUs again when it starts."""
    planned(tmp_path, [hami_node("hami-0")])

    assert "forget_register hami-0" in script(tmp_path, "switch")
    assert "register" not in script(tmp_path, "rollback")


@pytest.mark.parametrize("handshake", [ASKED, MARK, ""])
def test_the_checks_after_a_wave_note_a_register_that_is_left(
    tmp_path: Path, handshake: str
) -> None:
    """HAMi 2.10 has none with a node that it is to count again."""
    planned(tmp_path, [hami_node("hami-0")])
    now = hami_node("hami-0")
    now["status"]["allocatable"] = {GPU: "0"}
    now["metadata"]["annotations"] |= {HANDSHAKE: handshake} if handshake else {}
    published = resource_slice("hami-0", DRIVER, ["GPU-hami-0-0", "GPU-hami-0-1"])
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml([now, published]))

    wave = tmp_path / "plan" / "wave-1"
    result = drawbridge("verify", "--snapshot", file, "--wave", wave, "-o", "json")

    check = json.loads(result.stdout)["checks"][0]
    assert "note" == check["state"]
    assert f"kubectl annotate node hami-0 {REGISTER}-" in check["message"]
