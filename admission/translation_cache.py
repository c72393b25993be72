"""A cache of translations: the pods of a workload are equal as far as a translation reads them.

A rollout creates hundreds of such pods. The cache holds values of a pure function for one snapshot at
a time, so evicting is always correct.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from translation.intents import LegacyPod
from translation.snapshot import TranslationOptions, TranslationSnapshot
from translation.translate import Outcome, translate

CAPACITY: Final = 512
MAX_KEY_BYTES: Final = 4096
"""Larger pods are not cached, so the cache stays below some tens of MiB."""


class TranslationCache:
    """`translate` with a bounded cache, least recently used first out."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._outcomes: OrderedDict[bytes, Outcome] = OrderedDict()
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
        outcome = self._outcomes.get(key)
        if outcome is not None:
            self._outcomes.move_to_end(key)
            return outcome
        outcome = translate(
            legacy,
            namespace=namespace,
            snapshot=snapshot,
            options=options,
            passes_through=passes_through,
        )
        if len(key) <= MAX_KEY_BYTES:
            self._outcomes[key] = outcome
            if len(self._outcomes) > self._capacity:
                self._outcomes.popitem(last=False)
        return outcome
