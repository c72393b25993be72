"""The modules of older control planes, and the gates that stories have there."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from answers.model.kubernetes_version import OLDEST_KUBERNETES
from e2e.binaries import OLDER_VARIABLE
from e2e.older_kubernetes import LEFT_OFF, NEWEST_MINOR, SINCE, gates_turned_on, lacking
from migration.upgrade.kubernetes import GATES, NEWEST_TESTED

FOLDER: Final = Path(__file__).parents[2] / "e2e" / "controlplane"
OLDER: Final = range(OLDEST_KUBERNETES[1], NEWEST_TESTED[1])


def mod_file(minor: int) -> str:
    return (FOLDER / f"kubernetes-1.{minor}.mod").read_text()


def test_every_older_version_has_its_modules() -> None:
    expected = {f"kubernetes-1.{minor}{end}" for minor in OLDER for end in (".mod", ".sum")}

    assert expected == {path.name for path in FOLDER.glob("kubernetes-*")}
    assert NEWEST_TESTED[1] == NEWEST_MINOR


@pytest.mark.parametrize("minor", OLDER)
def test_all_modules_of_kubernetes_have_the_version_of_the_file(minor: int) -> None:
    text = mod_file(minor)
    (patch,) = re.findall(rf"^\tk8s\.io/kubernetes v1\.{minor}\.(\d+)$", text, re.MULTILINE)
    replaced = re.findall(r"^\tk8s\.io/[\w-]+ => k8s\.io/[\w-]+ (\S+)$", text, re.MULTILINE)
    required = re.findall(
        r"^\tk8s\.io/(?:client-go|component-base|kubectl) (\S+)$", text, re.MULTILINE
    )

    assert {f"v0.{minor}.{patch}"} == {*replaced, *required}
    assert len(replaced) > 20


@pytest.mark.parametrize("minor", OLDER)
def test_an_older_version_is_built_from_the_same_program(minor: int) -> None:
    """The direct requirements are those of go.mod, so that `go mod tidy` finds one program."""
    names = [
        set(re.findall(r"^\t(\S+) v\S+$", text, re.MULTILINE))
        for text in (mod_file(minor), (FOLDER / "go.mod").read_text())
    ]

    assert names[0] == names[1]


@pytest.mark.parametrize("minor", OLDER)
def test_the_variable_chooses_the_version(minor: int) -> None:
    code = "from e2e import binaries; print(binaries.KUBERNETES, binaries.MODULES[1].mod_file)"

    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, OLDER_VARIABLE: f"1.{minor}"},
        cwd=FOLDER.parents[1],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()

    assert answer[0].startswith(f"1.{minor}.")
    assert answer[1] == f"kubernetes-1.{minor}.mod"


def test_an_unknown_version_is_an_error_that_names_those_that_there_are() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", "import e2e.binaries"],
        env={**os.environ, OLDER_VARIABLE: "1.20"},
        cwd=FOLDER.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.returncode != 0
    assert "=1.20: there are 1.34, 1.35, 1.36" in answer.stderr


@pytest.mark.parametrize("minor", OLDER)
def test_gates_that_are_on_later_are_turned_on(minor: int) -> None:
    turned_on = gates_turned_on(minor)

    assert "" == lacking(turned_on, minor)
    assert {gate for gate, defaults in GATES.items() if defaults[minor]}.isdisjoint(turned_on)
    on_in_newest = {gate for gate, defaults in GATES.items() if defaults[NEWEST_MINOR]}
    left_off = {gate for gate, first in LEFT_OFF.items() if minor < first}
    assert turned_on.keys() | left_off >= {gate for gate in on_in_newest if not GATES[gate][minor]}
    assert turned_on.keys() <= on_in_newest - left_off


def test_the_newest_version_has_the_gates_of_its_defaults() -> None:
    assert {} == gates_turned_on(NEWEST_MINOR)
    for gate in (*GATES, *SINCE):
        assert "" == lacking({gate: True}, NEWEST_MINOR)
