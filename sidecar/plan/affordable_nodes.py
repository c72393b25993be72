"""The nodes of one answer with a plan that keeps within the budget of a pod's tenant.

Plans are made for classes of nodes, and a class does not tell what its devices are charged with. So the plan
of a class is charged to a node only where all its devices count alike; others are searched one by one.
"""

from collections.abc import Hashable
from typing import Final

from allocator.model.outcome import BudgetExhausted
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.strategies.strategy import Strategy
from quotas.device_quotas.charge_profiles import Forms, PlanCharges
from quotas.device_quotas.charges import Charge
from sidecar.plan.placement import NODE_STEPS, OverBudget, budget_for, find_plan
from sidecar.plan.search_budget import SearchBudget
from sidecar.plan.snapshot import Snapshot
from sidecar.plan.tenant_budget import Excesses, TenantBudget, closest

MAX_OWN_SEARCHES: Final = 128
"""Searches of single nodes for one answer; nodes beyond count as not fitting."""


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
        snapshot: Snapshot,
        tenant: TenantBudget,
        budget: SearchBudget,
    ) -> None:
        """Begin without nodes.

        Args:
            tenant: The budget of the tenant.
            budget: The budget of the answer.
        """
        self.excesses: Excesses | None = None
        self.is_cut_off = False
        self._pending = pending
        self._strategy = strategy
        self._snapshot = snapshot
        self._tenant = tenant
        self._forms_of, self._devices_of = tenant.forms, snapshot.cluster.node_devices
        self._budget = budget
        self._searches_left = MAX_OWN_SEARCHES
        self._answers: dict[Hashable, bool] = {}
        # Plans of classes to the forms of the nodes that they are affordable on.
        self._affordable_forms: dict[int, Forms | None] = {}
        self._known_excesses: dict[tuple[Charge, ...], Excesses] = {}

    def has(self, name: str, plan: Plan) -> bool:
        """Return True if a node has a plan that keeps within the budget.

        Args:
            plan: The plan of a node of its class.
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
        if not self._searches_left or self._budget.is_spent:
            self.is_cut_off = True
            return False
        self._searches_left -= 1
        outcome = find_plan(
            self._pending,
            name,
            self._snapshot,
            strategy=self._strategy,
            budget=budget_for(self._strategy, NODE_STEPS),
            usage=None,
            tenant=self._tenant,
            first_plan=plan if is_plan_of_node else None,
        )
        if isinstance(outcome, OverBudget):
            self.excesses = closest(self.excesses, outcome.excesses)
        self.is_cut_off |= isinstance(outcome, BudgetExhausted)
        return isinstance(outcome, Plan)

    def _excesses_of(self, charges: PlanCharges) -> Excesses:
        """Return the limits that the charges of a plan exceed."""
        excesses = self._known_excesses.get(charges.charges)
        if excesses is None:
            excesses = self._tenant.excesses(charges.charges)
            self._known_excesses[charges.charges] = excesses
        return excesses
