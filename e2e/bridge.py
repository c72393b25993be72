"""The bridge in a cluster without images: its manifests as they are, processes in place of containers.

Each replica is two processes, `sidecar-<replica>` and `scheduler-<replica>`, with the commands of the
Deployment's containers, a folder per volume, and a token of the Deployment's account, so that roles and
the scheduler's configuration in the manifests are what is tested. A process that ended, as those do
that a busy machine kept from the Lease, is started again by the waits of a story, until the story takes
hold of a process or ends.
"""

import http.client
import json
import re
import shutil
import ssl
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from e2e.access import READY_TIMEOUT_S, Access, Object, stream
from e2e.binaries import scheduler
from e2e.credentials import write_secret
from e2e.drawbridge import command_of, merged, rendered
from e2e.inventory import NVIDIA
from e2e.processes import Child, log_tails
from kube.names import NAMESPACE, SCHEDULER_NAME
from kube.quantity import Quantity
from sidecar.plan.decisions import EVALUATING, SEARCHING
from testing.ports import free_ports

ROOT: Final = Path(__file__).parent.parent
MANIFESTS: Final = ROOT / "manifests" / "bridge"
NAMESPACE_FILE: Final = ROOT / "manifests" / "base" / "namespace.yaml"
LEASE: Final = "drawbridge-bridge"
PROGRAM: Final = "drawbridge-scheduler"
SIDECAR: Final = "sidecar"
UNAVAILABLE: Final = "the device allocator is not available"
"""The plugin's words about a pod when the sidecar gives no answer."""
NEVER_FLUSHED: Final = "--pod-max-in-unschedulable-pods-duration=1h"
"""A flag of the scheduler, so that whoever wakes a waiting pod, it was not the scheduler's own timer."""
IMPARTIAL: Final = "impartial"
"""The replica of `conftest.impartial_bridge`."""
NO_USUAL_PODS: Final[Mapping[str, Any]] = {"usualPods": [{"deviceClass": NVIDIA}]}
"""Settings of a sidecar that keeps no room on nodes without devices of NVIDIA, whatever pods other stories had."""

