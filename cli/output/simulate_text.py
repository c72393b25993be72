"""A simulation as text: placements, failures with reasons, and a map of the devices."""

import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum, auto
from itertools import groupby
from typing import Final

from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.explain.failure import Failure, NodeGroup, NodeReason
from allocator.model.outcome import Reason
from allocator.model.usage import Usage
from allocator.pods.claims import Name
from allocator.simulation.model import PlacedClaim, PlacedGroup, PlacedPod, SimulationResult
from allocator.simulation.simulate import TOGETHER
from answers.cluster.uses import describe_offers
from answers.manifests.not_modelled import NOT_MODELLED
from answers.manifests.simulate import WorkloadPart
from cli.output.device_map import device_map
from cli.output.layout import (
    BAD,
    GOOD,
    NARROWEST,
    Paragraph,
    Row,
    drop_repeated_labels,
    format_paragraph,
)
from findings.text import count_text, printable
from kube.api.resource import AllocationResult
from kube.quantity import format_amount

_GROUPS: Final = 4
"""Groups of nodes with the same reasons that are shown of one failure."""
_REASONS: Final = 8
_NAMES: Final = 3
NONE_REJECTED: Final[Mapping[str, str]] = {}
NO_PARTS: Final[Mapping[Name, WorkloadPart]] = {}
NO_DEVICES: Final = "no devices, since it has no requests"
"""The devices of an allocated claim that requests none."""


class _Named(Enum):
    """The part of a reason's place that its text names."""

    NOTHING = auto()
    REQUEST = auto()
    CLAIM = auto()


def explain_no_nodes(unread: Collection[str]) -> str:
    """Return the reason that no nodes are known.

    Args:
        unread: Resources that the user may not list.
    """
    if "nodes" in unread:
        return "which nodes there are cannot be read: the right to list nodes of the cluster is missing"
    return "the cluster has no nodes"


def format_answer(
    answer: SimulationResult,
    cluster: Cluster,
    before: Usage,
    width: int,
    *,
    closest_fits: int,
    no_nodes: str,
    rejected_workloads: Mapping[str, str] = NONE_REJECTED,
    parts: Mapping[Name, WorkloadPart] = NO_PARTS,
) -> str:
    """Return the whole answer, wrapped at `width` columns if words can be broken.

    Args:
        cluster: The cluster after the simulation.
        before: The usage before it.
        closest_fits: The number of failures whose closest fit was computed.
        no_nodes: The text that `explain_no_nodes` returns.
        rejected_workloads: Reference of each workload that was rejected to the reason.
        parts: The parts of workloads that pods without a place belong to.
    """
    wide = max(width, NARROWEST)
    last = textwrap.wrap(_counts(answer, len(rejected_workloads)), wide)
    repeated = {
        f"Pod {pod.namespace}/{pod.name}" for run in _runs(answer, parts) for pod in run[1:]
    }
    if closest_fits and any(
        failure.title not in repeated for failure in answer.failures[closest_fits:]
    ):
        text = (
            f"Closest fit: not computed beyond the first {closest_fits} failures; --closest-fits N."
        )
        last += textwrap.wrap(text, wide, break_on_hyphens=False)
    if answer.pods:
        last += not_modelled(width)
    placements = format_placements(answer, cluster, before, width, no_nodes=no_nodes, parts=parts)
    rejections = (
        format_paragraph(_rejected_paragraph(_title_of(name), reason), width)
        for name, reason in rejected_workloads.items()
    )
    return "\n\n".join((*rejections, *placements, "\n".join(last)))


def format_placements(
    answer: SimulationResult,
    cluster: Cluster,
    before: Usage,
    width: int,
    *,
    no_nodes: str,
    parts: Mapping[Name, WorkloadPart] = NO_PARTS,
) -> Iterator[str]:
    """Yield a paragraph for each pod and claim, then the map; arguments as of `format_answer`."""
    for paragraph in _paragraphs(answer, no_nodes, parts):
        yield format_paragraph(paragraph, width)
    yield from _maps(answer, cluster, before)


def not_modelled(width: int) -> list[str]:
    """Return lines with the parts of scheduling that the simulation leaves out."""
    words = f"Not modelled: {', '.join(NOT_MODELLED)}."
    return textwrap.wrap(words, max(width, NARROWEST), break_on_hyphens=False)


