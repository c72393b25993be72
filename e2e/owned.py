"""The bridge on a control plane of its own, as the owner of a driver behind the fence.

A fence that is deleted and created again keeps an old parameter, so all its stories share one cluster.
The API server writes an audit log of all claims.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from e2e import inventory
from e2e.access import Access, Object, stream
from e2e.bridge import Bridge, is_waiting
from e2e.cluster import Cluster
from e2e.custom_kinds import wait_established
from e2e.drawbridge import command_line
from e2e.inventory import EXAMPLE
from e2e.objects import claim_template, pod
from kube.api.own_kinds import ALLOCATOR_OWNERSHIP
from testing.ports import free_ports
from tools.custom_resources import definition

TIMEOUT_S: Final = 120.0
TEAM: Final = "owned-pods"
AUDITED: Final[dict[str, Any]] = {
    "audit_rules": (
        {
            "level": "RequestResponse",
            "omitStages": ["RequestReceived"],
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [
                {
                    "group": "resource.k8s.io",
                    "resources": ["resourceclaims", "resourceclaims/status"],
                }
            ],
        },
    )
}
"""The parameters of the cluster; one object, so that all modules get one cluster."""


SHORT_LEASE: Final[Mapping[str, Any]] = {
    "leaderElection": {"leaseDuration": "8s", "renewDeadline": "6s", "retryPeriod": "200ms"},
    "writeTimeout": "1s",
}
"""Settings of the sidecar in stories that wait for its Lease to run out."""


class Owned:
    """A namespace with a template of a claim for one device, and the bridge."""

    def __init__(self, cluster: Cluster, bridge: Bridge) -> None:
        self.cluster = cluster
        self.bridge = bridge

    def apply(self, *objects: Object) -> None:
        self.cluster.kubectl("apply", "-n", TEAM, "-f", "-", input=stream(list(objects)))

    def running(self, *names: str) -> None:
        for name in names:
            self.cluster.wait_running(name, TEAM, timeout_s=TIMEOUT_S)

    def running_while_tended(self, bridge: Bridge, names: Sequence[str], *replicas: str) -> None:
        """Wait for pods while somebody starts the processes of a bridge's replicas that have ended."""

        def are_running() -> bool:
            bridge.tend(*replicas)
            return set(names) <= {
                pod_["metadata"]["name"]
                for pod_ in self.cluster.objects("pods", TEAM)
                if pod_["status"].get("phase") == "Running"
            }

        self.cluster.wait_until(are_running, f"{', '.join(names)} run", timeout_s=TIMEOUT_S)

    def waiting(self, name: str) -> str:
        """Wait until a pod waits for devices, and return the reason."""
        pod_ = self.cluster.wait_for("pods", name, TEAM, until=is_waiting, timeout_s=TIMEOUT_S)
        return str(pod_["status"]["conditions"][0]["message"])

    def uids(self) -> dict[str, str]:
        """Return the pods, by name."""
        pods = self.cluster.objects("pods", TEAM)
        return {pod_["metadata"]["name"]: pod_["metadata"]["uid"] for pod_ in pods}

    def command(self, *words: str) -> str:
        completed = command_line(self.cluster, *words)
        assert completed.returncode == 0, completed.stderr
        return str(completed.stdout)

    def status(self) -> Object:
        ownership = self.cluster.find("aown", "default")
        return dict(ownership.get("status", {})) if ownership else {}

    def clear(self) -> None:
        """Delete all pods in good order, and wait until they and their claims are gone."""
        self.cluster.kubectl("delete", "pods", "--all", "-n", TEAM, "--wait=false")
        self.cluster.wait_until(
            lambda: (
                self.cluster.objects("pods", TEAM) == []
                and self.cluster.objects("resourceclaims", TEAM) == []
            ),
            "pods and claims are gone",
            timeout_s=TIMEOUT_S,
        )


def taker(name: str, **spec: Any) -> Object:
    """Return a pod that takes one device, of the default scheduler."""
    return pod(name, claims={"gpu": "one"}, **spec)


@contextmanager
def owned(cluster: Cluster) -> Iterator[Owned]:
    """Install the bridge without owned drivers."""
    cluster.apply([definition(ALLOCATOR_OWNERSHIP), *inventory.device_classes()])
    wait_established(cluster, "allocatorownerships.drawbridge.internal")
    bridge = Bridge(cluster, drivers=())
    bridge.install()
    cluster.kubectl("create", "namespace", TEAM)
    cluster.wait_for("serviceaccounts", "default", TEAM)
    cluster.kubectl("apply", "-n", TEAM, "-f", "-", input=stream([claim_template("one", EXAMPLE)]))
    yield Owned(cluster, bridge)
    bridge.uninstall()


@contextmanager
def another_scheduler(
    cluster: Access, program: Path, profile: str, kubeconfig: Path
) -> Iterator[None]:
    """Run a scheduler with the plugins of Kubernetes under a profile's name."""
    (port,) = free_ports(1)
    configuration = cluster.directory / f"scheduler-of-{profile}.json"
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "profiles": [{"schedulerName": profile}],
    }
    configuration.write_text(json.dumps(document))
    name = f"another-{profile}"
    address = ("--bind-address=127.0.0.1", f"--secure-port={port}")
    cluster.run(name, (str(program), f"--config={configuration}", *address))
    try:
        yield
    finally:
        cluster.children.pop(name).stop()
