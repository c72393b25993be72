"""The DeviceClasses that map resource names exactly, by the published devices.

Evaluated on the thread of the rules whenever classes, slices or profiles change. No review waits for it:
until it is known, the text of a class decides.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from admission.native_mappings import MappingVerdicts, evaluate_mappings
from clusterstate.evaluator import RuleEvaluator
from clusterstate.kinds import Kind
from clusterstate.rule_cache import RuleCache
from clusterstate.snapshot_cache import SnapshotCache
from kube.logs import get_logger
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot

PAUSE_S: Final = 2.0
"""The time between two evaluations, however often slices change."""
RETRY_S: Final = 30.0
"""The time before the next attempt after a failed one."""

log = get_logger()


class MappingEvaluator:
    """Keeps the mappings of a snapshot cache up to date."""

    def __init__(
        self,
        evaluator: RuleEvaluator,
        snapshots: SnapshotCache,
        options: TranslationOptions,
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        """Watch the objects that a verdict depends on.

        Args:
            pause_s: Seconds between two evaluations.
        """
        self._evaluator = evaluator
        self._snapshots = snapshots
        self._options = options
        self._pause_s = pause_s
        self._changed = evaluator.watch(Kind.CLASS, Kind.SLICE)

    def mark_changed(self, *_: object) -> None:
        """Evaluate again, for example by other profiles."""
        self._changed.set()

    async def run(self) -> None:
        """Evaluate after every change until cancelled."""
        await self._evaluator.wait_ready()
        while True:
            await self._changed.wait()
            self._changed.clear()
            pause_s = self._pause_s
            try:
                verdicts = await self._evaluator.query(self._query())
            except Exception:  # Reviews go on with what the classes say.
                log.exception("mappings.not_evaluated")
                self._changed.set()
                pause_s = RETRY_S
            else:
                self._snapshots.replace_mapping_verdicts(verdicts)
            await asyncio.sleep(pause_s)

    def _query(self) -> Callable[[RuleCache], MappingVerdicts]:
        snapshot = msgspec.structs.replace(self._snapshots.snapshot(), templates={})
        return partial(_evaluate, snapshot=snapshot, options=self._options)


def _evaluate(
    cache: RuleCache, snapshot: TranslationSnapshot, options: TranslationOptions
) -> MappingVerdicts:
    context = cache.context()
    mapped = msgspec.structs.replace(snapshot, extended_resources=context.extended_resources)
    return evaluate_mappings(context.classes, mapped, options, context.inventory.devices)
