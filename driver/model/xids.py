"""Errors of the NVIDIA driver ("Xid") that concern the GPU, not a program on it.

Source: docs.nvidia.com/deploy/xid-errors; NVIDIA/k8s-device-plugin v0.17, internal/rm/health.go, which
leaves out the same ones.
"""

from typing import Final

OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Graphics engine exception, page fault, reset channel, preemptive cleanup, video processor exception
and context switch timeout."""


def is_of_gpu(xid: int) -> bool:
    """Return True if an error is a fault of the GPU.

    >>> is_of_gpu(79), is_of_gpu(13)
    (True, False)
    """
    return xid not in OF_PROGRAMS
