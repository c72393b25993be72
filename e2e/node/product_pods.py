"""Our manifests as pods of a real node; `e2e.node.host_network` has the changes for it.

What their processes are told besides is in the ConfigMap that manifests/base mounts.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from e2e.access import Access, Object, stream
from e2e.drawbridge import ROOT, rendered
from e2e.node.host_network import NAMESPACE, WEBHOOKS, WORKLOADS, host_network
from testing.documents import api_object

KUSTOMIZATIONS: Final = ("base", "observer", "driver")
ROUTED: Final[dict[str, Any]] = {"api_server_flags": ("--enable-aggregator-routing",)}
"""Parameters of a control plane that resolves Services to pods itself. Stories share it by this object."""
TIMEOUT_S: Final = 240.0
"""The time for pods of a large image on a busy machine: every container has a copy of its files."""
SETTINGS: Final = "drawbridge-settings"
INVENTORY: Final = "drawbridge-inventory"


class ProductPods:
    """Webhook, controllers, observer, driver and the other processes asked for, as pods."""

    def __init__(
        self,
        cluster: Access,
        node: str,
        *,
        settings: Mapping[str, Any],
        inventory: str,
        kustomizations: Sequence[str] = KUSTOMIZATIONS,
    ) -> None:
        """Read the manifests; nothing is applied yet.

        Args:
            cluster: The cluster to install in.
            node: The only node.
            settings: The settings of webhook and controllers, as in a file.
            inventory: The inventory of nodes without a file of their own, as text.
            kustomizations: Folders of `manifests`.
        """
        self._cluster = cluster
        self._node = node
        documents = [
            document
            for name in kustomizations
            for document in rendered(cluster, ROOT / "manifests" / name)
        ]
        self.workloads = [
            (document["kind"], document["metadata"]["namespace"], document["metadata"]["name"])
            for document in documents
            if document["kind"] in WORKLOADS
        ]
        network = host_network(cluster, node, (name for _, _, name in self.workloads))
        self._objects = [
            *(network.adapted(_declaring(document, inventory)) for document in documents),
            _settings(settings),
        ]

    def wait_rolled_out(self) -> None:
        """Wait until all pods are ready, as a person would see it."""
        for kind, namespace, name in self.workloads:
            rollout = ("rollout", "status", f"{kind.lower()}/{name}", "-n", namespace)
            self._cluster.kubectl(*rollout, f"--timeout={TIMEOUT_S:.0f}s")

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install all of it while a block runs; the block has to check that its pods are ready."""
        label = ("label", "node", self._node)
        self._cluster.kubectl(*label, "drawbridge.internal/driver=true")
        try:
            self.install()
            yield
        finally:
            self.uninstall()
        self._cluster.kubectl(*label, "drawbridge.internal/driver-")
        # The next story may have the same control plane.
        for namespace in sorted({namespace for _, namespace, _ in self.workloads}):
            self._cluster.wait_gone("namespaces", namespace, timeout_s=TIMEOUT_S)

    def install(self) -> None:
        """Apply everything; namespaces and settings first, as their pods need them."""
        early = [
            document
            for document in self._objects
            if document["kind"] in {"Namespace", "CustomResourceDefinition", "ConfigMap"}
        ]
        early.sort(key=lambda document: document["kind"] == "ConfigMap")
        self._cluster.apply(early)
        self._cluster.apply(document for document in self._objects if document not in early)

    def uninstall(self) -> None:
        """Delete everything, the webhook's configurations first."""
        flags = ("delete", "--ignore-not-found", "--wait=false", "-f", "-")
        first = [document for document in self._objects if document["kind"] in WEBHOOKS]
        for objects in (first, self._objects):
            self._cluster.kubectl(*flags, input=stream(objects))

    def pods(self) -> list[Object]:
        """All pods of ours."""
        return pods_of(self._cluster, {namespace for _, namespace, _ in self.workloads})


def pods_of(cluster: Access, namespaces: set[str]) -> list[Object]:
    """Return the pods of namespaces, by namespace."""
    return list(
        itertools.chain.from_iterable(
            cluster.objects("pods", namespace) for namespace in sorted(namespaces)
        )
    )


def _declaring(document: Object, inventory: str) -> Object:
    """Return an object, the ConfigMap of the driver with an inventory."""
    if document["kind"] == "ConfigMap" and document["metadata"]["name"] == INVENTORY:
        return {**document, "data": {"default.yaml": inventory}}
    return document


def _settings(settings: Mapping[str, Any]) -> Object:
    return api_object(
        "ConfigMap", SETTINGS, NAMESPACE, data={"settings.yaml": json.dumps(settings)}
    )
