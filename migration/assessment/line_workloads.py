"""A workload with its pods, as they count on the lines of ResourceQuotas before and after a plan. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kube.quantity import ZERO, Quantity
from migration.assessment.outcomes import AssessedWorkload
from quotas.resource_quotas.usage import Account, PodCharge


class LineWorkload(NamedTuple):
    """A workload with its pods.

    Attributes:
        today: The amounts of a pod that starts today.
        charge: The amounts of a pod once it has moved.
        now: The amounts of its pods that there are, as they count today.
        later: The same, as they count once the plan is prepared.
        running: The number of those that it keeps.
        starting: The number of pods that it lacks or starts later, as far as quotas let it today.
        surge: The number that its rollout starts before it ends one; 0 if quotas have no room for them today.
        is_opted_in: Its next pods get claims by a label of today.
        is_evicted: Some of its pods are on nodes that are still to be switched.
    """

    workload: AssessedWorkload
    today: PodCharge
    charge: PodCharge
    now: Sequence[PodCharge]
    later: Sequence[PodCharge]
    running: int
    starting: int
    surge: int
    is_opted_in: bool
    is_evicted: bool

    def on(self, account: Account, line: str, pods: int) -> Quantity:
        """Return the amount of pods that counts on a line."""
        return self.charge.on(account.quota, line) * pods

    def running_on(self, account: Account, line: str) -> Quantity:
        """Return the larger amount of its pods on a line, of those before and after their move."""
        return max(self.on(account, line, self.running), self._kept_on(self.later, account, line))

    def is_affected(self, account: Account, line: str, *, is_added: bool, is_early: bool) -> bool:
        """Return True if a plan has more of its pods count on a line, or evicts pods that do.

        Args:
            account: The quota.
            line: The line.
            is_added: The plan adds the line.
            is_early: The question is about its preparation alone, and a workload that is opted in.
        """
        is_concerned = self.is_opted_in if is_early else self.is_evicted or not self.is_opted_in
        if not is_concerned or not self.on(account, line, self.running + self.starting):
            return False
        if is_added:
            return True
        amount_now = self._kept_on(self.now, account, line)
        if is_early:
            # A line that is too low without the plan is no reason not to prepare it.
            is_dearer = self.today.on(account.quota, line) < self.charge.on(account.quota, line)
            return is_dearer or amount_now < self._kept_on(self.later, account, line)
        return (
            bool(self.starting)
            or self.is_evicted
            or amount_now < self.on(account, line, self.running)
        )

    def _kept_on(self, charges: Iterable[PodCharge], account: Account, line: str) -> Quantity:
        """Return the amount of as many of its pods as it keeps, of those with the most."""
        amounts = sorted((charge.on(account.quota, line) for charge in charges), reverse=True)
        return total_of(amounts[: self.running])


class LineTotal(NamedTuple):
    """The amounts that count on a line without pods to come.

    Attributes:
        used: Those of others than the workloads.
        running: Those of the pods of workloads, before or after these have moved.
    """

    used: Quantity
    running: Quantity


def total_of(amounts: Iterable[Quantity]) -> Quantity:
    """Return the sum of amounts; zero of none."""
    return sum(amounts, ZERO)


def largest_of(amounts: Iterable[Quantity]) -> Quantity:
    """Return the largest amount; zero of none."""
    return max(amounts, default=ZERO)
