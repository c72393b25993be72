"""The cluster that is attacked: two drivers with thousands of devices, one of them owned by the bridge."""

import base64
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, Self

from admission.webhook_configuration import ROUTING_WEBHOOK
from e2e import inventory
from e2e.access import stream
from e2e.attackers import expressions
from e2e.attackers.compromised import ACCOUNTS
from e2e.attackers.target import Target, target_in
from e2e.bridge import Bridge
from e2e.cluster import Cluster
from e2e.credentials import write_secret
from e2e.drawbridge import Drawbridge, command_line, install_drawbridge
from e2e.memory_growth import resident_mib
from e2e.objects import claim_template
from e2e.processes import Child
from e2e.users import EDITOR, PODS_ONLY, add_user

OBSERVER_MANIFESTS: Final = Path(__file__).parents[2] / "manifests" / "observer"
OWNED: Final = inventory.HAMI
OTHER: Final = inventory.EXAMPLE
MIXED: Final = "any-gpu"
"""A class of devices of both drivers."""
HONEST: Final = "honest"
HOSTILE: Final = "hostile"
"""Namespaces."""
TEMPLATE: Final = "gpu"
LONG_TEMPLATE: Final = "gpu-of-a-long-selector"
REPLICAS: Final = ("a", "b")
PREFIX: Final = "attack"
NODE: Final = f"{PREFIX}-0"
PER_NODE: Final = 32
"""Devices of each driver on a node."""
NODE_LEASE_S: Final = 240
"""The Lease of simulated nodes, so long that their heartbeats take nothing."""
TIMEOUT_S: Final = 120.0
SAMPLE_PAUSE_S: Final = 1.0


class Used(NamedTuple):
    """The resources that our processes took together.

    Attributes:
        cpu: CPU seconds in a second.
        memory_mib: The most that was resident at a time.
    """

    cpu: float
    memory_mib: int


