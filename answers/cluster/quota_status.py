"""The used and remaining amounts of DeviceQuotas: the answer of `drawbridge quota status`. Pure.

It is computed from quotas, namespaces, devices and claims as they are, and not from the status of quotas, so
that it needs no controller. Only whether gates hold pods back is read there.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from answers.model.cluster_state import ClusterState
from findings.text import printable
from kube.api.core import NAMESPACE_NAME
from kube.api.device_quota import DeviceQuota, WhenFull
from kube.api.ownership import owned_drivers
from quotas.device_quotas.book import QuotaBook
from quotas.device_quotas.ledger import Stage
from quotas.device_quotas.limit_sums import sums_of
from quotas.device_quotas.limits import Limit, compile_limits
from quotas.gates.usage import QuotaUsage as ClusterUsage

BRIDGE: Final = "bridge"
GATES: Final = "gates"
NOBODY: Final = "nobody"
_ENFORCED: Final = "Enforced"
_HELD_BACK: Final = {
    BRIDGE: "the bridge allocates for the driver, and keeps within the limit",
    GATES: "gates hold pods back",
    NOBODY: "Enforced=False, nobody holds pods back: the bridge does not own the driver, and there are no gates",
}
_AUDIT: Final = "the quota only reports"
MAX_PODS: Final = 100
"""Pods that are named for a quota."""


class NamespacePart(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a namespace in the usage of a limit; amounts are quantities.

    Attributes:
        available: The amount that is left of max, where each namespace has one of its own; else empty.
    """

    namespace: str
    used: str
    promised: str
    waiting: str
    available: str = ""


class LimitUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The usage of a limit; amounts are quantities, of devices and claims numbers.

    Attributes:
        counts: The unit: `devices`, `claims`, or the name of the capacity or counter.
        used: The amount that is allocated.
        promised: The amount that is let through and not allocated yet, in the worst case.
        waiting: The amount that claims ask for that wait.
        available: The amount that is left of max; with PerNamespace, of the namespace with the least.
        above_max: The amount that is used and promised beyond max, in the same namespace.
        is_alerting: More is used and promised than the alert threshold.
        is_complete: False if devices in use are not published any more.
        counts_published: False if no device that is published counts, and some are published.
        held_back_by: `bridge`, `gates` or `nobody`.
        enforcement: The same in words.
        fault: The reason why the limit cannot be evaluated; empty if it can.
        namespaces: The namespaces with the most in use first.
    """

    name: str
    driver: str
    counts: str
    used: str
    promised: str
    waiting: str
    available: str
    above_max: str
    max: str
    is_alerting: bool
    is_complete: bool
    counts_published: bool
    held_back_by: str
    enforcement: str
    fault: str = ""
    namespaces: tuple[NamespacePart, ...] = ()


class QuotaUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The usage of a DeviceQuota.

    Attributes:
        budget: `Shared` or `PerNamespace`.
        enforcement: `Enforce` or `Audit`.
        namespaces: The namespaces that it selects.
        promised_pods: Namespace and name of pods that are let through and hold some of it without devices.
    """

    name: str
    budget: str
    enforcement: str
    namespaces: tuple[str, ...]
    limits: tuple[LimitUsage, ...]
    promised_pods: tuple[str, ...] = ()


def unknown_namespaces(state: ClusterState) -> tuple[str, ...]:
    """Return the namespaces of claims that no quota counts, since their labels are not known; sorted."""
    return tuple(sorted({namespace for namespace, _ in state.claims} - set(state.namespaces)))


def unenforced_notes(
    state: ClusterState, namespaces: Collection[str] | None = None
) -> Iterator[str]:
    """Yield the limits of quotas without anybody to enforce them, in sentences.

    Args:
        namespaces: Only quotas that select one of these; None for all quotas.
    """
    owned = owned_drivers(state.ownerships)
    for quota in sorted(state.quotas, key=lambda quota: quota.metadata.name):
        selects = quota.spec.namespace_selector.matches
        if namespaces is not None and not any(
            selects(state.namespaces.get(name, {NAMESPACE_NAME: name})) for name in namespaces
        ):
            continue
        names = [
            limit.name
            for limit in compile_limits(quota)
            if limit.is_enforced and _held_back_by(limit, quota, owned) == NOBODY
        ]
        if names:
            noun = "limits" if len(names) > 1 else "limit"
            place = f"DeviceQuota {quota.metadata.name}, {noun} {', '.join(names)}"
            yield f"{printable(place)}: {_HELD_BACK[NOBODY]}"


