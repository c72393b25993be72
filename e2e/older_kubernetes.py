"""The differences between the control plane of an older Kubernetes and the newest one.

`DRAWBRIDGE_E2E_KUBERNETES` chooses the version, see `e2e.binaries`. Gates that 1.37 has on by default and
the version has off are turned on, so that stories of shares have shares; a story that needs what the
version does not have at all is skipped, with the reason.
"""

from collections.abc import Mapping
from typing import Final

import pytest

from e2e.binaries import KUBERNETES
from migration.upgrade.kubernetes import GATES

MINOR: Final = int(KUBERNETES.split(".")[1])
"""The minor version of the control plane."""
NEWEST_MINOR: Final = 37
LEFT_OFF: Final[Mapping[str, int]] = {
    # Its API has no version that is on by default, and nothing of ours reads an older one.
    "DRADeviceTaintRules": 37,
    # In 1.34 counters are in the slice of their devices, and slices of their own are rejected.
    "DRAPartitionableDevices": 35,
}
"""Feature gate to the first minor version in which it is not as it is by default."""
SERVED: Final[Mapping[int, tuple[str, ...]]] = {
    # There DRADeviceTaints alone makes kube-scheduler wait until it has listed DeviceTaintRules.
    34: ("resource.k8s.io/v1alpha3",),
}
"""Minor version to the API versions that its gates need, and that it does not serve by default.

Source: pkg/scheduler/scheduler.go of Kubernetes 1.34.4.
"""
SPARE_NODES: Final = 20 if MINOR == 34 else 0
"""Nodes more than a newer version needs for all examples at once, one for each pod.

1.34 allocates for shares only where the first GPU of a slice has room, so one pod on each node keeps pods from it
that want a whole GPU.

Source: allocateDevice in k8s.io/dynamic-resource-allocation v0.34.4; kubernetes/kubernetes#133705.
"""
SINCE: Final[Mapping[str, int]] = {
    "DRAFractionalCapacityRange": 37,
    "DRAListTypeAttributes": 36,
    "DRAOptionalNodeOperations": 37,
    # Older versions have groups only in alpha versions of their API.
    "DRAWorkloadResourceClaims": 37,
    "GenericWorkload": 37,
    "TopologyAwareWorkloadScheduling": 37,
    "WorkloadWithJob": 37,
}
"""Feature gate that a story sets to the first minor version with it; others are in `GATES`.

Source: pkg/features/kube_features.go of Kubernetes 1.37.1.
"""


def gates_turned_on(minor: int = MINOR) -> dict[str, bool]:
    """Return the gates that the newest version has on by default, and this version has off.

    >>> sorted(gates_turned_on(36)), "DRAConsumableCapacity" in gates_turned_on(34)
    ([], True)
    """
    return {
        gate: True
        for gate, defaults in GATES.items()
        if defaults[NEWEST_MINOR] and defaults[minor] is False and minor >= LEFT_OFF.get(gate, 0)
    }


def lacking(gates: Mapping[str, bool], minor: int = MINOR) -> str:
    """Explain the lack of one of some gates in a version; empty if it has all.

    >>> lacking({"DRADeviceCompatibilityGroups": True}, 36)
    'Kubernetes 1.36 does not have the feature gate DRADeviceCompatibilityGroups, 1.37 has it'
    """
    for gate in sorted(gates):
        first = SINCE.get(gate) or min(
            version for version, default in GATES[gate].items() if default is not None
        )
        if first > minor:
            return f"Kubernetes 1.{minor} does not have the feature gate {gate}, 1.{first} has it"
    return ""


def needs(minor: int, what: str) -> pytest.MarkDecorator:
    """Return the mark that skips a story on control planes older than a version.

    Args:
        minor: The first version on which the story can be told.
        what: It has, and older ones lack.
    """
    return pytest.mark.skipif(
        minor > MINOR, reason=f"Kubernetes 1.{MINOR} lacks {what}, which 1.{minor} has"
    )
