"""Translations that were made already: the pods of a workload differ in nothing that matters.

A rollout brings hundreds of pods that are equal as translations see them. What is remembered is a
value of a pure function, for one picture of the world at a time, so forgetting is always right.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from webhook.intents import LegacyPod
from webhook.translation import Outcome, translate
from webhook.world import Options, World

CAPACITY: Final = 512
MAX_KEY_BYTES: Final = 4096
"""Larger pods are translated each time; so what is remembered stays below some tens of MiB."""


class Remembered:
    """`translate`, with a bounded memory."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._outcomes: OrderedDict[bytes, Outcome] = OrderedDict()
        self._world: World | None = None
        self._options: Options | None = None

    def __call__(
        self, legacy: LegacyPod, /, *, namespace: str, world: World, options: Options
    ) -> Outcome:
        """Return what becomes of a pod."""
        if world is not self._world or options is not self._options:
            self._outcomes.clear()
            self._world, self._options = world, options
        key = msgspec.msgpack.encode((namespace, legacy), enc_hook=str)
        outcome = self._outcomes.get(key)
        if outcome is not None:
            self._outcomes.move_to_end(key)
            return outcome
        outcome = translate(legacy, namespace=namespace, world=world, options=options)
        if len(key) <= MAX_KEY_BYTES:
            self._outcomes[key] = outcome
            if len(self._outcomes) > self._capacity:
                self._outcomes.popitem(last=False)
        return outcome
