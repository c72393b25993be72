"""The score of a group's placement: its agreement with the arrangement, from 0 to 100."""

from collections import Counter
from collections.abc import Mapping

from allocator.groups.model import Arrangement


def placement_score(
    nodes: Mapping[str, str], domains: Mapping[str, str], arrangement: Arrangement
) -> int:
    """Return the score of a placement.

    Packed, 100 is one node for all members and 0 a node for each; spread, 100 is a node for each. With domains,
    two thirds of the score are for few of them.

    Args:
        nodes: Member to node, with the members that were placed before.
        domains: Node to the value of the domain's label; empty without a domain.
        arrangement: The preference among nodes.

    >>> two_and_one = {"a": "n1", "b": "n1", "c": "n2"}
    >>> placement_score(two_and_one, {}, Arrangement.PACKED)
    50
    >>> placement_score(two_and_one, {}, Arrangement.SPREAD)
    50
    >>> placement_score(two_and_one, {"n1": "rack-1", "n2": "rack-1"}, Arrangement.PACKED)
    83
    """
    loads = Counter(nodes.values())
    score = 0
    if arrangement is Arrangement.PACKED:
        score = _share_saved(len(loads), len(nodes))
    elif arrangement is Arrangement.SPREAD:
        score = _share_saved(max(loads.values(), default=0), len(nodes))
    if not domains:
        return score
    used_domains = {domains.get(node, "") for node in loads}
    return (2 * _share_saved(len(used_domains), len(loads)) + score) // 3


def _share_saved(used: int, most: int) -> int:
    """Return 100 for one, and 0 for the most that could be used."""
    return 100 if most <= 1 else 100 * (most - used) // (most - 1)
