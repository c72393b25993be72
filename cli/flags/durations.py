"""Durations as flags take them."""

import click

from process.model.durations import Duration, parse_duration


class DurationType(click.ParamType[Duration]):
    """A duration such as `30m`."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Duration:
        """Return the duration that a text says; click reports an error in it."""
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
