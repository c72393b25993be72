"""The devices that are left at the end of a replay though pods failed: the reasons, and the pods that they would do for."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple

from allocator.cluster.verdicts import NodePlans
from allocator.model.devices import PublishedDevice
from allocator.model.outcome import AttemptFailed
from allocator.model.selectors import selector_chain
from allocator.pods.node_eligibility import barrier
from allocator.replay.scheduler import own_plan
from allocator.replay.state import ReplayState
from allocator.replay.workload import GROUP_DOES_NOT_FIT, Candidate
from allocator.strategies.strategy import Strategy

NOBODY_ASKS: Final = "nobodyAsks"
"""No pod that failed asks for such a device on this node."""
TOO_FEW: Final = "tooFewDevices"
"""Pods that failed ask for such devices, but for more than the node has, or for others beside it."""
MAX_SHAPES: Final = 16
"""Shapes of failed pods that are compared, the most frequent ones."""


class FailedShape(NamedTuple):
    """Pods that failed and are alike.

    Attributes:
        candidate: One of them.
        pods: Their number.
        quota: The reason, where a quota held them back; else empty.
    """

    candidate: Candidate
    pods: int
    quota: str = ""


def idle_reasons(
    state: ReplayState, failed: Sequence[FailedShape], strategy: Strategy
) -> Mapping[str, int]:
    """Return the number of idle devices by reason: a resource that the node lacks, a `Barrier`, or one of those above.

    Of several reasons that of the most failed pods counts for a node.

    Args:
        state: The cluster at the end.
        failed: The pods that failed.
        strategy: The strategy whose verdicts are known.
    """
    idle = _idle_devices(state)
    votes: dict[str, Counter[str]] = {name: Counter() for name in idle}
    shapes = [shape for shape in failed if shape.candidate.pending is not None]
    for shape in sorted(shapes, key=lambda shape: -shape.pods)[:MAX_SHAPES]:
        candidate = shape.candidate
        assert candidate.pending is not None
        try:
            plans = state.cluster.node_plans(
                candidate.pending, strategy=strategy, may_use=idle.__contains__
            )
        except AttemptFailed:
            continue
        for name, devices in idle.items():
            reason = _reason(state, shape, plans, name, devices)
            if reason is not None:
                votes[name][reason] += shape.pods
    reasons: Counter[str] = Counter()
    for name, devices in idle.items():
        own = votes[name]
        reason = min(own, key=lambda key: (-own[key], key), default=NOBODY_ASKS)
        reasons[reason] += len(devices)
    return dict(sorted(reasons.items()))


def served_without_limits(
    state: ReplayState, failed: Sequence[Candidate], strategy: Strategy
) -> Sequence[bool]:
    """Return True for each failed pod that would get devices on nodes without limits.

    One after the other gets them, so that no device counts for two pods; the cluster keeps them allocated.

    Args:
        state: The cluster at the end.
        failed: The pods, in the order in which they failed.
        strategy: The strategy, which chooses the node.
    """
    served = []
    # Devices become fewer, so that what once did not fit never does.
    unserved: set[Hashable] = set()
    for candidate in failed:
        is_served = candidate.devices not in unserved and _allocate(state, candidate, strategy)
        if not is_served:
            unserved.add(candidate.devices)
        served.append(is_served)
    return served


def _allocate(state: ReplayState, candidate: Candidate, strategy: Strategy) -> bool:
    """Give a pod devices of the best node with any, resources aside; return False without one."""
    try:
        candidate = state.renewed(candidate)
        pending = candidate.pending
        if pending is None:
            return True
        plans = state.cluster.node_plans(pending, strategy=strategy)
    except AttemptFailed:
        return False
    best: str | None = None
    highest = -1
    for name in state.names:
        if candidate.eligible is None or name in candidate.eligible:
            verdict = plans.fitting(name)
            if verdict is not None and verdict.score > highest:
                best, highest = name, verdict.score
    plan = None if best is None else own_plan(pending, plans, best, state, strategy)
    if plan is None:
        return False
    metadata = candidate.pod.pod.metadata
    seed = f"{metadata.namespace}/{metadata.name}"
    state.hold(candidate, state.allocated(plan, pending, seed))
    return True


def _reason(
    state: ReplayState,
    shape: FailedShape,
    plans: NodePlans,
    node: str,
    devices: Sequence[PublishedDevice],
) -> str | None:
    """Return the reason a pod does not use idle devices of a node; None if it asks for none of them."""
    candidate = shape.candidate
    fits = plans.fitting(node) is not None
    if not fits and not _asks_for_any(candidate, devices):
        return None
    if candidate.eligible is not None and node not in candidate.eligible:
        return barrier(candidate.pod.pod, state.cluster.nodes[node])
    if not fits:
        return TOO_FEW
    lacks = state.lacks(candidate, (node,))
    if lacks:
        return min(lacks)
    if shape.quota:
        return shape.quota
    return None if candidate.pod.group is None else GROUP_DOES_NOT_FIT


def _asks_for_any(candidate: Candidate, devices: Sequence[PublishedDevice]) -> bool:
    assert candidate.pending is not None
    return any(
        selector_chain(request.expressions).verdict(device) is True
        for alternatives in candidate.pending.requests
        for requests in alternatives
        for request in requests
        for device in devices
    )


def _idle_devices(state: ReplayState) -> Mapping[str, Sequence[PublishedDevice]]:
    """Return node to its idle devices; a pool of several nodes is the first one's."""
    idle: dict[str, list[PublishedDevice]] = {}
    counted: set[object] = set()
    usage = state.cluster.usage.pools
    for name in state.names:
        for pool in state.cluster.node_devices(name).pools:
            if pool.id in counted:
                continue
            counted.add(pool.id)
            uses = usage.get(pool.id, {})
            for member in (*pool.devices, *pool.elsewhere):
                if member.id.device not in uses:
                    idle.setdefault(name, []).append(member)
    return idle