class Stage:
    """A cluster with Drawbridge, its bridge, and users."""

    def __init__(self, cluster: Cluster, drawbridge: Drawbridge, bridge: Bridge) -> None:
        self.cluster = cluster
        self.bridge = bridge
        self._drawbridge = drawbridge
        self._files: tuple[str, str] | None = None

    def prepare(self, devices: int) -> None:
        """Create users, nodes and devices, and have the bridge own a driver."""
        cluster = self.cluster
        mixed = f'device.driver in ["{OWNED}", "{OTHER}"]'
        cluster.apply([*inventory.device_classes(), inventory.device_class(MIXED, mixed)])
        count = max(1, devices // PER_NODE)
        size = min(devices, PER_NODE)
        cluster.add_nodes(
            inventory.kwok_nodes(count, prefix=PREFIX),
            lambda node: [
                *inventory.hami_gpus(node, gpus=size),
                *inventory.example_gpus(node, gpus=size),
            ],
        )
        for namespace, user in ((HONEST, EDITOR), (HOSTILE, EDITOR), (HOSTILE, PODS_ONLY)):
            if cluster.find("namespaces", namespace) is None:
                cluster.kubectl("create", "namespace", namespace)
            add_user(cluster, namespace, user)
        cluster.wait_for("serviceaccounts", "default", HONEST)
        credentials = cluster.directory / "node"
        credentials.mkdir()
        cluster.write_kubelet_credentials(credentials, NODE, "127.0.0.1")
        self._files = _write_files(credentials / "kubelet.kubeconfig")
        owning = command_line(cluster, "bridge", "own", OWNED, "--apply")
        assert owning.returncode == 0, owning.stderr
        cluster.wait_until(self._is_routing, "pods are routed", timeout_s=TIMEOUT_S)

    def target(self, devices: int) -> Target:
        """Return the facts that attackers know of the cluster now."""
        accounts = {who: (HOSTILE, who) for who in (PODS_ONLY, EDITOR)}
        accounts |= {HONEST: (HONEST, EDITOR), **ACCOUNTS}
        return target_in(
            self.cluster,
            self._drawbridge,
            HOSTILE,
            accounts,
            device_class=OWNED,
            driver=OWNED,
            mixed_class=MIXED,
            other_driver=OTHER,
            node=NODE,
            node_files=self._files,
            devices=min(devices, PER_NODE),
        )

    def create_templates(self) -> None:
        """Create the templates of honest claims, once the bridge gives their devices."""
        plain = claim_template(TEMPLATE, OWNED)
        long = claim_template(LONG_TEMPLATE, OWNED)
        (request,) = long["spec"]["spec"]["devices"]["requests"]
        request["exactly"]["selectors"] = [{"cel": {"expression": expressions.honest(OWNED)}}]
        for template in (plain, long):  # Each device takes more shares than there are pods.
            (request,) = template["spec"]["spec"]["devices"]["requests"]
            request["exactly"]["capacity"] = {"requests": {"memory": "1Gi", "cores": "1"}}
        objects = stream([plain, long])
        self.cluster.kubectl("apply", "-n", HONEST, "-f", "-", input=objects)

    @contextmanager
    def without_webhooks(self) -> Iterator[None]:
        """Have the API server call no webhook of ours for a block."""
        for document in self._drawbridge.webhook_configurations():
            self.cluster.delete(document["kind"], document["metadata"]["name"])
        try:
            yield
        finally:
            self.cluster.apply(self._drawbridge.webhook_configurations())
            self._drawbridge.wait_ready()
            self.cluster.wait_until(self._is_routing, "pods are routed", timeout_s=TIMEOUT_S)

    def _is_routing(self) -> bool:
        """Return True if the API server asks us for the scheduler of a pod."""
        for document in self._drawbridge.webhook_configurations():
            stored = self.cluster.get(document["kind"], document["metadata"]["name"])
            for webhook in stored["webhooks"]:
                if webhook["name"] == ROUTING_WEBHOOK:
                    return bool(webhook.get("rules"))
        return False


class Watch:
    """A measurement of our processes during a block: `with Watch(cluster) as watch`; then `watch.used`."""

    def __init__(self, cluster: Cluster) -> None:
        self._children = [
            child
            for name, child in cluster.children.items()
            if name.startswith(("drawbridge-", "sidecar-", "scheduler-"))
        ]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._memory_mib = 0
        self._began_s = self._began_cpu_s = 0.0
        self.used = Used(0.0, 0)

    def __enter__(self) -> Self:
        self._began_s, self._began_cpu_s = time.monotonic(), self._cpu_s()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        took_s, cpu_s = time.monotonic() - self._began_s, self._cpu_s() - self._began_cpu_s
        self._over.set()
        self._thread.join()
        self.used = Used(cpu_s / took_s, self._memory_mib)

    def _sample(self) -> None:
        while True:
            mib = sum(map(resident_mib, self._children))
            self._memory_mib = max(self._memory_mib, mib)
            if self._over.wait(SAMPLE_PAUSE_S):
                return

    def _cpu_s(self) -> float:
        return sum(map(cpu_s, self._children))


def cpu_s(child: Child) -> float:
    """Return CPU seconds of a program and of those that it started, ended ones included."""
    ticks = 0
    if (record := child.record) is not None:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # It has ended.
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == record.pid:  # It leads the process group.
                    ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def staged(devices: int) -> Iterator[Stage]:
    """Start a cluster with so many devices of each driver.

    Yields:
        The cluster, with Drawbridge and two replicas of the bridge at work.
    """
    with TemporaryDirectory(prefix="drawbridge-attack-") as folder, ExitStack() as undo:
        cluster = undo.enter_context(
            Cluster(
                Path(folder) / "cluster",
                node_lease_s=NODE_LEASE_S,
                controller_manager_flags=(f"--node-monitor-grace-period={3 * NODE_LEASE_S}s",),
            )
        )
        drawbridge = install_drawbridge(cluster)
        install_drawbridge(cluster, manifests=OBSERVER_MANIFESTS)
        bridge = Bridge(cluster, drivers=())
        bridge.install()
        for replica in REPLICAS:
            bridge.start(replica)
        bridge.wait_working(*REPLICAS)
        stage = Stage(cluster, drawbridge, bridge)
        stage.prepare(devices)
        stage.create_templates()
        yield stage


def _write_files(kubeconfig: Path) -> tuple[str, str]:
    """Write certificate and key of a kubeconfig to files beside it; return their paths."""
    (user,) = json.loads(kubeconfig.read_text())["users"]
    paths = []
    for kind in ("client-certificate", "client-key"):
        path = kubeconfig.with_name(kind)
        write_secret(path, base64.b64decode(user["user"][f"{kind}-data"]))
        paths.append(str(path))
    return paths[0], paths[1]
