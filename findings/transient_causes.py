"""The codes of faults that may pass before the pods of a workload are created."""

from collections.abc import Mapping
from typing import Final

from findings.finding import Code

TRANSIENT_CAUSES: Final[Mapping[Code, str]] = {
    Code.UNSUPPORTED_AS_PUBLISHED: "the driver's settings may change before the next pods are created",
    Code.MEMORY_SIZES_UNKNOWN: "drivers publish slices when they start, often after workloads are applied",
    Code.SHARES_NOT_SUPPORTED: "a cluster is upgraded, or its feature gates are set",
    Code.QUOTA_NOT_COUNTED: "quotas and workloads are applied in any order",
    Code.LIMIT_RANGE_CONFLICT: "LimitRanges and workloads are applied in any order",
    Code.TEMPLATE_CONFLICT: "the template is deleted by its owner or by the controller",
    Code.DEVICE_CLASS_MISSING: "a driver installs its classes, often after the workloads",
    Code.PROFILE_CHANGED: "a profile is upgraded together with the workloads made for it",
}
"""Codes whose cause is the present state of the cluster, and how it changes. The pods of a workload are
created later, so on workloads these are warnings; every other error rejects the workload."""
