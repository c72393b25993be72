"""The claims that a write of ours without an answer may yet change.

The ledger remembers such a write where devices are promised. A claim that is allocated has no promise:
its release, or one more reservation, may be made late as well, and then takes the devices of a pod that
was tried again and runs. So the version that the write was decided on is remembered. It is settled once
the version of the claim has changed, by ours or by any other write, or the claim is gone.
"""

from collections.abc import Mapping

from allocator.pods.claims import Name, claim_name
from kube.api.meta import version_number
from kube.api.resource import ResourceClaim
from sidecar.commit.steps import ClaimWrite
from sidecar.commit.writes import Outcome


class UnsettledWrites:
    """The newest write of each claim that may be made yet; at most one entry for each claim."""

    def __init__(self) -> None:
        """Begin without a write."""
        self._versions: dict[tuple[Name, str], int] = {}

    def end(self, write: ClaimWrite, outcome: Outcome) -> None:
        """Note the end of a write that failed: without an answer, or refused, a copy may be made yet."""
        if outcome is Outcome.UNKNOWN or outcome is Outcome.REFUSED:
            self._versions[_key(write.claim)] = _version(write.claim)

    def may_change(self, claim: ResourceClaim) -> bool:
        """Return True if a write that was decided on this version of a claim may be made yet."""
        # At most: a cached claim may be older than the one that the write was decided on.
        return bool(self._versions) and _version(claim) <= self._versions.get(_key(claim), -1)

    def forget_settled(self, claims: Mapping[Name, ResourceClaim]) -> None:
        """Forget the claims that have changed since, or are gone.

        Args:
            claims: The claims as they are now, never older than at the last call.
        """
        for key in tuple(self._versions):
            name, uid = key
            claim = claims.get(name)
            if claim is None or claim.metadata.uid != uid or not self.may_change(claim):
                del self._versions[key]

    @property
    def claims(self) -> tuple[tuple[Name, str], ...]:
        """Return name and UID of each claim."""
        return tuple(self._versions)


def _key(claim: ResourceClaim) -> tuple[Name, str]:
    return claim_name(claim), claim.metadata.uid


def _version(claim: ResourceClaim) -> int:
    return version_number(claim.metadata.resource_version)
