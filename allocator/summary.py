"""Why claims do not fit, in one line: of a node, and of a whole cluster.

    4 of 8 devices: taken; 3: memory 16Gi below 40Gi; 1: taint ill:NoSchedule is not tolerated

Lines are bounded, since events and tables are, and say how much they leave out. Nodes that must get
the same verdict are explained once, so a cluster costs what its classes of nodes do.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from allocator.cluster import Cluster, Outcome, Verdicts
from allocator.core.model import Asked, NodeDevices, Plan
from allocator.core.outcome import GaveUp, Reason, Refusal, Shortage
from allocator.core.unmet import shown
from allocator.explain import MAX_DETAIL, STEPS, explained, general, listing, told_apart

MAX_SUMMARY: Final = 1024
"""Bytes of a summary: what the note of an event holds."""

MAX_CLASSES: Final = 128
"""Classes of nodes that a summary of a cluster explains; the others are counted."""

_STEPS_IN_ALL: Final = 1_000_000
"""What questions about all classes may cost together; some seconds."""


def summary(shortages: Iterable[Shortage], devices: int, *, most: int = MAX_SUMMARY) -> str:
    """Return shortages in one line of bounded length.

    Args:
        shortages: As `explained` returns them.
        devices: How many the node has.
        most: Bytes of the line.

    >>> from allocator.core.outcome import Reason, Refusal, Shortage
    >>> def lost(devices, reason, detail):
    ...     refusal = Refusal(reason=reason, detail=detail)
    ...     return Shortage(claim="a/b", request="gpu", refusal=refusal, devices=devices)
    >>> summary([lost(5, Reason.TAKEN, "taken"), lost(3, Reason.SELECTOR, "memory 16Gi below 40Gi")], 8)
    '5 of 8 devices: taken; 3: memory 16Gi below 40Gi'
    """
    requests: dict[_Said, list[Shortage]] = {}
    for _, each in groupby(shortages, key=lambda one: (one.claim, one.request)):
        same = tuple(each)
        said = tuple((one.devices, one.refusal) for one in same)
        requests.setdefault(said, []).append(same[0])
    named = {(one.claim, one.request) for each in requests.values() for one in each if one.claim}
    parts: list[str] = []
    spare: list[tuple[bool, int]] = []
    for said, those in requests.items():
        words = list(_words(said, devices))
        if those[0].claim and len(named) > 1:
            several_claims = len({claim for claim, _ in named}) > 1
            words[0] = f"{_whose(those, several_claims=several_claims)}: {words[0]}"
        # What a request begins with says whose it is; what is lacking says most, and devices that
        # were never meant say least.
        spare += [
            (refusal.reason is Reason.SELECTOR, len(parts) + at)
            for at, (count, refusal) in enumerate(said)
            if at and count
        ]
        parts += words
    return _tightened(parts, [place for _, place in sorted(spare)], most)


def _tightened(parts: Sequence[str], spare: Sequence[int], most: int) -> str:
    """Return parts in one line, where there is no room for all without the last that can be spared.

    Args:
        spare: Places in `parts`, those that say least last.
    """
    for dropped in range(len(spare) + 1):
        left_out = set(spare[len(spare) - dropped :])
        kept = [part for place, part in enumerate(parts) if place not in left_out]
        text = "; ".join([*kept, _more(dropped, "reason")] if dropped else kept)
        if len(text.encode()) <= most:
            return text
    return bounded(parts, most, "reason")


_Said = tuple[tuple[int, Refusal], ...]
"""Devices and reason of each shortage of one request."""


def _words(said: _Said, devices: int) -> Iterator[str]:
    """Yield the text of each shortage; the first that counts devices says of how many."""
    of = f" of {devices} device{'' if devices == 1 else 's'}"
    for count, refusal in said:
        text = shown(refusal.detail or refusal.reason, MAX_DETAIL)
        yield f"{count}{of}: {text}" if count else text
        of = "" if count else of


def _whose(shortages: Sequence[Shortage], *, several_claims: bool) -> str:
    """Return the requests of shortages that are alike, by claim."""
    named = []
    for claim, those in groupby(shortages, key=lambda one: one.claim):
        names = [shown(one.request) for one in those]
        requests = f"request{'' if len(names) == 1 else 's'} {listing(names)}"
        named.append(f"claim {shown(claim)} {requests}" if several_claims else requests)
    return listing(named)


def bounded(parts: Sequence[str], most: int, what: str) -> str:
    """Return as many parts as there is room for, and how many are left out."""
    text = "; ".join(parts)
    if len(text.encode()) <= most:
        return text
    if len(parts) == 1:
        return text.encode()[: most - 3].decode(errors="ignore") + "..."
    for count in range(len(parts) - 1, -1, -1):
        text = "; ".join([*parts[:count], _more(len(parts) - count, what)])
        if len(text.encode()) <= most:
            return text
    return ""


def _more(left: int, what: str) -> str:
    return f"{left} more {what}{'' if left == 1 else 's'}"


class Alike(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that say the same.

    Attributes:
        nodes: By name, sorted.
        shortages: Of one of them.
        text: The summary of these.
    """

    nodes: tuple[str, ...]
    shortages: tuple[Shortage, ...]
    text: str


class ClusterSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Why claims fit no node of a cluster.

    Attributes:
        groups: The largest first, then by text.
        unexplained: Nodes of classes that were not looked at.
        unexplained_classes: How many these are.
    """

    groups: tuple[Alike, ...]
    unexplained: int = 0
    unexplained_classes: int = 0

    def text(self, most: int = MAX_SUMMARY) -> str:
        """Return all of it in one line of at most `most` bytes."""
        parts = [f"{_nodes(len(group.nodes))}: {group.text}" for group in self.groups]
        if self.unexplained:
            classes = f"{self.unexplained_classes:,} further state"
            plural = "" if self.unexplained_classes == 1 else "s"
            parts.append(f"{_nodes(self.unexplained)} in {classes}{plural} not looked at")
        return bounded(parts, most, "group")


def cluster_summary(
    cluster: Cluster,
    asked: Asked,
    verdicts: Verdicts,
    *,
    classes: int = MAX_CLASSES,
    most: int = MAX_SUMMARY // 2,
) -> ClusterSummary:
    """Return why nodes do not fit, each class of nodes explained once.

    Args:
        verdicts: What the cluster said of these claims, and did not change since.
        classes: How many classes are explained at most, those of most nodes first.
        most: Bytes of what is said of one node.
    """
    divided = told_apart(verdicts, asked)
    refusing = [each for each in divided if not isinstance(each.outcome, Plan)]
    refusing.sort(key=lambda each: (-len(each.nodes), min(each.nodes)))
    steps = min(STEPS, _STEPS_IN_ALL // max(min(len(refusing), classes), 1))
    groups: dict[str, Alike] = {}
    for each in refusing[:classes]:
        found = _shortages(cluster, asked, each.outcome, each.example, steps)
        text = summary(found, len(each.example.devices), most=most)
        nodes = set(each.nodes)
        if text in groups:
            nodes.update(groups[text].nodes)
        groups[text] = Alike(nodes=tuple(sorted(nodes)), shortages=found, text=text)
    rest = refusing[classes:]
    return ClusterSummary(
        groups=tuple(sorted(groups.values(), key=lambda one: (-len(one.nodes), one.text))),
        unexplained=sum(len(each.nodes) for each in rest),
        unexplained_classes=len(rest),
    )


def _shortages(
    cluster: Cluster, asked: Asked, outcome: Outcome, node: NodeDevices, steps: int
) -> tuple[Shortage, ...]:
    if isinstance(outcome, GaveUp):
        return (general(Reason.GAVE_UP, outcome.proved),)
    return explained(node, asked, cluster.usage, cluster.rules, steps=steps)


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count:,} nodes"
