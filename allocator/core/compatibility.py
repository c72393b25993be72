"""Mutual exclusion between devices, in both directions and across claims, by policies of ours.

A policy of a driver adds two checks to what the API can express, and both must pass. Devices in one
*neighbourhood* - by default those that share a counter set, else those that name the same hardware,
else the whole pool - must all have one compatibility group in common (KEP-5963's rule, for the
groups that slices declare and, separately, for those that rules give), and of every two of them each
must satisfy the other's expressions. It makes no difference who was there first, in which namespace
a tenant lives, or whether it was chosen a moment ago in the same attempt.

An enforced policy replaces the search's own check of groups for its driver (`governed`), since it
is stricter where the state is inconsistent already: nobody joins such tenants, in whatever order a
slice lists them. They themselves are left alone.

Source: DESIGN.md 3.3; research/allocator-features.md 3, whose numbers of messages are E1 to E8.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from allocator.core.model import (
    Asked,
    DeviceId,
    NodeDevices,
    Plan,
    Pool,
    PoolUse,
    PublishedDevice,
    Request,
    Usage,
)
from allocator.core.neighbours import (
    Catalogue,
    Cause,
    Clause,
    Neighbourhoods,
    Place,
    Verdict,
    compatible,
    judge,
    ranked,
    sets_of,
    where,
)
from allocator.core.outcome import Refusal
from allocator.core.rules import CompiledPolicy, compiled
from allocator.core.tracker import Ahead
from kube.api.resource import CounterSet
from kube.quantity import Quantity

__all__ = [
    "Audited",
    "Cause",
    "Clause",
    "Compatibility",
    "CompiledPolicy",
    "Verdict",
    "audit",
    "compatible",
    "compiled",
    "governed",
    "judge",
    "look",
    "tracker",
]

MAX_DETAIL: Final = 512
"""Characters of one refusal; an event holds 1024."""
_FAMILIES: Final[Mapping[Clause, str]] = dict.fromkeys(
    (Clause.GROUPS, Clause.REFUSES, Clause.REFUSED, Clause.UNDECLARED), "no"
)
"""Clauses of which one is enough: a pair that breaks one of them mostly breaks them all."""
_MAX_NAMED: Final = 3
_POOLS: Final = 8192
_NOTHING: Final[PoolUse] = {}


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """What an audited policy would have refused."""

    policy: str
    claim: str
    request: str
    device: DeviceId
    detail: str


def governed(policies: Iterable[CompiledPolicy]) -> frozenset[str]:
    """Return the drivers for which enforced policies decide on groups, not `allocator.core.groups`."""
    return frozenset(policy.driver for policy in policies if policy.is_enforced)


# --- the search's tracker -------------------------------------------------------------------------


def tracker(
    node: NodeDevices,
    usage: Usage,
    policies: Sequence[CompiledPolicy],
    asked: Asked,
    tombstones: Mapping[DeviceId, PublishedDevice],
) -> "Compatibility | None":
    """Return the tracker of an attempt; None when no policy is about a device of the node.

    Args:
        tombstones: The last that was seen of devices that may be allocated and are no longer
            published. A vanished device that is not among them closes its pool to everybody, since
            nobody knows what it excludes.
    """
    drivers = {pool.id.driver for pool in node.pools}
    relevant = [policy for policy in policies if policy.driver in drivers]
    return Compatibility(node, usage, relevant, asked, tombstones) if relevant else None


def audit(
    plan: Plan,
    node: NodeDevices,
    usage: Usage,
    policies: Sequence[CompiledPolicy],
    *,
    asked: Asked,
    tombstones: Mapping[DeviceId, PublishedDevice],
) -> tuple[Audited, ...]:
    """Return what audited policies would have refused of a plan.

    Args:
        plan: What the search found with the other arguments, before it is carried out.
    """
    audited = [policy for policy in policies if not policy.is_enforced]
    replayed = tracker(node, usage, audited, asked, tombstones)
    if replayed is None:
        return ()
    shared: set[DeviceId] = set()
    for choice in (choice for claim in plan.choices for choice in claim):
        device = choice.device.id
        use = usage.of(device)
        further_share = choice.is_share and (device in shared or bool(use and use.is_shared))
        replayed.add(choice.request, node.positions[device], further_share=further_share)
        if choice.is_share:
            shared.add(device)
    return replayed.audited


def look(policies: Sequence[CompiledPolicy], pool: Pool, published: PublishedDevice) -> Hashable:
    """Return all that enforced policies can tell of a device, beside its groups in slices.

    Pools whose devices look the same one by one get the same verdicts while their use is the same;
    what hardware is called makes no difference. None where no policy is about the device.
    """
    told = [
        (number, _catalogue(policy, pool).look(published))
        for number, policy in enumerate(policies)
        if policy.is_enforced and policy.driver == pool.id.driver
    ]
    return tuple(told) or None


class Compatibility:
    """What policies say on one node: the devices in use, and those chosen in this attempt."""

    def __init__(
        self,
        node: NodeDevices,
        usage: Usage,
        policies: Sequence[CompiledPolicy],
        asked: Asked,
        tombstones: Mapping[DeviceId, PublishedDevice],
    ) -> None:
        """Prepare; a pool is looked at when one of its devices is."""
        self._node = node
        self._usage = usage
        self._policies = policies
        self._asked = asked
        self._tombstones = tombstones
        self._has_admin = any(
            one.admin for claim in asked.requests for request in claim for one in request
        )
        self._ledgers: dict[int, tuple[_Ledger, ...]] = {}
        self._numbers: dict[Hashable, int] = {}
        self._sees: dict[int, int] = {}
        self._chosen: list[tuple[int, Request]] = []

    def sees(self, position: int) -> Hashable:
        """Return which rules, groups and neighbourhoods a device has, as a number; 0 for none."""
        found = self._sees.get(position)
        if found is None:
            key = tuple(
                ledger.sees(self._node.devices[position]) for ledger in self._enforced(position)
            )
            found = self._numbers.setdefault(key, len(self._numbers) + 1) if key else 0
            self._sees[position] = found
        return found

    def add(self, request: Request, position: int, *, further_share: bool) -> bool:
        """Choose a device unless it, or a device in use beside it, does not accept the other.

        A further share of a device in use is not compared again, as with groups. An administrator's
        choice is held to the rules like any other, and counts in this attempt; once allocated it
        binds nobody.
        """
        if further_share:
            return True
        published = self._node.devices[position]
        ledgers = self._of(position)
        for ledger in ledgers:
            if ledger.policy.is_enforced and ledger.is_closed_to(published):
                return False
        if ledgers:
            for ledger in ledgers:
                ledger.join(published)
            self._chosen.append((position, request))
        return True

    def undo(self, request: Request, position: int, *, further_share: bool) -> None:  # noqa: ARG002
        """Take the device off its neighbourhoods."""
        if further_share:
            return
        ledgers = self._of(position)
        for ledger in ledgers:
            ledger.leave(self._node.devices[position])
        if ledgers:
            self._chosen.pop()

    def state(self) -> Hashable:
        """Return what was chosen, as far as enforced rules can tell it apart.

        Only an administrator may choose a device twice, so only then does it matter which one of
        its like was chosen.
        """
        if self._has_admin:
            return frozenset(position for position, _ in self._chosen)
        return tuple(sorted(filter(None, [self._number(place) for place, _ in self._chosen])))

    def outlook(self, ahead: Ahead) -> Hashable:  # noqa: ARG002
        """Return the whole state: any device chosen may exclude one ahead."""
        return self.state()

    def refusal(self, request: Request, position: int, *, further_share: bool) -> Refusal | None:
        """Return which rule keeps a device away now."""
        if further_share:
            return None
        published = self._node.devices[position]
        for ledger in self._enforced(position):
            causes = ranked(ledger.causes(published))
            if causes:
                return Refusal(
                    reason=causes[0].reason, detail=self._detail(ledger, causes, request)
                )
        return None

    @property
    def audited(self) -> tuple[Audited, ...]:
        """What audited policies would refuse of what is chosen now, in order of choice."""
        told: list[Audited] = []
        for number, (position, request) in enumerate(self._chosen):
            published = self._node.devices[position]
            for ledger in self._of(position):
                if ledger.policy.is_enforced:
                    continue
                later = [self._node.devices[place] for place, _ in self._chosen[number:]]
                causes = ranked(ledger.causes_without(published, later))
                if causes:
                    told.append(
                        Audited(
                            policy=ledger.policy.name,
                            claim=self._claim(request),
                            request=request.full_name,
                            device=published.id,
                            detail=self._detail(ledger, causes, request),
                        )
                    )
        return tuple(told)

    def _number(self, position: int) -> int:
        self.sees(position)
        return self._sees[position]

    def _enforced(self, position: int) -> list["_Ledger"]:
        return [ledger for ledger in self._of(position) if ledger.policy.is_enforced]

    def _of(self, position: int) -> tuple["_Ledger", ...]:
        """Return the ledgers of a device's pool, one per policy of its driver."""
        number = self._node.pool_of[position]
        found = self._ledgers.get(number)
        if found is None:
            pool = self._node.pools[number]
            use = self._usage.pools.get(pool.id, _NOTHING)
            found = self._ledgers[number] = tuple(
                _Ledger(policy, pool, use, self._tombstones)
                for policy in self._policies
                if policy.driver == pool.id.driver
            )
        return found

    def _claim(self, request: Request) -> str:
        metadata = self._asked.claims[request.claim].metadata
        return f"{metadata.namespace}/{metadata.name}"

    def _detail(self, ledger: "_Ledger", causes: Sequence[Cause], request: Request) -> str:
        """Return the causes in words, one of each family, with who holds the other devices."""
        namespace = self._asked.claims[request.claim].metadata.namespace
        chosen: dict[DeviceId, list[str]] = {}
        for position, each in self._chosen:
            whose = f"claim {self._asked.claims[each.claim].metadata.name}"
            if each.claim == request.claim:
                whose = f"request {each.full_name}"
            chosen.setdefault(self._node.devices[position].id, []).append(whose)
        told: dict[str, str] = {}
        for cause in causes:
            held = ledger.held(cause.others, namespace, chosen)
            told.setdefault(_FAMILIES.get(cause.clause, cause.clause), f"{cause.message}{held}")
        text = "; ".join(told.values())
        return text if len(text) <= MAX_DETAIL else f"{text[: MAX_DETAIL - 1]}…"


