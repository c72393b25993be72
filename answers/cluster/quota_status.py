"""What is used of DeviceQuotas, and what is left: the answer of `drawbridge quota status`. Pure.

It is computed from quotas, namespaces, devices and claims as they are, and not from the status of quotas, so
that it needs no controller. Only whether gates hold pods back is read there.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from allocator.model.feature_gates import Features
from allocator.pods.claims import Name, allocation_of
from answers.model.cluster_state import ClusterState
from kube.api.core import Pod
from kube.api.device_quota import DeviceQuota
from kube.api.ownership import owned_drivers
from kube.api.resource import ResourceClaim
from kube.names import QUOTA_GATE, SCHEDULER_NAME
from quotas.device_quotas.book import CountedClaim, QuotaBook
from quotas.device_quotas.limit_sums import sums_of
from quotas.device_quotas.limits import Limit

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


class NamespacePart(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a namespace in the usage of a limit; amounts are quantities."""

    namespace: str
    used: str
    promised: str
    waiting: str


class LimitUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The usage of a limit; amounts are quantities, of devices and claims numbers.

    Attributes:
        counts: The unit: `devices`, `claims`, or the name of the capacity or counter.
        used: The amount that is allocated.
        promised: The amount that is let through and not allocated yet, in the worst case.
        waiting: The amount that claims ask for that wait.
        available: The amount that is left of max; with PerNamespace, of the namespace with the least.
        is_alerting: More is used and promised than the alert threshold.
        is_complete: False if devices in use are not published any more.
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
    max: str
    is_alerting: bool
    is_complete: bool
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
    """

    name: str
    budget: str
    enforcement: str
    namespaces: tuple[str, ...]
    limits: tuple[LimitUsage, ...]


def build_book(state: ClusterState, features: Features) -> QuotaBook:
    """Return the charges of all claims of a cluster."""
    book = QuotaBook(features)
    for name, device_class in state.classes.items():
        book.replace_class(name, device_class)
    book.replace_slices(
        {slice_.metadata.name or str(number): slice_ for number, slice_ in enumerate(state.slices)}
    )
    for name, labels in state.namespaces.items():
        book.replace_namespace(name, labels)
    for quota in state.quotas:
        book.replace_quota(quota.metadata.name, quota)
    users = _users_by_name(state)
    for key, claim in state.claims.items():
        pods = (*users.get(key, ()), *_owners(claim, key[0], state))
        book.put_claim(
            key,
            CountedClaim(
                key[0],
                claim.spec.devices,
                allocation_of(claim),
                # Without a pod that is known, nobody says that it waits.
                is_let_through=not pods or any(map(_is_let_through, pods)),
            ),
        )
    return book


def unknown_namespaces(state: ClusterState) -> tuple[str, ...]:
    """Return the namespaces of claims that no quota counts, since their labels are not known; sorted."""
    return tuple(sorted({namespace for namespace, _ in state.claims} - set(state.namespaces)))


def _users_by_name(state: ClusterState) -> Mapping[Name, Sequence[Pod]]:
    """Return the pods that name a claim, by it."""
    users: dict[Name, list[Pod]] = {}
    for (namespace, _), pod in state.pods.items():
        for entry in pod.spec.resource_claims or ():
            if entry.resource_claim_name:
                users.setdefault((namespace, entry.resource_claim_name), []).append(pod)
    return users


def _owners(claim: ResourceClaim, namespace: str, state: ClusterState) -> Iterator[Pod]:
    """Yield the pod that a claim was made for."""
    for owner in claim.metadata.owner_references or ():
        pod = state.pods.get((namespace, owner.name)) if owner.kind == "Pod" else None
        if pod is not None:
            yield pod


def _is_let_through(pod: Pod) -> bool:
    """Return whether a pod has no gate, and is not one of the bridge, which decides itself."""
    gates = pod.spec.scheduling_gates or ()
    is_of_bridge = pod.spec.scheduler_name == SCHEDULER_NAME
    return not is_of_bridge and all(gate.name != QUOTA_GATE for gate in gates)


def quota_usages(state: ClusterState, book: QuotaBook) -> tuple[QuotaUsage, ...]:
    """Return the usage of every quota, by name."""
    owned = owned_drivers(state.ownerships)
    by_name = {quota.metadata.name: quota for quota in state.quotas}
    return tuple(_quota_usage(by_name[name], book, owned) for name in sorted(by_name))


def _quota_usage(quota: DeviceQuota, book: QuotaBook, owned: frozenset[str]) -> QuotaUsage:
    name = quota.metadata.name
    selected = sorted(book.tenants.selected(name))
    return QuotaUsage(
        name=name,
        budget=quota.spec.budget.value,
        enforcement=quota.spec.enforcement.value,
        namespaces=tuple(selected),
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
    sums = sums_of(limit, selected, book.ledger, is_owned=held_back_by == BRIDGE)
    total = sums.total
    fault = limit.devices.fault
    return LimitUsage(
        name=limit.name,
        driver=limit.driver,
        counts=limit.capacity[1] or limit.counter or limit.measure.value,
        used=limit.as_text(total.used),
        promised=limit.as_text(total.promised),
        waiting=limit.as_text(total.waiting),
        available=limit.as_text(sums.available),
        max=str(limit.max),
        is_alerting=any(True for _ in sums.above_threshold),
        is_complete=all(book.ledger.is_complete(account) for account, _ in sums.by_account),
        held_back_by=held_back_by,
        enforcement=_HELD_BACK[held_back_by] if limit.is_enforced else _AUDIT,
        fault=f"{fault.path}: {fault.why}" if fault is not None else "",
        namespaces=tuple(
            NamespacePart(
                namespace=namespace,
                used=limit.as_text(part.used),
                promised=limit.as_text(part.promised),
                waiting=limit.as_text(part.waiting),
            )
            for namespace, part in sums.by_namespace
        ),
    )
