"""Two replicas of the webhook behind a balancer, in place of the one that `Drawbridge` runs."""

import base64
import http.client
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from admission.webhook_configuration import WEBHOOK_PATHS
from e2e.access import Access, Object
from e2e.balancer import Balancer
from e2e.drawbridge import CERTIFICATES, WEBHOOK, Drawbridge, merged
from e2e.processes import Child
from testing.ports import free_ports

COUNT: Final = 2
TIMEOUT_S: Final = 60.0

Settings = Mapping[str, Any]


class Replicas:
    """Our processes; a replica is named by its port.

    Attributes:
        ports: The ports of the replicas.
    """

    def __init__(self, cluster: Access, drawbridge: Drawbridge, settings: Settings) -> None:
        self._cluster = cluster
        self._drawbridge = drawbridge
        self._file = cluster.directory / "replicas.json"
        self._file.write_text(json.dumps(merged(drawbridge.settings, settings)))
        ports = free_ports(3 * COUNT)
        self.ports = ports[:COUNT]
        self._probes = dict(zip(self.ports, ports[COUNT : 2 * COUNT], strict=True))
        self._metrics = dict(zip(self.ports, ports[2 * COUNT :], strict=True))
        self._balancer = Balancer(drawbridge.endpoints.host, self._probes)

    @contextmanager
    def running(self) -> Iterator["Replicas"]:
        """All of them, ready and believed; afterwards the one replica is back."""
        drawbridge = self._drawbridge
        for name in (WEBHOOK, CERTIFICATES):
            drawbridge.stop(name)
        drawbridge.start(CERTIFICATES, environment={"DRAWBRIDGE_CONFIG": str(self._file)})
        with ExitStack() as stack:
            stack.callback(self._end)
            for port in self.ports:
                self.start(port)
            stack.enter_context(self._balancer)
            self._reach(self._balancer.port)
            self.wait_ready()
            yield self

    def start(self, port: int, more: Mapping[str, str] | None = None) -> Child:
        """Start a replica that does not run, with more variables of its environment."""
        environment = {
            "DRAWBRIDGE_CONFIG": str(self._file),
            "DRAWBRIDGE_PORT": str(port),
            "DRAWBRIDGE_PROBE_PORT": str(self._probes[port]),
            "DRAWBRIDGE_METRICS_PORT": str(self._metrics[port]),
            **(more or {}),
        }
        return self._drawbridge.start(WEBHOOK, replica=_name(port), environment=environment)

    def child(self, port: int) -> Child:
        """The process of a replica."""
        return self._cluster.children[_name(port)]

    def stop(self, port: int) -> None:
        """End a replica in good order; fine when it has ended."""
        child = self._cluster.children.pop(_name(port), None)
        if child is not None:
            child.stop()

    def wait_ready(self) -> float:
        """Wait until all get connections and a pod of ours is admitted; return the seconds it took."""
        began = time.monotonic()
        self._cluster.wait_until(
            lambda: (
                self._balancer.ready() == set(self.ports)
                and self.has_current_bundles()
                and self.has_keys()
            ),
            "all replicas are ready",
            timeout_s=TIMEOUT_S,
        )
        return time.monotonic() - began

    def answered(self, port: int) -> int:
        """Return the number of reviews that a replica has answered with 200."""
        line = 'controller_runtime_webhook_requests_total{code="200",webhook="/mutate"}'
        connection = http.client.HTTPConnection(
            self._drawbridge.endpoints.host, self._metrics[port], timeout=60
        )
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        values = [row.split()[-1] for row in text.splitlines() if row.startswith(line)]
        return int(float(values[0])) if values else 0

    def has_answered(self, port: int, more_than: int) -> bool:
        """Return True if a replica has answered more than so many reviews with 200."""
        return self.answered(port) > more_than

    # --- trust -----------------------------------------------------------------------------------

    def secret(self) -> Mapping[str, str]:
        """Return the data of the Secret with the authorities, in base64; empty if there is none."""
        stored = self._cluster.find("secrets", "drawbridge-ca", self._drawbridge.namespace)
        return dict(stored["data"]) if stored is not None else {}

    def bundles(self) -> set[str]:
        """The caBundles of all our webhooks, base64."""
        return {
            str(webhook["clientConfig"].get("caBundle", ""))
            for webhook_configuration in self._drawbridge.webhook_configurations()
            for webhook in self._cluster.get(
                webhook_configuration["kind"], webhook_configuration["metadata"]["name"]
            )["webhooks"]
        }

    def trusted(self) -> int:
        """Return the number of authorities that the API server trusts; 0 if webhooks disagree."""
        bundles = self.bundles()
        if len(bundles) != 1:
            return 0
        return base64.b64decode(bundles.pop()).count(b"BEGIN CERTIFICATE")

    def has_current_bundles(self) -> bool:
        """Return True if caBundles are those of the Secret."""
        return self.bundles() == {self.secret().get("bundle.crt", "")}

    def has_keys(self) -> bool:
        """Return True if the API server knows the keys of all our paths."""
        return all(self._drawbridge.path(name) != fixed for name, fixed in WEBHOOK_PATHS.items())

    # --- inside ----------------------------------------------------------------------------------

    def _reach(self, port: int) -> None:
        """Have the API server call a port of this host."""
        ours = f":{self._drawbridge.endpoints.webhook}/"
        for webhook_configuration in self._drawbridge.webhook_configurations():
            changed: Object = {
                **webhook_configuration,
                "webhooks": [dict(hook) for hook in webhook_configuration["webhooks"]],
            }
            for hook in changed["webhooks"]:
                url = hook["clientConfig"]["url"].replace(ours, f":{port}/")
                hook["clientConfig"] = {"url": url}
            self._cluster.apply(changed)

    def _end(self) -> None:
        for port in self.ports:
            self.stop(port)
        self._reach(self._drawbridge.endpoints.webhook)
        self._drawbridge.stop(CERTIFICATES)
        for name in (CERTIFICATES, WEBHOOK):
            self._drawbridge.start(name)
        self._drawbridge.wait_ready()


def _name(port: int) -> str:
    return f"{WEBHOOK}-{port}"
