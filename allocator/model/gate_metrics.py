"""The feature gates of a cluster, as its API server tells.

Source: k8s.io/component-base v0.37.1, metrics/prometheus/feature: kubernetes_feature_enabled.
"""

import re
from collections.abc import Mapping
from typing import Final

_GATE: Final = re.compile(
    r'^kubernetes_feature_enabled\{name="(\w+)",stage="[A-Z]*"\} ([01])$', re.MULTILINE | re.ASCII
)


def parse_gates(metrics: str) -> Mapping[str, bool]:
    """Return the gates that metrics of the API server tell.

    >>> parse_gates('kubernetes_feature_enabled{name="DRAAdminAccess",stage="BETA"} 1')
    {'DRAAdminAccess': True}
    """
    return {name: value == "1" for name, value in _GATE.findall(metrics)}
