"""Drawbridge in a cluster without images: the manifests as they are, processes in place of pods.

What a person would apply is applied: namespace, accounts, roles, webhook configuration. Only two
things are different, since nothing in these clusters can run an image or route to a Service:

* Each Deployment becomes one process of this machine. It runs the command of the Deployment's
  container, and speaks to the API server with a token of the Deployment's own service account, so
  that the roles in the manifests are what is tested.
* A webhook's `clientConfig.service` becomes a `url`. The `caBundle` and the `rules` are still written
  by drawbridge-certificates.

What the processes are told beyond their manifests is in `_settings` and `_environment`.
"""

import base64
import copy
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml

from admission.webhook_configuration import (
    OBJECTS_WEBHOOK,
    PODS_WEBHOOK,
    ROUTING_WEBHOOK,
    WEBHOOK_PATHS,
)
from e2e.access import READY_TIMEOUT_S, Access, Object, stream
from e2e.processes import Child
from e2e.reviews import claim_review
from kube.quantity import Quantity
from testing.documents import claim, exactly
from testing.ports import free_ports
from webhook.reviews import BUSY

ROOT: Final = Path(__file__).parent.parent
MANIFESTS: Final = ROOT / "manifests" / "base"

HOST_VARIABLE: Final = "DRAWBRIDGE_E2E_HOST"
"""The variable with the address that the API server reaches this machine at, if not loopback."""

WEBHOOK: Final = "drawbridge-webhook"
CONTROLLER: Final = "drawbridge-controller"
CERTIFICATES: Final = "drawbridge-certificates"
OBSERVER: Final = "drawbridge-observer"
"""The Deployments, and the processes that stand for them."""
RIGHT_DENIED: Final = "is forbidden: User "
"""The words of the API server for a role that lacks a right; a namespace that is being deleted forbids
new objects in other words."""

_SLOW_TO_GO: Final = {
    "CustomResourceDefinition": "customresourcedefinitions",
    "Namespace": "namespaces",
}
_SECTIONS: Final = {
    WEBHOOK: "webhook",
    CONTROLLER: "controllers",
    CERTIFICATES: "certificateController",
    OBSERVER: "observer",
}
"""Deployment to its section of the settings."""

