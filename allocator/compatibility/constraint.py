"""The constraint of policies on the search: devices that exclude each other, across claims.

A policy of a driver adds two checks to what the API can express (`allocator.compatibility.pairs`).
The order of allocation does not matter, nor in which namespace a tenant is, nor whether it was chosen
earlier in the same attempt.

An enforced policy replaces the search's own check of groups for its driver (`enforced_drivers`),
because it is stricter where devices in use are inconsistent already: no device may join such tenants,
in whatever order a slice lists them. The tenants themselves stay.

Source: docs/compatibility.md.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from allocator.compatibility.compile import CompiledPolicy
from allocator.compatibility.pairs import Cause, Clause, rank_causes
from allocator.compatibility.pool_state import PoolState, policy_pool
from allocator.model.constraint import RemainingDemand
from allocator.model.devices import DeviceId, NodeDevices, Pool, PublishedDevice
from allocator.model.outcome import Reason, RejectionReason
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims, Request
from allocator.model.usage import PoolUse, Usage
from findings.text import shorten
from kube.api.meta import encode

MAX_DETAIL: Final = 512
"""Characters of one rejection; an event holds 1024."""
_FAMILIES: Final[Mapping[Clause, str]] = dict.fromkeys(
    (Clause.GROUPS, Clause.REFUSES, Clause.REFUSED, Clause.UNDECLARED), "no"
)
"""Clauses of which one is reported: a pair that violates one of them mostly violates them all."""
_NOTHING: Final[PoolUse] = {}


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A device that an audited policy would have rejected."""

    policy: str
    claim: str
    request: str
    device: DeviceId
    detail: str


def enforced_drivers(policies: Iterable[CompiledPolicy]) -> frozenset[str]:
    """Return the drivers with groups that enforced policies check instead of the search."""
    return frozenset(policy.driver for policy in policies if policy.is_enforced)


# --- the constraint of an attempt ------------------------------------------------------------------


def build_constraint(
    node: NodeDevices,
    usage: Usage,
    policies: Sequence[CompiledPolicy],
    pending: PendingClaims,
    tombstones: Mapping[DeviceId, PublishedDevice],
) -> "PolicyConstraint | None":
    """Build the constraint of an attempt; None when no policy is about a device of the node.

    Args:
        tombstones: The last state of devices that may be allocated and are no longer published. An
            allocated device that is neither published nor among them excludes all devices of its
            pool, since its rules are unknown.
    """
    drivers = {pool.id.driver for pool in node.pools}
    relevant = [policy for policy in policies if policy.driver in drivers]
    return PolicyConstraint(node, usage, relevant, pending, tombstones) if relevant else None


def audit(
    plan: Plan,
    node: NodeDevices,
    usage: Usage,
    policies: Sequence[CompiledPolicy],
    *,
    pending: PendingClaims,
    tombstones: Mapping[DeviceId, PublishedDevice],
) -> tuple[AuditFinding, ...]:
    """Return the devices of a plan that audited policies would have rejected.

    Args:
        plan: The result of the search with the other arguments, not applied yet.
    """
    audited_policies = [policy for policy in policies if not policy.is_enforced]
    constraint = build_constraint(node, usage, audited_policies, pending, tombstones)
    if constraint is None:
        return ()
    shared_devices: set[DeviceId] = set()
    for choice in (choice for claim in plan.choices for choice in claim):
        device = choice.device.id
        use = usage.of(device)
        further_share = choice.is_share and (
            device in shared_devices or bool(use and use.is_shared)
        )
        constraint.add(choice.request, node.positions[device], further_share=further_share)
        if choice.is_share:
            shared_devices.add(device)
    return constraint.audit_findings


def device_key(policies: Sequence[CompiledPolicy], pool: Pool, device: PublishedDevice) -> Hashable:
    """Return all that verdicts of enforced policies on a device depend on, beside its groups in slices.

    Pools whose devices have equal keys one by one get the same verdicts while their use is the same.
    None where no policy is about the device.
    """
    keys = [
        (number, policy_pool(policy, pool).equivalence_key(device))
        for number, policy in enumerate(policies)
        if policy.is_enforced and policy.driver == pool.id.driver
    ]
    return tuple(keys) or None


def tombstone_key(
    policies: Sequence[CompiledPolicy], pool: Pool, tombstone: PublishedDevice
) -> Hashable:
    """Return all that verdicts of enforced policies depend on of a device that a pool publishes no more.

    Its hardware counts by name among such devices, and by its number beside devices of the pool.
    """
    hardware_numbers = [
        policy_pool(policy, pool).hardware_number(tombstone)
        for policy in policies
        if policy.is_enforced and policy.driver == pool.id.driver
    ]
    return encode(tombstone.device), tuple(hardware_numbers)