@lru_cache(maxsize=_POOLS)
def _catalogue(policy: CompiledPolicy, pool: Pool) -> Catalogue:
    """Return the devices of a pool as a policy sees them; the same object for the same pool."""
    return Catalogue(policy, (*pool.devices, *pool.elsewhere))


class _Ledger:
    """One policy on one pool: who is in use there, vanished devices included."""

    def __init__(
        self,
        policy: CompiledPolicy,
        pool: Pool,
        use: PoolUse,
        tombstones: Mapping[DeviceId, PublishedDevice],
    ) -> None:
        self.policy = policy
        self._pool = pool
        self._use = use
        self._catalogue = _catalogue(policy, pool)
        gone = [
            DeviceId(pool.id.driver, pool.id.pool, name)
            for name in sorted(use.keys() - self._catalogue.devices.keys())
        ]
        self._unknown = [device for device in gone if device not in tombstones]
        self._vanished = [tombstones[device] for device in gone if device in tombstones]
        if self._vanished:
            published = self._catalogue.devices.values()
            self._catalogue = Catalogue(policy, (*published, *self._vanished))
        self._here = Neighbourhoods(self._catalogue)
        devices = self._catalogue.devices
        self._tenants = [devices[name] for name in sorted(use) if name in devices]
        for tenant in self._tenants:
            self._here.join(tenant)
        self._broken = self._inconsistent()

    def _inconsistent(self) -> dict[Place, tuple[DeviceId, ...]]:
        """Return the neighbourhoods whose tenants break the policy, and these tenants."""
        places = {place for each in self._tenants for place in self._places(each)}
        found = {
            place: tuple(dict.fromkeys(self._here.inconsistent(place))) for place in sorted(places)
        }
        return {place: tenants for place, tenants in found.items() if tenants}

    def sees(self, published: PublishedDevice) -> Hashable:
        """Return all that verdicts on a device of this pool depend on."""
        kind = self._catalogue.standing(published).kind
        takes = _takes(published) if self._vanished else None
        return (self._pool.id, kind, published.id.device in self._use, takes)

    def join(self, published: PublishedDevice) -> None:
        self._tenants.append(published)
        self._here.join(published)

    def leave(self, published: PublishedDevice) -> None:
        self._tenants.pop()
        self._here.leave(published)

    def is_closed_to(self, published: PublishedDevice) -> bool:
        return next(self.causes(published), None) is not None

    def causes(self, published: PublishedDevice) -> Iterator[Cause]:
        """Yield what speaks against a device."""
        yield from self._here.causes(published)
        for device in self._unknown:
            yield Cause(
                clause=Clause.UNKNOWN,
                message=f"device {device.device} is allocated and no longer published, and nothing "
                "is known of what it excludes",
                others=(device,),
            )
        yield from self._charged(published)
        if self._broken:
            for place in sorted(self._places(published) & self._broken.keys()):
                yield Cause(
                    clause=Clause.INCONSISTENT,
                    message=f"the tenants of {where(place, self._pool.id.pool)} break the policy "
                    "already",
                    others=self._broken[place],
                )

    def causes_without(
        self, published: PublishedDevice, later: Sequence[PublishedDevice]
    ) -> list[Cause]:
        """Return what spoke against a chosen device before it and later ones were chosen."""
        for each in reversed(later):
            self.leave(each)
        try:
            return list(self.causes(published))
        finally:
            for each in later:
                self.join(each)

    def held(
        self, devices: Iterable[DeviceId], namespace: str, chosen: Mapping[DeviceId, Sequence[str]]
    ) -> str:
        """Return who holds devices, in parentheses; never a name of another namespace."""
        own: list[str] = []
        foreign: set[tuple[str, str]] = set()
        for device in devices:
            use = self._use.get(device.device)
            for holder in use.holders if use is not None else ():
                if holder.namespace == namespace:
                    own.append(f"claim {holder.claim}")
                else:
                    foreign.add((holder.namespace, holder.claim))
            own += [f"{name} of this attempt" for name in chosen.get(device, ())]
        names = list(dict.fromkeys(own))
        if len(names) > _MAX_NAMED:
            names = [*names[:_MAX_NAMED], f"{len(names) - _MAX_NAMED} more"]
        if foreign:
            claims = f"{len(foreign)} claims in other namespaces"
            names.append("a claim in another namespace" if len(foreign) == 1 else claims)
        return f" (held by {', '.join(names)})" if names else ""

    def _places(self, published: PublishedDevice) -> frozenset[Place]:
        return self._catalogue.standing(published).places

    def _charged(self, published: PublishedDevice) -> Iterator[Cause]:
        """Yield which counter a device would exhaust together with vanished ones.

        Unlike upstream, where a device that is no longer published charges nothing: the claim that
        holds it still runs on the hardware.
        """
        if not self._vanished:
            return
        vanished_sets = {name for each in self._vanished for name in sets_of(each)}
        counted = {each.id: each for each in self._tenants if each.id != published.id}
        for taken in published.device.consumes_counters or ():
            declared = self._pool.counter_sets.get(taken.counter_set)
            if declared is None or taken.counter_set not in vanished_sets:
                continue
            for name, needed in (taken.counters or {}).items():
                free = _free(declared, name, counted.values())
                if free is not None and free < needed.value:
                    yield Cause(
                        clause=Clause.COUNTERS,
                        message=f"counter {name} on set {declared.name} exhausted: needs "
                        f"{needed.value}, free {free}",
                        others=tuple(each.id for each in self._vanished),
                    )


def _takes(published: PublishedDevice) -> Hashable:
    """Return what a device consumes of every counter."""
    return frozenset(
        (taken.counter_set, name, amount.value)
        for taken in published.device.consumes_counters or ()
        for name, amount in (taken.counters or {}).items()
    )


def _free(
    declared: CounterSet, counter: str, tenants: Iterable[PublishedDevice]
) -> Quantity | None:
    """Return what tenants leave of a counter; None when the set has no such counter."""
    total = (declared.counters or {}).get(counter)
    if total is None:
        return None
    used = sum(
        taken.counters[counter].value.nanos
        for tenant in tenants
        for taken in tenant.device.consumes_counters or ()
        if taken.counter_set == declared.name and taken.counters and counter in taken.counters
    )
    return Quantity.from_nanos(max(total.value.nanos - used, 0), total.value.format)
