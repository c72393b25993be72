"""`kubectl_complete-drawbridge`: what kubectl asks for when somebody presses Tab."""

import subprocess
import sys
from pathlib import Path

import pytest

from cli.__main__ import COMMANDS, main
from cli.output.completion import completion_for_kubectl

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
    ],
)
def test_the_last_argument_is_completed(arguments: tuple[str, ...], completions: list[str]) -> None:
    assert completed(*arguments) == (completions, ":4")


def test_a_folder_is_left_to_the_shell() -> None:
    assert completed("plan", "--profiles", "") == ([], ":0")


def test_no_argument_is_the_beginning_of_a_call() -> None:
    assert completed() == (sorted(COMMANDS), ":4")


def test_it_is_installed_beside_the_command() -> None:
    done = subprocess.run([PROGRAM, "inv"], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("inventory\tList devices")
    assert done.stdout.endswith("\n:4\n")
