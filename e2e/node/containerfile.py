"""The steps of a Containerfile, run in a root file system without a container engine.

Only what ours needs: `ARG` of a base, `FROM` of one kind of base, `WORKDIR`, `ENV`, `COPY` from the project and from an
earlier stage, `RUN` by `sh -c` in a chroot, `USER` and `CMD`. Any other instruction is an error, so that
nothing is left out silently.
"""

import json
import re
import shutil
import string
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

_COPIED: Final = re.compile(r"COPY --from=(\S+) (\S+) (\S+)")
_CONTINUED: Final = re.compile(r"\\\n")
_CHROOT: Final = r"""
set -e
mount --bind /dev "$1/dev"
mount -t proc proc "$1/proc"
mkdir -p "$1/run/wheels"
mount --bind "$2" "$1/run/wheels"
root=$1
shift 2
exec chroot "$root" "$@"
"""

Config = dict[str, Any]
Ignored = Callable[[str, list[str]], set[str]]


class BuildError(Exception):
    """A Containerfile has a step that is not understood, or that failed."""


class Instruction(NamedTuple):
    """One step: its word in capitals, and the rest of it."""

    word: str
    text: str


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """The lines between two `FROM`.

    Attributes:
        name: The word after `AS`; empty for one without a name.
        base: The image that it begins with.
    """

    name: str
    base: str
    steps: tuple[Instruction, ...]


class Environment(NamedTuple):
    """The environment of the steps.

    Attributes:
        wheels: A folder in which pip finds every package.
    """

    context: Path
    base: Path
    wheels: Path


def read_stages(text: str) -> tuple[Stage, ...]:
    r"""Return the stages of a Containerfile.

    >>> [stage.name for stage in read_stages("FROM a AS build\nRUN b \\\n c\n# d\nFROM a\nUSER 1\n")]
    ['build', '']
    >>> read_stages("ARG A=b\nFROM ${A}\n")[0].base
    'b'
    """
    stages: list[Stage] = []
    # Before the first stage, an ARG is for FROM only.
    arguments: dict[str, str] = {}
    for instruction in _instructions(text):
        if instruction.word == "FROM":
            base, _, name = instruction.text.partition(" AS ")
            base = string.Template(base).substitute(arguments)
            stages.append(Stage(name=name, base=base, steps=()))
        elif instruction.word == "ARG" and not stages:
            name, _, default = instruction.text.partition("=")
            arguments[name] = default
        else:
            steps = (*stages[-1].steps, instruction)
            stages[-1] = msgspec.structs.replace(stages[-1], steps=steps)
    return tuple(stages)


def read_config(stages: tuple[Stage, ...]) -> Config:
    """Return the `config` of an image for containers of the last stage.

    Raises:
        BuildError: It has a step that is not understood.
    """
    config: Config = {"Env": [], "WorkingDir": "/"}
    for step in stages[-1].steps:
        if step.word == "ENV":
            variables = {**_path(config["Env"]), **_variables(step.text, _path(config["Env"]))}
            config["Env"] = [f"{name}={value}" for name, value in variables.items()]
        elif step.word == "USER":
            config["User"] = step.text
        elif step.word == "CMD":
            config["Cmd"] = json.loads(step.text)
        elif _COPIED.fullmatch(f"{step.word} {step.text}") is None:
            raise BuildError(f"the last stage has a step that is not understood: {step}")
    return config


def build_layer(stages: tuple[Stage, ...], folder: Path, environment: Environment) -> Path:
    """Build the stages that the last one copies from; return a folder with its additions to its base.

    Args:
        folder: Empty, for all files of the build.

    Raises:
        BuildError: A step failed.
    """
    earlier = {stage.name: stage for stage in stages if stage.name}
    layer = folder / "layer"
    for step in stages[-1].steps:
        source = _COPIED.fullmatch(f"{step.word} {step.text}")
        if source is not None:
            root = _build_stage(earlier[source[1]], folder / source[1], environment)
            _copy(root / source[2].lstrip("/"), layer / source[3].lstrip("/"))
    return layer


def _build_stage(stage: Stage, root: Path, environment: Environment) -> Path:
    """Run the steps of a stage in a copy of the base."""
    root.mkdir(parents=True)
    subprocess.run(["tar", "-xf", environment.base, "-C", root], check=True)
    folder = "/"
    for step in stage.steps:
        if step.word == "WORKDIR":
            folder = step.text
            (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif step.word == "COPY" and not step.text.startswith("--"):
            *sources, target = step.text.split()
            for source in sources:
                into = root / folder.lstrip("/") / (Path(source).name if target == "./" else target)
                _copy(environment.context / source, into, shutil.ignore_patterns("__pycache__"))
        elif step.word == "RUN":
            _run(root, folder, step.text, environment.wheels)
        else:
            raise BuildError(f"stage {stage.name} has a step that is not understood: {step}")
    return root


def _run(root: Path, folder: str, command: str, wheels: Path) -> None:
    """Run a command in a root file system, in a mount namespace that ends with it."""
    variables = {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": "/root",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "/run/wheels",
    }
    assignments = [f"{name}={value}" for name, value in variables.items()]
    inside = ("/usr/bin/env", "-i", *assignments, "sh", "-ec", f"cd {folder}\n{command}")
    completed = subprocess.run(
        ["unshare", "--mount", "--propagation", "private",
         "sh", "-c", _CHROOT, "sh", root, wheels, *inside],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if completed.returncode:
        raise BuildError(f"RUN {command}\n{completed.stdout[-2000:]}{completed.stderr[-4000:]}")


def _copy(source: Path, target: Path, ignored: Ignored | None = None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=ignored)
    else:
        shutil.copy(source, target)


def _instructions(text: str) -> Iterator[Instruction]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for line in _CONTINUED.sub(" ", "\n".join(lines)).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield Instruction(word, rest.strip())


def _variables(text: str, known: Mapping[str, str]) -> dict[str, str]:
    pairs = (word.split("=", 1) for word in text.split())
    return {name: value.replace("$PATH", known["PATH"]) for name, value in pairs}


def _path(assignments: list[str]) -> dict[str, str]:
    """Return variables as a map, with the PATH that images of Python have."""
    known = dict(assignment.split("=", 1) for assignment in assignments)
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", **known}
