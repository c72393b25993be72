"""LimitRanges that bound a key removed by the translation."""

from collections.abc import Iterator

from findings.finding import Code, Finding, error
from translation.preflight.model.inputs import PreflightInput


def check_limit_ranges(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield an error for each LimitRange that bounds a key removed by the translation."""
    limit_ranges = inputs.snapshot.limit_ranges.get(inputs.namespace, {})
    for container in inputs.legacy.containers if limit_ranges else ():
        for key in sorted(container.limits):
            for name in sorted(limit_ranges):
                if key in limit_ranges[name].bounded:
                    yield error(
                        Code.LIMIT_RANGE_CONFLICT,
                        container.limit_path(key),
                        f"LimitRange {name} bounds {key}, and Kubernetes rejects pods without it, as "
                        "translated pods are",
                        f"remove {key} from the LimitRange, and limit claims by a ResourceQuota on their "
                        "DeviceClass",
                    )
