"""The command as a process: its outputs, from any directory."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kube.manifests.dump import dump_yaml
from testing.builders import gpus, pod
from testing.command import CLUSTER, ROOT
from testing.documents import api_object

DRAWBRIDGE = (sys.executable, "-m", "cli")
WORDS = api_object("ConfigMap", "c", data={"a": "ä ✗"})


def ran(*call: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*DRAWBRIDGE, *map(str, call)],
        input=stdin.encode(),
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )


def test_documents_are_utf8_whatever_the_locale_says() -> None:
    result = ran("translate", "-f", "-", stdin=dump_yaml([WORDS]), PYTHONIOENCODING="latin-1")

    assert (0, dump_yaml([WORDS]).encode()) == (result.returncode, result.stdout)


def test_a_full_disk_is_reported_in_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [*DRAWBRIDGE, "inventory", "--snapshot", CLUSTER],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            check=False,
        )

    assert (2, b"Error: No space left on device\n") == (result.returncode, result.stderr)


def test_a_reader_that_has_seen_enough_ends_it_quietly() -> None:
    many = [pod(gpus("1.5")) | {"metadata": {"name": f"pod-{number}"}} for number in range(1000)]
    command = shlex.join([*DRAWBRIDGE, "check", "-f", "-"])
    result = subprocess.run(
        ["sh", "-c", f"{command} | head -1"],
        input=dump_yaml(many).encode(),
        capture_output=True,
        cwd=ROOT,
        check=False,
    )

    assert b"error: Pod/default/pod-0:" in result.stdout
    # A slow machine shows the progress.
    assert [] == [line for line in result.stderr.splitlines() if not line.startswith(b"checked: ")]


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.yaml"))
    file.write_text(dump_yaml([pod(gpus("1.5"))]))

    result = ran("check", "-f", file, "-o", "sarif")

    assert (1, b"") == (result.returncode, result.stderr)
    assert b"/%FF.yaml" in result.stdout


def test_help_of_a_command_by_name() -> None:
    assert ran("check", "--help").stdout == ran("help", "check").stdout
    assert ran("--help").stdout == ran("help").stdout
    assert 2 == ran("help", "nope").returncode


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_the_completion_script_of_a_shell_calls_the_command(shell: str) -> None:
    result = ran("completion", shell)

    assert 0 == result.returncode
    assert f"_DRAWBRIDGE_COMPLETE={shell}_complete".encode() in result.stdout


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (("why", "pod", "x", "-A"), "Objects of all namespaces are read"),
        (("check", "-k", "overlay"), "kubectl kustomize DIR | drawbridge"),
        (("inventory", "--server", "https://example.com"), "--kubeconfig"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_option_of_kubectl_that_is_not_there_gets_a_hint(
    call: tuple[str, ...], hint: str
) -> None:
    result = ran(*call)

    assert result.returncode == 2
    assert hint in result.stderr.decode()


def test_an_option_that_nobody_has_gets_no_hint() -> None:
    assert ran("check", "--zz").stderr.decode().endswith("No such option '--zz'.\n")


def test_colours_can_be_forced_and_forbidden() -> None:
    call = ("translate", "-f", "examples/share.yaml", "-o", "text")

    assert b"\x1b[" in ran(*call, FORCE_COLOR="1").stdout
    assert b"\x1b[" not in ran(*call, FORCE_COLOR="1", NO_COLOR="1").stdout
    assert b"\x1b[" not in ran(*call).stdout
    assert b"\x1b[" in ran(*call, "--color", "always", NO_COLOR="1").stdout
    assert b"\x1b[" in ran(*call, "--color=always").stdout
    assert b"\x1b[" not in ran(*call, "--color", "never", FORCE_COLOR="1").stdout
    assert b"\x1b[" in ran(*call, "--color", "auto", FORCE_COLOR="1").stdout


def test_what_is_placed_is_green_and_what_is_not_is_red() -> None:
    state = "examples/busy/cluster.yaml"
    call = ("simulate", "-f", "examples/busy/pods.yaml", "--snapshot", state, "--color", "always")

    text = ran(*call).stdout.decode()

    assert "\x1b[32meast-1\x1b[0m" in text or "\x1b[32m" in text.split("\n")[0]
    assert "\x1b[31m\x1b[1mnot placed\x1b[0m" in text
    assert "\x1b[33m#" in text
