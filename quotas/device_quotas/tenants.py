"""The accounts of namespaces: the limits of a namespace, and the namespaces that share their amounts."""

from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple, TypeVar

from kube.api.device_quota import DeviceQuota
from quotas.device_quotas.limits import Limit, compile_limits

Labels = Mapping[str, str]
_LabelPair = tuple[str, str]

T = TypeVar("T")


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
        # Most selectors name a label and its value, so that few quotas and namespaces have to be compared.
        self._by_label: dict[_LabelPair | None, set[str]] = {}
        self._namespaces_by_label: dict[_LabelPair, set[str]] = {}
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
        old = self.quotas.pop(name, None)
        self.limits.pop(name, None)
        if old is not None:
            _discard(self._by_label, _required_label(old), name)
        if quota is None:
            return frozenset(before)
        self.quotas[name] = quota
        label = _required_label(quota)
        self._by_label.setdefault(label, set()).add(name)
        self.limits[name] = compile_limits(quota)
        selector = quota.spec.namespace_selector
        candidates = self.namespaces if label is None else self._namespaces_by_label.get(label, ())
        after = {name_ for name_ in candidates if selector.matches(self.namespaces[name_])}
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
        for label in self.namespaces.pop(name, {}).items():
            _discard(self._namespaces_by_label, label, name)
        after: set[str] = set()
        if labels is not None:
            self.namespaces[name] = labels
            for label in labels.items():
                self._namespaces_by_label.setdefault(label, set()).add(name)
            candidates = chain.from_iterable(
                self._by_label.get(label, ()) for label in (None, *labels.items())
            )
            after = {
                quota
                for quota in candidates
                if self.quotas[quota].spec.namespace_selector.matches(labels)
            }
            self._quotas_of[name] = after
        for quota_name in before - after:
            self._selected[quota_name].discard(name)
        for quota_name in after - before:
            self._selected[quota_name].add(name)
        return before != after

    def renew_filters(self) -> None:
        """Take note that devices are others now."""
        for limits in self.limits.values():
            for limit in limits:
                limit.devices.renew()

    @property
    def drivers(self) -> frozenset[str]:
        """Return the drivers that some quota limits."""
        return frozenset(limit.driver for limits in self.limits.values() for limit in limits)

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


def _required_label(quota: DeviceQuota) -> _LabelPair | None:
    """Return a label that every namespace of a quota has; None if the selector names none."""
    labels = quota.spec.namespace_selector.match_labels or {}
    return next(iter(labels.items()), None)


def _discard(sets: dict[T, set[str]], key: T, name: str) -> None:
    """Remove a name from a set of several, without an empty one left."""
    sets[key].discard(name)
    if not sets[key]:
        del sets[key]
