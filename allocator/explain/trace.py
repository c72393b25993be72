"""The placement of a pod or claim, stage by stage: nodes, then the devices of each class of nodes.

The stages of devices are the checks of the search in their order, each request alone; what excludes
devices only together is in the reasons of a failure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from allocator.cluster.verdicts import ClassVerdict, Verdicts
from allocator.explain.failure import NodeReason, NodeResult
from allocator.explain.node import first_rejections
from allocator.model.devices import NodeDevices
from allocator.model.outcome import RejectionReason
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims, Request
from allocator.model.usage import Usage
from allocator.search.attempt import AllocatorOptions
from allocator.strategies.strategy import Strategy

MAX_CLASSES: Final = 16
"""Classes of nodes whose devices are traced, of one pod or claim; each takes some milliseconds."""


class DeviceStage(msgspec.Struct, frozen=True, kw_only=True):
    """A check that excludes devices of a node.

    Attributes:
        request: The request's name in the claim; `parent/name` of an alternative.
        code: The reason.
        message: The fault of the devices.
        before: Devices that were left when the check came.
        after: Devices that are left.
        devices: `driver/pool/device` of those that it excludes.
    """

    request: str
    code: str
    message: str
    before: int
    after: int
    devices: tuple[str, ...]


class NodeTrace(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes with equal devices and the same answer.

    Attributes:
        nodes: All of them.
        example: The one whose devices are named.
        score: 0 to 100, of the strategy.
        order: Its devices in the strategy's order of preference.
        stages: The stages, in order; empty where the devices were not traced.
    """

    nodes: tuple[str, ...]
    example: str
    fits: bool
    score: int
    order: tuple[str, ...] = ()
    stages: tuple[DeviceStage, ...] = ()


class ExcludedNodes(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are excluded for one reason before any device is looked at."""

    code: str
    message: str
    nodes: tuple[str, ...]


class PlacementTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The placement of a pod, or of a claim on its own.

    Attributes:
        object: `Pod namespace/name`.
        strategy: The name of the first that was used; empty if no node was looked at.
        before: All nodes.
        eligible: Nodes whose devices were looked at.
        feasible: Nodes whose devices are enough.
        excluded: The nodes that are not eligible.
        nodes: The others, those that fit first.
        node: The chosen one; null where there is none.
        devices: `driver/pool/device` of the devices that it gets there.
    """

    object: str
    strategy: str
    before: int
    eligible: int
    feasible: int
    excluded: tuple[ExcludedNodes, ...]
    nodes: tuple[NodeTrace, ...]
    node: str | None
    devices: tuple[str, ...]


class Evaluated(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts about eligible nodes, with the claims and the strategy that they are about."""

    verdicts: Verdicts
    pending: PendingClaims
    strategy: Strategy


def trace_placement(
    title: str,
    excluded: Mapping[str, NodeResult],
    evaluated: Sequence[Evaluated],
    plan: Plan | None,
    *,
    usage: Usage,
    rules: AllocatorOptions,
) -> PlacementTrace:
    """Return the trace of one placement.

    Args:
        title: The title of the pod or claim.
        excluded: Results of nodes that were rejected before any device was evaluated.
        evaluated: The results of the other nodes.
        plan: The plan of the chosen node, if any.
        usage: Devices that were in use then.
        rules: Gates and policies.
    """
    classes = [(entry, verdict) for entry in evaluated for verdict in entry.verdicts.classes]
    classes.sort(key=lambda pair: (not _fits(pair[1]), -pair[1].score, min(pair[1].nodes)))
    eligible = sum(len(verdict.nodes) for _, verdict in classes)
    return PlacementTrace(
        object=title,
        strategy=evaluated[0].strategy.name if evaluated else "",
        before=eligible + len(excluded),
        eligible=eligible,
        feasible=sum(len(verdict.nodes) for _, verdict in classes if _fits(verdict)),
        excluded=_group_excluded(excluded),
        nodes=tuple(
            _trace_class(entry, verdict, usage, rules, with_devices=number < MAX_CLASSES)
            for number, (entry, verdict) in enumerate(classes)
        ),
        node=plan.node if plan is not None else None,
        devices=tuple(
            str(choice.device.id)
            for claim in (plan.choices if plan is not None else ())
            for choice in claim
        ),
    )


def _fits(verdict: ClassVerdict) -> bool:
    return isinstance(verdict.outcome, Plan)


def _group_excluded(excluded: Mapping[str, NodeResult]) -> tuple[ExcludedNodes, ...]:
    nodes: dict[NodeReason, list[str]] = {}
    for name in sorted(excluded):
        for reason in excluded[name].reasons[:1]:
            nodes.setdefault(reason, []).append(name)
    return tuple(
        ExcludedNodes(code=reason.code, message=reason.message, nodes=tuple(names))
        for reason, names in nodes.items()
    )


def _trace_class(
    entry: Evaluated,
    verdict: ClassVerdict,
    usage: Usage,
    rules: AllocatorOptions,
    *,
    with_devices: bool,
) -> NodeTrace:
    devices = verdict.representative
    trace = NodeTrace(
        nodes=tuple(sorted(verdict.nodes)),
        example=devices.node,
        fits=_fits(verdict),
        score=verdict.score if _fits(verdict) else 0,
    )
    if not with_devices:
        return trace
    order = entry.strategy.order(devices, usage, entry.pending)
    positions = range(len(devices.devices)) if order is None else order
    return msgspec.structs.replace(
        trace,
        order=tuple(str(devices.devices[position].id) for position in positions),
        stages=tuple(
            stage
            for request, rejections in first_rejections(devices, entry.pending, usage, rules)
            for stage in _stages(request, rejections, devices)
        ),
    )


def _stages(
    request: Request, rejections: Mapping[int, RejectionReason | None], devices: NodeDevices
) -> Iterable[DeviceStage]:
    """Yield the checks that exclude devices, in the order of their first use."""
    excluded_positions: dict[RejectionReason, list[int]] = {}
    for position, rejection in rejections.items():
        if rejection is not None:
            excluded_positions.setdefault(rejection, []).append(position)
    left = len(rejections)
    name = f"{request.parent}/{request.name}" if request.parent else request.name
    for rejection, positions in excluded_positions.items():
        yield DeviceStage(
            request=name,
            code=rejection.reason,
            message=rejection.predicate,
            before=left,
            after=left - len(positions),
            devices=tuple(str(devices.devices[position].id) for position in positions),
        )
        left -= len(positions)