def _paragraphs(
    answer: SimulationResult, no_nodes: str, parts: Mapping[Name, WorkloadPart]
) -> Iterator[Paragraph]:
    failures_by_title = {failure.title: failure for failure in answer.failures}
    if TOGETHER in failures_by_title:
        rows = tuple(_request_rows(answer))
        yield _unplaced_paragraph("Together", failures_by_title[TOGETHER], no_nodes, rows)
    else:
        yield from _one_by_one(answer, failures_by_title, no_nodes, parts)
    if answer.error is not None and not _has_error(answer):
        yield Paragraph(title="Error", place="", rows=(Row(label="because", text=answer.error),))


def _has_error(answer: SimulationResult) -> bool:
    """Return True if the reasons of nodes contain the error already."""
    groups = [group for failure in answer.failures for group in failure.groups or ()]
    return any(reason.message == answer.error for group in groups for reason in group.reasons)


def _request_rows(answer: SimulationResult) -> Iterator[Row]:
    for label, items in (("pods", answer.pods), ("claims", answer.claims)):
        if items:
            names = ", ".join(f"{item.namespace}/{item.name}" for item in items)
            yield Row(label=label, text=names)


def _runs(
    answer: SimulationResult, parts: Mapping[Name, WorkloadPart]
) -> Iterator[tuple[PlacedPod, ...]]:
    """Yield the pods in order, those together that are shown once.

    These are equal pods of a workload without a place, one after the other: nothing was placed between them, so
    each has the reasons of the first.
    """
    in_groups = {
        (group.namespace, name) for group in answer.groups if group.reason for name in group.pods
    }

    def key(numbered: tuple[int, PlacedPod]) -> tuple[object, ...]:
        number, pod = numbered
        name = (pod.namespace, pod.name)
        if pod.node is not None or name in in_groups or name not in parts:
            return (number,)
        return (parts[name], pod.reason, pod.waits)

    for _, run in groupby(enumerate(answer.pods), key):
        yield tuple(pod for _, pod in run)


def _run_paragraph(
    run: Sequence[PlacedPod],
    workload: str,
    failures_by_title: Mapping[str, Failure],
    no_nodes: str,
) -> Paragraph:
    """Return the paragraph of equal pods of a workload without a place."""
    titles = [f"Pod {pod.namespace}/{pod.name}" for pod in run]
    failures = [failures_by_title[title] for title in titles if title in failures_by_title]
    failure = None
    if failures:
        # Only some failures are explained; the closest fit is computed of the first ones.
        failure = next((entry for entry in failures if entry.groups is not None), failures[0])
        failure = replace(
            failure,
            closest_fit=failures[0].closest_fit,
            closest_fit_when_idle=failures[0].closest_fit_when_idle,
        )
    paragraph = _failure_paragraph(_title_of(workload), run[0], failure, no_nodes)
    pods = Row(label="pods", text=node_names([pod.name for pod in run]))
    place = f"{count_text(len(run), 'pod')} {paragraph.place}"
    return replace(paragraph, place=place, rows=(pods, *paragraph.rows))


def _one_by_one(
    answer: SimulationResult,
    failures_by_title: Mapping[str, Failure],
    no_nodes: str,
    parts: Mapping[Name, WorkloadPart],
) -> Iterator[Paragraph]:
    claims = {(claim.namespace, claim.name): claim for claim in answer.claims}
    shown_pods: set[tuple[str, str]] = set()
    groups = {(group.namespace, name): group for group in answer.groups for name in group.pods}
    shown_groups: set[str] = set()
    for run in _runs(answer, parts):
        pod = run[0]
        if len(run) > 1:
            workload = parts[pod.namespace, pod.name].workload
            yield _run_paragraph(run, workload, failures_by_title, no_nodes)
            continue
        title = f"Pod {pod.namespace}/{pod.name}"
        group = groups.get((pod.namespace, pod.name))
        if group is not None and group.title not in shown_groups:
            shown_groups.add(group.title)
            yield _group_paragraph(group, failures_by_title.get(group.title), no_nodes)
        if pod.node is None and group is not None and title not in failures_by_title:
            continue  # The paragraph of its group has its name.
        if pod.node is None:
            yield _failure_paragraph(title, pod, failures_by_title.get(title), no_nodes)
            continue
        names = answer.uses.get((pod.namespace, pod.name), ())
        own = [(pod.namespace, name) for name in names]
        shown_pods.update(own)
        yield Paragraph(
            title=title,
            place=pod.node,
            style=GOOD,
            rows=tuple(
                drop_repeated_labels(
                    row for key in own for row in _rows(claims[key], with_name=True)
                )
            ),
        )
    for key, claim in claims.items():
        title = f"ResourceClaim {claim.namespace}/{claim.name}"
        if key in shown_pods:
            continue
        if claim.allocation is not None:
            place = claim.node or "usable on several nodes"
            yield Paragraph(
                title=title, place=place, style=GOOD, rows=tuple(drop_repeated_labels(_rows(claim)))
            )
        elif claim.reason or title in failures_by_title or not answer.pods:
            yield _failure_paragraph(title, claim, failures_by_title.get(title), no_nodes)


