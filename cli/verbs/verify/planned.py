"""The wave of a plan that a check is about, from its folder or its number."""

from pathlib import Path

from cli.runbooks.plan_folder import find_plan, read_plan
from kube.errors import ConfigError
from migration.plan.model.plan import Plan, Wave


def find_wave(wave: str) -> tuple[Plan, Wave]:
    """Return the plan of a wave, and the wave.

    Raises:
        ConfigError: There is no such wave, or its plan cannot be read.
    """
    plan, number = _read_plan(wave)
    planned = next((entry for entry in plan.waves if entry.wave == number), None)
    if planned is None:
        raise ConfigError(f"the plan has {len(plan.waves)} waves, and no wave {number}")
    return plan, planned


def _read_plan(wave: str) -> tuple[Plan, int]:
    """Return the plan of a wave, and the wave's number.

    Raises:
        ConfigError: There is no plan, or it cannot be read, or it is not complete.
    """
    is_number = wave.isascii() and wave.isdigit()
    text = wave if is_number else Path(wave).resolve().name.removeprefix("wave-")
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{wave} is neither a number nor a folder wave-N of a plan")
    folder = find_plan(None if is_number else Path(wave).resolve().parent)
    return read_plan(folder), int(text[:9])
