"""The limits that hold pods back, and the namespaces that share them: nobody else waits for their pods."""

from collections.abc import Sequence

from quotas.device_quotas.tenants import Account
from quotas.gates.usage import Key, QuotaUsage


def limiting_accounts(usage: QuotaUsage, namespace: str) -> frozenset[Account]:
    """Return the accounts of a namespace with enforced limits."""
    accounts = usage.book.accounts(namespace)
    return frozenset(account for account in accounts if account.limit.is_enforced)


def waiting_keys(usage: QuotaUsage) -> list[Key]:
    """Return the pods that wait."""
    return [
        key
        for key, pod in usage.pods.items()
        if pod.metadata.deletion_timestamp is None and usage.waits(pod)
    ]


def waiting_by_tenant(usage: QuotaUsage) -> dict[str, list[Key]]:
    """Return the pods that wait, those of namespaces that share a limit together.

    Returns:
        By the first namespace of each tenant.
    """
    waiting: dict[str, list[Key]] = {}
    for key in waiting_keys(usage):
        waiting.setdefault(key[0], []).append(key)
    by_tenant: dict[str, list[Key]] = {}
    for namespaces in _sharing(usage, sorted(waiting)):
        by_tenant[namespaces[0]] = [key for name in namespaces for key in waiting[name]]
    return by_tenant


def _sharing(usage: QuotaUsage, namespaces: Sequence[str]) -> list[list[str]]:
    """Return the namespaces in parts that have no limit in common."""
    parts: dict[str, list[str]] = {}
    part_of_account: dict[Account, str] = {}
    part_of: dict[str, str] = {}
    for namespace in namespaces:
        parts[namespace], part_of[namespace] = [namespace], namespace
        for account in limiting_accounts(usage, namespace):
            other = part_of[part_of_account.setdefault(account, namespace)]
            own = part_of[namespace]
            if other != own:
                # The smaller name stays, so that the tenant keeps its name.
                first, second = sorted((own, other))
                for name in parts[second]:
                    part_of[name] = first
                parts[first] += parts.pop(second)
    return [sorted(part) for part in parts.values()]
