"""`drawbridge plan`: a node or a namespace that vanishes during its wave stops no script, and no check after it."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kube.manifests.dump import dump_yaml
from testing.command import drawbridge
from testing.documents import namespace
from testing.migration import GPU, daemon_set, origin, plugin_node, workload
from testing.plan import planned

POOL: Final = {"cloud.google.com/gke-nodepool": "a100"}
KUBECTL: Final = r"""#!/bin/sh
# As kubectl does where the node $GONE is gone: of several nodes it changes none.
echo "kubectl $*" >> "@CALLS@"
case " $* " in
  *" get node/$GONE "*) exit "$READ" ;;
  *" get node/"*) echo "$2" ;;
  *" get node $GONE --ignore-not-found "*) ;;
  *" $GONE "*) echo "Error from server (NotFound): nodes \"$GONE\" not found" >&2; exit 1 ;;
  *" $FAILS "*) exit 1 ;;
  *allocatable*) echo 4 ;;
esac
"""
DRAWBRIDGE: Final = r"""#!/bin/sh
echo "drawbridge $*" >> "@CALLS@"
case "$*" in *"--node=$GONE "*) exit 1 ;; esac
"""
SAID: Final = "node gpu-1 was deleted since the plan was made, and is left out"
CHANGES: Final = ("cordon", "drain", "label", "uncordon")
CORDONED: Final = ("label", "cordon")
UNCORDONED: Final = ("uncordon", "label")
"""A label tells who has cordoned a node."""


class Runbook:
    """The scripts of a wave of two nodes, and a cluster without one of them."""

    def __init__(self, folder: Path) -> None:
        nodes = [plugin_node(name, 4, **POOL) for name in ("gpu-0", "gpu-1")]
        planned(folder, [*nodes, daemon_set("nvidia-device-plugin")], "--wave-nodes", 2)
        self._wave = folder / "plan" / "wave-1"
        self._calls = folder / "calls"
        self._bin = folder / "bin"
        self._bin.mkdir()
        for program, text in (("kubectl", KUBECTL), ("drawbridge", DRAWBRIDGE)):
            (self._bin / program).write_text(text.replace("@CALLS@", str(self._calls)))
            (self._bin / program).chmod(0o755)

    def run(
        self, phase: str, *arguments: str, gone: str = "gpu-1", read: int = 0, fails: str = "never"
    ) -> tuple[int, str]:
        """Return the status and the output of a script.

        Args:
            phase: The name of the script.
            arguments: Its arguments.
            gone: The node that is gone.
            read: The status of a question for that node.
            fails: A word of the calls of kubectl that fail.
        """
        self._calls.write_text("")
        ran = subprocess.run(
            [self._wave / f"{phase}.sh", *arguments],
            env={
                "PATH": f"{self._bin}:{os.environ['PATH']}",
                "GONE": gone,
                "READ": str(read),
                "FAILS": fails,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.returncode, ran.stdout + ran.stderr

    def changed(self, node: str) -> list[str]:
        """Return the kinds of the changes of a node alone."""
        calls = [line.split()[1:] for line in self._calls.read_text().splitlines()]
        return [
            words[0]
            for words in calls
            if words and words[0] in CHANGES and node in words and "gpu-1" not in words
        ]


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        # It is to be cordoned together with the node that is gone, and so once more without that one.
        ("switch", ["label", *CORDONED, "drain", "label", *UNCORDONED]),
        # Then in its own step.
        ("rollback", ["label", *CORDONED, *CORDONED, "drain", "label", "label", *UNCORDONED]),
    ],
)
def test_the_other_nodes_of_its_wave_go_on(tmp_path: Path, phase: str, expected: list[str]) -> None:
    """Each command on it failed, also the one for several nodes."""
    runbook = Runbook(tmp_path)

    status, text = runbook.run(phase)

    assert 0 == status, text
    assert 1 == text.count(SAID)
    assert expected == runbook.changed("gpu-0")


@pytest.mark.parametrize("phase", ["switch", "rollback"])
@pytest.mark.parametrize("step", ["wait/gpu-1", "drain/gpu-1", "uncordon/gpu-1"])
def test_each_of_its_steps_ends(tmp_path: Path, phase: str, step: str) -> None:
    """`drawbridge wave` runs them one by one, and stopped at each, forwards and backwards."""
    status, text = Runbook(tmp_path).run(phase, f"--step={step}")

    assert 0 == status, text
    assert 1 == text.count(SAID)


@pytest.mark.parametrize("phase", ["switch", "rollback"])
@pytest.mark.parametrize(
    ("gone", "read", "fails"),
    [("none", 0, "drain"), ("gpu-1", 1, "never")],
    ids=["it is there", "it cannot be read"],
)
def test_a_failure_on_a_node_that_is_there_stops_the_script(
    tmp_path: Path, phase: str, gone: str, read: int, fails: str
) -> None:
    status, text = Runbook(tmp_path).run(
        phase, "--step=drain/gpu-1", gone=gone, read=read, fails=fails
    )

    assert 1 == status, text
    assert SAID not in text
    assert 1 == text.count("stopped at: kubectl drain gpu-1 ")


# --- the checks -----------------------------------------------------------------------------------


def cluster(*nodes: str, namespaces: Sequence[str] = ("team",)) -> list[Mapping[str, Any]]:
    """Return a cluster with these nodes and namespaces."""
    return [*(plugin_node(name, 4) for name in nodes), *map(namespace, namespaces)]


def checked(
    folder: Path, wave: str, objects: Sequence[Mapping[str, Any]], *flags: str, unread: str = ""
) -> dict[str, list[tuple[str, str]]]:
    """Return object to the states and messages of a check of a wave with these objects."""
    now = folder / "now.yaml"
    now.write_text(dump_yaml([origin(*unread.split()), *objects]))
    path = folder / "plan" / wave
    result = drawbridge("verify", "--snapshot", now, "--wave", path, *flags, "-o", "json")
    checks: dict[str, list[tuple[str, str]]] = {}
    for check in json.loads(result.stdout)["checks"]:
        checks.setdefault(check["object"], []).append((check["state"], check["message"]))
    return checks


GONE_NODE: Final = (
    "note",
    "it is gone, and later waves were simulated with its devices: plan again from a new snapshot before the next wave",
)


def test_a_node_that_is_gone_after_its_wave_is_a_note(tmp_path: Path) -> None:
    """Neither its own wave nor a later one could be checked; it was also said to take pods."""
    planned(tmp_path, cluster("gpu-0", "gpu-1"), "--wave-nodes", 1)
    left = cluster("gpu-1")

    assert [GONE_NODE] == checked(tmp_path, "wave-1", left)["Node//gpu-0"]
    assert [GONE_NODE] == checked(tmp_path, "wave-2", left, "--before")["Node//gpu-0"]


def test_a_node_that_is_gone_before_its_wave_stops_it(tmp_path: Path) -> None:
    planned(tmp_path, cluster("gpu-0", "gpu-1"), "--wave-nodes", 1)

    checks = checked(tmp_path, "wave-1", cluster("gpu-1"), "--before")

    text = "there is no such node: plan again from a new snapshot"
    assert ("failed", text) in checks["Node//gpu-0"]


def test_nodes_that_cannot_be_read_are_not_gone(tmp_path: Path) -> None:
    planned(tmp_path, cluster("gpu-0", "gpu-1"), "--wave-nodes", 1)

    checks = checked(tmp_path, "wave-1", cluster(), unread="nodes")

    assert [("failed", "nodes cannot be read")] == checks["Node//gpu-0"]


@pytest.mark.parametrize(
    ("unread", "expected"),
    [("", ("note", "it is gone")), ("namespaces", ("failed", "namespaces cannot be read"))],
)
@pytest.mark.parametrize("is_whole", [True, False], ids=["whole", "in parts"])
def test_a_namespace_that_is_gone_after_its_wave_is_a_note(
    tmp_path: Path, unread: str, expected: tuple[str, str], *, is_whole: bool
) -> None:
    """Its tenant had deleted it, the scripts left it out, and the check failed for good."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("translation: {native: translate}\n")
    web = workload("web", {GPU: "3"}, ["gpu-0"] if is_whole else ["gpu-0", "gpu-1", "gpu-2"])
    other = workload("other", {GPU: "3"}, [] if is_whole else ["gpu-3"])
    nodes = [f"gpu-{number}" for number in range(5)]
    flags = ("--wave-nodes", 1, "--settings", settings)
    plan = planned(tmp_path, [*cluster(*nodes), *web, *other], *flags)
    field = "namespaces" if is_whole else "partialNamespaces"
    wave = next(entry for entry in plan["waves"] if entry[field])

    checks = checked(
        tmp_path, f"wave-{wave['wave']}", cluster(*nodes, namespaces=()), unread=unread
    )

    assert expected in checks["Namespace//team"]
    assert {expected} == set(checks["Namespace//team"])
