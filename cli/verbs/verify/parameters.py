"""The values of `drawbridge verify`'s options."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import click

_MAX_DIGITS: Final = 9


class DeviceCount(click.ParamType[tuple[str, int]]):
    """A number of devices, of a driver or of all."""

    name = "devices"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Return both, with an empty driver for all; click reports texts that are neither `DRIVER=N` nor `N`."""
        driver, separator, count = str(value).rpartition("=")
        is_number = count.isascii() and count.isdigit() and len(count) <= _MAX_DIGITS
        if not is_number or int(count) < 1 or bool(driver) != bool(separator):
            self.fail(
                f"write DRIVER=N, such as gpu.nvidia.com=8, or N, which is at least 1, not {value!r}",
                param,
                ctx,
            )
        return driver, int(count)


def expect_devices_flag(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option for the devices of a node; its value is a Mapping from driver to number."""

    def by_driver(
        _: click.Context, __: click.Parameter, counts: Sequence[tuple[str, int]]
    ) -> dict[str, int]:
        return dict(counts)

    return click.option(
        "--expect-devices",
        type=DeviceCount(),
        multiple=True,
        callback=by_driver,
        metavar="[DRIVER=]N",
        help="With --node, the least number of published devices of a driver, or of all drivers together; "
        "1 of all by default. Repeatable, once for each driver.",
    )(command)


def resource_flag(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option for the resource names that a node's device plugins may not offer any more."""
    return click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="KEY",
        help="With --node, a resource name that no device plugin may offer any more; NVIDIA's GPUs and MIG devices are "
        "among them, and names that the settings give them. Those of all profiles, and of replicas, by default. Repeatable.",
    )(command)
