"""The controller that creates the PodGroups of gangs of other schedulers, and deletes them.

The webhook has given the pods of such a gang the name of a PodGroup (`admission.group_routing`). It is created
with the first of them that is not being deleted, and deleted when none has been left for a while: pods that are replaced find it again. One
that we have not created is neither changed nor deleted. While the API server has no PodGroups, as for the
controllers when it starts, gangs wait for them.
"""

import time
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import msgspec

from allocator.declarations.adopted import adopted_name
from allocator.declarations.collect import POD_GROUP_RESOURCES
from allocator.declarations.model import GroupName, GroupSystem
from allocator.declarations.pod_group import PodGroup
from controllers.groups.events import (
    not_created,
    other_minimum,
    other_minimum_of_object,
    unknown_minimum,
)
from controllers.groups.gangs import (
    GangPod,
    StoredPodGroup,
    adopted_minimum,
    in_order,
    pod_group_document,
    project_gang_pod,
    project_minimum,
    project_pod_group,
)
from controllers.model.parts import Parts
from controllers.model.settings import ControllerSettings
from kube.api.events import Event
from kube.api.urls import POD_GROUPS, PODS
from kube.client.client import Client
from kube.errors import AlreadyExists, Conflict, Invalid, NamespaceTerminating, NotFound
from kube.logs import get_logger
from kube.runtime.controller import Controller
from kube.runtime.events import EventRecorder, NewEventRecorder
from kube.runtime.informers import InformerFactory, Subscription, unsynced_resources
from process.running.leader_election import Work

