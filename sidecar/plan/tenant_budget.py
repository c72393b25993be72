"""The budget of a pod's tenant, for the drivers that the bridge owns: the plan of each node is charged.

A node whose plan breaks the budget is searched again, under what is left as a bound. What is left is no
part of a question that verdicts are cached for, so the verdicts about a cluster are the same for all tenants.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

from allocator.model.amount_bound import AmountBound
from allocator.model.devices import NodeDevices
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims, Request
from kube.api.core import Pod
from kube.api.resource import MAX_RESULTS
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.caps import CapBreach
from quotas.device_quotas.charge_profiles import ChargeProfile, Forms, PlanCharges, charge_profile
from quotas.device_quotas.charges import Charge
from quotas.device_quotas.ledger import Excess
from quotas.device_quotas.tenants import Account
from sidecar.model.rejections import Code, Rejection, unresolvable, unschedulable
from sidecar.plan.occupancy import Occupancy
from sidecar.plan.snapshot import Snapshot

Excesses = tuple[Excess | CapBreach, ...]


class TenantBudget:
    """The remaining amounts of a pod's namespace.

    Attributes:
        accounts: The enforced limits of owned drivers.
    """

    def __init__(
        self, accounts: Sequence[Account], quotas: QuotaBook, occupancy: Occupancy
    ) -> None:
        """Take the limits.

        Args:
            occupancy: The use beside the pod.
        """
        self.accounts = accounts
        self._quotas = quotas
        self._occupancy = occupancy

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
            account, besides=self._occupancy.released, also=self._occupancy.charged
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
            besides=self._occupancy.released,
            also=self._occupancy.charged,
        )

    def excesses_of_plan(self, plan: Plan) -> Excesses:
        """Return the limits exceeded by a plan that is made for this answer alone."""
        limits = [account.limit for account in self.accounts]
        return self.excesses(self._quotas.charges_of_plan(limits, plan.choices))

    def left(self) -> tuple[int, ...]:
        """Return the remaining amount of each limit, in nano-units; 0 for one that is used up."""
        ledger, occupancy = self._quotas.ledger, self._occupancy
        return tuple(
            max(0, ledger.left(account, besides=occupancy.released, also=occupancy.charged))
            for account in self.accounts
        )

    def bounds(self, node: NodeDevices) -> Sequence[AmountBound]:
        """Return the bounds of a search on a node that keeps within the budget."""
        return self._quotas.bounds(
            self.accounts,
            node.devices,
            besides=tuple(self._occupancy.released),
            also=self._occupancy.charged,
        )

    def caps(self, node: NodeDevices) -> Sequence[AmountBound]:
        """Return the bounds of a search on a node that keep it within the caps of requests and devices."""
        return self._quotas.caps(self.accounts, node.devices)

    @cached_property
    def _profile(self) -> ChargeProfile:
        """The profile of these limits; an ample budget needs none."""
        return charge_profile(self.accounts)


def tenant_budget(
    namespace: str, quotas: QuotaBook, snapshot: Snapshot, occupancy: Occupancy | None
) -> TenantBudget | None:
    """Return the budget of a namespace; None if nothing limits it.

    Args:
        occupancy: Other amounts in use than there are; None for those of now.
    """
    accounts = _enforced_accounts(namespace, quotas, snapshot)
    if not accounts:
        return None
    return TenantBudget(accounts, quotas, occupancy or snapshot.occupancy)


def shared_accounts(namespace: str, snapshot: Snapshot) -> frozenset[Account]:
    """Return the enforced limits of a namespace; none without quotas. Other namespaces may share them."""
    quotas = snapshot.quotas
    return (
        frozenset()
        if quotas is None
        else frozenset(_enforced_accounts(namespace, quotas, snapshot))
    )


def over_budget(excesses: Excesses) -> Rejection:
    """Return the rejection of a pod on a node that would give it more than is left."""
    breaches = [excess for excess in excesses if isinstance(excess, CapBreach)]
    if breaches:
        return unresolvable(Code.EXCEEDS_PER_REQUEST_QUOTA, _in_words(breaches))
    return unschedulable(Code.EXCEEDS_DEVICE_QUOTA, _in_words(excesses))


def closest(first: Excesses | None, second: Excesses) -> Excesses:
    """Return the excesses that need less to become free; those of one request or device come last."""
    return second if first is None or _distance(second) < _distance(first) else first


def tenant_namespaces(excesses: Excesses, snapshot: Snapshot) -> frozenset[str]:
    """Return the namespaces with claims that use up the limits that are exceeded."""
    namespaces: set[str] = set()
    for excess in excesses:
        if snapshot.quotas is None or not isinstance(excess, Excess):
            continue
        account = excess.account
        if account.namespace:
            namespaces.add(account.namespace)
        else:
            namespaces |= snapshot.quotas.tenants.selected(account.limit.quota)
    return frozenset(namespaces)


def has_victims(pod: Pod, namespaces: frozenset[str], snapshot: Snapshot) -> bool:
    """Return True if a pod of lower priority in these namespaces has claims, and a node."""
    priority = pod.spec.priority or 0
    return any(
        other.metadata.namespace in namespaces
        and (other.spec.priority or 0) < priority
        and bool(other.spec.node_name)
        # A copy in one step, since the event loop may change the original meanwhile.
        for other in list(snapshot.pods.values())
    )


def _enforced_accounts(namespace: str, quotas: QuotaBook, snapshot: Snapshot) -> Sequence[Account]:
    return [
        account
        for account in quotas.accounts(namespace, snapshot.drivers)
        if account.limit.is_enforced
    ]


def _most_devices(request: Request) -> int:
    """Return the most devices that a request may get."""
    if request.admin:
        return 0
    return MAX_RESULTS if request.all_devices else min(request.count, MAX_RESULTS)


def _distance(excesses: Excesses) -> tuple[int, int, str]:
    breaches = sum(isinstance(excess, CapBreach) for excess in excesses)
    missing = sum(excess.missing for excess in excesses if isinstance(excess, Excess))
    return breaches, missing, _in_words(excesses)


def _in_words(excesses: Iterable[Excess | CapBreach]) -> str:
    return "; ".join(dict.fromkeys(excess.message for excess in excesses))
