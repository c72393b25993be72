"""`--feature-gates` as the components of Kubernetes have it: names with true or false."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import click

from allocator.model.feature_gates import CALL_GATES, Features
from cli.flags.completion import complete_list_from
from cli.output.standard_error import print_line

WITHOUT_EFFECT: Final = frozenset(
    {
        "DRANodeAllocatableResources",
        "DRAPartitionableDevicesType",
        "DRAResourceClaimGranularStatusAuthorization",
        "DRAResourcePoolStatus",
        "DRASchedulerFilterTimeout",
        "DynamicResourceAllocation",
        "ResourceHealthStatus",
        "ResourceHealthStatusMessage",
    }
)
"""Upstream's other gates about devices, on which no allocation depends here."""

_WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""Words that Go's strconv.ParseBool accepts."""


class FeatureGates(click.ParamType[Mapping[str, bool]]):
    """`A=true,B=false`, as fields of Features with their values."""

    name = "feature gates"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Mapping[str, bool]:
        """Return the gates of one text; click reports an error in it."""
        gates: dict[str, bool] = {}
        for part in filter(str.strip, str(value).split(",")):
            name, _, word = (text.strip() for text in part.partition("="))
            if name not in CALL_GATES and name not in WITHOUT_EFFECT:
                names = ", ".join(sorted(CALL_GATES))
                self.fail(f"unknown feature gate {name!r}; known are: {names}", param, ctx)
            if word not in _WORDS:
                self.fail(f"{name} must be true or false, not {word!r}", param, ctx)
            if name in CALL_GATES:
                gates[CALL_GATES[name]] = _WORDS[word]
            else:
                print_line(f"note: feature gate {name} has no effect here")
        return gates


def _join(
    _context: click.Context, _parameter: click.Parameter, gate_maps: Iterable[Mapping[str, bool]]
) -> Mapping[str, bool]:
    """Return the gates of all texts; the last one of a name counts."""
    return {name: is_on for gates in gate_maps for name, is_on in gates.items()}


def _over_defaults(
    context: click.Context, parameter: click.Parameter, gate_maps: Iterable[Mapping[str, bool]]
) -> Features:
    """Return the gates of all texts over the defaults of 1.37."""
    return Features(**_join(context, parameter, gate_maps))


def feature_gates(command: Any) -> Any:
    """Give a command `--feature-gates` as `features`."""
    return _flag("features", _over_defaults, "as in 1.37")(command)


def given_feature_gates(command: Any) -> Any:
    """Give a command that reads settings `--feature-gates` as `given_gates`, by fields of Features."""
    return _flag("given_gates", _join, "those of the settings, else as in 1.37")(command)


def _flag(name: str, callback: Callable[..., Any], default: str) -> Callable[[Any], Any]:
    return click.option(
        "--feature-gates",
        name,
        type=FeatureGates(),
        multiple=True,
        callback=callback,
        metavar="GATE=BOOL,...",
        shell_complete=complete_list_from(
            lambda: (f"{gate}={word}" for gate in CALL_GATES for word in ("true", "false"))
        ),
        help=f"Feature gates of Kubernetes that allocation depends on; by default {default}. "
        "Repeatable.",
    )
