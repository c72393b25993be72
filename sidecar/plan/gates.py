"""The feature gates of the cluster, as its API server tells, against those that we allocate by.

With a gate that only one side has on, fields that decide about devices are dropped or not heeded.

Source: k8s.io/component-base v0.37.1, metrics/prometheus/feature: kubernetes_feature_enabled.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from allocator.model.feature_gates import GATES, Features

_GATE: Final = re.compile(
    r'^kubernetes_feature_enabled\{name="(\w+)",stage="[A-Z]*"\} ([01])$', re.MULTILINE | re.ASCII
)


def parse_gates(metrics: str) -> Mapping[str, bool]:
    """Return the gates that metrics of the API server tell.

    >>> parse_gates('kubernetes_feature_enabled{name="DRAAdminAccess",stage="BETA"} 1')
    {'DRAAdminAccess': True}
    """
    return {name: value == "1" for name, value in _GATE.findall(metrics)}


def compare_gates(features: Features, cluster: Mapping[str, bool]) -> str:
    """Return which gates of allocation differ, in words; empty if none does.

    Args:
        features: That we allocate by.
        cluster: Of the API server; gates that it does not tell do not count.
    """
    differences = ", ".join(_differences(features, cluster))
    if not differences:
        return ""
    return f"feature gates differ from the API server's: {differences}; set sidecar.featureGates"


def _differences(features: Features, cluster: Mapping[str, bool]) -> Iterator[str]:
    for name, field in sorted(GATES.items()):
        is_on, theirs = getattr(features, field), cluster.get(name)
        if theirs is not None and theirs != is_on:
            yield f"{name} is {_word(is_on)} here and {_word(theirs)} there"


def _word(is_on: bool) -> str:  # noqa: FBT001 - the value itself.
    return "on" if is_on else "off"
