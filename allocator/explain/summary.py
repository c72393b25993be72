"""Reasons that claims do not fit, in one line: for a node, and for a whole cluster.

    4/8 devices in use; 3/8 have memory 16Gi (< 40Gi); only 1 suitable device, 2 requested

Lines are bounded, since events and tables are, and say how much they leave out. Nodes that must get
the same verdict are explained once, so a cluster costs what its classes of nodes do.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.cluster.verdicts import Outcome, Verdicts
from allocator.explain.node import STEPS, divide_classes, explain_node
from allocator.explain.selector import one_line
from allocator.explain.wording import (
    bound_rejection,
    count_nodes,
    describe_devices,
    enumerate_names,
    node_shortage,
)
from allocator.model.devices import NodeDevices
from allocator.model.outcome import BudgetExhausted, Reason, RejectionReason, Shortage
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from findings.text import count_text, shorten_encoded

MAX_SUMMARY: Final = 1024
"""Bytes of a summary: what the note of an event holds."""

MAX_CLASSES: Final = 128
"""Classes of nodes that a summary of a cluster explains; the others are counted."""

_TOTAL_STEPS: Final = 1_000_000
"""Search steps for all classes together; some seconds."""


def summarize(shortages: Iterable[Shortage], devices: int, *, most: int = MAX_SUMMARY) -> str:
    """Return shortages in one line of bounded length.

    Args:
        shortages: The shortages, as returned by `explain_node`.
        devices: The number of the node's devices.
        most: Bytes of the line.

    >>> def shortage(devices, subject):
    ...     rejection = RejectionReason(reason=Reason.ALLOCATED, subject=subject)
    ...     return Shortage(claim="a/b", request="gpu", rejection=rejection, devices=devices)
    >>> summarize([shortage(5, "in use"), shortage(3, "for other nodes")], 8)
    '5/8 devices in use; 3/8 for other nodes'
    """
    by_reasons: dict[_Counts, list[Shortage]] = {}
    for _, group in groupby(shortages, key=lambda shortage: (shortage.claim, shortage.request)):
        of_request = tuple(group)
        counts = tuple(
            (shortage.devices, bound_rejection(shortage.rejection)) for shortage in of_request
        )
        by_reasons.setdefault(counts, []).append(of_request[0])
    named_requests = {
        (first.claim, first.request)
        for firsts in by_reasons.values()
        for first in firsts
        if first.claim
    }
    has_several_claims = len({claim for claim, _ in named_requests}) > 1
    requests = [
        _RequestSummary(
            name=_request_names(firsts, with_claims=has_several_claims)
            if firsts[0].claim and len(named_requests) > 1
            else "",
            counts=counts,
        )
        for counts, firsts in by_reasons.items()
    ]
    return _fit(requests, devices, most)


_Counts = tuple[tuple[int, RejectionReason], ...]
"""Devices and reason of each shortage of one request."""


class _RequestSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The report about one request, or about several with the same reasons."""

    name: str
    counts: _Counts

    def text(self, devices: int, omitted_parts: Collection[int] = ()) -> str:
        """Return the part in words, without the reasons of some indices."""
        counts = [entry for index, entry in enumerate(self.counts) if index not in omitted_parts]
        text = describe_devices(counts, devices)
        return f"{self.name}: {text}" if self.name else text


def _fit(requests: Sequence[_RequestSummary], devices: int, most: int) -> str:
    """Return requests in one line; if it is too long, without the least telling reasons.

    The first reason of a request is needed to make sense of its others; what is missing as a whole
    tells most, and devices that no selector matches tell least.
    """
    expendable = sorted(
        (rejection.reason is Reason.SELECTOR, number, index)
        for number, request in enumerate(requests)
        for index, (count, rejection) in enumerate(request.counts)
        if index and count
    )
    for dropped_count in range(len(expendable) + 1):
        omitted_parts: dict[int, set[int]] = {}
        for _, number, index in expendable[len(expendable) - dropped_count :]:
            omitted_parts.setdefault(number, set()).add(index)
        parts = [
            request.text(devices, omitted_parts.get(number, ()))
            for number, request in enumerate(requests)
        ]
        text = "; ".join(
            [*parts, count_text(dropped_count, "more reason")] if dropped_count else parts
        )
        if len(text.encode()) <= most:
            return text
    parts = [
        describe_devices((entry,), devices) for request in requests for entry in request.counts
    ]
    return join_within(parts, most, "reason", separator="; ")


