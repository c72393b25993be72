"""The rule about DeviceQuotas that count both sides of a migration: the budget neither doubles nor halves.

It is exact, since a pod that would exceed the budget waits behind a scheduling gate: what a tenant has is what
its pods without the gate ask for, and what its allocated claims were made for, at every version. A pod that a
person wrote counts alike with keys and with claims.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from e2e.checker.devices import DeviceRequest, requests_of, results_of
from e2e.checker.history import (
    DELETED,
    FINISHED,
    Event,
    Object,
    State,
    controller_of,
    is_gated,
    label_of,
    name_of,
    namespace_of,
    phase_of,
    quantity,
    uid_of,
)
from e2e.checker.rules import Allowance, Finding

_HAMI: Final = "hami-core-gpu.project-hami.io"
"""The driver that gives shares; others give whole devices."""
_KINDS: Final = frozenset({"devicequotas", "namespaces", "pods", "resourceclaims"})


class _Limit(NamedTuple):
    """A limit of a tenant, in the unit of its maximum."""

    quota: str
    name: str
    namespaces: frozenset[str]
    of_shares: bool
    capacity: str
    most: Decimal

    @property
    def key(self) -> tuple[str, str, str]:
        """Return a name for it that no other limit has."""
        return self.quota, self.name, min(self.namespaces, default="")

    def amount(self, requests: Iterable[DeviceRequest]) -> Decimal:
        """Return the part of it that a pod with some requests has."""
        total = Decimal(0)
        for request in requests:
            if request.is_share is self.of_shares:
                units = {"": Decimal(1), "memory": request.memory, "cores": request.cores}
                total += request.amount * units[self.capacity]
        return total


class _Pod(NamedTuple):
    """A pod with devices, as it was first seen."""

    label: str
    namespace: str
    requests: list[DeviceRequest]


class Budgets:
    """No tenant has more than its DeviceQuota allows, and none waits while it has less.

    What was too much before the quota came, or before it was lowered, is no finding until it grows. Left out are
    limits that do not count keys, and those with selectors or counters.
    """

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._pods: dict[str, _Pod] = {}
        self._gated: set[str] = set()
        self._let_through: set[str] = set()
        self._users: dict[str, str] = {}
        """The claims that are allocated, to their pods, by uid."""
        self._used: dict[tuple[str, str, str], Decimal] = {}
        self._waits_since: dict[str, float] = {}
        self._reported: set[str] = set()

    def see(self, event: Event, before: Object | None, state: State) -> Iterator[Finding]:
        """Count the devices of tenants, and look at the pods that wait."""
        del before
        if event.kind == "pods":
            self._follow_pod(event, state)
        elif event.kind == "resourceclaims":
            self._follow_claim(event)
        if event.kind in _KINDS:
            limits = list(_limits(state))
            yield from self._excesses(limits, event)
            yield from self._waiting(limits, event.at)

    def end(self, at: float, state: State) -> Iterator[Finding]:
        """Look at the pods that still wait."""
        yield from self._waiting(list(_limits(state)), at)

    def _follow_pod(self, event: Event, state: State) -> None:
        pod, uid = event.object, uid_of(event.object)
        if uid not in self._pods and (requests := requests_of(pod, state)):
            self._pods[uid] = _Pod(label_of(pod), namespace_of(pod), requests)
        self._gated.discard(uid)
        self._let_through.discard(uid)
        if uid in self._pods and event.type != DELETED and phase_of(pod) not in FINISHED:
            (self._gated if is_gated(pod) else self._let_through).add(uid)

    def _follow_claim(self, event: Event) -> None:
        self._users.pop(uid_of(event.object), None)
        owner = controller_of(event.object)
        if event.type != DELETED and owner is not None and results_of(event.object):
            self._users[uid_of(event.object)] = owner["uid"]

    def _excesses(self, limits: Iterable[_Limit], event: Event) -> Iterator[Finding]:
        users = self._let_through | set(self._users.values())
        used: dict[tuple[str, str, str], Decimal] = {}
        for limit in limits:
            amount = used[limit.key] = sum(
                (
                    limit.amount(pod.requests)
                    for uid in users
                    if (pod := self._pods.get(uid)) and pod.namespace in limit.namespaces
                ),
                Decimal(0),
            )
            if amount > limit.most and amount > self._used.get(limit.key, amount):
                text = (
                    f"limit {limit.name}: {amount} is let through or allocated, {limit.most} is allowed; "
                    f"{label_of(event.object)} is the last to get some"
                )
                yield Finding("budget", event.at, limit.quota, text)
        self._used = used

    def _waiting(self, limits: list[_Limit], at: float) -> Iterator[Finding]:
        since: dict[str, float] = {}
        for uid in sorted(self._gated):
            pod = self._pods[uid]
            own = [limit for limit in limits if pod.namespace in limit.namespaces]
            left = [limit.most - self._used.get(limit.key, Decimal(0)) for limit in own]
            amounts = [limit.amount(pod.requests) for limit in own]
            if any(amount > rest for amount, rest in zip(amounts, left, strict=True)):
                continue
            since[uid] = self._waits_since.get(uid, at)
            if at - since[uid] > self._allowance.gate_s and uid not in self._reported:
                self._reported.add(uid)
                quotas = ", ".join(sorted({limit.quota for limit in own})) or "no quota"
                text = f"waits behind the gate for {at - since[uid]:.0f} s while {quotas} has room"
                yield Finding("budget", at, pod.label, text)
        self._waits_since = since


def _limits(state: State) -> Iterator[_Limit]:
    """Yield the limits that count keys and claims together, one for each budget."""
    for quota in state.objects("devicequotas"):
        spec: Mapping[str, Any] = quota["spec"]
        labels = spec["namespaceSelector"].get("matchLabels", {})
        selected = frozenset(
            name_of(namespace)
            for namespace in state.objects("namespaces")
            if labels.items() <= namespace["metadata"].get("labels", {}).items()
        )
        if spec.get("enforcement", "Enforce") != "Enforce":
            continue
        is_shared = spec.get("budget", "Shared") == "Shared"
        budgets = [selected] if is_shared else [frozenset({name}) for name in selected]
        for limit in spec["limits"]:
            capacity = limit.get("capacity", "")
            is_known = capacity in {"", "memory", "cores"} and not limit.get("selectors")
            if limit.get("legacyKeys") and is_known and (capacity or "devices" in limit):
                for namespaces in budgets:
                    yield _Limit(
                        quota=name_of(quota),
                        name=limit["name"],
                        namespaces=namespaces,
                        of_shares=limit["driver"] == _HAMI,
                        capacity=capacity,
                        most=quantity(limit["max"]),
                    )
