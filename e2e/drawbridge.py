"""Drawbridge in a cluster without images: the manifests as they are, processes in place of pods.

What a person would apply is applied: namespace, accounts, roles, webhook configuration. Only two
things are different, since nothing in these clusters can run an image or route to a Service:

* Each Deployment becomes one process of this machine. It runs the command of the Deployment's
  container, and speaks to the API server with a token of the Deployment's own service account, so
  that the roles in the manifests are what is tested.
* A webhook's `clientConfig.service` becomes a `url`. The authority in `caBundle` is still written
  by our controller.

What the processes are told beyond their manifests is `_local_environment`, nowhere else.
"""

import base64
import copy
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.access import Access, Object
from e2e.cluster import free_port
from e2e.processes import Child

ROOT: Final = Path(__file__).parent.parent
MANIFESTS: Final = ROOT / "manifests" / "base"

HOST_VARIABLE: Final = "DRAWBRIDGE_E2E_HOST"
"""Under which address the API server reaches this machine, where that is not loopback."""

READY_TIMEOUT_S: Final = 30.0

_REPLACED: Final = frozenset({"Deployment", "Service"})
_WEBHOOKS: Final = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})


class Drawbridge:
    """Our processes beside a cluster, each by its Deployment's name.

    Attributes:
        host: Where the webhook listens.
        port: Likewise.
        namespace: Of the manifests.
    """

    def __init__(self, cluster: Access, objects: Iterable[Object]) -> None:
        self.host = os.environ.get(HOST_VARIABLE, "127.0.0.1")
        self.port = free_port()
        self._cluster = cluster
        self._objects = tuple(objects)
        self._deployments = {
            each["metadata"]["name"]: each for each in self._objects if each["kind"] == "Deployment"
        }
        (self.namespace,) = {_namespace(each) for each in self._deployments.values()}
        self._settings: dict[str, str] = {}

    def install(self, settings: Mapping[str, str]) -> None:
        """Apply the manifests, start the processes and wait until the webhook is believed."""
        self._settings = dict(settings)
        self._cluster.apply(self.applied())
        for name in self._deployments:
            self.start(name)
        self.wait_ready()

    def uninstall(self) -> None:
        """Delete what was applied, the webhook first, and end the processes."""
        for configuration in self._webhook_configurations():
            self._delete(configuration)
        for name in self._deployments:
            self.stop(name)
        for each in reversed(self.applied()):
            self._delete(each)

    def start(self, name: str) -> Child:
        """Start the process that stands for a Deployment."""
        deployment = self._deployments[name]
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        account = spec["serviceAccountName"]
        environment = {
            **dict(_declared_environment(container, deployment)),
            **self._local_environment(self._cluster.kubeconfig_for(self.namespace, account)),
            **self._settings,
        }
        return self._cluster.run(name, _command(container), environment)

    def stop(self, name: str) -> None:
        """End the process that stands for a Deployment; fine when it has ended."""
        child = self._cluster.children.pop(name, None)
        if child is not None:
            child.stop()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return when the API server has been given an authority that vouches for the webhook."""
        self._cluster.wait_until(
            self._is_ready,
            "the webhook answers with a certificate of the authority in its caBundle",
            timeout_s=timeout_s,
        )

    def applied(self) -> list[Object]:
        """The objects of the manifests as they are applied here."""
        return [self._reached_by_url(each) for each in self._objects if _is_applied(each)]

    # --- inside ----------------------------------------------------------------------------------

    def _local_environment(self, kubeconfig: Path) -> dict[str, str]:
        """What a process must be told because it is no pod."""
        return {
            "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": str(ROOT),
            "DRAWBRIDGE_LISTEN": f"{self.host}:{self.port}",
            "DRAWBRIDGE_SERVING_NAMES": self.host,
        }

    def _is_ready(self) -> bool:
        for name in self._deployments:
            child = self._cluster.children[name]
            assert child.exit_status is None, f"{name} ended:\n{child.tail()}"
        return all(
            self._answers(webhook["clientConfig"].get("caBundle"))
            for configuration in self._webhook_configurations()
            for webhook in self._read(configuration)["webhooks"]
        )

    def _reached_by_url(self, document: Object) -> Object:
        if document["kind"] not in _WEBHOOKS:
            return document
        changed = copy.deepcopy(document)
        for webhook in changed["webhooks"]:
            service = webhook["clientConfig"].pop("service")
            webhook["clientConfig"]["url"] = self._url(service.get("path", "/"))
        return changed

    def _url(self, path: str) -> str:
        return f"https://{self.host}:{self.port}{path}"

    def _webhook_configurations(self) -> list[Object]:
        return [each for each in self._objects if each["kind"] in _WEBHOOKS]

    def _read(self, document: Object) -> Object:
        return self._cluster.get(document["kind"], document["metadata"]["name"])

    def _delete(self, document: Object) -> None:
        namespace = ("--namespace", _namespace(document)) if _namespace(document) else ()
        target = (document["kind"], document["metadata"]["name"])
        flags = ("--ignore-not-found", "--wait=false")
        self._cluster.kubectl("delete", *target, *namespace, *flags)

    def _answers(self, authority: str | None) -> bool:
        """Whether the webhook is ready and its certificate is one of the authority's."""
        if not authority:
            return False
        try:
            context = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
            with urllib.request.urlopen(self._url("/readyz"), timeout=2, context=context) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


def install_drawbridge(
    cluster: Access, *, manifests: Path = MANIFESTS, settings: Mapping[str, str] | None = None
) -> Drawbridge:
    """Install Drawbridge and return when its webhook answers.

    Args:
        cluster: Where; the API server must reach this machine, see `HOST_VARIABLE`.
        manifests: A folder for `kubectl kustomize`.
        settings: More environment for all processes, such as short leases.
    """
    drawbridge = Drawbridge(cluster, rendered(cluster, manifests))
    drawbridge.install(settings or {})
    return drawbridge


def rendered(cluster: Access, manifests: Path = MANIFESTS) -> list[Object]:
    """The objects of a kustomization, as `kubectl apply -k` would apply them."""
    text = cluster.kubectl("kustomize", manifests).stdout
    return [document for document in yaml.safe_load_all(text) if document]


def _is_applied(document: Object) -> bool:
    return document["kind"] not in _REPLACED


def _command(container: Mapping[str, Any]) -> tuple[str, ...]:
    """The container's command, from this environment instead of the image's."""
    words: list[str] = [*container.get("command", ()), *container.get("args", ())]
    here = Path(sys.executable).parent / words[0]
    return (str(here) if here.exists() else words[0], *words[1:])


def _declared_environment(
    container: Mapping[str, Any], deployment: Object
) -> Iterator[tuple[str, str]]:
    """The container's own environment, with what the kubelet would fill in."""
    fields = {
        "metadata.namespace": _namespace(deployment),
        "metadata.name": f"{deployment['metadata']['name']}-0",
        "status.podIP": "127.0.0.1",
    }
    for variable in container.get("env", ()):
        if "value" in variable:
            yield variable["name"], variable["value"]
        else:
            yield variable["name"], fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]


def _namespace(document: Object) -> str:
    return str(document["metadata"].get("namespace", ""))
