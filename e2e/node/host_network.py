"""Pods of ours on a real node that has no pod network.

Only what that lacks is changed: pods use the host's network, so each gets ports of its own and is told
where the API server is, and an old pod ends before a new one starts, since both have the same ports.
Nothing routes Services, so that of the webhook has the port of its pod, and its name is known to all pods.

`python -m e2e.node.host_network FILE` is the same as a post-renderer of Helm.
"""

import copy
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml

from e2e.access import Access, Object
from testing.ports import free_ports

WORKLOADS: Final = ("DaemonSet", "Deployment")
WEBHOOKS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
PORTS: Final = {
    "https": "DRAWBRIDGE_PORT",
    "probes": "DRAWBRIDGE_PROBE_PORT",
    "metrics": "DRAWBRIDGE_METRICS_PORT",
}
"""Port of a container to the variable that sets it."""
SCHEDULER_PORT: Final = "scheduler"
"""Port of a container that its command line sets."""

ENFORCE: Final = "pod-security.kubernetes.io/enforce"
NAMESPACE: Final = "drawbridge-system"
WEBHOOK_HOST: Final = f"drawbridge-webhook.{NAMESPACE}.svc"
PLUGIN: Final = "host-network"
_PLUGIN_TEXT: Final = """\
apiVersion: v1
type: postrenderer/v1
name: {name}
version: 0.1.0
runtime: subprocess
runtimeConfig: {{platformCommand: [{{command: {command}, args: {arguments}}}]}}
"""


class HostNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """The host's network as our pods see it on a node.

    Attributes:
        address: The address of the node.
        server: Variables that tell where the API server is.
        https: Port of the webhook.
        ports: Name of a workload to the ports of its probes, of its metrics and of its scheduler.
    """

    address: str
    server: Mapping[str, str]
    https: int
    ports: Mapping[str, Mapping[str, int]]

    def adapted(self, document: Object) -> Object:
        """Return an object as the node can have it."""
        adapted = copy.deepcopy(document)
        match adapted["kind"]:
            case "Namespace":
                # Its pods may not use the host's network otherwise.
                adapted["metadata"].setdefault("labels", {})[ENFORCE] = "privileged"
            case "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration":
                for webhook in adapted["webhooks"]:
                    webhook["clientConfig"]["service"]["port"] = self.https
            case "Service":
                (port,) = adapted["spec"]["ports"]
                port["port"] = self.https
            case "Deployment":
                adapted["spec"] |= {"replicas": 1, "strategy": {"type": "Recreate"}}
                self._adapt_pods(adapted)
            case "DaemonSet":
                adapted["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
                self._adapt_pods(adapted)
            case "Job":
                # That of a hook, without ports.
                spec = adapted["spec"]["template"]["spec"]
                spec["hostNetwork"] = True
                for container in spec["containers"]:
                    container["env"] = [*container.get("env", ()), *_variables(self.server)]
            case _:
                pass
        return adapted

    def _adapt_pods(self, workload: Object) -> None:
        spec = workload["spec"]["template"]["spec"]
        spec["hostNetwork"] = True
        spec["hostAliases"] = [{"ip": self.address, "hostnames": [WEBHOOK_HOST]}]
        own = {"https": self.https, **self.ports[workload["metadata"]["name"]]}
        for container in spec["containers"]:
            self._adapt_container(container, own)

    def _adapt_container(self, container: Object, own: Mapping[str, int]) -> None:
        variables = dict(self.server)
        for port in container["ports"]:
            port["containerPort"] = number = own[port["name"]]
            if port["name"] == SCHEDULER_PORT:
                listen = (f"--bind-address={self.address}", f"--secure-port={number}")
                container["args"] = [*container["args"], *listen]
            else:
                variables[PORTS[port["name"]]] = str(number)
        address = {
            "name": "DRAWBRIDGE_BIND",
            "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}},
        }
        container["env"] = [*container.get("env", ()), address, *_variables(variables)]


def _variables(values: Mapping[str, str]) -> list[Object]:
    return [{"name": name, "value": value} for name, value in values.items()]


def host_network(cluster: Access, node: str, workloads: Iterable[str]) -> HostNetwork:
    """Return the settings for the pods of some workloads on a node."""
    server = urlsplit(str(cluster.entry()["server"]))
    names = list(workloads)
    kinds = ("probes", "metrics", SCHEDULER_PORT)
    https, *others = free_ports(1 + len(kinds) * len(names))
    own_ports = zip(*(iter(others),) * len(kinds), strict=True)
    return HostNetwork(
        address=next(
            address["address"]
            for address in cluster.get("nodes", node)["status"]["addresses"]
            if address["type"] == "InternalIP"
        ),
        server={
            "KUBERNETES_SERVICE_HOST": str(server.hostname),
            "KUBERNETES_SERVICE_PORT": str(server.port),
        },
        https=https,
        ports={
            name: dict(zip(kinds, ports, strict=True))
            for name, ports in zip(names, own_ports, strict=True)
        },
    )


def write_plugin(network: HostNetwork, folder: Path) -> None:
    """Write the plugin of Helm, to be named by `--post-renderer`, into a folder of plugins."""
    plugin = folder / PLUGIN
    plugin.mkdir(parents=True)
    file = plugin / "network.json"
    file.write_bytes(msgspec.json.encode(network))
    arguments = json.dumps(["-m", "e2e.node.host_network", str(file)])
    text = _PLUGIN_TEXT.format(name=PLUGIN, command=json.dumps(sys.executable), arguments=arguments)
    (plugin / "plugin.yaml").write_text(text)


def main() -> None:
    """Adapt the objects of standard input."""
    network = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=HostNetwork)
    documents: Iterable[Any] = yaml.load_all(sys.stdin, Loader=yaml.CSafeLoader)
    for document in filter(None, documents):
        # JSON quotes each text, which a YAML of another version reads likewise.
        print("---", json.dumps(network.adapted(document)), sep="\n")


if __name__ == "__main__":
    main()
