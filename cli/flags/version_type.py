"""A version of Kubernetes as the value of a flag."""

import click

from answers.model.kubernetes_version import Version, parse_version


class VersionType(click.ParamType[Version]):
    """A version of Kubernetes such as `1.38`."""

    name = "version"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Version:
        """Return major and minor version; click reports another text."""
        if isinstance(value, tuple):
            return value
        version = parse_version(str(value))
        if version is None:
            self.fail(f"{str(value)!r} is not a version such as 1.38", param, ctx)
        return version
