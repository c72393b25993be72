"""The quotas of a simulation, as it asks about them: pods that are held back, and the budgets of pods and groups."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.declarations.model import DeclaredGroup
from allocator.groups.budget import GroupBudget
from allocator.groups.model import GroupPlan
from allocator.model.plan import Budget, Plan
from allocator.model.requests import PendingClaims
from allocator.pods.claims import Name
from allocator.strategies.strategy import Strategy
from findings.finding import Finding
from kube.api.core import Pod


class HeldBack(msgspec.Struct, frozen=True, kw_only=True):
    """The reason a pod is not tried: a quota leaves too little for it.

    Attributes:
        reason: The reason in a sentence.
        waits: True if the pod is created, and waits.
        findings: The same reasons one by one.
    """

    reason: str
    waits: bool
    findings: tuple[Finding, ...]


class NodesWithinQuota(Protocol):
    """The nodes with devices for a pod within the rest of its quotas."""

    def has(self, name: str, plan: Plan) -> bool:
        """Return True if a node has such devices.

        Args:
            plan: The plan of a node of its class.
        """
        ...

    def plan(self, name: str) -> Plan:
        """Return the plan of such a node."""
        ...

    def held_back(self) -> HeldBack | None:
        """Return the reason that no node was among them so far; None if none was too expensive."""
        ...


class Quotas(Protocol):
    """The quotas with their use, charged by a simulation with one pod after the other."""

    def begin(self) -> None:
        """Take back the charges of an earlier simulation."""
        ...

    def hold_back(self, pod: Pod) -> HeldBack | None:
        """Return the reason a pod is not tried; charge it if there is none."""
        ...

    def release(self, pod: Pod) -> None:
        """Take note that a pod gets no place."""
        ...

    def nodes_within(
        self, pod: Pod, pending: PendingClaims, strategy: Strategy, cluster: Cluster, budget: Budget
    ) -> NodesWithinQuota | None:
        """Return the nodes for a pod that is charged for its devices; None if it may have any.

        Its first charge, for the least that it can have, ends.

        Args:
            budget: The budget of each search.
        """
        ...

    def charge_devices(self, pod: Pod, pending: PendingClaims, plan: Plan) -> None:
        """Charge a pod for its devices, if it is charged for these."""
        ...

    def hold_back_members(self, group: DeclaredGroup) -> Mapping[Name, HeldBack]:
        """Return the pods of a group that are not tried with it; charge the others if they are enough."""
        ...

    def budget(self, group: DeclaredGroup) -> GroupBudget | None:
        """Return the budget of a group that is charged for its devices; None if nothing limits these."""
        ...

    def excess(self, group: DeclaredGroup, plan: GroupPlan) -> str:
        """Return the limits that the devices of a plan exceed, in a sentence; empty without any."""
        ...

    def charge(self, group: DeclaredGroup, plan: GroupPlan) -> None:
        """Charge a group that has a budget for the devices of its plan."""
        ...
