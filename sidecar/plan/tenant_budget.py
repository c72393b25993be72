"""What is left to the tenant of a pod, of the drivers that the bridge owns: the plan of each node is charged.

A node whose plan breaks the budget is searched again, under what is left as a bound. What is left is no
part of a question that verdicts are cached for, so the verdicts about a cluster are the same for all tenants.
"""

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from allocator.model.amount_bound import AmountBound
from allocator.model.devices import NodeDevices
from allocator.model.plan import Plan
from kube.api.core import Pod
from quotas.device_quotas.book import CapBreach, QuotaBook
from quotas.device_quotas.bounds import ChargedProperties, charge_form, charged_properties
from quotas.device_quotas.ledger import Excess
from quotas.device_quotas.tenants import Account
from sidecar.model.rejections import Code, Rejection, unresolvable, unschedulable
from sidecar.plan.occupancy import Occupancy
from sidecar.plan.snapshot import Snapshot

Excesses = tuple[Excess | CapBreach, ...]

MAX_FORMS: Final = 16_384
"""Forms of the devices of a node that are remembered, one for each measure."""


class TenantBudget:
    """What is left to the namespace of a pod.

    Attributes:
        accounts: The enforced limits of owned drivers.
    """

    def __init__(
        self, accounts: Sequence[Account], quotas: QuotaBook, occupancy: Occupancy
    ) -> None:
        """Take the limits.

        Args:
            occupancy: What is in use beside the pod.
        """
        self.accounts = accounts
        self._quotas = quotas
        self._occupancy = occupancy
        self._properties = [charged_properties(account.limit) for account in accounts]

    def excesses(self, plan: Plan) -> Excesses:
        """Return what a plan exceeds; nothing if it keeps within the budget."""
        return self._quotas.excesses_of_plan(
            self.accounts,
            plan.choices,
            besides=self._occupancy.released,
            also=self._occupancy.charged,
        )

    def bounds(self, node: NodeDevices) -> Sequence[AmountBound]:
        """Return the bounds of a search on a node that keeps within the budget."""
        return self._quotas.bounds(
            self.accounts,
            node.devices,
            besides=tuple(self._occupancy.released),
            also=self._occupancy.charged,
        )

    def forms(self, node: NodeDevices) -> tuple[Hashable, ...] | None:
        """Return what one device of each limit's driver is like on a node; None where they differ.

        Plans of nodes of the same class and with the same forms are charged alike.
        """
        forms = tuple(
            [
                None if properties.is_constant else _uniform_form(node, properties)
                for properties in self._properties
            ]
        )
        return None if _MIXED in forms else forms

    def has_forms(self, plan: Plan, forms: Iterable[Hashable]) -> bool:
        """Return whether the devices of a plan are like this, so that its charge is that of such a node."""
        devices = [choice.device for choices in plan.choices for choice in choices]
        return all(
            properties.is_constant or charge_form(device, properties) == form
            for properties, form in zip(self._properties, forms, strict=True)
            for device in devices
            if device.id.driver == properties.driver
        )


def tenant_budget(namespace: str, snapshot: Snapshot, occupancy: Occupancy) -> TenantBudget | None:
    """Return what is left to a namespace; None where nothing limits it."""
    quotas = snapshot.quotas
    if quotas is None:
        return None
    accounts = [
        account
        for account in quotas.accounts(namespace, snapshot.drivers)
        if account.limit.is_enforced
    ]
    return TenantBudget(accounts, quotas, occupancy) if accounts else None


def over_budget(excesses: Excesses) -> Rejection:
    """Return the rejection of a pod on a node where it would get more than is left."""
    breaches = [excess for excess in excesses if isinstance(excess, CapBreach)]
    if breaches:
        return unresolvable(Code.EXCEEDS_PER_REQUEST_QUOTA, _in_words(breaches))
    is_final = any(excess.is_final for excess in excesses if isinstance(excess, Excess))
    reject = unresolvable if is_final else unschedulable
    return reject(Code.EXCEEDS_DEVICE_QUOTA, _in_words(excesses))


def closest(first: Excesses | None, second: Excesses) -> Excesses:
    """Return the excesses that need less to become free; those of one request or device come last."""
    return second if first is None or _distance(second) < _distance(first) else first


def tenant_namespaces(excesses: Excesses, snapshot: Snapshot) -> frozenset[str]:
    """Return the namespaces whose claims use up the limits that are exceeded, in all of them."""
    namespaces: frozenset[str] | None = None
    for excess in excesses:
        if snapshot.quotas is None or not isinstance(excess, Excess):
            return frozenset()
        account = excess.account
        sharing = (
            frozenset({account.namespace})
            if account.namespace
            else snapshot.quotas.tenants.selected(account.limit.quota)
        )
        namespaces = sharing if namespaces is None else namespaces & sharing
    return namespaces or frozenset()


def has_victims(pod: Pod, namespaces: frozenset[str], snapshot: Snapshot) -> bool:
    """Return whether a pod of lower priority in these namespaces has claims, and a node."""
    priority = pod.spec.priority or 0
    return any(
        other.metadata.namespace in namespaces
        and (other.spec.priority or 0) < priority
        and bool(other.spec.node_name)
        for other in snapshot.pods.values()
    )


_MIXED: Final = object()


@lru_cache(maxsize=MAX_FORMS)
def _uniform_form(node: NodeDevices, properties: ChargedProperties) -> Hashable:
    """Return the form of all devices of a driver on a node; `_MIXED` where they differ."""
    forms = {
        charge_form(device, properties)
        for device in node.devices
        if device.id.driver == properties.driver
    }
    return _MIXED if len(forms) > 1 else next(iter(forms), None)


def _distance(excesses: Excesses) -> tuple[int, int, str]:
    breaches = sum(isinstance(excess, CapBreach) for excess in excesses)
    missing = sum(excess.missing for excess in excesses if isinstance(excess, Excess))
    return breaches, missing, _in_words(excesses)


def _in_words(excesses: Iterable[Excess | CapBreach]) -> str:
    return "; ".join(dict.fromkeys(excess.message for excess in excesses))
