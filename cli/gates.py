"""`--feature-gates` as the components of Kubernetes take it: names and whether they are on."""

from collections.abc import Mapping
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


class FeatureGates(click.ParamType[Features]):
    """`A=true,B=false`, over the defaults of 1.37."""

    name = "feature gates"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Features:
        """Return the gates; click says what is wrong with the text."""
        if isinstance(value, Features):
            return value
        chosen: dict[str, bool] = {}
        for part in filter(None, str(value).split(",")):
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
        return Features(**chosen)


def feature_gates(command: Any) -> Any:
    """Give a command `--feature-gates` as `features`."""
    return click.option(
        "--feature-gates",
        "features",
        type=FeatureGates(),
        default=Features(),
        show_default="those of Kubernetes 1.37",
        metavar="GATE=BOOL,...",
        help="Gates of allocation, by upstream's names. Repeat gates within one text.",
    )(command)
