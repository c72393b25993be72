"""A simulation for people: who goes where, who does not and why, and a map of the devices."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from allocator.cluster import Cluster
from allocator.core.model import Usage
from allocator.core.outcome import Reason
from allocator.eligibility import NOT_MODELLED
from allocator.failure import Failure, NodeReason
from allocator.simulate import TOGETHER, Answer, PlacedClaim
from cli.device_map import device_map
from cli.report import printable
from cli.text import NARROWEST, Paragraph, Row, laid_out, once_per_label
from kube.api.resource import AllocationResult
from kube.quantity import readable

_GROUPS: Final = 4
"""Different things that nodes say of one failure, as far as they are shown."""
_REASONS: Final = 8
_NAMES: Final = 3


def rendered(answer: Answer, cluster: Cluster, before: Usage, width: int) -> str:
    """Return the whole answer, no line wider than `width` columns where words can be broken.

    Args:
        cluster: As it is after the simulation.
        before: What was held before it.
    """
    wide = max(width, NARROWEST)
    last = textwrap.wrap(_counts(answer), wide)
    if answer.pods:
        last += not_modelled(width)
    return "\n\n".join((*told(answer, cluster, before, width), "\n".join(last)))


def told(answer: Answer, cluster: Cluster, before: Usage, width: int) -> Iterator[str]:
    """Yield who goes where and who does not, then the map; arguments as of `rendered`."""
    for each in _paragraphs(answer):
        yield laid_out(each, width)
    yield from _maps(answer, cluster, before)


def not_modelled(width: int) -> list[str]:
    """Return lines that say what was not looked at."""
    words = f"Not modelled: {', '.join(NOT_MODELLED)}."
    return textwrap.wrap(words, max(width, NARROWEST), break_on_hyphens=False)


def _paragraphs(answer: Answer) -> Iterator[Paragraph]:
    failed = {each.title: each for each in answer.failures}
    if TOGETHER in failed:
        yield _unplaced("Together", failed[TOGETHER], *_wanted(answer))
    else:
        yield from _each(answer, failed)
    if answer.error is not None and not _is_told(answer):
        yield Paragraph(title="Error", place="", rows=(Row(label="because", text=answer.error),))


def _is_told(answer: Answer) -> bool:
    """Whether what nodes say has the error already."""
    groups = [group for each in answer.failures for group in each.groups or ()]
    return any(reason.message == answer.error for group in groups for reason in group.reasons)


def _wanted(answer: Answer) -> Iterator[Row]:
    for label, listed in (("pods", answer.pods), ("claims", answer.claims)):
        if listed:
            names = ", ".join(f"{each.namespace}/{each.name}" for each in listed)
            yield Row(label=label, text=names)


def _each(answer: Answer, failed: Mapping[str, Failure]) -> Iterator[Paragraph]:
    claims = {(each.namespace, each.name): each for each in answer.claims}
    told: set[tuple[str, str]] = set()
    for pod in answer.pods:
        title = f"Pod {pod.namespace}/{pod.name}"
        if pod.node is None:
            yield _unplaced(title, failed.get(title))
            continue
        names = answer.uses.get((pod.namespace, pod.name), ())
        own = [(pod.namespace, name) for name in names]
        told.update(own)
        yield Paragraph(
            title=title,
            place=pod.node,
            rows=tuple(
                once_per_label(row for key in own for row in _rows(claims[key], with_name=True))
            ),
        )
    for key, claim in claims.items():
        title = f"ResourceClaim {claim.namespace}/{claim.name}"
        if key in told:
            continue
        if claim.allocation is not None:
            place = claim.node or "usable on several nodes"
            yield Paragraph(title=title, place=place, rows=tuple(once_per_label(_rows(claim))))
        elif title in failed or not answer.pods:
            yield _unplaced(title, failed.get(title))


def _rows(claim: PlacedClaim, *, with_name: bool = False) -> Iterator[Row]:
    name = f"claim {claim.name}: " if with_name else ""
    if claim.allocation is not None:
        for words in devices(claim.allocation) or ("no devices",):
            yield Row(label="gets", text=f"{name}{words}")


def devices(allocation: AllocationResult) -> list[str]:
    """Return the devices in words, pool by pool."""
    pools: dict[tuple[str, str], list[str]] = {}
    for result in allocation.devices.results or ():
        share = ""
        if result.consumed_capacity:
            amounts = sorted(result.consumed_capacity.items())
            share = f" ({', '.join(f'{key} {readable(amount)}' for key, amount in amounts)})"
        elif result.share_id is not None:
            share = " (a share)"
        pools.setdefault((result.driver, result.pool), []).append(f"{result.device}{share}")
    return [
        f"{', '.join(names)} of {driver}, pool {pool}" for (driver, pool), names in pools.items()
    ]


# --- failures -------------------------------------------------------------------------------------


def _unplaced(title: str, failure: Failure | None, *rows_before: Row) -> Paragraph:
    rows = list(rows_before)
    groups = (failure.groups if failure is not None else None) or ()
    if failure is not None and failure.groups == ():
        rows.append(Row(label="because", text="no node is known"))
    for group in groups[:_GROUPS]:
        rows.append(Row(label="on", text=_names(group.nodes)))
        rows += _because(group.reasons)
    more = len(groups) - _GROUPS
    if more > 0:
        rows.append(Row(label="on", text=f"others, for {_more_combinations(more)} of reasons"))
    if failure is not None:
        rows += _nearest(failure)
        if failure.groups is None:
            text = "so many others were not placed that this one was not looked into"
            rows.append(Row(label="because", text=text))
    return Paragraph(title=title, place="not placed", rows=tuple(once_per_label(rows)))


def _more_combinations(count: int) -> str:
    return f"{count} more combination{'' if count == 1 else 's'}"


def _nearest(failure: Failure) -> Iterator[Row]:
    """Yield what would have to change, now and if nothing were in use."""
    now, empty = failure.nearest, failure.nearest_when_empty
    if now is not None:
        yield Row(label="nearest", text=now.detail)
    if empty is not None and (now is None or empty.cost < now.cost):
        yield Row(label="nearest", text=f"if nothing were in use, {empty.detail}")


def _because(reasons: Sequence[NodeReason]) -> Iterator[Row]:
    told = _most_telling(reasons)
    for reason in told:
        devices = f"{reason.count} device{'' if reason.count == 1 else 's'}: "
        text = f"{devices if reason.count else ''}{reason.message} [{reason.code}]"
        yield Row(label="because", text=text)
    more = len(reasons) - len(told)
    if more:
        yield Row(label="because", text=f"{more} more reason{'' if more == 1 else 's'}")


def _most_telling(reasons: Sequence[NodeReason]) -> list[NodeReason]:
    """Return as many reasons as are shown, in order.

    What is lacking says most, and devices that were never meant say least.
    """
    places = sorted(
        range(len(reasons)),
        key=lambda place: (reasons[place].count > 0, reasons[place].code == Reason.SELECTOR),
    )
    return [reasons[place] for place in sorted(places[:_REASONS])]


def _names(nodes: Sequence[str]) -> str:
    if len(nodes) <= _NAMES + 1:
        return ", ".join(nodes)
    return f"{', '.join(nodes[:_NAMES])} and {len(nodes) - _NAMES} more"


# --- devices --------------------------------------------------------------------------------------


def _maps(answer: Answer, cluster: Cluster, before: Usage) -> Iterator[str]:
    """Yield the map of nodes that gave something, then of those that could not."""
    changed = {
        pool for pool, use in cluster.usage.pools.items() if before.pools.get(pool) is not use
    }
    nodes: Mapping[str, None] = dict.fromkeys(
        name
        for name in sorted(cluster.nodes)
        if any(pool.id in changed for pool in cluster.node_devices(name).pools)
    )
    nodes = {**nodes, **dict.fromkeys(node.name for node in answer.nodes)}
    lines = device_map((cluster.node_devices(name) for name in nodes), before, cluster.usage)
    if lines:
        yield "\n".join(printable(line) for line in lines)


def _counts(answer: Answer) -> str:
    pods = sum(pod.node is not None for pod in answer.pods)
    claims = sum(claim.allocation is not None for claim in answer.claims)
    counts = [
        f"{done} of {total} {what}{'' if total == 1 else 's'} placed"
        for done, total, what in (
            (pods, len(answer.pods), "pod"),
            (claims, len(answer.claims), "claim"),
        )
        if total
    ]
    nothing = "Nothing to place: no unbound pod and no unallocated claim is given."
    return ", ".join(counts) or nothing
