"""The derivations of annotations, cached by their digest; replicas carry the same annotation."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from controllers.templates.actions import Derivation, derive_claims
from kube.collections.sized_cache import SizedCache
from translation.profiles.profile import Profile

MAX_DERIVATIONS: Final = 1024
MAX_BYTES: Final = 4 * 2**20
"""Specs of claims, as JSON; as objects they take several times as much."""
_OVERHEAD: Final = 1024
"""Bytes of a derivation without its specs."""


class DerivationCache:
    """`derive_claims` with a cache."""

    def __init__(self, profiles: Mapping[str, Profile], *, max_bytes: int = MAX_BYTES) -> None:
        self._profiles = profiles
        self._versions: Mapping[str, Profile] = {}
        self._derivations: SizedCache[bytes, Derivation] = SizedCache(
            max_entries=MAX_DERIVATIONS, max_bytes=max_bytes
        )

    def replace_profiles(
        self, profiles: Mapping[str, Profile], versions: Mapping[str, Profile]
    ) -> None:
        """Derive with other profiles; failed derivations may succeed by now."""
        self._profiles, self._versions = profiles, versions
        self._derivations.clear()

    @property
    def bytes(self) -> int:
        """The approximate size of the cache in bytes."""
        return self._derivations.bytes

    def derive(self, annotation: str) -> Derivation:
        """Derive claims from an annotation."""
        digest = sha256(annotation.encode(errors="surrogatepass")).digest()
        cached_derivation = self._derivations.get(digest)
        if cached_derivation is not None:
            return cached_derivation
        derivation = derive_claims(annotation, self._profiles, self._versions)
        size = _OVERHEAD + sum(claim.size for claim in derivation.claims)
        return self._derivations.put(digest, derivation, size=size)