_STAYS: Final = frozenset({"Deployment", "ConfigMap"})
_IMPATIENT: Final = {
    "leaderElection": {"leaseDuration": "15s", "renewDeadline": "11s", "retryPeriod": "500ms"},
    "writeTimeout": "3s",
}
"""Settings of the sidecar: a story waits for no heartbeat, and a busy machine keeps nobody from the Lease for long."""


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One pod's worth of processes.

    Attributes:
        folder: The folder of its volumes: `run` with the socket, `etc` with the configuration.
        probes: The sidecar's port of probes.
        metrics: The sidecar's port of metrics.
        scheduler: The scheduler's port, HTTPS.
    """

    name: str
    folder: Path
    probes: int
    metrics: int
    scheduler: int


class Bridge:
    """Scheduler and sidecar beside a cluster.

    Attributes:
        sidecar: The package of sidecars that are started from now on, which may be one that a story changed.
    """

    def __init__(
        self,
        cluster: Access,
        *,
        drivers: Sequence[str],
        manifests: Path = MANIFESTS,
        settings: Mapping[str, Any] | None = None,
        scheduler: Mapping[str, Any] | None = None,
        scheduler_flags: Sequence[str] = (),
    ) -> None:
        """Name the parts to start; nothing runs yet.

        Args:
            drivers: Those whose devices it gives.
            manifests: Its kustomization.
            settings: More settings of the sidecar.
            scheduler: Fields of KubeSchedulerConfiguration that win over the manifest's.
            scheduler_flags: More flags of the scheduler.
        """
        self.sidecar = SIDECAR
        self._cluster = cluster
        self._objects = rendered(cluster, manifests)
        self._settings = merged({**_IMPATIENT, "drivers": list(drivers)}, settings or {})
        self._scheduler = dict(scheduler or {})
        self._scheduler_flags = tuple(scheduler_flags)
        self._replicas: dict[str, Replica] = {}

    def install(self) -> None:
        """Apply the manifests, all but those that need an image."""
        self._cluster.apply(NAMESPACE_FILE.read_text())
        self._cluster.apply([object_ for object_ in self._objects if object_["kind"] not in _STAYS])

    def uninstall(self) -> None:
        """End the processes and delete the applied objects, all but the namespace."""
        for name in self._replicas:
            self.stop(name)
        flags = ("--ignore-not-found", "--wait=false")
        applied = [object_ for object_ in self._objects if object_["kind"] not in _STAYS]
        self._cluster.kubectl("delete", *flags, "-f", "-", input=stream(applied))
        self._cluster.kubectl("delete", "lease", LEASE, "-n", NAMESPACE, *flags)

    # --- processes -------------------------------------------------------------------------------

    def start(self, name: str = "a") -> None:
        """Start both processes of a replica; those that run are left alone."""
        for part in ("sidecar", "scheduler"):
            self.start_part(part, name)

    def start_part(self, part: str, name: str = "a") -> Child:
        """Start one process of a replica, unless it runs."""
        replica = self.replica(name)
        child = self._cluster.children.get(f"{part}-{name}")
        if child is not None and child.exit_status is None:
            return child
        container = self._container(part)
        environment = {
            "KUBECONFIG": str(replica.folder / f"{part}.kubeconfig"),
            "PYTHONPATH": str(ROOT),
            **{
                variable["name"]: self._local(variable["value"], replica)
                for variable in container.get("env", ())
                if "value" in variable
            },
            "DRAWBRIDGE_NAMESPACE": NAMESPACE,
        }
        words = tuple(self._local(word, replica) for word in command_of(container))
        if words[0] == PROGRAM:
            port = f"--secure-port={replica.scheduler}"
            words = (str(scheduler()), *words[1:], "--bind-address=127.0.0.1", port)
            words += self._scheduler_flags
        else:
            words = tuple(self.sidecar if word == SIDECAR else word for word in words)
        return self._cluster.run(f"{part}-{name}", words, environment)

    def scheduler_port(self, name: str = "a") -> int:
        """The port of a replica's scheduler, HTTPS."""
        return self._replicas[name].scheduler

    def child(self, part: str, name: str = "a") -> Child:
        """A process of a replica: `sidecar` or `scheduler`. Nobody starts it again if it ends."""
        self.leave()
        return self._cluster.children[f"{part}-{name}"]

    def leave(self) -> None:
        """Start no process again that ends from now on."""
        self._cluster.tend = lambda: None

    def stop(self, name: str = "a") -> None:
        """End a replica in good order; fine when it has ended."""
        for part in ("scheduler", "sidecar"):
            child = self._cluster.children.pop(f"{part}-{name}", None)
            if child is not None:
                child.stop()

    def tend(self, *names: str) -> None:
        """Start those processes of replicas that have ended, as a kubelet would."""
        for name in names or self._replicas:
            self.start(name)

    def _tend_lost(self, *names: str) -> None:
        """Start those processes of replicas that have ended and were not stopped."""
        for name in names:
            for part in ("sidecar", "scheduler"):
                child = self._cluster.children.get(f"{part}-{name}")
                if child is not None and child.exit_status is not None:
                    self.start_part(part, name)

    def ensure(self) -> None:
        """Have exactly one replica, at work; clear away anything that a story left behind."""
        for name in set(self._replicas) - {"a"}:
            self.stop(name)
        self.start()
        self.wait_working("a")

    def working(self) -> list[str]:
        """The replicas with schedulers that work."""
        return [name for name, replica in self._replicas.items() if self._schedules(replica)]

    def wait_working(self, *names: str) -> None:
        """Wait until the scheduler of one of these replicas works; tend to all of them, now and in later waits."""

        def is_working() -> bool:
            self.tend(*names)
            return bool(set(names) & set(self.working()))

        description = f"a scheduler of {sorted(names)} works"
        try:
            self._cluster.wait_until(is_working, description, timeout_s=READY_TIMEOUT_S)
        except AssertionError as error:
            error.add_note(self._log_tails(names))
            raise
        self._cluster.tend = partial(self._tend_lost, *names)

    # --- what they say ---------------------------------------------------------------------------

    def calls(self, point: str, verdict: str = "", name: str = "a") -> int:
        """Return the number of answers of the sidecar at an extension point, with a verdict or with any."""
        return int(self._of_calls("count", point, verdict, name))

    def call_seconds(self, point: str, verdict: str = "", name: str = "a") -> float:
        """Return the time that such answers took, in seconds."""
        return self._of_calls("sum", point, verdict, name)

    def _of_calls(self, suffix: str, point: str, verdict: str, name: str) -> float:
        metric = f"drawbridge_sidecar_call_duration_seconds_{suffix}"
        pattern = re.compile(rf"^{metric}\{{(.*)\}} (\S+)$", re.MULTILINE)
        return sum(
            float(value)
            for labels, value in pattern.findall(self.metrics(name))
            if f'point="{point}"' in labels and (not verdict or f'verdict="{verdict}"' in labels)
        )

    def metrics(self, name: str = "a") -> str:
        """The sidecar's metrics, in Prometheus' text format."""
        port = self._replicas[name].metrics
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            assert answer.status == http.client.OK, f"sidecar-{name} gives no metrics"
            return answer.read().decode()
        finally:
            connection.close()

    def memory_limit(self, part: str) -> int:
        """Return the memory limit of a container, `sidecar` or `scheduler`, in bytes."""
        return int(Quantity(self._container(part)["resources"]["limits"]["memory"]))

    # --- inside ----------------------------------------------------------------------------------

    def replica(self, name: str) -> Replica:
        """The folders and ports of a replica."""
        if name not in self._replicas:
            # A bridge that failed to start, or to end, leaves processes that know other ports.
            self.stop(name)
            folder = self._cluster.directory / f"bridge-{name}"
            probes, metrics, port = free_ports(3)
            replica = Replica(
                name=name, folder=folder, probes=probes, metrics=metrics, scheduler=port
            )
            self._write(replica)
            self._replicas[name] = replica
        return self._replicas[name]

    def _write(self, replica: Replica) -> None:
        """Fill the folders of a replica's volumes from the manifests."""
        shutil.rmtree(replica.folder, ignore_errors=True)  # Of a start that failed.
        for volume in ("run", "etc"):
            (replica.folder / volume).mkdir(parents=True)
        account = self._pod["serviceAccountName"]
        access = self._cluster.kubeconfig_for(NAMESPACE, account).read_bytes()
        for part in ("sidecar", "scheduler"):
            write_secret(replica.folder / f"{part}.kubeconfig", access)
        kubeconfig = replica.folder / "scheduler.kubeconfig"
        (data,) = (object_["data"] for object_ in self._objects if object_["kind"] == "ConfigMap")
        settings = {
            **self._settings,
            "bindAddress": "127.0.0.1",
            "probePort": replica.probes,
            "metricsPort": replica.metrics,
        }
        scheduler = json.loads(self._local(json.dumps(self._scheduler), replica))
        documents = {
            "settings.yaml": merged(
                yaml.load(data["settings.yaml"], Loader=yaml.CSafeLoader), {"sidecar": settings}
            ),
            "scheduler.yaml": merged(
                merged(
                    yaml.load(
                        self._local(data["scheduler.yaml"], replica), Loader=yaml.CSafeLoader
                    ),
                    scheduler,
                ),
                {"clientConnection": {"kubeconfig": str(kubeconfig)}},
            ),
        }
        for file, document in documents.items():
            (replica.folder / "etc" / file).write_text(json.dumps(document, indent=1))

    def _log_tails(self, names: Sequence[str]) -> str:
        """The end of the log of each process of replicas."""
        children = (
            self._cluster.children.get(f"{part}-{name}")
            for name in names
            for part in (SIDECAR, "scheduler")
        )
        return log_tails(child for child in children if child)

    def _local(self, text: str, replica: Replica) -> str:
        """A text of the manifests with the paths of this machine."""
        for mount, volume in {"/run/drawbridge": "run", "/etc/drawbridge": "etc"}.items():
            text = text.replace(mount, str(replica.folder / volume))
        return text

    @property
    def profile(self) -> Object:
        """The profile of the scheduler's configuration, as the manifest has it."""
        (data,) = (object_["data"] for object_ in self._objects if object_["kind"] == "ConfigMap")
        (profile,) = yaml.load(data["scheduler.yaml"], Loader=yaml.CSafeLoader)["profiles"]
        return dict(profile)

    @property
    def _pod(self) -> Object:
        (deployment,) = (object_ for object_ in self._objects if object_["kind"] == "Deployment")
        spec: Object = deployment["spec"]["template"]["spec"]
        return spec

    def _container(self, part: str) -> Object:
        (container,) = (entry for entry in self._pod["containers"] if entry["name"] == part)
        return dict(container)

    def _schedules(self, replica: Replica) -> bool:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            "127.0.0.1", replica.scheduler, timeout=5, context=context
        )
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def bridged(pod: Object, nodes: Sequence[str] = ()) -> Object:
    """Have the bridge schedule a pod, on some of the nodes only."""
    spec = {**pod["spec"], "schedulerName": SCHEDULER_NAME}
    if nodes:
        wanted = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        }
    return {**pod, "spec": spec}


