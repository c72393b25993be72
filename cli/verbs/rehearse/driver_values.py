"""The values of a driver's Helm release, for `prepare.sh` of a rehearsed plan."""

from pathlib import Path
from typing import Final

import click
import yaml

from cli.runbooks.driver_runbook import DRIVER_VALUES, upgraded_release
from findings.text import printable
from migration.plan.drivers.confirmed import NONE, REPOSITORY
from migration.plan.model.plan import Plan

FLAG: Final = "--driver-values"
_NO_USE: Final = f"{FLAG} is of no use: the plan changes no Helm release; see --driver-release."
_MAX_BYTES: Final = 1024 * 1024


def read_driver_values(path: Path, release: str) -> bytes:
    """Return the content of a file of values as Helm would take it.

    Args:
        path: The file.
        release: The release that was confirmed, as the value of its flag; `none` or empty without one.

    Raises:
        click.UsageError: There is no release, or the file is too large, or no YAML object.
    """
    if release in {"", NONE} or release.startswith(REPOSITORY):
        raise click.UsageError(_NO_USE)
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise click.UsageError(f"{FLAG} {path} is larger than 1 MiB.")
    try:
        document = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        text = printable(" ".join(str(error).split()))
        raise click.UsageError(f"{FLAG} {path} is not YAML: {text}") from error
    if document is not None and not isinstance(document, dict):
        raise click.UsageError(
            f"{FLAG} {path} is {type(document).__name__} and not an object of values, as `helm get values` prints it."
        )
    return content


def write_driver_values(folder: Path, plan: Plan, content: bytes | None) -> None:
    """Write the values into the folder of a plan that needs them; they may be secret.

    Raises:
        click.UsageError: They are missing, or the plan has no use for them.
    """
    release = upgraded_release(plan)
    if release is not None and content is None:
        raise click.UsageError(
            "prepare.sh of the plan stops until a person has saved the values of release "
            f"{release.name}: name them with {FLAG} FILE; "
            "helm get values shows them."
        )
    if content is None:
        return
    if release is None:
        raise click.UsageError(_NO_USE)
    path = folder / DRIVER_VALUES
    path.touch(mode=0o600)
    path.write_bytes(content)
