"""Mode Shadow: looks at all stored workloads and pods from time to time, and tells each one once.

It writes events only. Evaluation takes a fifth of a core at most, however much is stored.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from clusterstate.snapshot_cache import SnapshotCache
from controllers.model.evaluating_parts import EvaluatingParts
from controllers.model.settings import ControllerSettings
from controllers.model.stored_objects import POD_KIND, key_texts, stored_object
from controllers.model.stored_snapshots import stored_snapshots
from controllers.shadow.report import evaluate_stored, shadow_event
from kube.api.urls import PODS, WORKLOADS, Resource
from kube.api.workloads import VALIDATED_KINDS
from kube.client.client import Client
from kube.logs import get_logger
from kube.runtime.controller import Controller
from kube.runtime.events import EventRecorder, NewEventRecorder
from process.running.leader_election import Work
from translation.cluster.snapshot import Mode, TranslationOptions
from translation.model.intents import Vocabulary

EVALUATION: Final = "evaluation"
"""The only key."""
IDLE_FACTOR: Final = 4.0
"""A batch is followed by a pause of so many times what its evaluation took."""
BATCH: Final = 16
"""Objects that are evaluated at a time; a Lease has to be renewed meanwhile."""
LIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"

log = get_logger()


def evaluated_resources() -> Iterator[tuple[Resource, tuple[str, str], str]]:
    """Yield each resource that is listed, its apiVersion and kind, and a field selector."""
    kinds = {plural: kind for kind, plural in VALIDATED_KINDS.items()}
    for resource in WORKLOADS:
        yield resource, kinds[resource.plural], ""
    yield PODS, POD_KIND, LIVE


class ShadowController:
    """Records an event about each workload that another mode would translate or reject.

    Attributes:
        controllers: The controllers to be run; the leader runs them.
    """

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        snapshots: SnapshotCache,
        settings: ControllerSettings,
        *,
        options: TranslationOptions,
        vocabularies: Callable[[], Mapping[str, Vocabulary]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Queue the first evaluation.

        Args:
            snapshots: The state of the cluster that a translation reads.
            vocabularies: Returns the vocabularies, extended by the resource names in the profiles in
                force.
            clock: Monotonic seconds.
        """
        self._client = client
        self._recorder = NewEventRecorder(recorder)
        self._snapshots = snapshots
        self._period_s = settings.audit_period
        self._options = options
        self._vocabularies = vocabularies
        self._clock = clock
        controller: Controller[str] = Controller(
            "shadow", self._reconcile, backoff=settings.backoff()
        )
        controller.queue.add(EVALUATION)
        self.controllers: Final = (controller,)

    async def _reconcile(self, _key: str) -> float:
        await self._snapshots.wait_synced()
        number = 0
        texts = key_texts(self._vocabularies().values())
        for resource, kind, selector in evaluated_resources():
            # On a large cluster the pauses take longer than an API server keeps the state of a list.
            pages = self._client.pages(resource, field_selector=selector, resumes=True)
            async for page in pages:
                for start in range(0, len(page.items), BATCH):
                    began_s = self._clock()
                    for raw in page.items[start : start + BATCH]:
                        number += self._tell(bytes(raw), kind, texts)
                    await asyncio.sleep((self._clock() - began_s) * IDLE_FACTOR)
        log.info("shadow.evaluated", objects=number)
        return self._period_s

    def _tell(self, raw: bytes, kind: tuple[str, str], texts: tuple[bytes, ...]) -> bool:
        """Record the event about an object; return True if it has device keys.

        Args:
            texts: One of which the JSON of an object with device keys contains.
        """
        workload = stored_object(raw, kind, texts)
        if workload is None:
            return False
        try:
            answer = evaluate_stored(workload, self._snapshots.snapshot(), self._options)
        except Exception:  # A bug that one object meets must not cost the others their report.
            log.exception("shadow.failed", object=str(workload.reported))
            return False
        event = None if answer is None else shadow_event(workload, answer)
        if event is not None and self._recorder.is_new(event):
            self._recorder.record(event)
        return True


def controller(parts: EvaluatingParts) -> Work:
    """Return the controller of mode Shadow; nothing in the other modes."""
    settings, options = parts.settings, parts.options
    if options.mode is not Mode.SHADOW:
        return Work()
    snapshots, mappings = stored_snapshots(parts)
    shadow = ShadowController(
        parts.client,
        parts.recorder,
        snapshots,
        settings.controllers,
        options=options,
        vocabularies=parts.vocabularies,
    )
    return Work(controllers=shadow.controllers, loops=(mappings.run,))
