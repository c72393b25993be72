"""A real Kubernetes control plane on loopback, without containers.

`Cluster` starts etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok in a
directory of its own: TLS everywhere, RBAC on, service account tokens, one log per component.
`ExistingCluster` gives the same surface over a kubeconfig.

In five lines::

    with Cluster(directory) as cluster:
        cluster.add_nodes(inventory.kwok_nodes(1), inventory.example_gpus)
        cluster.apply(pod)
        cluster.wait_running("pod")
        print(cluster.kubectl("get", "pods").stdout)
"""

import http.client
import json
import signal
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from e2e.access import READY_TIMEOUT_S, Access
from e2e.binaries import binaries
from e2e.credentials import (
    Authority,
    KeyPair,
    certificate_user,
    cluster_entry,
    kubeconfig,
    signing_key,
    write_secret,
)
from e2e.older_kubernetes import MINOR, SERVED, gates_turned_on
from e2e.processes import Child
from testing.ports import free_ports

CLIENT_QPS: Final = 500
"""Limit of each controller's and of the scheduler's client, requests per second; the default of 20
in the controller manager would make claims for 10 pods a second and hide everything else."""

SERVICE_CIDR: Final = "10.96.0.0/16"
POD_CIDR: Final = "10.244.0.0/16"
KWOK_ANNOTATION: Final = "kwok.x-k8s.io/node"
"""Set to `fake` on nodes that kwok plays; it leaves all others alone."""

NODE_LEASE_S: Final = 40
"""The duration of kubelets' Leases."""

_STAGES: Final = Path(__file__).parent / "kwok" / "stages.yaml"


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """Free ports of loopback, one per server."""

    etcd: int
    etcd_peer: int
    api: int
    controllers: int
    scheduler: int
    kwok: int


