"""The plans, and the nodes of one answer, that keep within the budget of a pod's tenant.

A node whose plan breaks the budget is searched again, under what is left as a bound. What is left is no
part of a question that verdicts are cached for, so the verdicts about a cluster are the same for all tenants.

Plans are made for classes of nodes, and a class does not tell what its devices are charged with. So the plan
of a class is charged to a node only where all its devices count alike; others are searched one by one.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.cluster.search_budget import SearchBudget
from allocator.cluster.verdicts import Outcome
from allocator.model.amount_bound import AmountBound
from allocator.model.devices import NodeDevices
from allocator.model.outcome import BudgetExhausted
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims, Request
from allocator.model.usage import Usage
from allocator.pods.claims import Name
from allocator.strategies.strategy import Strategy
from kube.api.resource import MAX_RESULTS
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.caps import CapBreach
from quotas.device_quotas.charge_profiles import ChargeProfile, Forms, PlanCharges, charge_profile
from quotas.device_quotas.charges import Charge
from quotas.device_quotas.ledger import NOTHING, Excess
from quotas.device_quotas.tenants import Account

MAX_OWN_SEARCHES: Final = 128
"""Searches of single nodes for one answer; nodes beyond count as not fitting."""

Excesses = tuple[Excess | CapBreach, ...]


class TenantBudget:
    """The remaining amounts of a pod's namespace.

    Attributes:
        accounts: The enforced limits of owned drivers.
    """

    def __init__(
        self,
        accounts: Sequence[Account],
        quotas: QuotaBook,
        *,
        besides: frozenset[Name] = frozenset(),
        also: Mapping[Account, int] = NOTHING,
    ) -> None:
        """Take the limits.

        Args:
            besides: The same charges as in `QuotaBook.excesses_of_plan`.
            also: The same charges as in `QuotaBook.excesses_of_plan`.
        """
        self.accounts = accounts
        self._quotas = quotas
        self._besides, self._also = besides, also

    def is_ample(self, pending: PendingClaims) -> bool:
        """Return True if claims keep within the budget and all caps with any devices."""
        # A claim is counted once, and no share of it more often.
        devices = [
            max(map(_most_devices, forms)) for requests in pending.requests for forms in requests
        ]
        return all(self._is_ample(account, devices) for account in self.accounts)

    def _is_ample(self, account: Account, devices: Sequence[int]) -> bool:
        """Return True if requests for at most so many devices keep within a limit with any devices."""
        limit = account.limit
        largest = self._quotas.largest_amount(limit)
        if limit.per_device is not None and largest > limit.per_device.nanos:
            return False
        if (
            limit.per_request is not None
            and largest * max(devices, default=0) > limit.per_request.nanos
        ):
            return False
        total = largest * sum(devices)
        return total <= 0 or total <= self._quotas.ledger.left(
            account, besides=self._besides, also=self._also
        )

    def forms(self, node: NodeDevices) -> Forms | None:
        """Return the form of a device of each driver on a node; None for different ones of a driver.

        Plans of nodes of the same class and with the same forms are charged alike.

        Raises:
            AnswerInterrupted: As `ChargeProfile.forms` does.
        """
        return self._profile.forms(node)

    def charges(self, plan: Plan) -> PlanCharges:
        """Return the charges of a plan; those of an answer about many nodes are remembered."""
        return self._profile.charges(plan, self.accounts, self._quotas)

    def excesses(self, charges: Sequence[Charge]) -> Excesses:
        """Return the limits that charges of a plan exceed; nothing if they keep within the budget."""
        return self._quotas.excesses_of_charges(
            self.accounts,
            charges,
            besides=self._besides,
            also=self._also,
        )

    def excesses_of_plan(self, plan: Plan) -> Excesses:
        """Return the limits exceeded by a plan that is made for this answer alone."""
        limits = [account.limit for account in self.accounts]
        return self.excesses(self._quotas.charges_of_plan(limits, plan.choices))

    def left(self) -> tuple[int, ...]:
        """Return the remaining amount of each limit, in nano-units; 0 for one that is used up."""
        ledger = self._quotas.ledger
        return tuple(
            max(0, ledger.left(account, besides=self._besides, also=self._also))
            for account in self.accounts
        )

    def bounds(self, node: NodeDevices) -> Sequence[AmountBound]:
        """Return the bounds of a search on a node that keeps within the budget."""
        return self._quotas.bounds(
            self.accounts,
            node.devices,
            besides=tuple(self._besides),
            also=self._also,
        )

    def caps(self, node: NodeDevices) -> Sequence[AmountBound]:
        """Return the bounds of a search on a node that keep it within the caps of requests and devices."""
        return self._quotas.caps(self.accounts, node.devices)

    @cached_property
    def _profile(self) -> ChargeProfile:
        """The profile of these limits; an ample budget needs none."""
        return charge_profile(self.accounts)


class OverBudget(msgspec.Struct, frozen=True, kw_only=True):
    """Every plan of a node exceeds the budget of the tenant.

    Attributes:
        excesses: Those of the plan that the node has without a bound, or of one within the caps if there
            is one.
    """

    excesses: Excesses


def find_plan(
    pending: PendingClaims,
    node: str,
    cluster: Cluster,
    *,
    drivers: frozenset[str],
    strategy: Strategy,
    budget: Budget,
    usage: Usage | None,
    tenant: TenantBudget | None,
    first_plan: Plan | None = None,
) -> Outcome | OverBudget:
    """Search a node, and again within the budget of the tenant if the first plan exceeds that.

    Args:
        drivers: The drivers whose devices may be given.
        budget: Maximum cost of each search.
        usage: Other usage than there is; None for that of now.
        tenant: The budget of the tenant; None if nothing limits it.
        first_plan: A plan with the charge of the first one, which saves its search; None for none.

    Raises:
        AttemptFailed: The attempt fails.
        AnswerInterrupted: There is no outcome, for the reason that the class of the error says.
    """
    search = partial(cluster.verdict, pending, node, strategy=strategy, budget=budget, usage=usage)
    outcome = search() if first_plan is None else first_plan
    if tenant is None or not isinstance(outcome, Plan) or not is_owned(outcome, drivers):
        return outcome
    if tenant.is_ample(pending):
        return outcome
    excesses = tenant.excesses_of_plan(outcome)
    if not excesses:
        return outcome
    devices = cluster.node_devices(node)
    bounded_outcome = search(bounds=tenant.bounds(devices))
    if isinstance(bounded_outcome, BudgetExhausted):
        return bounded_outcome
    if isinstance(bounded_outcome, Plan) and is_owned(bounded_outcome, drivers):
        return bounded_outcome
    if any(isinstance(excess, CapBreach) for excess in excesses):
        # What exceeds a cap is rejected for good, unless another choice lacks nothing but a release.
        capped_outcome = search(bounds=tenant.caps(devices))
        if isinstance(capped_outcome, Plan) and is_owned(capped_outcome, drivers):
            excesses = tenant.excesses_of_plan(capped_outcome)
    return OverBudget(excesses=excesses)


class AffordableNodes:
    """The nodes that a tenant can pay, found out one by one.

    Attributes:
        excesses: Those of the node that lacks least; None while no node was too expensive.
        is_cut_off: Some node was not searched, or not to the end.
    """

    def __init__(
        self,
        pending: PendingClaims,
        strategy: Strategy,
        cluster: Cluster,
        tenant: TenantBudget,
        *,
        drivers: frozenset[str],
        answer_budget: SearchBudget,
        node_budget: Budget,
    ) -> None:
        """Begin without nodes.

        Args:
            tenant: The budget of the tenant.
            drivers: The drivers whose devices may be given.
            answer_budget: The budget of the answer.
            node_budget: Maximum cost of each search of a node.
        """
        self.excesses: Excesses | None = None
        self.is_cut_off = False
        self._pending = pending
        self._strategy = strategy
        self._cluster, self._drivers = cluster, drivers
        self._tenant = tenant
        self._forms_of, self._devices_of = tenant.forms, cluster.node_devices
        self._answer_budget, self._node_budget = answer_budget, node_budget
        self._searches_left = MAX_OWN_SEARCHES
        self._answers: dict[Hashable, bool] = {}
        # Plans of classes to the forms of the nodes that they are affordable on.
        self._affordable_forms: dict[int, Forms | None] = {}
        self._known_excesses: dict[tuple[Charge, ...], Excesses] = {}

    def has(self, name: str, plan: Plan) -> bool:
        """Return True if a node has a plan that keeps within the budget.

        Args:
            plan: The plan of a node of its class. It is known by its identity, so the caller keeps it until the end.
        """
        forms = self._forms_of(self._devices_of(name))
        # Of a hundred nodes in an answer most are charged with the plan of their class.
        if forms is not None and forms is self._affordable_forms.get(id(plan)):
            return True
        # Where devices differ in what they are charged with, equal nodes may have different ones free.
        key: Hashable = name if forms is None else (id(plan), forms)
        is_affordable = self._answers.get(key)
        if is_affordable is None:
            is_affordable = self._answers[key] = self._find_out(name, plan, forms)
        return is_affordable

    def _find_out(self, name: str, plan: Plan, forms: Forms | None) -> bool:
        """Return True if a node is affordable that is the first of its kind in this answer."""
        charges = self._tenant.charges(plan)
        is_plan_of_node = forms is not None and charges.is_for(forms)
        if is_plan_of_node and not self._excesses_of(charges):
            self._affordable_forms[id(plan)] = forms
            return True
        if not self._searches_left or self._answer_budget.is_spent:
            self.is_cut_off = True
            return False
        self._searches_left -= 1
        outcome = self._search(name, plan if is_plan_of_node else None)
        if isinstance(outcome, OverBudget):
            self.excesses = closest(self.excesses, outcome.excesses)
        self.is_cut_off |= isinstance(outcome, BudgetExhausted)
        return isinstance(outcome, Plan)

    def plan(self, name: str) -> Plan:
        """Return the plan of a node that is affordable."""
        outcome = self._search(name)
        assert isinstance(outcome, Plan), name
        return outcome

    def _search(self, name: str, first_plan: Plan | None = None) -> Outcome | OverBudget:
        return find_plan(
            self._pending,
            name,
            self._cluster,
            drivers=self._drivers,
            strategy=self._strategy,
            budget=self._node_budget,
            usage=None,
            tenant=self._tenant,
            first_plan=first_plan,
        )

    def _excesses_of(self, charges: PlanCharges) -> Excesses:
        """Return the limits that the charges of a plan exceed."""
        excesses = self._known_excesses.get(charges.charges)
        if excesses is None:
            excesses = self._tenant.excesses(charges.charges)
            self._known_excesses[charges.charges] = excesses
        return excesses


def is_owned(plan: Plan, drivers: frozenset[str]) -> bool:
    """Return True if a plan takes devices of these drivers only."""
    return all(choice.device.id.driver in drivers for choices in plan.choices for choice in choices)


def closest(first: Excesses | None, second: Excesses) -> Excesses:
    """Return the excesses that need less to become free; those of one request or device come last."""
    return second if first is None or _distance(second) < _distance(first) else first


def in_words(excesses: Iterable[Excess | CapBreach]) -> str:
    """Return limits that are exceeded, in a sentence."""
    return "; ".join(dict.fromkeys(excess.message for excess in excesses))


def _most_devices(request: Request) -> int:
    """Return the most devices that a request may get."""
    if request.admin:
        return 0
    return MAX_RESULTS if request.all_devices else min(request.count, MAX_RESULTS)


def _distance(excesses: Excesses) -> tuple[int, int, str]:
    breaches = sum(isinstance(excess, CapBreach) for excess in excesses)
    missing = sum(excess.missing for excess in excesses if isinstance(excess, Excess))
    return breaches, missing, in_words(excesses)
