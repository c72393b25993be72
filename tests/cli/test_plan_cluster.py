"""`drawbridge plan`: its scripts and its questions are for one cluster, and stop at another."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from cli.reading.live_snapshot import LiveSnapshot
from cli.verbs.snapshot.command import encode_snapshot
from kube.client.client import Client
from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from testing.command import drawbridge
from testing.documents import namespace
from testing.migration import SHARE, hami_node, origin, workload

UID: Final = "6f3c9d6e-1111-4c57-9d8f-000000000001"
OTHER: Final = "6f3c9d6e-2222-4c57-9d8f-000000000002"
SERVER: Final = "https://gpu.example:6443"


def objects(uid: str = UID) -> list[Mapping[str, Any]]:
    system = namespace("kube-system")
    system["metadata"]["uid"] = uid
    return [
        {**origin(), "server": SERVER},
        *(system, namespace("team"), hami_node("hami-0"), hami_node("hami-1")),
        *workload("web", SHARE, ["hami-0"]),
    ]


INSTALLED: Final = "hami-core-gpu.project-hami.io"
"""The value that the node selector of HAMi's driver has, whose chart a person installs first."""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects()))
    result = drawbridge("plan", "--snapshot", file, "-o", tmp_path / "plan", "--wave-nodes", 1)
    assert 0 == result.exit_code, result.stdout
    return tmp_path / "plan"


def run(
    script: Path, uid: str, *arguments: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run a script against a cluster with a uid; return its result, and the calls."""
    folder, calls = script.parents[1] / "bin", script.parents[1] / "calls"
    folder.mkdir(exist_ok=True)
    calls.write_text("")
    for program in ("kubectl", "helm", "drawbridge"):
        (folder / program).write_text(
            f"#!/bin/sh\nprintf '%s\\n' \"{program} $*\" >> {calls}\n"
            f'case "$*" in *current-context*) echo chosen;; *kube-system*) echo {uid};;\n'
            f"*daemonsets*) echo '{INSTALLED}';; esac\n"
        )
        (folder / program).chmod(0o755)
    ran = subprocess.run(
        [script, *arguments],
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran, calls.read_text().splitlines()


def scripts(plan: Path) -> list[Path]:
    return [plan / "prepare.sh", *sorted(plan.glob("wave-*/*.sh"))]


def test_a_plan_tells_which_cluster_it_is_for(plan: Path) -> None:
    (source,) = read_paths([str(plan / "plan.yaml")])

    assert {"uid": UID, "server": SERVER}.items() <= source.document["cluster"].items()
    assert UID in (plan / "README.md").read_text()


def test_every_script_stops_at_another_cluster(plan: Path) -> None:
    assert len(scripts(plan)) == 1 + 2 * 4
    for script in scripts(plan):
        ran, calls = run(script, OTHER)

        assert 1 == ran.returncode, script
        assert f"kube-system has the uid {OTHER}, and the plan is for {UID}, {SERVER}" in ran.stderr
        assert [
            "kubectl config current-context",
            "kubectl --context=chosen get namespace kube-system --output=jsonpath={.metadata.uid}",
        ] == calls


@pytest.mark.parametrize("arguments", [("--context", "gpu a"), ("--context=gpu a",)])
def test_every_command_of_a_script_is_for_the_context(
    plan: Path, arguments: tuple[str, ...]
) -> None:
    for script in scripts(plan):
        ran, calls = run(script, UID, *arguments)

        assert 0 == ran.returncode, ran.stderr
        flags = ("--context=gpu a", "--kube-context=gpu a")
        assert all(any(flag in call for flag in flags) for call in calls), calls
        assert " --context=gpu\\ a" in ran.stdout.splitlines()[-1]


def test_without_the_flag_the_current_context_stays_the_same(plan: Path) -> None:
    ran, calls = run(plan / "wave-1" / "switch.sh", UID)

    assert 0 == ran.returncode, ran.stderr
    assert all("--context=chosen" in call for call in calls[1:])
    assert "--context" not in ran.stdout


@pytest.mark.parametrize("arguments", [("--context",), ("--context=",), ("--other",)])
def test_a_wrong_call_runs_nothing(plan: Path, arguments: tuple[str, ...]) -> None:
    ran, calls = run(plan / "wave-1" / "switch.sh", UID, *arguments)

    assert (2, []) == (ran.returncode, calls)


def test_verify_stops_at_another_cluster(plan: Path, tmp_path: Path) -> None:
    for uid, message in ((OTHER, f"has the uid {OTHER}"), (UID, "")):
        file = tmp_path / "now.yaml"
        file.write_text(dump_yaml(objects(uid)))
        for flags in ((), ("--before",)):
            wave = plan / "wave-1"
            result = drawbridge("verify", "--snapshot", file, "--wave", wave, *flags, "-o", "json")

            checks = json.loads(result.stdout)["checks"]
            messages = [check["message"] for check in checks if check["object"] == "Cluster//"]
            assert bool(message) is bool(messages)
            assert all(message in text for text in messages)


def test_a_snapshot_without_a_uid_is_of_any_cluster(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml([hami_node("hami-0")]))
    drawbridge("plan", "--snapshot", file, "-o", tmp_path / "plan")

    ran, _ = run(tmp_path / "plan" / "wave-1" / "switch.sh", OTHER)

    assert 0 == ran.returncode, ran.stderr
    assert "no script can stop at another one" in (tmp_path / "plan" / "README.md").read_text()


def test_a_snapshot_has_the_address_of_its_api_server() -> None:
    state = LiveSnapshot(version="v1.37.1", items=(), unreadable=(), server=SERVER)

    assert SERVER == json.loads(encode_snapshot(state, ""))["items"][0]["server"]


async def test_the_address_has_no_credentials(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        dump_yaml(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [
                        {"name": "c", "cluster": {"server": "https://me:secret@gpu.example:6443"}}
                    ],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                }
            ]
        )
    )

    client = await Client.from_kubeconfig(str(kubeconfig))

    assert SERVER == client.server


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_reads_what_scripts_share(plan: Path) -> None:
    checked = subprocess.run(
        ["shellcheck", "-x", *plan.rglob("*.sh")], capture_output=True, text=True, check=False
    )

    assert "" == checked.stdout
