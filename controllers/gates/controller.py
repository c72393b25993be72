"""The controller that finds out the feature gates of the API server, and tells the webhook.

It creates a template as a dry run, and looks at what is left of it. A cluster is upgraded while we run,
so it looks again now and then.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from clusterstate.published_gates import gates_patch, project_gates
from controllers.gates.probe import probe_document, read_gates
from controllers.model.parts import Parts
from controllers.model.settings import Settings
from kube.api.resource import ResourceClaimTemplate
from kube.api.urls import CONFIG_MAPS, RESOURCE_CLAIM_TEMPLATES
from kube.client.client import Client, PatchType
from kube.logs import get_logger
from kube.runtime.controller import Controller
from kube.runtime.informers import InformerFactory
from process.running.leader_election import Work

PROBE: Final = "probe"
"""The only key."""

log = get_logger()


class FeatureGateController:
    """Publishes the feature gates; the leader runs it.

    Attributes:
        controllers: The controllers to be run.
    """

    def __init__(self, client: Client, informers: InformerFactory, settings: Settings) -> None:
        """Subscribe to the ConfigMap, and queue the first probe."""
        self._client = client
        self._settings = settings
        self._stored = informers.subscribe(
            CONFIG_MAPS,
            project_gates,
            namespace=settings.namespace,
            field_selector=f"metadata.name={settings.validation.inventory_config_map}",
        )
        controller: Controller[str] = Controller(
            "gates",
            self._reconcile,
            subscriptions=(self._stored,),
            backoff=settings.controllers.backoff(),
        )
        controller.queue.add(PROBE)
        self.controllers: Final = (controller,)

    async def _reconcile(self, _key: str) -> float:
        key = (self._settings.namespace, self._settings.validation.inventory_config_map)
        if key not in self._stored.store:
            # The audit creates it, as soon as it knows the inventory.
            return self._settings.controllers.inventory_update_period
        gates = read_gates(await self._probe())
        if gates != self._stored.store.get(key):
            await self._publish(gates)
        return self._settings.controllers.feature_gate_period

    async def _probe(self) -> ResourceClaimTemplate:
        """Return the template that the API server would store."""
        return await self._client.create(
            RESOURCE_CLAIM_TEMPLATES,
            probe_document(self._settings.namespace),
            ResourceClaimTemplate,
            namespace=self._settings.namespace,
            dry_run=True,
        )

    async def _publish(self, gates: Mapping[str, bool]) -> None:
        await self._client.patch(
            CONFIG_MAPS,
            self._settings.validation.inventory_config_map,
            gates_patch(gates),
            PatchType.MERGE,
            msgspec.Raw,
            namespace=self._settings.namespace,
        )
        log.info("feature_gates.published", gates=dict(gates))


def controller(parts: Parts) -> Work:
    """Return the controller of feature gates."""
    gates = FeatureGateController(parts.client, parts.informers, parts.settings)
    return Work(controllers=gates.controllers)