def is_waiting(pod: Object) -> bool:
    """Return True if the scheduler has said that a pod fits nowhere, and not that the answer takes more attempts."""
    return is_considered(pod) and not any(
        words in condition.get("message", "")
        for condition in pod["status"]["conditions"]
        for words in (EVALUATING, SEARCHING)
    )


def is_considered(pod: Object) -> bool:
    """Return True if a pod waits for a reason that the scheduler gives, but not for want of an answer."""
    return any(
        condition["type"] == "PodScheduled"
        and condition.get("reason") == "Unschedulable"
        and UNAVAILABLE not in condition.get("message", "")
        for condition in pod["status"].get("conditions", ())
    )


def doubly_held(cluster: Access) -> list[str]:
    """Return the devices that several claims hold though none of them is a share.

    It looks at what is stored, with nothing of ours.
    """
    holders: dict[tuple[str, str, str], list[str]] = {}
    for claim in cluster.objects("resourceclaims"):
        allocation = claim.get("status", {}).get("allocation", {})
        for result in allocation.get("devices", {}).get("results", ()):
            if "shareID" not in result and not result.get("adminAccess"):
                device = (result["driver"], result["pool"], result["device"])
                holder = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
                holders.setdefault(device, []).append(holder)
    return [
        f"{'/'.join(device)}: {', '.join(claims)}"
        for device, claims in sorted(holders.items())
        if len(claims) > 1
    ]