UNSYNCED_S: Final = 1.0
"""The pause before PodGroups that are not listed yet are looked at again."""
UNAVAILABLE_S: Final = 10.0
"""The pause before PodGroups that the API server does not have, or does not show us, are looked at again."""
LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""The field selector of the other controllers, so that all of them share one watch."""
MAX_EVENTS: Final = 16
"""Pods of one gang that get an event at a time."""

Key = tuple[str, str]

log = get_logger()


class GangController:
    """Keeps the PodGroups of gangs; the leader runs it.

    Attributes:
        controllers: The controllers to be run; the keys are namespaces and names of PodGroups.
    """

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        recorder: EventRecorder,
        settings: ControllerSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Subscribe to pods, and to the PodGroups of all schedulers.

        Args:
            clock: Monotonic seconds.
        """
        self._client = client
        self._recorder = NewEventRecorder(recorder)
        self._settings = settings
        self._clock = clock
        self._pods_of: dict[Key, dict[Key, GangPod]] = {}
        self._empty_since: dict[Key, float] = {}
        self._pods = informers.subscribe(
            PODS, project_gang_pod, field_selector=LIVE_PODS, handlers=[self._pod_changed]
        )
        self._groups = informers.subscribe(
            POD_GROUPS, project_pod_group, handlers=[self._group_changed]
        )
        self._objects: dict[GroupSystem, Subscription[PodGroup]] = {
            system: informers.subscribe(
                resource, project_minimum, handlers=[self._object_changed(system)]
            )
            for system, resource in POD_GROUP_RESOURCES.items()
            if system is not GroupSystem.KUBERNETES
        }
        self._controller: Controller[Key] = Controller(
            "gangs", self._reconcile, subscriptions=(self._pods,), backoff=settings.backoff()
        )
        self.controllers: Final = (self._controller,)

    # --- changes ----------------------------------------------------------------------------------

    def _pod_changed(self, key: Key, old: GangPod | None, new: GangPod | None) -> None:
        if old == new:
            return  # Labels and the status are written often, and a look at a gang is one at all of its pods.
        for pod in filter(None, (old, new)):
            group = (pod.gang.namespace, adopted_name(pod.gang))
            pods = self._pods_of.setdefault(group, {})
            if pod is new:
                pods[key] = pod
            else:
                pods.pop(key, None)
            if not pods:
                del self._pods_of[group]
            self._controller.queue.add(group)

    def _group_changed(
        self, key: Key, _old: StoredPodGroup | None, _new: StoredPodGroup | None
    ) -> None:
        self._controller.queue.add(key)

    def _object_changed(
        self, system: GroupSystem
    ) -> Callable[[Key, PodGroup | None, PodGroup | None], None]:
        """Return the handler of changes to PodGroups of another scheduler."""

        def changed(key: Key, _old: PodGroup | None, _new: PodGroup | None) -> None:
            namespace, name = key
            group = (namespace, adopted_name(GroupName(system, namespace, name)))
            if group in self._pods_of:
                self._controller.queue.add(group)

        return changed

    # --- PodGroups --------------------------------------------------------------------------------

    async def _reconcile(self, key: Key) -> float | None:
        """Create or delete a PodGroup; return when to come back for it."""
        if not self._groups.is_available:
            # No event tells that the API server has them now, or again with the same versions.
            is_needed = key in self._pods_of or key in self._groups.store
            return UNAVAILABLE_S if is_needed else None
        if unsynced_resources([self._groups]):
            return UNSYNCED_S
        pods = in_order(tuple(self._pods_of.get(key, {}).values()))
        existing = self._groups.store.get(key)
        if not pods:
            return await self._delete_unused(key, existing)
        self._empty_since.pop(key, None)
        if existing is None:
            # Pods that end do not make it again when it went with their owner, only to go once more.
            living_pods = [pod for pod in pods if not pod.is_deleted]
            return await self._create(key, living_pods) if living_pods else None
        if existing.is_ours and existing.min_count is not None:
            self._tell_others(key, pods, existing.min_count)
        return None

    def _tell_others(self, key: Key, pods: list[GangPod], minimum: int) -> None:
        """Report other numbers than that of the PodGroup."""
        namespace, name = key
        others = (pod for pod in pods if pod.min_count not in {None, minimum})
        for pod in islice(others, MAX_EVENTS):
            self._record(other_minimum(pod, name, minimum))
        gang = pods[0].gang
        own = self._objects[gang.system].store.get((namespace, gang.name))
        of_object = own.spec.min_member if own is not None else None
        if of_object not in {None, minimum} and pods[0].min_count in {None, minimum}:
            self._record(other_minimum_of_object(pods[0], name, minimum, of_object))

    async def _create(self, key: Key, pods: list[GangPod]) -> float | None:
        """Create the PodGroup of a gang, once the number of pods that it needs is known."""
        namespace, name = key
        gang = pods[0].gang
        objects = self._objects[gang.system]
        if objects.is_available and unsynced_resources([objects]):
            return UNSYNCED_S
        minimum = adopted_minimum(pods, objects.store.get((namespace, gang.name)))
        if minimum is None:
            for pod in pods[:MAX_EVENTS]:
                self._record(unknown_minimum(pod))
            return None
        try:
            await self._client.create(
                POD_GROUPS, pod_group_document(pods, minimum), msgspec.Raw, namespace=namespace
            )
        except (AlreadyExists, NamespaceTerminating):
            return None
        except Invalid as error:
            for pod in pods[:MAX_EVENTS]:
                self._record(not_created(pod, name, str(error)))
            return None  # Until a pod or a PodGroup changes.
        log.info("pod_group.created", pod_group="/".join(key), gang=str(gang), minimum=minimum)
        return None

    async def _delete_unused(self, key: Key, existing: StoredPodGroup | None) -> float | None:
        """Delete a PodGroup of ours that no pod has used for a while."""
        if existing is None or not existing.is_ours or existing.is_deleted:
            self._empty_since.pop(key, None)
            return None
        now_s = self._clock()
        unused_s = now_s - self._empty_since.setdefault(key, now_s)
        if unused_s < self._settings.pod_group_unused_period:
            return self._settings.pod_group_unused_period - unused_s
        namespace, name = key
        try:
            await self._client.delete(POD_GROUPS, name, namespace=namespace, uid=existing.uid)
        except (NotFound, Conflict):
            return None
        log.info("pod_group.deleted", pod_group="/".join(key))
        return None

    def _record(self, event: Event) -> None:
        if self._recorder.is_new(event):
            self._recorder.record(event)


def controller(parts: Parts) -> Work:
    """Return the controller of gangs."""
    gangs = GangController(
        parts.client, parts.informers, parts.recorder, parts.settings.controllers
    )
    controllers: tuple[Controller[Any], ...] = gangs.controllers
    return Work(controllers=controllers)
