"""The accounts of namespaces: which limits a namespace has, and with whom it shares their amounts."""

from collections.abc import Mapping
from typing import NamedTuple

from kube.api.device_quota import DeviceQuota
from quotas.device_quotas.limits import Limit, compile_limits

Labels = Mapping[str, str]


class Account(NamedTuple):
    """One amount of a limit.

    Attributes:
        namespace: The namespace that has it alone; empty where all that are selected share it.
    """

    limit: Limit
    namespace: str = ""


class Tenants:
    """DeviceQuotas, and the namespaces that they select.

    Attributes:
        quotas: The quotas by name.
        limits: Name of a quota to its limits.
        namespaces: The labels of each namespace.
    """

    def __init__(self) -> None:
        """Begin without quotas and namespaces."""
        self.quotas: dict[str, DeviceQuota] = {}
        self.limits: dict[str, tuple[Limit, ...]] = {}
        self.namespaces: dict[str, Labels] = {}
        self._selected: dict[str, set[str]] = {}
        self._quotas_of: dict[str, set[str]] = {}
        # Of the namespaces that were asked about since the last change; every decision asks.
        self._accounts: dict[str, tuple[Account, ...]] = {}

    def replace_quota(self, name: str, quota: DeviceQuota | None) -> frozenset[str]:
        """Take a quota that was added, changed or, with None, deleted.

        Returns:
            The namespaces that it selects, or did: their accounts are others now.
        """
        self._accounts.clear()
        before = self._selected.pop(name, set())
        for namespace in before:
            self._quotas_of[namespace].discard(name)
        self.quotas.pop(name, None)
        self.limits.pop(name, None)
        if quota is None:
            return frozenset(before)
        self.quotas[name] = quota
        self.limits[name] = compile_limits(quota)
        selector = quota.spec.namespace_selector
        after = {
            namespace for namespace, labels in self.namespaces.items() if selector.matches(labels)
        }
        self._selected[name] = after
        for namespace in after:
            self._quotas_of.setdefault(namespace, set()).add(name)
        return frozenset(before | after)

    def replace_namespace(self, name: str, labels: Labels | None) -> bool:
        """Take a namespace that was added, changed or, with None, deleted.

        Returns:
            True if other quotas select it than before.
        """
        self._accounts.pop(name, None)
        before = self._quotas_of.pop(name, set())
        self.namespaces.pop(name, None)
        after: set[str] = set()
        if labels is not None:
            self.namespaces[name] = labels
            after = {
                quota.metadata.name
                for quota in self.quotas.values()
                if quota.spec.namespace_selector.matches(labels)
            }
            self._quotas_of[name] = after
        for quota_name in before - after:
            self._selected[quota_name].discard(name)
        for quota_name in after - before:
            self._selected[quota_name].add(name)
        return before != after

    def selected(self, quota: str) -> frozenset[str]:
        """Return the namespaces that a quota selects."""
        return frozenset(self._selected.get(quota, ()))

    def accounts(self, namespace: str) -> tuple[Account, ...]:
        """Return the accounts that a claim of a namespace is charged to, all of them."""
        accounts = self._accounts.get(namespace)
        if accounts is None:
            accounts = tuple(
                Account(limit, "" if limit.is_shared else namespace)
                for name in sorted(self._quotas_of.get(namespace, ()))
                for limit in self.limits[name]
            )
            if namespace in self.namespaces:
                self._accounts[namespace] = accounts
        return accounts