class PolicyConstraint:
    """Policies on one node, with the devices in use and those chosen in this attempt."""

    def __init__(
        self,
        node: NodeDevices,
        usage: Usage,
        policies: Sequence[CompiledPolicy],
        pending: PendingClaims,
        tombstones: Mapping[DeviceId, PublishedDevice],
    ) -> None:
        """Prepare; a pool is evaluated when one of its devices is."""
        self._node = node
        self._usage = usage
        self._policies = policies
        self._pending = pending
        self._tombstones = tombstones
        self._has_admin = any(
            request.admin
            for claim in pending.requests
            for alternatives in claim
            for request in alternatives
        )
        self._pool_states: dict[int, tuple[PoolState, ...]] = {}
        self._numbers: dict[Hashable, int] = {}
        self._keys: dict[int, int] = {}
        self._chosen: list[tuple[int, Request]] = []

    def equivalence_key(self, position: int) -> Hashable:
        """Return the rules, groups and sites of a device, as a number; 0 for none."""
        number = self._keys.get(position)
        if number is None:
            key = tuple(
                state.equivalence_key(self._node.devices[position])
                for state in self._enforced_pools(position)
            )
            number = self._numbers.setdefault(key, len(self._numbers) + 1) if key else 0
            self._keys[position] = number
        return number

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:
        """Choose a device unless it, or a device in use beside it, does not accept the other.

        A further share of a device in use is not compared again, as with groups. A choice with admin
        access is subject to the rules like any other, and counts in this attempt; once allocated it
        excludes no device.
        """
        if further_share:
            return True
        device = self._node.devices[position]
        states = self._states_of(position)
        for state in states:
            if state.policy.is_enforced and state.excludes(device):
                return False
        if states:
            for state in states:
                state.add(device)
            self._chosen.append((position, request))
        return True

    def remove(self, request: Request, position: int, *, further_share: bool) -> None:
        """Undo the latest `add`."""
        if further_share:
            return
        states = self._states_of(position)
        for state in states:
            state.remove(self._node.devices[position])
        if states:
            self._chosen.pop()

    def state_key(self) -> Hashable:
        """Return the chosen devices, as far as enforced rules distinguish them.

        Only a request with admin access may choose a device twice, so only then does it matter
        which of several equivalent devices was chosen.
        """
        if self._has_admin:
            return frozenset(position for position, _ in self._chosen)
        return tuple(sorted(filter(None, [self._number(place) for place, _ in self._chosen])))

    def residual_key(self, ahead: RemainingDemand) -> Hashable:
        """Return the whole state: any chosen device may exclude one ahead."""
        return self.state_key()

    def rejection(
        self, request: Request, position: int, *, further_share: bool
    ) -> RejectionReason | None:
        """Return the rule that excludes a device now."""
        if further_share:
            return None
        device = self._node.devices[position]
        for state in self._enforced_pools(position):
            causes = rank_causes(state.causes(device))
            if causes:
                return self._rejection(state, causes, request)
        return None

    @property
    def audit_findings(self) -> tuple[AuditFinding, ...]:
        """Return the chosen devices that audited policies would reject, in order of choice."""
        findings: list[AuditFinding] = []
        for number, (position, request) in enumerate(self._chosen):
            device = self._node.devices[position]
            for state in self._states_of(position):
                if state.policy.is_enforced:
                    continue
                later = [self._node.devices[place] for place, _ in self._chosen[number:]]
                causes = rank_causes(state.causes_without(device, later))
                if causes:
                    sentences = [
                        _with_users(cause, self._users(state, cause, request))
                        for cause in _one_per_family(causes)
                    ]
                    findings.append(
                        AuditFinding(
                            policy=state.policy.name,
                            claim=self._claim(request),
                            request=request.full_name,
                            device=device.id,
                            detail=shorten("; ".join(sentences), MAX_DETAIL),
                        )
                    )
        return tuple(findings)

    def _number(self, position: int) -> int:
        self.equivalence_key(position)
        return self._keys[position]

    def _enforced_pools(self, position: int) -> list[PoolState]:
        return [state for state in self._states_of(position) if state.policy.is_enforced]

    def _states_of(self, position: int) -> tuple[PoolState, ...]:
        """Return the states of a device's pool, one per policy of its driver."""
        number = self._node.pool_of[position]
        states = self._pool_states.get(number)
        if states is None:
            pool = self._node.pools[number]
            use = self._usage.pools.get(pool.id, _NOTHING)
            states = self._pool_states[number] = tuple(
                PoolState(policy, pool, use, self._tombstones)
                for policy in self._policies
                if policy.driver == pool.id.driver
            )
        return states

    def _claim(self, request: Request) -> str:
        metadata = self._pending.claims[request.claim].metadata
        return f"{metadata.namespace}/{metadata.name}"

    def _rejection(
        self, state: PoolState, causes: Sequence[Cause], request: Request
    ) -> RejectionReason:
        """Return the most telling cause with the users of the other devices, then other causes."""
        first, *others = _one_per_family(causes)
        remarks = [first.rejection.remark] if first.rejection.remark else []
        if first.rule or first.reason is Reason.POLICY:
            rule = f"rule {first.rule} of " if first.rule else ""
            remarks.append(f"{rule}DeviceCompatibilityPolicy {state.policy.name}")
        users = self._users(state, first, request)
        remarks += [users] if users else []
        for cause in others:
            users = self._users(state, cause, request)
            remarks.append(_with_users(cause, users))
        without = msgspec.structs.replace(first.rejection, remark="")
        room = MAX_DETAIL - len(f"{without.predicate} ()")
        return msgspec.structs.replace(without, remark=shorten("; ".join(remarks), room))

    def _users(self, state: PoolState, cause: Cause, request: Request) -> str:
        """Return the users of the devices of a cause; no name of another namespace."""
        namespace = self._pending.claims[request.claim].metadata.namespace
        chosen_users: dict[DeviceId, list[str]] = {}
        for position, owner in self._chosen:
            metadata = self._pending.claims[owner.claim].metadata
            name = f"claim {metadata.name} of this attempt"
            if owner.claim == request.claim:
                name = f"request {owner.full_name} of this attempt"
            elif metadata.namespace != namespace:
                name = "a claim in another namespace"
            chosen_users.setdefault(self._node.devices[position].id, []).append(name)
        return state.users(cause.others, namespace, chosen_users)


def _one_per_family(causes: Iterable[Cause]) -> list[Cause]:
    families: dict[str, Cause] = {}
    for cause in causes:
        families.setdefault(_FAMILIES.get(cause.clause, cause.clause), cause)
    return list(families.values())


def _with_users(cause: Cause, users: str) -> str:
    return f"{cause.message}, {users}" if users else cause.message
