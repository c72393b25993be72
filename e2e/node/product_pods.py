"""Our manifests as pods of a real node that has no pod network.

Only what that lacks is changed: pods use the host's network, so each gets ports of its own and is told
where the API server is, and there is one replica of each. Nothing routes Services, so that of the webhook
has the port of its pod, and its name is known to all pods. What else they are told is in the ConfigMap
that manifests/base mounts.
"""

import copy
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from e2e.access import Access, Object, stream
from e2e.cluster import free_ports
from e2e.drawbridge import rendered

MANIFESTS: Final = tuple(
    Path(__file__).parent.parent.parent / "manifests" / name
    for name in ("base", "observer", "driver")
)
WORKLOADS: Final = ("DaemonSet", "Deployment")
WEBHOOKS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
PORTS: Final = {
    "https": "DRAWBRIDGE_PORT",
    "probes": "DRAWBRIDGE_PROBE_PORT",
    "metrics": "DRAWBRIDGE_METRICS_PORT",
}
"""Port of a container to the variable that sets it."""

ENFORCE: Final = "pod-security.kubernetes.io/enforce"
SETTINGS: Final = "drawbridge-settings"
INVENTORY: Final = "drawbridge-inventory"
NAMESPACE: Final = "drawbridge-system"
WEBHOOK_HOST: Final = f"drawbridge-webhook.{NAMESPACE}.svc"


class ProductPods:
    """Webhook, controllers, observer and driver as pods."""

    def __init__(
        self, cluster: Access, node: str, *, settings: Mapping[str, Any], inventory: str
    ) -> None:
        """Read the manifests; nothing is applied yet.

        Args:
            cluster: Where.
            node: The only node.
            settings: Of webhook and controllers, as in a file.
            inventory: Of nodes without a file of their own, as text.
        """
        self._cluster = cluster
        server = urlsplit(str(cluster.entry()["server"]))
        self._server = {
            "KUBERNETES_SERVICE_HOST": server.hostname,
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }
        documents = [document for path in MANIFESTS for document in rendered(cluster, path)]
        self.workloads = [
            (document["kind"], document["metadata"]["namespace"], document["metadata"]["name"])
            for document in documents
            if document["kind"] in WORKLOADS
        ]
        self._https, *others = free_ports(1 + len(PORTS) * len(self.workloads))
        ports = iter(others)
        self._address = next(
            address["address"]
            for address in cluster.get("nodes", node)["status"]["addresses"]
            if address["type"] == "InternalIP"
        )
        self._objects = [
            *(self._adapted(document, ports, inventory) for document in documents),
            _settings(settings),
        ]

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
        namespaces = {namespace for _, namespace, _ in self.workloads}
        return list(
            itertools.chain.from_iterable(
                self._cluster.objects("pods", namespace) for namespace in sorted(namespaces)
            )
        )

    # --- inside ----------------------------------------------------------------------------------

    def _adapted(self, document: Object, ports: Iterator[int], inventory: str) -> Object:
        if document["kind"] == "ConfigMap" and document["metadata"]["name"] == INVENTORY:
            return {**document, "data": {"default.yaml": inventory}}
        if document["kind"] == "Namespace":
            # Its pods may not use the host's network otherwise.
            labels = {**document["metadata"]["labels"], ENFORCE: "privileged"}
            return {**document, "metadata": {**document["metadata"], "labels": labels}}
        adapted = copy.deepcopy(document)
        if adapted["kind"] in WEBHOOKS:
            for webhook in adapted["webhooks"]:
                webhook["clientConfig"]["service"]["port"] = self._https
        if adapted["kind"] == "Service":
            (port,) = adapted["spec"]["ports"]
            port["port"] = self._https
        if adapted["kind"] not in WORKLOADS:
            return adapted
        if adapted["kind"] == "Deployment":
            adapted["spec"]["replicas"] = 1
        spec = adapted["spec"]["template"]["spec"]
        spec["hostNetwork"] = True
        spec["hostAliases"] = [{"ip": self._address, "hostnames": [WEBHOOK_HOST]}]
        (container,) = spec["containers"]
        variables = dict(self._server)
        for port in container["ports"]:
            port["containerPort"] = self._https if port["name"] == "https" else next(ports)
            variables[PORTS[port["name"]]] = str(port["containerPort"])
        address = {"name": "DRAWBRIDGE_BIND", "valueFrom": _field("status.hostIP")}
        container["env"] = [*container.get("env", ()), address, *_environment(variables)]
        return adapted


def _settings(settings: Mapping[str, Any]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": SETTINGS, "namespace": NAMESPACE},
        "data": {"settings.yaml": json.dumps(settings)},
    }


def _field(path: str) -> Object:
    return {"fieldRef": {"fieldPath": path}}


def _environment(variables: Mapping[str, Any]) -> Iterable[Object]:
    return ({"name": name, "value": value} for name, value in variables.items())
