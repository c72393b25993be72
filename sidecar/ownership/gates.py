"""The feature gates of the cluster, as its API server tells, against those that we allocate by.

With a gate that only one side has on, fields that decide about devices are dropped or not heeded.
"""

from collections.abc import Iterator, Mapping

from allocator.model.feature_gates import GATES, Features


def compare_gates(features: Features, cluster: Mapping[str, bool]) -> str:
    """Return a message on gates of allocation that differ; empty if none does.

    Args:
        features: The gates of our allocator.
        cluster: The API server's gates; gates that it does not report do not count.
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
