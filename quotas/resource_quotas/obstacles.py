"""ResourceQuotas that keep pods and claims from being created, in sentences."""

from collections.abc import Iterable, Iterator
from typing import Final

from findings.text import printable
from kube.api.core import ResourceQuota
from kube.api.resource import ResourceClaim
from kube.quantity import ZERO
from quotas.resource_quotas.ledger import ClusterObjects, QuotaLedger
from quotas.resource_quotas.usage import is_of_devices

ADVICE: Final = (
    "request less, delete what is not in use, or have the quota raised, where a quota is the reason"
)


def explain_uncreated(
    claims: Iterable[ResourceClaim], quotas: Iterable[ResourceQuota], objects: ClusterObjects
) -> Iterator[str]:
    """Yield a sentence for each quota that uncreated claims of a pod exceed.

    Args:
        quotas: Those of the cluster, with their namespace.
        objects: The objects of the cluster.
    """
    by_namespace = [(quota.metadata.namespace, quota) for quota in quotas]
    if not by_namespace:
        return
    quota_ledger = QuotaLedger(by_namespace, before=objects, state=objects)
    for claim in claims:
        for finding in quota_ledger.charge_claim(claim.metadata.namespace, claim):
            name = printable(claim.metadata.name)
            yield f"claim {name} is not created: it {finding.detail}; {finding.fix}"


def quota_lines(namespace: str, quotas: Iterable[ResourceQuota]) -> Iterator[str]:
    """Yield the lines of a namespace's quotas on devices, and those that are used up."""
    for quota in quotas:
        if quota.metadata.namespace != namespace:
            continue
        used = quota.status.used or {}
        for resource, hard in sorted((quota.status.hard or quota.spec.hard or {}).items()):
            amount = used.get(resource, ZERO)
            if amount >= hard or is_of_devices(resource):
                name = printable(quota.metadata.name)
                yield f"ResourceQuota {name}: {printable(resource)}: used {amount}, hard {hard}"
