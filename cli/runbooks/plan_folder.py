"""The folder of a plan: its files, and reading them again."""

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from answers.model.kinds import API_VERSION
from cli.runbooks import driver_runbook, runbooks, shell
from kube.errors import ConfigError
from kube.manifests.reader import read_paths
from migration.plan.facts import repository_patches
from migration.plan.model.plan import KIND, Plan
from process.profiles.profile_files import SUFFIXES

PLAN: Final = "plan.yaml"
PAGE: Final = "plan.html"
_README: Final = "README.md"
_NOT_RUN: Final = frozenset({PAGE, _README, driver_runbook.DRIVER_VALUES})
"""Files of a plan that change nothing in a cluster, and values that a person saves while it is prepared."""


def find_plan(folder: Path | None) -> Path:
    """Return the folder of a plan: the one that is named, else this one, else `plan`.

    Raises:
        ConfigError: There is none.
    """
    folders = [Path(), Path("plan")] if folder is None else [folder]
    for candidate in folders:
        if (candidate / PLAN).is_file():
            return candidate
    places = " or ".join(str(candidate / PLAN) for candidate in folders)
    raise ConfigError(f"there is no {places}; drawbridge plan -o DIR writes one")


def read_plan(folder: Path) -> Plan:
    """Return the plan of a folder.

    Raises:
        ConfigError: It cannot be read, or is not complete.
    """
    path = folder / PLAN
    documents = [source.document for source in read_paths([str(path)])]
    try:
        plan = msgspec.convert(documents[0] if documents else {}, Plan)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path} is not a plan: {error}") from error
    if not plan.complete:
        raise ConfigError(f"{path} is not complete, since its making was interrupted: plan again")
    return plan


def plan_digest(folder: Path) -> str:
    """Return a digest of the files of a plan that change a cluster.

    Raises:
        OSError: One cannot be read.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and name not in _NOT_RUN and is_plan_path(path, folder):
            for part in (name.encode(), path.read_bytes()):
                digest.update(len(part).to_bytes(8, "big") + part)
    return f"sha256:{digest.hexdigest()}"


def is_plan(path: Path) -> bool:
    """Return True if a file is the document of a plan."""
    if path.is_symlink() or not path.is_file():
        return False
    objects = read_paths([str(path)])
    return [(source.api_version, source.kind) for source in objects] == [(API_VERSION, KIND)]


def is_plan_path(path: Path, folder: Path) -> bool:
    """Return True if a path is one that a plan has; a link never is."""
    if path.is_symlink():
        return False
    match path.relative_to(folder).parts:
        case (
            "plan.yaml"
            | "plan.html"
            | "README.md"
            | "prepare.sh"
            | shell.CLUSTER_SCRIPT
            | driver_runbook.DRIVER_VALUES
            | runbooks.SETTINGS,
        ):
            return path.is_file()
        case ("quotas" | runbooks.PROFILES | repository_patches.KUSTOMIZE,):
            return path.is_dir()
        case ("quotas", file):
            return path.is_file() and file.endswith(".yaml")
        case (runbooks.PROFILES, _):
            return path.is_file() and path.suffix in SUFFIXES
        case (repository_patches.KUSTOMIZE, step):
            return path.is_dir() and (step == "prepare" or _is_wave(step))
        case (repository_patches.KUSTOMIZE, step, file):
            is_step = step == "prepare" or _is_wave(step)
            return is_step and path.is_file() and file.endswith(".yaml")
        case (wave,):
            return path.is_dir() and _is_wave(wave)
        case (wave, file):
            return (
                _is_wave(wave)
                and path.is_file()
                and file in {f"{name}.sh" for name in runbooks.PHASES}
            )
        case _:
            return False


def _is_wave(name: str) -> bool:
    prefix, _, number = name.partition("-")
    return prefix == "wave" and number.isascii() and number.isdigit()
