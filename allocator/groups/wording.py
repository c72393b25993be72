"""Every word about a group that is not placed: the numbers of its pods that fit, and of those needed."""

from collections.abc import Mapping
from typing import Final

from allocator.groups.model import GroupDoesNotFit, GroupUndecided, MissingLabel
from findings.text import count_text, quote_text

_LABEL_HINTS: Final[Mapping[MissingLabel, str]] = {
    MissingLabel.ALL: "no node has this label: label the nodes, or write another topology key",
    MissingLabel.SUITABLE: "the nodes that could take one of them lack this label: label these, or write another "
    "topology key",
}


def describe_outcome(
    outcome: GroupDoesNotFit | GroupUndecided, *, min_count: int, placed: int, domain: str = ""
) -> str:
    """Describe the numbers of pods that fit and that a group needs, and the first one without a place.

    Args:
        outcome: The answer about its pods without a node.
        min_count: Pods that it needs.
        placed: Pods that have a node.
        domain: The label of nodes of which all pods need one value; empty for none.
    """
    closest = outcome.closest
    done = len(closest.nodes) + placed
    total = done + len(closest.unplaced)
    counts = describe_counts(done, total, min_count)
    where = f" on nodes with one {quote_text(domain)}" if domain else ""
    if isinstance(outcome, GroupUndecided):
        return f"not decided: {outcome.why}; {counts}{where} so far"
    if outcome.missing_label is not None:
        return f"{counts}{where}; {_LABEL_HINTS[outcome.missing_label]}"
    beside = ""
    if closest.unplaced and done:
        name = closest.unplaced[0]
        beside = f"; {name} fits nowhere beside {'it' if done == 1 else 'them'}"
    return f"{counts}{where}{beside}"


def describe_counts(fitting: int, total: int, min_count: int) -> str:
    """Describe the numbers of pods of a group that fit and that it needs.

    >>> describe_counts(3, 4, 4)
    '3 of 4 pods fit, and 4 are needed'
    """
    verb = "fits" if fitting == 1 else "fit"
    return f"{fitting} of {count_text(total, 'pod')} {verb}, and {min_count} are needed"