def _failure_paragraph(
    title: str, item: PlacedPod | PlacedClaim, failure: Failure | None, no_nodes: str
) -> Paragraph:
    """Return the paragraph of a pod or claim that was rejected, or was not placed."""
    if item.reason:
        waits = isinstance(item, PlacedPod) and item.waits is True
        return _rejected_paragraph(title, item.reason, "not placed" if waits else "rejected")
    return _unplaced_paragraph(title, failure, no_nodes)


def _rejected_paragraph(title: str, reason: str, place: str = "rejected") -> Paragraph:
    rows = (Row(label="because", text=reason),)
    return Paragraph(title=title, place=place, style=BAD, rows=rows)


def _title_of(name: str) -> str:
    """Return `Kind namespace/name` for a reference."""
    kind, _, place = name.partition("/")
    return printable(f"{kind} {place}")


def _group_paragraph(group: PlacedGroup, failure: Failure | None, no_nodes: str) -> Paragraph:
    """Return the paragraph of a group: its needs and places, or the reason it is not placed."""
    pods = Row(label="pods", text=node_names(group.pods))
    if group.reason:
        reason = Row(label="because", text=f"{group.reason} [{group.code}]")
        return _unplaced_paragraph(group.title, failure, no_nodes, (pods, reason))
    total = group.placed + group.running
    running = f", {group.running} before" if group.running else ""
    rows = [pods, Row(label="score", text=str(group.score))] if group.score else [pods]
    return Paragraph(
        title=group.title,
        place=f"{count_text(total, 'pod')} placed{running}; {group.min_count} needed",
        style=GOOD,
        rows=tuple(rows),
    )


def _rows(claim: PlacedClaim, *, with_name: bool = False) -> Iterator[Row]:
    name = f"claim {claim.name}: " if with_name else ""
    if claim.allocation is not None:
        for words in devices(claim.allocation) or (NO_DEVICES,):
            yield Row(label="allocated", text=f"{name}{words}")


def devices(allocation: AllocationResult) -> list[str]:
    """Return the devices as text, pool by pool."""
    pools: dict[tuple[str, str], list[str]] = {}
    for result in allocation.devices.results or ():
        share = ""
        if result.consumed_capacity:
            amounts = sorted(result.consumed_capacity.items())
            share = f" ({', '.join(f'{key} {format_amount(amount)}' for key, amount in amounts)})"
        elif result.share_id is not None:
            share = " (a share)"
        pools.setdefault((result.driver, result.pool), []).append(f"{result.device}{share}")
    return [
        f"{', '.join(names)} of {driver}, pool {pool}" for (driver, pool), names in pools.items()
    ]


# --- failures -------------------------------------------------------------------------------------


def _unplaced_paragraph(
    title: str, failure: Failure | None, no_nodes: str, rows_before: Sequence[Row] = ()
) -> Paragraph:
    # What to change comes first, since the reasons of many nodes are long.
    rows = [*(() if failure is None else _closest_fits(failure)), *rows_before]
    rows += [Row(label="advice", text=text) for text in (failure.advice if failure else ())]
    if failure is not None and failure.summary and not rows_before:
        rows.append(Row(label="because", text=failure.summary))
    groups = [
        group
        for group in (failure.groups if failure is not None else None) or ()
        if [reason.message for reason in group.reasons] != [failure.summary if failure else ""]
    ]
    if failure is not None and failure.groups == ():
        rows.append(Row(label="because", text=no_nodes))
    for group in groups[:_GROUPS]:
        rows.append(Row(label="on", text=node_names(group.nodes)))
        rows += _because(group.reasons, naming=_names_needed(groups))
    more = len(groups) - _GROUPS
    if more > 0:
        rows.append(
            Row(label="on", text=f"others, with {count_text(more, 'more combination')} of reasons")
        )
    if failure is not None and failure.event is not None:
        rows.append(Row(label="event", text=failure.event))
    if failure is not None and failure.groups is None:
        text = "not explained, since too many others were not placed"
        rows.append(Row(label="because", text=text))
    return Paragraph(
        title=title, place="not placed", style=BAD, rows=tuple(drop_repeated_labels(rows))
    )