def unenforced_limits(state: ClusterState) -> frozenset[tuple[str, str]]:
    """Return quota and name of the limits without anybody to enforce them, as the controllers say.

    They have not seen a quota without a status yet. Where `whenFull` is `Deny`, the webhook enforces a limit, too.
    """
    owned = owned_drivers(state.ownerships)
    return frozenset(
        (quota.metadata.name, limit.name)
        for quota in state.quotas
        if quota.spec.when_full is not WhenFull.DENY and _is_unenforced(quota)
        for limit in quota.spec.limits
        if limit.driver not in owned
    )


def _is_unenforced(quota: DeviceQuota) -> bool:
    conditions = quota.status.conditions if quota.status is not None else None
    return any((entry.type, entry.status) == (_ENFORCED, "False") for entry in conditions or ())


def quota_usages(state: ClusterState, usage: ClusterUsage) -> tuple[QuotaUsage, ...]:
    """Return the usage of every quota, by name."""
    owned = owned_drivers(state.ownerships)
    by_name = {quota.metadata.name: quota for quota in state.quotas}
    pods = _promised_pods(usage)
    return tuple(
        _quota_usage(by_name[name], usage.book, owned, pods.get(name, ()))
        for name in sorted(by_name)
    )


def _promised_pods(usage: ClusterUsage) -> Mapping[str, Sequence[str]]:
    """Return quota to the pods that hold some of it without devices, sorted."""
    pods: dict[str, dict[str, None]] = {}
    for key in sorted(usage.pods):
        for name in usage.claims_of(key).entries:
            entry = usage.book.ledger.get(name)
            if entry is not None and entry.stage is Stage.PROMISED:
                for account, amount in entry.charges.items():
                    if amount:
                        pods.setdefault(account.limit.quota, {})["/".join(key)] = None
    return {quota: tuple(names)[:MAX_PODS] for quota, names in pods.items()}


def _quota_usage(
    quota: DeviceQuota, book: QuotaBook, owned: frozenset[str], promised_pods: Sequence[str]
) -> QuotaUsage:
    name = quota.metadata.name
    selected = sorted(book.tenants.selected(name))
    return QuotaUsage(
        name=name,
        budget=quota.spec.budget.value,
        enforcement=quota.spec.enforcement.value,
        namespaces=tuple(selected),
        promised_pods=tuple(promised_pods),
        limits=tuple(
            _limit_usage(limit, selected, book, _held_back_by(limit, quota, owned))
            for limit in book.tenants.limits[name]
        ),
    )


def _held_back_by(limit: Limit, quota: DeviceQuota, owned: frozenset[str]) -> str:
    if limit.driver in owned:
        return BRIDGE
    status = quota.status
    has_gates = status is not None and any(
        condition.type == _ENFORCED and condition.status == "True"
        for condition in status.conditions or ()
    )
    return GATES if has_gates else NOBODY


def _limit_usage(
    limit: Limit, selected: Sequence[str], book: QuotaBook, held_back_by: str
) -> LimitUsage:
    sums = sums_of(limit, selected, book.ledger)
    total = sums.total
    fault, most = limit.devices.fault, limit.available_max
    return LimitUsage(
        name=limit.name,
        driver=limit.driver,
        counts=limit.capacity[1] or limit.counter or limit.measure.value,
        used=limit.as_text(total.used),
        promised=limit.as_text(total.promised),
        waiting=limit.as_text(total.waiting),
        available=limit.as_text(sums.available),
        above_max=limit.as_text(sums.above_max),
        max=str(limit.max),
        is_alerting=any(True for _ in sums.above_threshold),
        is_complete=all(book.ledger.is_complete(account) for account, _ in sums.by_account),
        counts_published=book.counts_published(limit),
        held_back_by=held_back_by,
        enforcement=_HELD_BACK[held_back_by] if limit.is_enforced else _AUDIT,
        fault=f"{fault.path}: {fault.why}" if fault is not None else "",
        namespaces=tuple(
            NamespacePart(
                namespace=namespace,
                used=limit.as_text(part.used),
                promised=limit.as_text(part.promised),
                waiting=limit.as_text(part.waiting),
                available="" if limit.is_shared else limit.as_text(max(0, most - part.committed)),
            )
            for namespace, part in sums.by_namespace
        ),
    )
