"""A migration in a replay: its moment, and the drivers that serve device keys then."""

import re
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec

from answers.recording.course import RecordedCluster
from cli.output.standard_error import print_line
from cli.reading.options import TranslationFlags, translation_options
from cli.reading.settings import SharedSettings, read_settings
from findings.text import count_text
from migration.replay.move import AmbiguousMove, MovedCluster, move
from process.model.durations import parse_duration
from process.profiles.profile_files import load_profiles
from translation.cluster.snapshot import Mode

_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")


class MomentType(click.ParamType[datetime | float]):
    """A time in RFC 3339, or the seconds since the beginning of a recording, as a number or a duration."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | float:
        """Return the time, or the seconds; click reports a text that is neither."""
        text = str(value)
        if _SECONDS.fullmatch(text):
            return float(text)
        try:
            return float(parse_duration(text))
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"write a time such as 2026-11-20T09:00:00Z, or one since the beginning such as 90m, not {text!r}",
                param,
                ctx,
            )
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def move_recorded(
    recorded: RecordedCluster,
    started_at: str,
    moment: datetime | float | None,
    flags: TranslationFlags,
) -> MovedCluster | None:
    """Return a recording with a migration; None without flags for one.

    Args:
        recorded: The recording.
        started_at: The time of its second 0 in RFC 3339; may be empty.
        moment: The time or the second of the migration; None for the beginning, where flags choose drivers.
        flags: The flags that choose drivers.

    Raises:
        click.BadParameter: The moment is not in the recording.
    """
    if moment is None and flags == TranslationFlags(
        profiles=(), profile_directory=None, settings=None
    ):
        return None
    second = _second(recorded, started_at, moment)
    settings = SharedSettings() if flags.settings is None else read_settings(flags.settings)
    profiles = load_profiles(flags.profile_directory)
    options = msgspec.structs.replace(
        translation_options(flags.profiles, profiles, settings), mode=Mode.OPT_OUT
    )
    try:
        moved = move(recorded, second, profiles, options)
    except AmbiguousMove as error:
        raise click.UsageError(str(error)) from None
    pods = sum(not pod.node for pod in moved.moved.course.pods)
    print_line(
        f"note: a migration in second {second:g} of {recorded.course.until:g}: "
        f"{count_text(pods, 'pod')} from then on, {moved.restarted} of them started anew"
    )
    return moved


def _second(recorded: RecordedCluster, started_at: str, moment: datetime | float | None) -> float:
    if moment is None:
        return 0.0
    second = moment if isinstance(moment, float) else _seconds_since(started_at, moment)
    if not 0 <= second < recorded.course.until:
        raise click.BadParameter(
            f"the recording has the seconds 0 to {recorded.course.until:g}"
            + (f" after {started_at}" if started_at else ""),
            param_hint="'--migrated-at'",
        )
    return second


def _seconds_since(started_at: str, moment: datetime) -> float:
    try:
        start = datetime.fromisoformat(started_at)
    except ValueError:
        raise click.BadParameter(
            "the recording does not say when it began; write seconds since then",
            param_hint="'--migrated-at'",
        ) from None
    return (
        moment - (start if start.tzinfo is not None else start.replace(tzinfo=UTC))
    ).total_seconds()
