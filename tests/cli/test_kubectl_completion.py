"""`kubectl_complete-drawbridge`: kubectl's call when somebody presses Tab."""

import subprocess
import sys
from pathlib import Path

import pytest

from allocator.model.feature_gates import CALL_GATES
from cli.__main__ import COMMANDS, main
from cli.output.completion import completion_for_kubectl
from findings.finding import Code
from testing.builders import SRIOV

PROGRAM = Path(sys.executable).with_name("kubectl_complete-drawbridge")


def completed(*arguments: str) -> tuple[list[str], str]:
    """The completions without their descriptions, and the directive."""
    *lines, directive = completion_for_kubectl(main, arguments).split("\n")
    return [line.partition("\t")[0] for line in lines], directive


def test_commands_come_with_their_lines() -> None:
    assert completed("") == (sorted(COMMANDS), ":4")
    assert "assess\t" in completion_for_kubectl(main, ["ass"])


@pytest.mark.parametrize(
    ("arguments", "completions"),
    [
        (("ass",), ["assess"]),
        (("bridge", "o"), ["own"]),
        (("assess", "--res"), ["--residue"]),
        (("assess", "-o", "h"), ["html"]),
        (("completion", "z"), ["zsh"]),
        (("help", "ass"), ["assess"]),
        (("nothing", "ass"), ["assess"]),
        (("check", "--ignore", "quotaN"), ["quotaNotCounted"]),
        (("check", "--fail-on", ""), ["error", "warning"]),
        (("translate", "--profile", "sriov=sriov"), [f"sriov={SRIOV}"]),
        (("simulate", "--strategy", "Comp"), ["CompactFirst"]),
        (
            ("simulate", "--feature-gates", "DRAConsumableCapacity=true,DRADeviceTaintR"),
            [
                "DRAConsumableCapacity=true,DRADeviceTaintRules=false",
                "DRAConsumableCapacity=true,DRADeviceTaintRules=true",
            ],
        ),
        (("bridge", "rel"), ["release"]),
        (("why", ""), ["claim", "deployment", "job", "pod", "statefulset"]),
        (("why", "pod", ""), []),
        (("top", "n"), ["namespaces", "nodes"]),
        (("fix", "--in"), ["--in-place"]),
    ],
)
def test_the_last_argument_is_completed(arguments: tuple[str, ...], completions: list[str]) -> None:
    assert completed(*arguments) == (completions, ":4")


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "-f"),
        ("assess", "--snapshot"),
        ("translate", "--settings"),
        ("status", "--kubeconfig"),
        ("snapshot", "-o"),
        ("test", "-f"),
        ("verify", "--wave"),
        ("plan", "--profiles"),
    ],
)
@pytest.mark.parametrize("incomplete", ["", "a/b"])
def test_names_of_files_and_folders_are_left_to_the_shell(
    arguments: tuple[str, ...], incomplete: str
) -> None:
    assert completed(*arguments, incomplete) == ([], ":0")


def test_all_values_of_a_closed_set_are_offered() -> None:
    codes, _ = completed("check", "--ignore", "")
    gates, _ = completed("why", "--feature-gates", "")

    assert codes == sorted(Code)
    assert {gate.partition("=")[0] for gate in gates} == set(CALL_GATES)


def test_no_argument_is_the_beginning_of_a_call() -> None:
    assert completed() == (sorted(COMMANDS), ":4")


def test_it_is_installed_beside_the_command() -> None:
    done = subprocess.run([PROGRAM, "inv"], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("inventory\tList devices")
    assert done.stdout.endswith("\n:4\n")