def _closest_fits(failure: Failure) -> Iterator[Row]:
    """Yield the closest fit now, and on the idle cluster if that is closer."""
    now, idle = failure.helpful_fits
    if now is not None:
        yield Row(label="closest", text=now.fix)
    if idle is not None:
        when_free = "once its devices are free"
        text = f"{when_free}: {idle.fix}" if idle.changes else f"{idle.fix} {when_free}"
        yield Row(label="closest", text=text)


def _names_needed(groups: Sequence[NodeGroup]) -> _Named:
    """Return the part of a reason's place to name: nothing for the only request of a pod."""
    places = {(reason.claim, reason.request) for group in groups for reason in group.reasons} - {
        ("", "")
    }
    if len({claim for claim, _ in places}) > 1:
        return _Named.CLAIM
    return _Named.REQUEST if len(places) > 1 else _Named.NOTHING


def _because(reasons: Sequence[NodeReason], *, naming: _Named) -> Iterator[Row]:
    shown_reasons = _most_telling(reasons)
    for reason in shown_reasons:
        yield Row(label="because", text=f"{_reason_text(reason, naming)} [{reason.code}]")
    more = len(reasons) - len(shown_reasons)
    if more:
        yield Row(label="because", text=count_text(more, "more reason"))


def _reason_text(reason: NodeReason, naming: _Named) -> str:
    if naming is _Named.CLAIM or not reason.claim:
        return reason.message
    return f"{reason.request}: {reason.detail}" if naming is _Named.REQUEST else reason.detail


def _most_telling(reasons: Sequence[NodeReason]) -> list[NodeReason]:
    """Return the reasons that are shown, in order.

    Reasons about the whole request come first, devices that no selector was meant for last.
    """
    places = sorted(
        range(len(reasons)),
        key=lambda place: (reasons[place].count > 0, reasons[place].code == Reason.SELECTOR),
    )
    return [reasons[place] for place in sorted(places[:_REASONS])]


def node_names(nodes: Sequence[str]) -> str:
    """Return the first names, and the number of further ones."""
    if len(nodes) <= _NAMES + 1:
        return ", ".join(nodes)
    return f"{', '.join(nodes[:_NAMES])} and {len(nodes) - _NAMES} more"


# --- devices --------------------------------------------------------------------------------------


def _maps(answer: SimulationResult, cluster: Cluster, before: Usage) -> Iterator[str]:
    """Yield the map of the nodes with new allocations, then of those that rejected a request."""
    changed_pools = {
        pool for pool, use in cluster.usage.pools.items() if before.pools.get(pool) is not use
    }
    nodes: Mapping[str, None] = dict.fromkeys(
        name
        for name in sorted(cluster.nodes)
        if any(pool.id in changed_pools for pool in cluster.node_devices(name).pools)
    )
    nodes = {**nodes, **dict.fromkeys(node.name for node in answer.nodes)}
    lines = device_map(
        (cluster.node_devices(name) for name in nodes),
        before,
        cluster.usage,
        offers=describe_offers(cluster.nodes.values()),
    )
    if lines:
        yield "\n".join(lines)


def _counts(answer: SimulationResult, rejected_workload_count: int) -> str:
    pods = sum(pod.node is not None for pod in answer.pods)
    claims = sum(claim.allocation is not None for claim in answer.claims)
    counts = [
        f"{done_count} of {count_text(total, what)} placed"
        for done_count, total, what in (
            (pods, len(answer.pods), "pod"),
            (claims, len(answer.claims), "claim"),
        )
        if total
    ]
    empty = sum(
        claim.allocation is not None and not claim.allocation.devices.results
        for claim in answer.claims
    )
    if empty:
        counts.append(f"{count_text(empty, 'claim')} without requests, so without devices")
    if rejected_workload_count:
        counts.append(f"{count_text(rejected_workload_count, 'workload')} rejected")
    nothing = "Nothing to place: the manifests have no unbound pod and no unallocated claim."
    return ", ".join(counts) or nothing
