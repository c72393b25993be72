"""The remaining amounts of a tenant, as the budget of a group in the joint search (`allocator.groups.budget`)."""

from collections.abc import Hashable, Sequence

from allocator.model.amount_bound import AmountBound
from allocator.model.devices import NodeDevices
from allocator.model.plan import Plan
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.bounds import amount_bound
from quotas.device_quotas.charge_profiles import charge_profile
from quotas.device_quotas.tenants import Account


class QuotaBudget:
    """The amounts that are left to a group.

    Two of them are equal if they have the same limits with the same amounts left.

    Attributes:
        left: The amount of each limit, in nano-units.
    """

    def __init__(
        self, accounts: Sequence[Account], left: tuple[int, ...], quotas: QuotaBook
    ) -> None:
        """Take the amounts left now.

        Args:
            accounts: The limits.
        """
        self.left = left
        self._accounts = tuple(accounts)
        self._limits = [account.limit for account in accounts]
        self._profile = charge_profile(accounts)
        self._quotas = quotas

    def __eq__(self, other: object) -> bool:
        """Return True if the same amounts are left of the same limits."""
        return (
            isinstance(other, QuotaBudget)
            and self.left == other.left
            and self._accounts == other._accounts
        )

    def __hash__(self) -> int:
        """Return a number that is equal for equal budgets."""
        return hash(self.left)

    def amounts(self, plan: Plan) -> tuple[int, ...]:
        """Return the amounts that the devices of a plan take."""
        charges = self._quotas.charges_of_plan(self._limits, plan.choices)
        return tuple([charge.total for charge in charges])

    def bounds(self, node: NodeDevices, left: tuple[int, ...]) -> Sequence[AmountBound]:
        """Return the bounds of a search on a node for plans that take no more."""
        return [
            amount_bound(limit, amount, node.devices)
            for limit, amount in zip(self._limits, left, strict=True)
        ]

    def form(self, node: NodeDevices) -> Hashable:
        """Return the form of the devices; those of a node with different ones are like no others."""
        return self._profile.forms(node) or node
