"""The scripts of a wave that is aborted: no node keeps an annotation that only a drained node needs."""

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from testing.migration import daemon_set, plugin_node
from testing.plan import planned

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
