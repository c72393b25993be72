"""Limits of ResourceSlices that the API server enforces.

Source: k8s.io/api v0.37.1, resource/v1/types.go; k8s.io/kubernetes v1.37.1,
pkg/apis/resource/validation/validation.go.
"""

from typing import Final

ATTRIBUTES_AND_CAPACITIES: Final = 32
"""The maximum number of attributes and capacities of one device, together."""
CAPACITY_VALUES: Final = 10
"""Valid values of one request policy."""
CONSUMED_SETS: Final = 2
"""Counter sets that one device consumes from."""
COUNTERS: Final = 32
"""The maximum number of counters of one counter set, and of one entry that consumes from it."""
COUNTER_SETS_PER_SLICE: Final = 8
DEVICES_PER_SLICE: Final = 64
"""The API takes 128 where no device has taints or counters. Any device may get a taint, and then the
devices of its whole pool would change slices, so that all of them would have to be written."""
GROUPS: Final = 2
"""Compatibility groups of one entry that consumes counters."""
STRING_BYTES: Final = 64
"""The maximum length of a string attribute, in bytes."""
TAINTS: Final = 16
POOL_NAME: Final = 253

OWN_TAINTS: Final = 2
"""Taints of a device that the driver sets by itself: of its use and of its health."""

DEVICES: Final = 8192
"""The maximum number of devices of one node. The bound is ours: the kubelet keeps the health of
16,384 devices of a driver."""
