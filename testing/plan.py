"""Plans of migrations, as `drawbridge plan` writes them."""

import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from click.testing import Result

from kube.manifests.dump import dump_yaml
from kube.manifests.reader import read_paths
from migration.plan.planning.prepared import PlanQuestion
from process.profiles.profile_files import load_profiles
from testing.command import drawbridge
from translation.cluster.snapshot import TranslationOptions

Objects = Sequence[Mapping[str, Any]]


def call(tmp_path: Path, objects: Objects, *options: object, folder: str = "plan") -> Result:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    return drawbridge("plan", "--snapshot", file, "-o", tmp_path / folder, *options)


def question_of(tmp_path: Path, objects: Objects) -> PlanQuestion:
    """Return the question for a plan of a cluster with these objects."""
    file = tmp_path / "cluster.yaml"
    file.write_text(dump_yaml(objects))
    return PlanQuestion(
        objects=tuple(read_paths([str(file)])),
        profiles=load_profiles(),
        options=TranslationOptions(),
        namespace="default",
        version="",
    )


def document(tmp_path: Path, folder: str = "plan") -> dict[str, Any]:
    (source,) = read_paths([str(tmp_path / folder / "plan.yaml")])
    return source.document


def planned(tmp_path: Path, objects: Objects, *options: object) -> dict[str, Any]:
    result = call(tmp_path, objects, *options)
    assert result.exit_code in (0, 1), result.stderr
    return document(tmp_path)


def checks_before(tmp_path: Path, objects: Objects, wave: int = 1) -> list[dict[str, Any]]:
    """Return the checks before a wave, in a cluster as it is then."""
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))
    folder = tmp_path / "plan" / f"wave-{wave}"
    result = drawbridge("verify", "--snapshot", file, "--wave", folder, "--before", "-o", "json")
    checks: list[dict[str, Any]] = json.loads(result.stdout)["checks"]
    return checks


def checks_after(tmp_path: Path, objects: Objects, wave: int) -> dict[str, tuple[str, str]]:
    """Return object to state and message of the checks after a wave, in a cluster as it is then."""
    file = tmp_path / "now.yaml"
    file.write_text(dump_yaml(objects))
    folder = tmp_path / "plan" / f"wave-{wave}"
    result = drawbridge("verify", "--snapshot", file, "--wave", folder, "-o", "json")
    checks = json.loads(result.stdout)["checks"]
    return {check["object"]: (check["state"], check["message"]) for check in checks}


def failed_before(tmp_path: Path, objects: Objects, wave: int = 1) -> dict[str, str]:
    """Return object to message of the failed checks before a wave."""
    return {
        check["object"]: check["message"]
        for check in checks_before(tmp_path, objects, wave)
        if check["state"] == "failed"
    }


def waves(plan: Mapping[str, Any]) -> list[tuple[list[str], list[str]]]:
    return [
        ([node["name"] for node in wave["nodes"]], wave["namespaces"]) for wave in plan["waves"]
    ]


def held_objects(plan: Mapping[str, Any]) -> dict[str, str]:
    return {entry["object"]: entry["reason"] for entry in plan["held"]}


def script(tmp_path: Path, phase: str, wave: int = 1, folder: str = "plan") -> str:
    return (tmp_path / folder / f"wave-{wave}" / f"{phase}.sh").read_text()


def prepare(tmp_path: Path) -> str:
    return (tmp_path / "plan" / "prepare.sh").read_text()


def run_script(
    tmp_path: Path, name: str, answers: Mapping[str, str] = {}, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a script of a plan with programs that only add their calls to the file `calls`.

    Args:
        name: The script below the folder of the plan.
        answers: Program to the shell lines that it runs then.
        options: The flags of the script.
    """
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    for program in ("kubectl", "helm", "drawbridge"):
        call_ = f'echo {program} "$@" >> {tmp_path}/calls'
        (programs / program).write_text(f"#!/bin/sh\n{call_}\n{answers.get(program, '')}\n")
        (programs / program).chmod(0o755)
    return subprocess.run(
        [tmp_path / "plan" / name, *options],
        env={"PATH": f"{programs}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def changes(text: str) -> list[tuple[str, dict[str, tuple[Any, Any]]]]:
    """Return the objects that a script changes, each with the last key of a field to its value before and after."""
    changed = []
    for line in text.splitlines():
        if "change_object " not in line or line.lstrip().startswith("#"):
            continue
        words = shlex.split(line[line.index("change_object ") :].removesuffix("; fi"))
        _, target, namespace, patch, finished, *_ = words
        before = {
            entry["path"]: entry["value"] for entry in json.loads(patch) if entry["op"] == "test"
        }
        after = {entry["path"]: entry["value"] for entry in json.loads(finished)}
        fields = {_last_key(path): (value, after[path]) for path, value in before.items()}
        place = f"{namespace}/" if namespace else ""
        changed.append((f"{place}{target}", fields))
    return changed


def _last_key(pointer: str) -> str:
    return pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
