"""Claims as they count: allocated, promised, or held back of pods that were deleted by force."""

from collections.abc import Iterable, Mapping

from allocator.pods.claims import Name, allocation_of, claim_name
from kube.api.ownership import HeldBackClaim
from kube.api.resource import AllocationResult, ResourceClaim
from sidecar.commit import ledger
from sidecar.commit.ledger import Hold
from sidecar.ownership.held_back import (
    Share,
    allocated_shares,
    as_claim,
    held_key,
    held_name,
    without_counted,
)
from sidecar.state.held_back import HeldBackDevices
from sidecar.state.held_parts import shares_of


class EffectiveClaims:
    """The claims of the API, with the devices promised to them and held back of them."""

    def __init__(
        self,
        claims: Mapping[Name, ResourceClaim],
        holds: Mapping[str, Hold],
        held_back: HeldBackDevices,
    ) -> None:
        """Begin without an allocation.

        Args:
            claims: A live view of all claims.
            holds: A live view of the holds, by UID of the claim.
            held_back: The devices that are held back.
        """
        self._claims = claims
        self._holds = holds
        self._held_back = held_back
        # UID to name of each claim that is allocated in the API.
        self._allocated: dict[str, Name] = {}
        # UID of each claim with devices held back to the shares that it has itself.
        self._own_shares: dict[str, frozenset[Share]] = {}

    def note(self, claim: ResourceClaim, *, is_there: bool) -> None:
        """Take note of a claim that was seen, or is gone."""
        uid = claim.metadata.uid
        if is_there and allocation_of(claim) is not None:
            self._allocated[uid] = claim_name(claim)
        else:
            self._allocated.pop(uid, None)

    def all(self) -> Mapping[Name, ResourceClaim | None]:
        """Return all of them; None for held devices that a claim has itself."""
        return self.all_stored() | {
            held_name(key): self.find_held(held_claim)
            for key, held_claim in self._held_back.claims.items()
        }

    def all_stored(self) -> dict[Name, ResourceClaim | None]:
        """Return the claims of the API with the devices that are promised to them."""
        return {name: self.find(name) for name in self._claims}

    def find(self, name: Name) -> ResourceClaim | None:
        """Return a claim with the devices that are promised to it; None if there is none."""
        claim = self._claims.get(name)
        return None if claim is None else ledger.with_hold(claim, self.hold_of(claim))

    def hold_of(self, claim: ResourceClaim) -> Hold | None:
        """Return the hold on a claim."""
        return self._holds.get(claim.metadata.uid)

    def change_held_of(self, uid: str) -> Mapping[Name, ResourceClaim | None]:
        """Return the devices held back of a claim that count otherwise since the last call.

        They do if the claim has got or lost them itself, and the earliest pod with each of them counts it.
        """
        if not (self._held_back.claims and self._held_back.parts.has_claim(uid)):
            self._own_shares.pop(uid, None)
            return {}
        shares = allocated_shares(self._allocation_now(uid))
        changed_shares = self._own_shares.get(uid, frozenset()) ^ shares
        self._own_shares[uid] = shares
        return self._find_first(uid, changed_shares)

    def change_held(self, held_claim: HeldBackClaim) -> Mapping[Name, ResourceClaim | None]:
        """Return the devices held back that count otherwise since a part was added or ended."""
        key, uid = held_key(held_claim), held_claim.claim_uid
        is_there = key in self._held_back.claims
        return {
            **self.change_held_of(uid),
            **self._find_first(uid, shares_of(held_claim)),
            held_name(key): self.find_held(held_claim) if is_there else None,
        }

    def _find_first(self, uid: str, shares: Iterable[Share]) -> Mapping[Name, ResourceClaim | None]:
        return {
            held_name(held_key(held_claim)): self.find_held(held_claim)
            for held_claim in self._held_back.parts.first_of_shares(uid, shares)
        }

    def find_held(self, held_claim: HeldBackClaim) -> ResourceClaim | None:
        """Return the held devices of a claim, as far as it does not have them itself; None for nothing."""
        uid, key = held_claim.claim_uid, held_key(held_claim)
        first = self._held_back.parts.first_of_shares(uid, shares_of(held_claim))
        earlier = (other for other in first if held_key(other) != key)
        uncounted_claim = without_counted(held_claim, self._allocation_now(uid), earlier)
        if uncounted_claim is None:
            return None
        return as_claim(uncounted_claim, self._held_back.former_allocation(held_claim))

    def _allocation_now(self, uid: str) -> AllocationResult | None:
        """Return a claim's allocation; its promised one if it has none yet."""
        name = self._allocated.get(uid)
        claim = self._claims.get(name) if name is not None else None
        if claim is not None and claim.metadata.uid == uid:
            return allocation_of(claim)
        hold = self._holds.get(uid)
        return hold.allocation if hold is not None else None
