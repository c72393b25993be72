"""`--feature-gates` as the components of Kubernetes take it: names and whether they are on."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import click
import msgspec

from allocator.core.model import Features

GATES: Final[Mapping[str, str]] = {
    field.encode_name: field.name for field in msgspec.structs.fields(Features)
}
"""Upstream's name of a gate to its field."""

WITHOUT_EFFECT: Final = frozenset(
    {
        "DRAExtendedResource",
        "DRANodeAllocatableResources",
        "DRAPartitionableDevicesType",
        "DRAResourceClaimGranularStatusAuthorization",
        "DRAResourcePoolStatus",
        "DRASchedulerFilterTimeout",
        "DRAWorkloadResourceClaims",
        "DynamicResourceAllocation",
        "ResourceHealthStatus",
        "ResourceHealthStatusMessage",
    }
)
"""Upstream's other gates about devices; which devices claims get does not depend on them here."""

_WORDS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""What Go's strconv.ParseBool takes."""


class FeatureGates(click.ParamType[Mapping[str, bool]]):
    """`A=true,B=false`: fields of Features to whether they are on."""

    name = "feature gates"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Mapping[str, bool]:
        """Return the gates; click says what is wrong with the text."""
        chosen: dict[str, bool] = {}
        for part in filter(str.strip, str(value).split(",")):
            name, _, word = (text.strip() for text in part.partition("="))
            if name not in GATES and name not in WITHOUT_EFFECT:
                known = ", ".join(sorted(GATES))
                self.fail(f"no gate is called {name!r}; known are: {known}", param, ctx)
            if word not in _WORDS:
                self.fail(f"{name} is either true or false, not {word!r}", param, ctx)
            if name in GATES:
                chosen[GATES[name]] = _WORDS[word]
            else:
                click.echo(f"note: gate {name} changes nothing here", err=True)
        return chosen


def _joined(
    _context: click.Context, _parameter: click.Parameter, chosen: Iterable[Mapping[str, bool]]
) -> Features:
    """Return what all texts say together, over the defaults of 1.37; the later counts."""
    return Features(**{name: is_on for each in chosen for name, is_on in each.items()})


def feature_gates(command: Any) -> Any:
    """Give a command `--feature-gates` as `features`."""
    return click.option(
        "--feature-gates",
        "features",
        type=FeatureGates(),
        multiple=True,
        callback=_joined,
        metavar="GATE=BOOL,...",
        help="Gates of allocation, by upstream's names; the others are as in Kubernetes 1.37. "
        "Repeatable.",
    )(command)
