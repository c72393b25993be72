"""Tells when a webhook configuration is absent or changed: a log line, an event and a gauge.

It is told and not repaired: to delete a configuration is the emergency stop, and who changes one may
want it so.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from admission.webhook_configuration import configuration, validating_configuration, webhook_rules
from controllers.certificates.drift import find_differences
from controllers.certificates.patches import Conditions
from kube.api.events import Event, ObjectReference
from kube.api.meta import decode
from kube.api.urls import WEBHOOK_CONFIGURATIONS, Resource
from kube.collections.backoff import Backoff
from kube.logs import get_logger
from kube.names import NAMESPACE
from kube.runtime.controller import Controller
from kube.runtime.events import EventRecorder
from kube.runtime.informers import InformerFactory, Subscription
from translation.cluster.snapshot import Mode
from translation.model.intents import Vocabulary

REASON: Final = "WebhookConfigurationDiffers"
ACTION: Final = "Compare"

log = get_logger()


def project_document(raw: bytes) -> Mapping[str, Any]:
    """Keep a whole configuration."""
    return decode(raw, dict[str, Any])


class _Difference(msgspec.Struct):
    """A difference, its first time, and its report, if any."""

    words: tuple[str, ...] = ()
    since: float = 0.0
    is_told: bool = False


class ConfigurationWatch:
    """Compares the webhook configurations with those that this version would apply.

    Attributes:
        controllers: The controllers to be run.
    """

    def __init__(
        self,
        informers: InformerFactory,
        recorder: EventRecorder,
        name: str,
        vocabularies: Callable[[], Iterable[Vocabulary]],
        backoff: Backoff,
        *,
        mode: Mode = Mode.OPT_OUT,
        exempt: Sequence[str] = (),
        namespace: str = NAMESPACE,
        grace_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Subscribe to the configurations.

        Args:
            name: The name of both configurations.
            mode: The mode that selects the pods to translate.
            exempt: Namespaces that an operator exempts.
            namespace: The namespace in which Drawbridge is installed.
            vocabularies: Returns those in force, whose keys are in the matchConditions.
            grace_s: The time for which a difference has to last.
            clock: Monotonic seconds.
        """
        self._recorder = recorder
        self._name = name
        self._clock = clock
        self._grace_s = grace_s
        self._vocabularies = vocabularies
        self._namespace = namespace
        self._mode = mode
        self._exempt = exempt
        self._expected = self._generate()
        self._differences = {resource: _Difference() for resource in WEBHOOK_CONFIGURATIONS}
        self._subscriptions: dict[Resource, Subscription[Mapping[str, Any]]] = {
            resource: informers.subscribe(
                resource,
                project_document,
                field_selector=f"metadata.name={name}",
                handlers=[partial(self._handle_change, resource)],
            )
            for resource in WEBHOOK_CONFIGURATIONS
        }
        controller: Controller[Resource] = Controller(
            "configurations",
            self._reconcile,
            subscriptions=tuple(self._subscriptions.values()),
            backoff=backoff,
        )
        self._queue = controller.queue
        for resource in WEBHOOK_CONFIGURATIONS:
            self._queue.add(resource)
        self.controllers: Final = (controller,)

    def is_current(self) -> Mapping[str, bool]:
        """Return kind of configuration to True if it is as this version would apply it."""
        return {
            str(self._expected[resource]["kind"]): not difference.words
            for resource, difference in self._differences.items()
        }

    def profiles_changed(self, *_profiles: object) -> None:
        """Compare with the configurations that other profiles need."""
        self._expected = self._generate()
        for resource in WEBHOOK_CONFIGURATIONS:
            self._queue.add(resource)

    def _generate(self) -> Mapping[Resource, Mapping[str, Any]]:
        all_vocabularies = tuple(self._vocabularies())
        generated_configurations = tuple(
            generate(all_vocabularies, self._namespace, self._mode, self._exempt)
            for generate in (configuration, validating_configuration)
        )
        return dict(zip(WEBHOOK_CONFIGURATIONS, generated_configurations, strict=True))

    def match_conditions(self) -> Conditions:
        """Return the name of each webhook to its match conditions."""
        return {
            webhook["name"]: webhook["matchConditions"]
            for document in self._expected.values()
            for webhook in document["webhooks"]
        }

    def _handle_change(self, resource: Resource, *_change: object) -> None:
        self._queue.add(resource)

    async def _reconcile(self, resource: Resource) -> float | None:
        stored_configuration = self._subscriptions[resource].store.get(("", self._name))
        words = find_differences(
            stored_configuration, self._expected[resource], webhook_rules(routes=True)
        )
        before = self._differences[resource]
        if words != before.words:
            if before.is_told and not words:
                log.info("configuration.restored", configuration=resource.plural)
            before = _Difference(words=words, since=self._clock())
            self._differences[resource] = before
        if not words or before.is_told:
            return None
        left_s = before.since + self._grace_s - self._clock()
        if left_s > 0:
            return left_s
        before.is_told = True
        log.warning("configuration.differs", configuration=resource.plural, differences=words)
        self._recorder.record(self._event(resource, stored_configuration, words))
        return None

    def _event(
        self,
        resource: Resource,
        stored_configuration: Mapping[str, Any] | None,
        words: tuple[str, ...],
    ) -> Event:
        expected_configuration = self._expected[resource]
        uid = (
            str(stored_configuration["metadata"].get("uid", ""))
            if stored_configuration is not None
            else ""
        )
        return Event(
            regarding=ObjectReference(
                api_version=expected_configuration["apiVersion"],
                kind=expected_configuration["kind"],
                name=self._name,
                uid=uid,
            ),
            reason=REASON,
            action=ACTION,
            note=f"It differs from what Drawbridge needs: {'; '.join(words)}.",
        )
