"""`--scheduler-config`: kube-scheduler's configuration for scoring the CPU and memory of nodes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from answers.model.scheduler_configuration import scoring_profiles
from cli.flags.completion import FILE_NAME
from kube.errors import ConfigError, ObjectFileError
from kube.manifests.reader import read_objects

Command = TypeVar("Command", bound=Callable[..., Any])


def scheduler_config(help_text: str) -> Callable[[Command], Command]:
    """Return a decorator that gives a command `--scheduler-config` as `scoring_profiles`.

    They are a mapping of schedulerName to ScoringProfile, empty without the option.

    Args:
        help_text: The use that the command makes of them.
    """
    return click.option(
        "--scheduler-config",
        "scoring_profiles",
        type=FILE_NAME,
        metavar="FILE",
        callback=_read_profiles,
        help=f"A KubeSchedulerConfiguration, as kube-scheduler's --config takes it. {help_text}",
    )


def _read_profiles(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Any:
    if value is None:
        return {}
    try:
        return scoring_profiles(read_objects(Path(value).read_bytes(), value))
    except (ConfigError, ObjectFileError) as error:
        raise click.BadParameter(str(error)) from None
