"""The node driver beside a real node: its manifests as they are, a process in place of its pod.

The process runs the command of the DaemonSet's container on the node, with the paths that the pod would
mount, and speaks with a token of the DaemonSet's account that is bound to that node, as the kubelet
would mount it. So roles and node restriction of the manifests are what is tested.
"""

import http.client
import json
import re
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.access import PATIENCE, Access, Object, stream
from e2e.credentials import kubeconfig, write_secret
from e2e.drawbridge import command_of, rendered
from e2e.node.node import Node
from e2e.processes import Child
from testing.documents import api_object
from testing.ports import free_ports

ROOT: Final = Path(__file__).parent.parent.parent
MANIFESTS: Final = ROOT / "manifests" / "driver"
DRIVER: Final = "gpu.drawbridge.internal"
NAMESPACE: Final = "drawbridge-driver"
PLUGINS: Final = "/var/lib/kubelet/plugins"
STATE: Final = f"{PLUGINS}/{DRIVER}"
REGISTRY: Final = "/var/lib/kubelet/plugins_registry"
CDI: Final = "/run/cdi"
"""/var/run is a link, and would lead out of the node."""
TIMEOUT_S: Final = 90.0

Pools = Sequence[Mapping[str, Any]]


class NodeDriver:
    """The driver on one node.

    Attributes:
        node: The node that it runs on.
        name: The driver's.
    """

    def __init__(
        self, cluster: Access, node: Node, *, settings: Mapping[str, Any], name: str = DRIVER
    ) -> None:
        """Name it; nothing is started yet.

        Args:
            settings: The settings of the section `driver`, as in a file.
            name: The name of the driver; with another one the manifests are renamed, as docs/driver.md tells.
        """
        self.node = node
        self.name = name
        self._prefix = "" if name == DRIVER else f"{name.partition('.')[0]}-"
        self._namespace = f"drawbridge-{self._prefix}driver"
        self._cluster = cluster
        self._objects = [self._renamed(document) for document in rendered(cluster, MANIFESTS)]
        (self._daemon_set,) = (
            document for document in self._objects if document["kind"] == "DaemonSet"
        )
        self._settings = {"name": name, **settings}
        self._inventory = node.folder / f"{self._prefix}inventory"
        self._kubeconfig: Path | None = None
        self._ports: dict[str, tuple[int, int]] = {}

    def install(self) -> None:
        """Apply the manifests, all but those that need an image."""
        self._cluster.apply(
            [
                document
                for document in self._objects
                if document["kind"] not in {"DaemonSet", "ConfigMap"}
            ]
        )
        # The API server enforces a policy when it has compiled it.
        self._cluster.wait_until(self._is_restricted, "the node restriction is in force")

    def uninstall(self) -> None:
        """Delete the applied objects."""
        flags = ("--ignore-not-found", "--wait=false")
        objects = [document for document in self._objects if document["kind"] != "ConfigMap"]
        self._cluster.kubectl("delete", *flags, "-f", "-", input=stream(objects))

    def declare(self, pools: Pools) -> None:
        """Write the inventory of the node."""
        self._inventory.mkdir(exist_ok=True)
        document = {
            "apiVersion": "drawbridge.internal/v1alpha1",
            "kind": "DeviceInventory",
            "pools": list(pools),
        }
        partial = self._inventory / ".partial"
        partial.write_text(yaml.safe_dump(document))
        partial.rename(self._inventory / f"{self.node.name}.yaml")

    def start(
        self,
        name: str = "driver",
        *,
        command: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Child:
        """Start an instance.

        Args:
            name: The name of the process, if there are several.
            command: The command in place of the DaemonSet's.
            environment: Further variables.
            settings: The settings of the section `driver`, over those of this driver.
        """
        spec = self._daemon_set["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        fields = {"spec.nodeName": self.node.name, "metadata.uid": str(uuid.uuid4())}
        variables = {
            variable["name"]: fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            for variable in container["env"]
        }
        self._ports[name] = self._ports.get(name) or _two_ports()
        probes, metrics = self._ports[name]
        section = {"bindAddress": "127.0.0.1", "probePort": probes, "metricsPort": metrics}
        file = self.node.folder / f"{self._prefix}{name}.json"
        file.write_text(json.dumps({"driver": {**section, **self._settings, **settings}}))
        variables |= {
            "KUBECONFIG": str(self.kubeconfig()),
            "DRAWBRIDGE_CONFIG": str(file),
            "DRAWBRIDGE_INVENTORY": str(self._inventory),
            "PYTHONPATH": str(ROOT),
        }
        words = tuple(command) if command is not None else command_of(container)
        return self.node.run(
            f"{self._prefix}{name}", *words, environment={**variables, **(environment or {})}
        )

    def stop(self, name: str = "driver") -> None:
        """End an instance as a DaemonSet would."""
        self.node.stop_program(f"{self._prefix}{name}")

    def ensure(self, pools: Pools | None = None) -> None:
        """Have exactly one instance, ready, with an inventory; clear away anything that a story left behind."""
        self.declare(INVENTORY if pools is None else pools)
        child = self._cluster.children.get(self._child("driver"))
        if child is None or child.exit_status is not None:
            self.stop()
            self.start()
        self.wait_ready()
        declared = {
            device["name"] for pool in pools or INVENTORY for device in pool.get("devices", ())
        }
        self._cluster.wait_until(
            lambda: set(self.published()) == declared, "the inventory of the story is published"
        )

    def crash(self, name: str = "driver") -> None:
        """Kill an instance as the kernel would."""
        child = self._cluster.children.pop(self._child(name))
        child.signal(signal.SIGKILL)
        child.wait(TIMEOUT_S)

    def wait_crashed(self, name: str = "driver") -> None:
        """Wait until an instance has killed itself."""
        child = self._cluster.children.pop(self._child(name))
        assert child.wait(PATIENCE * TIMEOUT_S), f"{name} is alive:\n{child.tail()}"
        assert child.exit_status == -signal.SIGKILL, child.tail()

    def wait_ready(self, name: str = "driver") -> None:
        """Wait until an instance is ready."""
        child = self._cluster.children[self._child(name)]

        def is_ready() -> bool:
            assert child.exit_status is None, f"{name} ended:\n{child.tail()}"
            return self.probe("/readyz", name)[0] == http.client.OK

        self._cluster.wait_until(is_ready, f"{name} is ready: {child.log}", timeout_s=TIMEOUT_S)

    def probe(self, path: str, name: str = "driver") -> tuple[int, str]:
        """Status and text of a probe; 0 and the reason when there is no answer."""
        probes, metrics = self._ports[name]
        port = metrics if path == "/metrics" else probes
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def kubeconfig(self) -> Path:
        """A kubeconfig with a token of the account that is bound to the node."""
        if self._kubeconfig is None:
            self._kubeconfig = self.kubeconfig_of(self.node.name)
        return self._kubeconfig

    def kubeconfig_of(self, node: str) -> Path:
        """The same for any node."""
        path = self._cluster.directory / f"{self.name}.{node}.kubeconfig"
        write_secret(path, kubeconfig(self._cluster.entry(), {"token": self.token_of(node)}))
        return path

    def token_of(self, node: str) -> str:
        """A token of the account that is bound to a node."""
        bound = ("--bound-object-kind=Node", f"--bound-object-name={node}", "--duration=24h")
        words = ("create", "token", f"--namespace={self._namespace}", self._namespace, *bound)
        return self._cluster.kubectl(*words).stdout.strip()

    def report_fault(self, device: str, kind: str, message: str = "") -> None:
        """Report a fault of a device, as another program on the node would."""
        (self.node.path(f"{self.state}/faults") / device).write_text(f"{kind}\n{message}\n")

    def end_fault(self, device: str) -> None:
        """Report that a device is healthy again."""
        (self.node.path(f"{self.state}/faults") / device).unlink()

    # --- what is there -------------------------------------------------------------------------

    def slices(self) -> list[Object]:
        """The node's slices of the driver."""
        return [
            object_
            for object_ in self._cluster.objects("resourceslices")
            if object_["spec"]["driver"] == self.name
            and object_["spec"].get("nodeName") == self.node.name
        ]

    def published(self) -> dict[str, Object]:
        """Device to its published form."""
        return {
            device["name"]: device
            for slice_ in self.slices()
            for device in slice_["spec"].get("devices") or ()
        }

    def taints(self) -> dict[str, list[str]]:
        """Device to keys of its taints; those without any are left out."""
        return {
            name: [taint["key"] for taint in device["taints"]]
            for name, device in self.published().items()
            if device.get("taints")
        }

    def checkpoint(self) -> dict[str, Object]:
        """Uid to record of the prepared claims."""
        path = self.node.path(f"{self.state}/checkpoint")
        if not path.exists():
            return {}
        _, body, *_ = path.read_text().split("\n")
        claims: dict[str, Object] = json.loads(body).get("claims", {})
        return claims

    def specs(self) -> list[str]:
        """Names of the driver's CDI specs."""
        folder = self.node.path(CDI)
        if not folder.is_dir():
            return []
        return sorted(path.name for path in folder.iterdir() if self.name in path.name)

    def sockets(self) -> list[str]:
        """The driver's sockets."""
        folders = (self.node.path(REGISTRY), self.node.path(self.state))
        return sorted(
            str(path)
            for folder in folders
            if folder.is_dir()
            for path in folder.glob("*.sock")
            if self.name in str(path)
        )

    def metric(self, name: str, labels: str = "") -> float:
        """A sample of the driver's metrics; 0 if there is none."""
        _, text = self.probe("/metrics")
        outcome = re.search(rf"^{name}{re.escape(labels)} (\S+)$", text, re.MULTILINE)
        return float(outcome[1]) if outcome else 0.0

    @property
    def state(self) -> str:
        """The folder of checkpoint, lock and sockets, on the node."""
        return f"{PLUGINS}/{self.name}"

    def is_clean(self) -> bool:
        """Return True if nothing is prepared, down to the CDI folder."""
        return not self.checkpoint() and not self.specs()

    def _child(self, name: str) -> str:
        """Return the name of an instance among the programs of the cluster."""
        return f"{self.node.name}-{self._prefix}{name}"

    def _renamed(self, document: Object) -> Object:
        """An object of the manifests for a driver of this name, beside one of the usual name."""
        text = json.dumps(document).replace(DRIVER, self.name)
        renamed: Object = json.loads(text.replace(NAMESPACE, self._namespace))
        return renamed

    def _is_restricted(self) -> bool:
        """Return True if a token of another node is refused; it is the last thing that comes into force."""
        document = api_object(
            "ResourceSlice",
            "probe",
            spec={
                "driver": self.name,
                "nodeName": "nowhere",
                "pool": {"name": "probe", "generation": 1, "resourceSliceCount": 1},
                "devices": [],
            },
        )
        arguments = ("create", "--dry-run=server", "-f", "-")
        output = self._cluster.kubectl(
            *arguments, input=stream(document), kubeconfig=self.kubeconfig(), check=False
        )
        return output.returncode != 0 and "may not write slices of nowhere" in output.stderr


def gpu(name: str, number: int, **fields: Any) -> Object:
    """A declared GPU that can be shared, as docs/driver.md recommends."""
    return {
        "name": name,
        "shared": True,
        "attributes": {
            "type": "gpu",
            "uuid": f"uuid-of-{name}",
            "productName": "Example X1",
            "resource.kubernetes.io/pcieRoot": f"pci0000:{number:02}",
        },
        "capacity": {
            "memory": {"value": "80Gi", "default": "80Gi", "min": "1Mi", "step": "1Mi"},
            "cores": {"value": 100, "default": 100, "min": 0, "step": 1},
        },
        "deviceNodes": [{"path": f"/dev/{name}", "hostPath": "/dev/null"}],
        **fields,
    }


def nic(name: str, number: int) -> Object:
    """A declared NIC."""
    return {
        "name": name,
        "attributes": {
            "type": "nic",
            "uuid": f"uuid-of-{name}",
            "rdma": True,
            "resource.kubernetes.io/pcieRoot": f"pci0000:{number:02}",
        },
        "network": {"interfaceName": name, "ips": ["192.0.2.5/24"]},
    }


def part(name: str, memory: str, card: str = "card", kind: str = "mig") -> Object:
    """A declared part of a card."""
    return {
        "name": name,
        "attributes": {"type": kind, "uuid": f"uuid-of-{name}", "parentUUID": card},
        "capacity": {"memory": memory},
        "consumes": [{"counterSet": card, "counters": {"memory": memory}}],
    }


INVENTORY: Final[Pools] = (
    {"devices": [gpu("gpu-0", 0), gpu("gpu-1", 1)]},
    {"name": "nics", "devices": [nic("eth0", 0), nic("eth1", 1)]},
    {
        "name": "parts",
        "counterSets": [{"name": "card", "counters": {"memory": "80Gi"}}],
        "devices": [
            part("card", "80Gi", kind="gpu-card"),
            part("part-0", "40Gi"),
            part("part-1", "40Gi"),
        ],
    },
)
"""Two GPUs that are shared, a NIC beside each, and a card in parts."""


def python(*words: str) -> tuple[str, ...]:
    """A command line of this environment's Python."""
    return (sys.executable, *words)


def environment_of(text: str) -> dict[str, str]:
    """The environment that the box program printed."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _two_ports() -> tuple[int, int]:
    """Of the probes and of the metrics."""
    probes, metrics = free_ports(2)
    return probes, metrics