_REPLACED: Final = frozenset({"Deployment", "Service"})
_WEBHOOKS: Final = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses that our processes listen at.

    Attributes:
        host: The address under which the API server reaches the webhook.
        webhook: The webhook's port, HTTPS.
        probes: Deployment's name to the port of its probes, plain HTTP.
        metrics: Deployment's name to the port of its metrics, plain HTTP.
    """

    host: str
    webhook: int
    probes: Mapping[str, int]
    metrics: Mapping[str, int]


class Drawbridge:
    """Our processes beside a cluster, each by its Deployment's name.

    Attributes:
        endpoints: The addresses that they listen at.
        namespace: The namespace of the manifests.
    """

    def __init__(
        self,
        cluster: Access,
        objects: Iterable[Object],
        settings: Mapping[str, Any],
        *,
        folder: Path = ROOT,
        suffix: str = "",
    ) -> None:
        """Choose ports and write the settings; nothing runs yet.

        Args:
            objects: The objects of the manifests.
            settings: More settings, as in a file.
            folder: The folder of the programs.
            suffix: The end of the processes' names, if two versions run beside each other.
        """
        self._cluster = cluster
        self._folder = folder
        self._suffix = suffix
        self._objects = tuple(objects)
        self._deployments = {
            document["metadata"]["name"]: document
            for document in self._objects
            if document["kind"] == "Deployment"
        }
        (self.namespace,) = {_namespace(deployment) for deployment in self._deployments.values()}
        port, *ports = free_ports(1 + 2 * len(self._deployments))
        probes, metrics = ports[::2], ports[1::2]
        self.endpoints = Endpoints(
            host=os.environ.get(HOST_VARIABLE, "127.0.0.1"),
            webhook=port,
            probes=dict(zip(self._deployments, probes, strict=True)),
            metrics=dict(zip(self._deployments, metrics, strict=True)),
        )
        # Two installations of one cluster have settings of their own.
        self._settings_file = cluster.directory / f"{self.namespace}{suffix}.json"
        self._settings_file.write_text(json.dumps(merged(self._settings(), settings), indent=1))

    def install(self) -> None:
        """Apply the manifests, start the processes and wait until the webhook is believed."""
        self._cluster.apply(self.applied())
        for name in self._deployments:
            self.start(name)
        self.wait_ready()

    def uninstall(self) -> None:
        """Delete the applied objects, the webhook first, and end the processes."""
        self._delete(self._webhook_configurations())
        for name in self._deployments:
            self.stop(name)
        self._delete(self.applied())
        # What is applied while it is being deleted is gone a moment later, or refused.
        for object_ in self.applied():
            if object_["kind"] in _SLOW_TO_GO:
                self._cluster.wait_gone(_SLOW_TO_GO[object_["kind"]], object_["metadata"]["name"])

    def start(
        self,
        name: str,
        *,
        replica: str = "",
        command: Sequence[str | Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start the process that stands for a Deployment.

        Args:
            name: The Deployment's.
            replica: The name of the process, if there are several.
            command: The command in place of the container's.
            environment: Further variables.
        """
        deployment = self._deployments[name]
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        variables = {
            **dict(_declared_environment(container, deployment, self._suffix)),
            **self._environment(spec["serviceAccountName"]),
            **(environment or {}),
        }
        return self._cluster.run(
            replica or self._process(name), command or command_of(container), variables
        )

    def stop(self, name: str) -> None:
        """End the process that stands for a Deployment; fine when it has ended."""
        child = self._cluster.children.pop(self._process(name), None)
        if child is not None:
            child.stop()

    @contextmanager
    def configured(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """Have the processes run with more settings for a while."""
        before = self._settings_file.read_text()
        try:
            self._restart(json.dumps(merged(json.loads(before), settings), indent=1))
            yield
        finally:
            self._restart(before)

    def _restart(self, settings: str) -> None:
        self._settings_file.write_text(settings)
        for name in self._deployments:
            self.stop(name)
            self.start(name)
        self.wait_ready()

    def log(self, name: str) -> str:
        """Return the log of all runs of a process so far."""
        return self._cluster.children[self._process(name)].log.read_text()

    def metrics(self, name: str) -> str:
        """The metrics of a process, in Prometheus' text format."""
        status, text = self._get(self.endpoints.metrics[name], "/metrics", timeout_s=30)
        assert status == http.client.OK, f"{name} gives no metrics: {status} {text}"
        return text

    def decisions(self, decision: str, operation: str = "CREATE") -> int:
        """Return the number of such decisions about pods since the webhook started."""
        labels = re.escape(f'{{decision="{decision}",kind="Pod",operation="{operation}"}}')
        line = rf"^drawbridge_reviews_total{labels} (\S+)$"
        match = re.search(line, self.metrics(WEBHOOK), re.MULTILINE)
        return int(float(match[1])) if match else 0

    def memory_limit(self, name: str) -> int:
        """Return the memory limit of a Deployment's container, in bytes."""
        (container,) = self._deployments[name]["spec"]["template"]["spec"]["containers"]
        return int(Quantity(container["resources"]["limits"]["memory"]))

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings in the file of the processes."""
        settings: Mapping[str, Any] = json.loads(self._settings_file.read_text())
        return settings

    def webhook_configurations(self) -> list[Object]:
        """The webhook configurations as they are applied here."""
        return [object_ for object_ in self.applied() if object_["kind"] in _WEBHOOKS]

    def url(self, path: str = "/") -> str:
        """A path of the webhook, as the API server reaches it."""
        return f"https://{self.endpoints.host}:{self.endpoints.webhook}{path}"

    def post(
        self,
        body: bytes,
        *,
        content_type: str = "application/json",
        path: str | None = None,
        port: int | None = None,
    ) -> tuple[int, bytes]:
        """Post to the webhook as any client of its port can; returns status and body.

        Args:
            path: None for that of pods, with the key that only its configuration tells.
            port: The port of one replica; None for that of the configuration.
        """
        config = self.client_config()  # One authority vouches for all.
        url = urlsplit(config["url"])
        connection = http.client.HTTPSConnection(
            url.hostname or "", port or url.port, timeout=60, context=_trusting(config["caBundle"])
        )
        try:
            connection.request(
                "POST", path or url.path, body=body, headers={"Content-Type": content_type}
            )
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def client_config(self, webhook: str = PODS_WEBHOOK) -> Object:
        """Return the API server's present way to reach a webhook of ours."""
        for configuration in self._webhook_configurations():
            for registered in self._read(configuration)["webhooks"]:
                if registered["name"] == webhook:
                    config: Object = registered["clientConfig"]
                    return config
        raise AssertionError(f"no webhook {webhook}")

    def path(self, webhook: str = PODS_WEBHOOK) -> str:
        """The path of a webhook of ours with its key."""
        return urlsplit(self.client_config(webhook)["url"]).path

    def paths(self) -> Mapping[str, str]:
        """Return the name of each webhook of ours to its path with its key."""
        return {webhook: self.path(webhook) for webhook in WEBHOOK_PATHS}

    def wait_ready(self) -> None:
        """Wait until all processes are ready, and the webhook is trusted and evaluates expressions.

        Raises:
            AssertionError: One of them ended or is not ready; the message shows why.
        """
        deadline = time.monotonic() + READY_TIMEOUT_S
        while missing := self._missing():
            if time.monotonic() > deadline:
                tails = (
                    self._cluster.children[self._process(name)].tail() for name in self._deployments
                )
                raise AssertionError("\n".join((missing, *tails)))
            time.sleep(0.05)

    def applied(self) -> list[Object]:
        """The objects of the manifests as they are applied here."""
        return [
            self._reached_by_url(document) for document in self._objects if _is_applied(document)
        ]

    # --- inside ----------------------------------------------------------------------------------

    def _process(self, name: str) -> str:
        return f"{name}{self._suffix}"

    def _settings(self) -> dict[str, Any]:
        """Settings that differ because these are no pods."""
        parts: dict[str, Any] = {
            _SECTIONS[name]: {
                "bindAddress": self.endpoints.host,
                "probePort": port,
                "metricsPort": self.endpoints.metrics[name],
            }
            for name, port in self.endpoints.probes.items()
        }
        if WEBHOOK in self.endpoints.probes:
            parts["webhook"] |= {"port": self.endpoints.webhook, "drain": "0s"}
        return {"certificates": {"extraNames": [self.endpoints.host]}, **parts}

    def _environment(self, service_account: str) -> dict[str, str]:
        kubeconfig = self._cluster.kubeconfig_for(self.namespace, service_account)
        return {
            "KUBECONFIG": str(kubeconfig),
            "DRAWBRIDGE_CONFIG": str(self._settings_file),
            "PYTHONPATH": str(self._folder),
            "PYTHONSAFEPATH": "1",
        }

    def _missing(self) -> str:
        """Name the parts that are not ready yet; empty when all are."""
        for name in self._deployments:
            child = self._cluster.children[self._process(name)]
            status = child.exit_status
            assert status is None, f"{name} ended with {status}:\n{child.tail()}"
            status, answer = self._get(self.endpoints.probes[name], "/readyz")
            if status != http.client.OK:
                return f"{name} is not ready: {status} {answer}"
        for configuration in self._webhook_configurations():
            for webhook in self._read(configuration)["webhooks"]:
                if not self._is_believed(webhook["clientConfig"].get("caBundle", "")):
                    return f"{webhook['name']}: its caBundle does not vouch for the webhook"
                if webhook["clientConfig"]["url"].endswith(WEBHOOK_PATHS[webhook["name"]]):
                    return f"{webhook['name']}: its path has no key"
                # Routing has rules only while the bridge owns a driver.
                if not webhook.get("rules") and webhook["name"] != ROUTING_WEBHOOK:
                    return f"{webhook['name']}: its rules are not filled in"
        if WEBHOOK in self._deployments and not self._evaluates():
            return f"{WEBHOOK} evaluates no expressions"
        return ""

    def _get(self, port: int, path: str, *, timeout_s: float = 2) -> tuple[int, str]:
        """Status and text of a probe or of metrics; 0 and the reason when there is no answer."""
        connection = http.client.HTTPConnection(self.endpoints.host, port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def _evaluates(self) -> bool:
        """Return True if the webhook evaluates expressions, in a process that it starts when it is ready."""
        # One that it has not seen: answers are kept.
        selector = {"cel": {"expression": f'device.driver == "{time.monotonic_ns()}.example.com"'}}
        document = claim(exactly(selectors=[selector]))
        body = json.dumps(claim_review(document)).encode()
        try:
            status, answer = self.post(body, path=self.path(OBJECTS_WEBHOOK))
        except (OSError, http.client.HTTPException):
            return False
        return status == http.client.OK and BUSY.encode() not in answer

    def _is_believed(self, bundle: str) -> bool:
        """Return True if the webhook's certificate is one of the authority's in a caBundle."""
        if not bundle:
            return False
        try:
            urllib.request.urlopen(self.url(), timeout=2, context=_trusting(bundle)).close()
        except urllib.error.HTTPError as answer:
            answer.close()  # A GET is not what it wants; that it answers is enough.
        except OSError:
            return False
        return True

    def _reached_by_url(self, document: Object) -> Object:
        if document["kind"] not in _WEBHOOKS:
            return document
        changed = copy.deepcopy(document)
        for webhook in changed["webhooks"]:
            del webhook["clientConfig"]["service"]
            webhook["clientConfig"]["url"] = self.url(WEBHOOK_PATHS[webhook["name"]])
        return changed

    def _webhook_configurations(self) -> list[Object]:
        return [document for document in self._objects if document["kind"] in _WEBHOOKS]

    def _read(self, document: Object) -> Object:
        return self._cluster.get(document["kind"], document["metadata"]["name"])

    def _delete(self, objects: Iterable[Object]) -> None:
        flags = ("--ignore-not-found", "--wait=false")
        self._cluster.kubectl("delete", *flags, "-f", "-", input=stream(objects))


def install_drawbridge(
    cluster: Access, *, manifests: Path = MANIFESTS, settings: Mapping[str, Any] | None = None
) -> Drawbridge:
    """Install Drawbridge and return when its webhook answers.

    Args:
        cluster: The cluster; its API server must reach this machine, see `HOST_VARIABLE`.
        manifests: A folder for `kubectl kustomize`.
        settings: More settings, as in a file: `{"controllers": {"auditPeriod": "1s"}}`.
    """
    drawbridge = Drawbridge(cluster, rendered(cluster, manifests), settings or {})
    drawbridge.install()
    return drawbridge


def command_line(
    cluster: Access,
    *arguments: str | Path,
    input: str | None = None,  # noqa: A002 - as in kubectl
) -> subprocess.CompletedProcess[str]:
    """Run `drawbridge` against a cluster, as a person with the cluster's kubeconfig does."""
    return subprocess.run(
        [sys.executable, "-m", "cli", *arguments],
        cwd=ROOT,
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        input=input,
        capture_output=True,
        text=True,
        check=False,
    )


def rendered(cluster: Access, manifests: Path = MANIFESTS) -> list[Object]:
    """The objects of a kustomization, as `kubectl apply -k` would apply them."""
    text = cluster.kubectl("kustomize", manifests).stdout
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both, `over` winning, maps merged at every depth."""
    both = dict(base)
    for name, value in over.items():
        inner = both.get(name)
        if isinstance(value, Mapping) and isinstance(inner, Mapping):
            both[name] = merged(inner, value)
        else:
            both[name] = value
    return both


def _trusting(bundle: str) -> ssl.SSLContext:
    """A client's context that trusts the certificates of a caBundle, and nothing else."""
    return ssl.create_default_context(cadata=base64.b64decode(bundle).decode())


def _is_applied(document: Object) -> bool:
    return document["kind"] not in _REPLACED


def command_of(container: Mapping[str, Any]) -> tuple[str, ...]:
    """A container's command, from this environment instead of the image's."""
    words: list[str] = [*container.get("command", ()), *container.get("args", ())]
    here = Path(sys.executable).parent / words[0]
    return (str(here) if here.exists() else words[0], *words[1:])


def _declared_environment(
    container: Mapping[str, Any], deployment: Object, suffix: str
) -> Iterator[tuple[str, str]]:
    """The container's own environment, with the values that the kubelet would fill in."""
    fields = {
        "metadata.namespace": _namespace(deployment),
        "metadata.name": f"{deployment['metadata']['name']}{suffix}-0",
        "status.podIP": "127.0.0.1",
    }
    for variable in container.get("env", ()):
        if "value" in variable:
            yield variable["name"], variable["value"]
        else:
            yield variable["name"], fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]


def _namespace(document: Object) -> str:
    return str(document["metadata"].get("namespace", ""))
