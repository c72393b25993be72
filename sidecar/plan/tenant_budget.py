"""The budget of a pod's tenant, for the drivers of the bridge, and rejections of pods above it."""

from collections.abc import Sequence

from kube.api.core import Pod
from quotas.device_quotas.affordable_nodes import Excesses, TenantBudget, in_words
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.caps import CapBreach
from quotas.device_quotas.ledger import Excess
from quotas.device_quotas.tenants import Account
from sidecar.model.rejections import Code, Rejection, unresolvable, unschedulable
from sidecar.plan.occupancy import Occupancy
from sidecar.plan.snapshot import Snapshot


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
    use = occupancy or snapshot.occupancy
    return TenantBudget(accounts, quotas, besides=use.released, also=use.charged)


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
        return unresolvable(Code.EXCEEDS_PER_REQUEST_QUOTA, in_words(breaches))
    return unschedulable(Code.EXCEEDS_DEVICE_QUOTA, in_words(excesses))


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
