"""The init containers that reuse the devices of another container.

Kubernetes accounts for the larger of the init containers and the sum of the app containers, since
init containers run first. Claims are held for the pod's lifetime, so without reuse the pod would
need the sum of all. An init container that needs no more than another container reuses its request;
sidecars run beside the app containers, so they neither reuse devices nor have theirs reused.

Source: KEP-753 for sidecars; k8s.io/component-helpers resource, PodRequests, for the accounting.
"""

from collections.abc import Mapping, Sequence

from findings.finding import Code, Finding, warning
from kube.quantity import Quantity
from translation.intents import DeviceKind, Intent, LegacyContainer


def reused_intents(
    intents: Sequence[Intent], containers: Mapping[str, LegacyContainer]
) -> tuple[Mapping[int, int], tuple[Finding, ...]]:
    """Return index of an init container's intent to the index of the intent that it reuses.

    Args:
        intents: In the order of the pod's containers.
        containers: By name.
    """
    findings: list[Finding] = []
    init = [index for index, intent in enumerate(intents) if _runs_first(containers, intent)]
    reusable = [
        index
        for index, intent in enumerate(intents)
        if index not in init and not containers[intent.container].sidecar
    ]
    reused: dict[int, int] = {}
    # The largest first, so that smaller init containers can reuse its devices.
    for index in sorted(init, key=lambda index: _size(intents[index]), reverse=True):
        intent = intents[index]
        in_use = {
            reused.get(other, other)
            for other in init
            if intents[other].container == intent.container
        }
        match = next(
            (
                other
                for other in reusable
                if other not in in_use and _covers(intents[other], intent)
            ),
            None,
        )
        if match is None:
            reusable.append(index)
            findings.append(_held_finding(intent))
            continue
        reused[index] = match
        if _size(intents[match]) != _size(intent):
            findings.append(_reuse_finding(intent, intents[match]))
    return reused, tuple(findings)


def _runs_first(containers: Mapping[str, LegacyContainer], intent: Intent) -> bool:
    container = containers[intent.container]
    return container.init and not container.sidecar


def _size(intent: Intent) -> tuple[int, bool, Quantity, int, int]:
    return (
        intent.count,
        intent.exclusive or intent.takes_all_memory,
        intent.memory or Quantity(0),
        intent.memory_percent or 0,
        intent.cores_percent or 0,
    )


def _covers(larger: Intent, smaller: Intent) -> bool:
    """Return whether the devices of one intent are enough for another."""
    same = ("kind", "filter", "replica", "through_mps")
    if any(getattr(larger, field) != getattr(smaller, field) for field in same):
        return False
    if larger.count < smaller.count or (smaller.same_numa and not larger.same_numa):
        return False
    if larger.kind is DeviceKind.GPU and larger.exclusive:
        return True
    if larger.exclusive is not smaller.exclusive:
        return False
    return _covers_memory(larger, smaller) and (
        (larger.cores_percent or 0) >= (smaller.cores_percent or 0)
    )


def _covers_memory(larger: Intent, smaller: Intent) -> bool:
    if larger.memory is None and larger.memory_percent is None:
        # All memory of a share, but of a MIG device only what its profile has.
        return larger.kind is DeviceKind.GPU or smaller.memory is None
    if larger.memory is not None and smaller.memory is not None:
        return larger.memory >= smaller.memory
    return (larger.memory_percent or 0) >= (smaller.memory_percent or 101)


def _held_finding(intent: Intent) -> Finding:
    return warning(
        Code.HELD_FOR_POD_LIFETIME,
        intent.path("count"),
        "no app container requests as much, so the pod holds the init container's devices for its "
        "whole lifetime",
    )


def _reuse_finding(intent: Intent, reused: Intent) -> Finding:
    return warning(
        Code.INIT_SHARES_DEVICE,
        intent.path("count"),
        f"shares the device of container {reused.container} and sees that container's amounts",
    )
