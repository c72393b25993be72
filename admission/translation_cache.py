"""A cache of translations: the pods of a workload are equal as far as a translation reads them.

A rollout creates hundreds of such pods. The cache holds values of a pure function for one snapshot at
a time, so evicting is always correct.
"""

from hashlib import sha256
from typing import Final

import msgspec

from kube.collections.sized_cache import SizedCache
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.model.intents import LegacyPod
from translation.pipeline.translate import Outcome, Translated, translate

CAPACITY: Final = 512
MAX_KEY_BYTES: Final = 4096
"""Larger pods are not cached."""
MAX_BYTES: Final = 4 * 2**20
"""Keys and specs of claims, as JSON; as objects they take several times as much."""


class TranslationCache:
    """`translate` with a bounded cache, least recently used first out."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._outcomes: SizedCache[bytes, Outcome] = SizedCache(
            max_entries=capacity, max_bytes=MAX_BYTES
        )
        self._snapshot: TranslationSnapshot | None = None
        self._options: TranslationOptions | None = None

    def __call__(
        self,
        legacy: LegacyPod,
        /,
        *,
        namespace: str,
        snapshot: TranslationSnapshot,
        options: TranslationOptions,
        passes_through: bool = True,
    ) -> Outcome:
        """Translate a pod."""
        if snapshot is not self._snapshot or options is not self._options:
            self._outcomes.clear()
            self._snapshot, self._options = snapshot, options
        key = msgspec.msgpack.encode((namespace, passes_through, legacy), enc_hook=str)
        digest = sha256(key).digest()
        cached_outcome = self._outcomes.get(digest)
        if cached_outcome is not None:
            return cached_outcome
        outcome = translate(
            legacy,
            namespace=namespace,
            snapshot=snapshot,
            options=options,
            passes_through=passes_through,
        )
        if len(key) > MAX_KEY_BYTES:
            return outcome
        return self._outcomes.put(digest, outcome, size=len(key) + _spec_bytes(outcome))


def _spec_bytes(outcome: Outcome) -> int:
    return sum(claim.size for claim in outcome.claims) if isinstance(outcome, Translated) else 0
