"""The budget of a group, such as the rest of a quota: different devices take different amounts of it.

So a budget links all nodes, as devices do that several of them see: of the plans of a node those are tried that take
least (`linked_nodes`), and the search is cut where the members that are left cannot keep within it.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Protocol

from allocator.model.amount_bound import AmountBound
from allocator.model.devices import NodeDevices
from allocator.model.plan import Plan

Amounts = tuple[int, ...]
"""One number for each limit of a budget, not negative."""
Least = tuple[Amounts | None, ...]
"""The least amounts that a member of each kind takes; None for a kind that fits nowhere."""
Charges = tuple[tuple[int, int], ...]
"""Amounts of one limit in ascending order, each with the number of members that take so much at least."""
KindCharges = tuple[Charges, ...]
"""The charges of a kind, for each limit."""


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


def most_payable(counts: Sequence[int], charges: Sequence[KindCharges], left: Amounts) -> int:
    """Return an upper bound on the members that a budget lasts for.

    Args:
        counts: Members of each kind.
        charges: The charges of each kind, of as many members as there are places.
        left: The amounts that may be taken.

    >>> most_payable((2, 3), ((((40, 9),),), (((10, 9),),)), (70,))
    4
    >>> most_payable((2, 3), (((),), (((10, 1), (30, 9)),)), (70,))
    3
    """
    most = sum(counts)
    for index, amount in enumerate(left):
        number, rest = 0, amount
        for charge, count in sorted(
            charge
            for of_kind, members in zip(charges, counts, strict=True)
            for charge in _first(of_kind[index], members)
        ):
            payable = min(count, rest // charge) if charge else count
            number, rest = number + payable, rest - payable * charge
            if payable < count:
                break
        most = min(most, number)
    return most


def marginal_charges(totals: Sequence[Amounts], limits: int) -> KindCharges:
    """Return the charges of members on a node, from the totals of one of them, of two and so on.

    >>> marginal_charges(((40,), (80,), (160,)), 1)
    (((40, 2), (80, 1)),)
    """
    charges: list[Charges] = []
    for index in range(limits):
        amounts = [0, *(total[index] for total in totals)]
        numbers = Counter(after - before for before, after in pairwise(amounts))
        charges.append(tuple(sorted(numbers.items())))
    return tuple(charges)


def joined_charges(first: KindCharges, second: KindCharges, members: int) -> KindCharges:
    """Return the smallest charges of both, of no more members than there are."""
    return tuple(
        [
            tuple(_first(sorted((Counter(dict(left)) + Counter(dict(right))).items()), members))
            for left, right in zip(first, second, strict=True)
        ]
    )


def _first(charges: Iterable[tuple[int, int]], members: int) -> Iterator[tuple[int, int]]:
    """Yield the first charges, of a number of members."""
    for charge, count in charges:
        if members <= 0:
            return
        yield charge, min(count, members)
        members -= count


def plus(first: Amounts, second: Amounts) -> Amounts:
    """Return the sums."""
    return tuple([amount + other for amount, other in zip(first, second, strict=True)])


def minus(first: Amounts, second: Amounts) -> Amounts:
    """Return the differences."""
    return tuple([amount - other for amount, other in zip(first, second, strict=True)])


def covers(larger: Iterable[int], smaller: Iterable[int]) -> bool:
    """Return True if no amount is smaller than the other one."""
    return all(more >= less for more, less in zip(larger, smaller, strict=True))
