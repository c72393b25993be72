"""The budget of a group, such as the rest of a quota: different devices take different amounts of it.

So a budget links all nodes, as devices do that several of them see: of the plans of a node those are tried that take
least (`linked_nodes`), and the search is cut where the members that are left cannot keep within it.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

from allocator.model.amount_bound import AmountBound
from allocator.model.devices import NodeDevices
from allocator.model.plan import Plan

Amounts = tuple[int, ...]
"""One number for each limit of a budget, not negative."""
Least = tuple[Amounts | None, ...]
"""The least amounts that a member of each kind takes; None for a kind that fits nowhere."""


class GroupBudget(Protocol):
    """The amounts that the members of a group may take together.

    Equal budgets are compared as values: a search goes on only under the same one.
    """

    @property
    def left(self) -> Amounts:
        """The amounts that may be taken."""
        ...

    def amounts(self, plan: Plan) -> Amounts:
        """Return the amounts that the devices of a plan take: the sums of those of its claims.

        Raises:
            AnswerInterrupted: The selectors of the limits have to be evaluated first.
        """
        ...

    def bounds(self, node: NodeDevices, left: Amounts) -> Sequence[AmountBound]:
        """Return the bounds of a search on a node for plans that take no more; errors as of `amounts`."""
        ...

    def form(self, node: NodeDevices) -> Hashable:
        """Return a key, equal only for nodes with plans of equal amounts if their devices are equal otherwise.

        Errors as of `amounts`.
        """
        ...


def most_payable(counts: Sequence[int], least: Least, left: Amounts) -> int:
    """Return an upper bound on the members that a budget lasts for.

    Args:
        counts: Members of each kind.
        left: The amounts that may be taken.

    >>> most_payable((2, 3), ((40,), (10,)), (70,))
    4
    >>> most_payable((2, 3), (None, (10,)), (70,))
    3
    """
    members = [
        (amounts, count)
        for amounts, count in zip(least, counts, strict=True)
        if amounts is not None
    ]
    most = sum(count for _, count in members)
    for index, amount in enumerate(left):
        number, rest = 0, amount
        for charge, count in sorted((amounts[index], count) for amounts, count in members):
            payable = min(count, rest // charge) if charge else count
            number, rest = number + payable, rest - payable * charge
        most = min(most, number)
    return most


def least_of_both(first: Least, second: Least) -> Least:
    """Return the least amounts of each kind on the nodes of either."""
    return tuple(
        [
            right if left is None else left if right is None else tuple(map(min, left, right))
            for left, right in zip(first, second, strict=True)
        ]
    )


def plus(first: Amounts, second: Amounts) -> Amounts:
    """Return the sums."""
    return tuple([amount + other for amount, other in zip(first, second, strict=True)])


def minus(first: Amounts, second: Amounts) -> Amounts:
    """Return the differences."""
    return tuple([amount - other for amount, other in zip(first, second, strict=True)])


def covers(larger: Iterable[int], smaller: Iterable[int]) -> bool:
    """Return True if no amount is smaller than the other one."""
    return all(more >= less for more, less in zip(larger, smaller, strict=True))