def _request_names(shortages: Sequence[Shortage], *, with_claims: bool) -> str:
    """Return the requests of shortages that are alike, by claim."""
    names = []
    for claim, of_claim in groupby(shortages, key=lambda shortage: shortage.claim):
        own = [one_line(shortage.request) for shortage in of_claim]
        requests = f"request{'' if len(own) == 1 else 's'} {enumerate_names(own)}"
        names.append(f"claim {one_line(claim)} {requests}" if with_claims else requests)
    return enumerate_names(names)


def join_within(parts: Sequence[str], most: int, noun: str, *, separator: str = ". ") -> str:
    """Return the parts that there is room for, and the number of the others.

    Args:
        most: Bytes of the text.
        noun: The noun for a part, in the singular.
    """
    return separator.join(parts_within(parts, most, noun, separator=separator))


def parts_within(
    parts: Sequence[str], most: int, noun: str, *, separator: str = ". "
) -> tuple[str, ...]:
    """Return the parts that `join_within` joins."""
    if len(separator.join(parts).encode()) <= most:
        return tuple(parts)
    if len(parts) == 1:
        return (shorten_encoded(parts[0], most),)
    for count in range(len(parts) - 1, -1, -1):
        shown_parts = (*parts[:count], count_text(len(parts) - count, f"more {noun}"))
        if len(separator.join(shown_parts).encode()) <= most:
            return shown_parts
    return ()


class SummaryGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes with the same summary.

    Attributes:
        nodes: The names of the nodes, sorted.
        shortages: The shortages of one of the nodes.
        text: The summary of the shortages.
    """

    nodes: tuple[str, ...]
    shortages: tuple[Shortage, ...]
    text: str


class ClusterSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Reasons that claims fit no node of a cluster.

    Attributes:
        groups: The groups, the largest first, then by text.
        unexplained: Nodes of classes that were not explained.
        classes: The maximum number of explained classes.
    """

    groups: tuple[SummaryGroup, ...]
    unexplained: int = 0
    classes: int = MAX_CLASSES

    def text(self, most: int = MAX_SUMMARY) -> str:
        """Return all of it in one line of at most `most` bytes."""
        parts = [f"{count_nodes(len(group.nodes))}: {group.text}" for group in self.groups]
        if self.unexplained:
            limit = f"limit of {self.classes} node classes"
            parts.append(f"{count_nodes(self.unexplained)} not explained ({limit})")
        return join_within(parts, most, "group")


def summarize_cluster(
    cluster: Cluster,
    pending: PendingClaims,
    verdicts: Verdicts,
    *,
    classes: int = MAX_CLASSES,
    most: int = MAX_SUMMARY // 2,
) -> ClusterSummary:
    """Summarize the reasons that nodes do not fit, one for each class of nodes.

    Args:
        verdicts: The verdicts of the cluster for these claims, unchanged since.
        classes: The maximum number of explained classes, the largest first.
        most: Bytes of the summary of one node.
    """
    failed_verdicts = [
        verdict
        for verdict in divide_classes(verdicts, pending)
        if not isinstance(verdict.outcome, Plan)
    ]
    failed_verdicts.sort(key=lambda verdict: (-len(verdict.nodes), min(verdict.nodes)))
    steps = min(STEPS, _TOTAL_STEPS // max(min(len(failed_verdicts), classes), 1))
    groups: dict[str, SummaryGroup] = {}
    for verdict in failed_verdicts[:classes]:
        shortages = _shortages(cluster, pending, verdict.outcome, verdict.representative, steps)
        text = summarize(shortages, len(verdict.representative.devices), most=most)
        nodes = set(verdict.nodes)
        if text in groups:
            nodes.update(groups[text].nodes)
        groups[text] = SummaryGroup(nodes=tuple(sorted(nodes)), shortages=shortages, text=text)
    return ClusterSummary(
        groups=tuple(sorted(groups.values(), key=lambda group: (-len(group.nodes), group.text))),
        unexplained=sum(len(verdict.nodes) for verdict in failed_verdicts[classes:]),
        classes=classes,
    )


def _shortages(
    cluster: Cluster, pending: PendingClaims, outcome: Outcome, node: NodeDevices, steps: int
) -> tuple[Shortage, ...]:
    if isinstance(outcome, BudgetExhausted):
        return (node_shortage(Reason.BUDGET_EXHAUSTED, outcome.progress),)
    return explain_node(node, pending, cluster.usage, cluster.options, steps=steps)
