"""The controller of workloads: creates the templates of their pods when they are applied, before the pods.

So the pods of a new workload find their templates, and kube-controller-manager writes no event that one
does not exist. It is off by default, and only hastens what the controller of templates does for pods, which
also repairs templates and collects those that nobody uses.

Workloads are written by users, so what they cost is bounded: one workload at a time, a fifth of a core, and
no template where a namespace has `MAX_TEMPLATES`, whose pods get theirs all the same.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from clusterstate.snapshot_cache import SnapshotCache
from controllers.model.evaluating_parts import EvaluatingParts
from controllers.model.settings import ControllerSettings
from controllers.model.stored_objects import StoredObject, key_texts, stored_object
from controllers.model.stored_snapshots import stored_snapshots
from controllers.model.template_documents import template_document
from controllers.workloads.requested import template_digest, workload_claims
from kube.api.urls import RESOURCE_CLAIM_TEMPLATES, WORKLOADS, Resource
from kube.api.workloads import VALIDATED_KINDS
from kube.client.client import Client
from kube.errors import AlreadyExists, Forbidden, NotFound
from kube.logs import get_logger
from kube.runtime.controller import Controller
from kube.runtime.informers import InformerFactory, Subscription
from process.running.leader_election import Work
from translation.cluster.snapshot import Mode, TranslationOptions
from translation.model.intents import Vocabulary

MAX_TEMPLATES: Final = 256
"""The templates of a namespace beyond which none is created before a pod needs it."""
IDLE_FACTOR: Final = 4.0
"""A translation is followed by a pause of so many times what it took."""

Key = tuple[str, str]

log = get_logger()


class WorkloadKey(NamedTuple):
    """A workload in the queue."""

    resource: Resource
    namespace: str
    name: str


class WorkloadController:
    """Creates the templates of workloads with device keys; the leader runs it.

    Attributes:
        controllers: The controllers to be run.
    """

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        snapshots: SnapshotCache,
        settings: ControllerSettings,
        *,
        options: TranslationOptions,
        vocabularies: Callable[[], Mapping[str, Vocabulary]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Subscribe to the workloads.

        Args:
            snapshots: The state of the cluster that a translation reads.
            vocabularies: Returns the vocabularies, extended by the resource names in the profiles in
                force.
            clock: Monotonic seconds.
        """
        self._client = client
        self._snapshots = snapshots
        self._options = options
        self._vocabularies = vocabularies
        self._clock = clock
        self._texts = key_texts(vocabularies().values())
        kinds = {plural: kind for kind, plural in VALIDATED_KINDS.items()}
        self._kinds: Final = {resource: kinds[resource.plural] for resource in WORKLOADS}
        subscriptions: tuple[Subscription[Any], ...] = tuple(
            informers.subscribe(
                resource,
                partial(self._project, resource),
                handlers=[partial(self._changed, resource)],
            )
            for resource in WORKLOADS
        )
        self._controller: Controller[WorkloadKey] = Controller(
            "workloads", self._reconcile, subscriptions=subscriptions, backoff=settings.backoff()
        )
        self.controllers: Final = (self._controller,)

    def read_keys(self, *_: object) -> None:
        """Look for the keys of the profiles in force; workloads are read again when they change."""
        self._texts = key_texts(self._vocabularies().values())

    def _project(self, resource: Resource, raw: bytes) -> str | None:
        return template_digest(raw, self._kinds[resource], self._texts)

    def _changed(self, resource: Resource, key: Key, old: str | None, new: str | None) -> None:
        if new is not None and new != old:
            self._controller.queue.add(WorkloadKey(resource, *key))

    async def _reconcile(self, key: WorkloadKey) -> None:
        await self._snapshots.wait_synced()
        try:
            raw = await self._client.get(
                key.resource, key.name, msgspec.Raw, namespace=key.namespace
            )
        except NotFound:
            return
        workload = stored_object(bytes(raw), self._kinds[key.resource], self._texts)
        if workload is not None:
            began_s = self._clock()
            missing = self._missing_templates(workload)
            await asyncio.sleep((self._clock() - began_s) * IDLE_FACTOR)
            for document in missing:
                await self._create(key, document)

    def _missing_templates(self, workload: StoredObject) -> list[Mapping[str, Any]]:
        """Return the templates to create; none if the namespace has many."""
        namespace = workload.metadata.namespace
        snapshot = self._snapshots.snapshot()
        claims = {
            claim.template: claim
            for claim in workload_claims(workload, snapshot, self._options)
            if (namespace, claim.template) not in snapshot.templates
        }
        present = sum(other == namespace for other, _ in snapshot.templates) if claims else 0
        room = max(0, MAX_TEMPLATES - present)
        return [template_document(namespace, claim) for claim in list(claims.values())[:room]]

    async def _create(self, key: WorkloadKey, document: Mapping[str, Any]) -> None:
        template = f"{key.namespace}/{document['metadata']['name']}"
        try:
            await self._client.create(
                RESOURCE_CLAIM_TEMPLATES, document, msgspec.Raw, namespace=key.namespace
            )
        except AlreadyExists:
            return  # A pod was first.
        except Forbidden as fault:
            # Such as by a quota. It is tried again for the pods, where people see the reason.
            log.warning("template.forbidden", template=template, reason=str(fault))
            return
        log.info(
            "template.created", template=template, workload=f"{key.resource.plural}/{key.name}"
        )


def controller(parts: EvaluatingParts) -> Work:
    """Return the controller of workloads; nothing if it is off, or no pod is translated."""
    settings, options = parts.settings, parts.options
    if not settings.controllers.templates_of_workloads or options.mode is Mode.SHADOW:
        return Work()
    snapshots, mappings = stored_snapshots(parts)
    workloads = WorkloadController(
        parts.client,
        parts.informers,
        snapshots,
        settings.controllers,
        options=options,
        vocabularies=parts.vocabularies,
    )
    parts.profiles.on_change(workloads.read_keys)
    return Work(controllers=workloads.controllers, loops=(mappings.run,))