class ExistingCluster(Access):
    """A cluster that somebody else started, through a kubeconfig; it is left as it was found."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        super().__init__(kubectl=binaries().kubectl, kubeconfig=kubeconfig, directory=directory)

    def __enter__(self) -> Self:
        self._keep()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cluster(Access):
    """A control plane of our own, from start to stop.

    Attributes:
        started_in_s: The duration of `start`.
        audit_log: The audit log, if there are rules for one.
    """

    def __init__(
        self,
        directory: Path,
        *,
        feature_gates: Mapping[str, bool] | None = None,
        api_server_flags: Sequence[str] = (),
        controller_manager_flags: Sequence[str] = (),
        scheduler_flags: Sequence[str] = (),
        scheduler: Mapping[str, Any] | None = None,
        client_qps: int = CLIENT_QPS,
        node_lease_s: int = NODE_LEASE_S,
        detached: bool = False,
        audit_rules: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Name the parts to start; nothing runs yet.

        Args:
            directory: Everything is written below it; made when absent.
            feature_gates: The gates of API server, controller manager and scheduler alike.
            api_server_flags: More flags, which win over ours: `--audit-log-path=...`.
            controller_manager_flags: More flags, likewise.
            scheduler_flags: More flags, likewise.
            scheduler: Fields of KubeSchedulerConfiguration, such as `profiles` or `extenders`.
            client_qps: Requests per second of each controller's client and of the scheduler's; twice
                as many in a burst.
            node_lease_s: The duration of a simulated node's Lease; it is renewed four times as often.
            detached: Whether the cluster outlives this process, see `e2e.local`.
            audit_rules: The rules of an audit policy; the log is `audit_log`. Nothing else is logged.
        """
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._binaries = binaries()
        super().__init__(
            kubectl=self._binaries.kubectl,
            kubeconfig=directory / "kubeconfig",
            directory=directory,
        )
        self.started_in_s = 0.0
        self.audit_log = directory / "audit.log"
        self._audit_rules = tuple(audit_rules)
        self._flags = (
            (*self._audit(), *api_server_flags),
            tuple(controller_manager_flags),
        )
        self._more_scheduler_flags = tuple(scheduler_flags)
        self._gates = dict(feature_gates or {})
        self._scheduler = dict(scheduler or {})
        self._client_qps = client_qps
        self._node_lease_s = node_lease_s
        self._detached = detached
        names = Ports.__struct_fields__
        self._ports = Ports(**dict(zip(names, free_ports(len(names)), strict=True)))
        self._authority = Authority("drawbridge-e2e-authority")
        self._admin = self._authority.issue("admin", "system:masters")

    # --- life ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.stop)
            self.start()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and return when pods can be made.

        Raises:
            AssertionError: A component did not get ready; the message shows the end of its log.
        """
        began = time.monotonic()
        if not self._detached:
            self._keep()
        self._write_files()
        self.children = {child.name: child for child in self._components()}
        self._start("etcd", "kube-apiserver")
        self._await_ready("kube-apiserver", self._ports.api)
        self._start("kube-controller-manager", "kube-scheduler", "kwok")
        self._await_ready("kube-scheduler", self._ports.scheduler)
        # Pods are refused until the controller manager has made this.
        self.wait_for("serviceaccounts", "default", "default", timeout_s=READY_TIMEOUT_S)
        self.started_in_s = time.monotonic() - began

    def stop(self) -> None:
        """End everything that was started; fine when nothing was."""
        self.close()

    @property
    def scheduler_port(self) -> int:
        """The port of kube-scheduler, HTTPS."""
        return self._ports.scheduler

    def start_scheduler(self) -> None:
        """Start kube-scheduler again and wait until it is ready."""
        self._start("kube-scheduler")
        self._await_ready("kube-scheduler", self._ports.scheduler)

    @property
    def feature_gates(self) -> Mapping[str, bool]:
        """The gates that were asked for."""
        return self._gates

    def write_kubelet_credentials(self, folder: Path, node: str, address: str) -> None:
        """Write a kubelet's certificates and its kubeconfig into a folder.

        Args:
            address: The address that the API server reaches it at.
        """
        (folder / "ca.crt").write_bytes(self._authority.certificate)
        self._authority.issue(node, addresses=[address]).write(folder, "kubelet")
        pair = self._authority.issue(f"system:node:{node}", "system:nodes")
        self._write_kubeconfig(folder / "kubelet.kubeconfig", pair)

    def leave(self) -> None:
        """Let the cluster outlive us: only the parts that this process alone used are ended."""
        self.end_proxy()

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://127.0.0.1:{self._ports.api}"

    def restart_api_server(self) -> None:
        """Kill the API server, start it again, and wait until it is ready."""
        self.restart("kube-apiserver")
        self._await_ready("kube-apiserver", self._ports.api)

    def restart(self, name: str) -> None:
        """Kill a component as the kernel would, and start it again."""
        child = self.children[name]
        child.signal(signal.SIGKILL)
        child.wait(READY_TIMEOUT_S)
        self._start(name)

    # --- inside ----------------------------------------------------------------------------------

    def _start(self, *names: str) -> None:
        for name in names:
            self.children[name].start()
        self._record()

    def _await_ready(self, name: str, port: int) -> None:
        child = self.children[name]
        deadline = time.monotonic() + READY_TIMEOUT_S
        context = self._client_context()
        while not _answers(port, "/readyz", context):
            for process in self.children.values():
                if process.exit_status is not None:
                    raise AssertionError(
                        f"{process.name} ended with {process.exit_status}:\n{process.tail()}\n"
                        f"({process.log})"
                    )
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} is not ready:\n{child.tail()}\n({child.log})")
            time.sleep(0.05)

    def _client_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self._authority.certificate.decode())
        context.load_cert_chain(self._path("admin.crt"), self._path("admin.key"))
        return context

    def _path(self, name: str) -> Path:
        return self.directory / "pki" / name

    def _write_files(self) -> None:
        pki = self.directory / "pki"
        pki.mkdir(exist_ok=True, mode=0o700)
        (pki / "ca.crt").write_bytes(self._authority.certificate)
        self._authority.issue("drawbridge-e2e").write(pki, "server")
        self._authority.issue("kube-apiserver-etcd-client").write(pki, "etcd-client")
        self._admin.write(pki, "admin")
        write_secret(pki / "service-accounts.key", signing_key())
        self._write_kubeconfig(self.kubeconfig, self._admin)
        for name in ("kube-controller-manager", "kube-scheduler"):
            pair = self._authority.issue(f"system:{name}")
            self._write_kubeconfig(self.directory / f"{name}.kubeconfig", pair)
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "rules": [*self._audit_rules, {"level": "None"}],
        }
        (self.directory / "audit-policy.json").write_text(json.dumps(policy))
        configuration = json.dumps(self._scheduler_configuration(), indent=2)
        (self.directory / "scheduler.json").write_text(configuration)

    def _write_kubeconfig(self, path: Path, user: KeyPair) -> None:
        entry = cluster_entry(self.server, self._authority.certificate)
        write_secret(path, kubeconfig(entry, certificate_user(user)))

    def _scheduler_configuration(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(self.directory / "kube-scheduler.kubeconfig"),
                "qps": self._client_qps,
                "burst": 2 * self._client_qps,
            },
            **self._scheduler,
        }

    def _audit(self) -> tuple[str, ...]:
        if not self._audit_rules:
            return ()
        return (
            f"--audit-policy-file={self.directory / 'audit-policy.json'}",
            f"--audit-log-path={self.audit_log}",
        )

    def _components(self) -> list[Child]:
        api_server_flags, controller_manager_flags = self._flags
        _binaries = self._binaries
        commands: dict[str, tuple[str | Path, ...]] = {
            "etcd": (_binaries.etcd, *self._etcd()),
            "kube-apiserver": (_binaries.kube_apiserver, *self._api_server(), *api_server_flags),
            "kube-controller-manager": (
                _binaries.kube_controller_manager,
                *self._controller_manager(),
                *controller_manager_flags,
            ),
            "kube-scheduler": (_binaries.kube_scheduler, *self._scheduler_flags()),
            "kwok": (_binaries.kwok, *self._kwok()),
        }
        # HOME, since kwok and etcd would read or write below the real one.
        env = {"HOME": str(self.directory)}
        return [
            # What they would still write goes with their directory.
            Child(name, command, self.directory / f"{name}.log", env, ending=signal.SIGKILL)
            for name, command in commands.items()
        ]

    def _etcd(self) -> tuple[str, ...]:
        client = f"https://127.0.0.1:{self._ports.etcd}"
        peer = f"https://127.0.0.1:{self._ports.etcd_peer}"
        return (
            "--name=etcd",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=etcd={peer}",
            *self._etcd_tls(""),
            *self._etcd_tls("peer-"),
            # Nothing here is worth a disk's patience.
            "--unsafe-no-fsync",
            "--log-level=warn",
        )

    def _etcd_tls(self, prefix: str) -> tuple[str, ...]:
        return (
            f"--{prefix}client-cert-auth",
            f"--{prefix}trusted-ca-file={self._path('ca.crt')}",
            f"--{prefix}cert-file={self._path('server.crt')}",
            f"--{prefix}key-file={self._path('server.key')}",
        )

    def _api_server(self) -> tuple[str, ...]:
        return (
            f"--etcd-servers=https://127.0.0.1:{self._ports.etcd}",
            f"--etcd-cafile={self._path('ca.crt')}",
            f"--etcd-certfile={self._path('etcd-client.crt')}",
            f"--etcd-keyfile={self._path('etcd-client.key')}",
            *self._serving(self._ports.api),
            *(f"--runtime-config={version}=true" for version in SERVED.get(MINOR, ())),
            # The default reconciler refuses to publish a loopback address.
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--client-ca-file={self._path('ca.crt')}",
            f"--requestheader-client-ca-file={self._path('ca.crt')}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--authorization-mode=Node,RBAC",
            f"--service-account-key-file={self._path('service-accounts.key')}",
            f"--service-account-signing-key-file={self._path('service-accounts.key')}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--allow-privileged",
            "--enable-admission-plugins=NodeRestriction",
            # For logs of, and commands in, containers of a real node.
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-certificate-authority={self._path('ca.crt')}",
            f"--kubelet-client-certificate={self._path('admin.crt')}",
            f"--kubelet-client-key={self._path('admin.key')}",
            # The stories' requests are not to wait for each other's fair share.
            "--max-requests-inflight=1600",
            "--max-mutating-requests-inflight=800",
            *self._feature_gates(),
        )

    def _controller_manager(self) -> tuple[str, ...]:
        config = self.directory / "kube-controller-manager.kubeconfig"
        return (
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            *self._serving(self._ports.controllers),
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--root-ca-file={self._path('ca.crt')}",
            f"--service-account-private-key-file={self._path('service-accounts.key')}",
            f"--kube-api-qps={self._client_qps}",
            f"--kube-api-burst={2 * self._client_qps}",
            *self._feature_gates(),
        )

    def _scheduler_flags(self) -> tuple[str, ...]:
        config = self.directory / "kube-scheduler.kubeconfig"
        return (
            f"--config={self.directory / 'scheduler.json'}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            *self._serving(self._ports.scheduler),
            *self._feature_gates(),
            *self._more_scheduler_flags,
        )

    def _kwok(self) -> tuple[str, ...]:
        return (
            f"--config={_STAGES}",
            f"--kubeconfig={self.kubeconfig}",
            f"--manage-nodes-with-annotation-selector={KWOK_ANNOTATION}=fake",
            f"--cidr={POD_CIDR}",
            "--node-ip=127.0.0.1",
            # Without leases the node lifecycle controller takes nodes for dead after 50 s.
            f"--node-lease-duration-seconds={self._node_lease_s}",
            f"--node-port={self._ports.kwok}",
            f"--server-address=127.0.0.1:{self._ports.kwok}",
        )

    def _serving(self, port: int) -> tuple[str, ...]:
        return (
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={self._path('server.crt')}",
            f"--tls-private-key-file={self._path('server.key')}",
        )

    def _feature_gates(self) -> tuple[str, ...]:
        gates = {**gates_turned_on(), **self._gates}
        if not gates:
            return ()
        settings = (f"{name}={str(on).lower()}" for name, on in sorted(gates.items()))
        return ("--feature-gates=" + ",".join(settings),)


def _answers(port: int, path: str, context: ssl.SSLContext) -> bool:
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=2, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
