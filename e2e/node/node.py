"""A node with a real kubelet, in the cluster of the stories.

`Node` starts containerd and the kubelet in namespaces of their own (`e2e.node.namespaces`), and each of
them can be stopped and started again. Pods run with the host's network and with images that are there.
"""

import json
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from e2e.access import PATIENCE, Object
from e2e.binaries import binaries, box, node_programs
from e2e.cluster import Cluster
from e2e.node.images import IMAGE, write_image
from e2e.node.namespaces import Namespaces
from e2e.processes import Child
from testing.documents import api_object
from testing.ports import free_ports

TIMEOUT_S: Final = 90.0
"""The time for the node to be ready, on a busy machine."""

CONTAINERD: Final = "containerd"
KUBELET: Final = "kubelet"
_SOCKET: Final = "/run/containerd/containerd.sock"
_CNI: Final = {
    "cniVersion": "1.0.0",
    "name": "loopback",
    "plugins": [{"type": "loopback"}],
}
_TRY_OVERLAY: Final = r"""
mkdir -p "$1/lower" "$1/upper" "$1/work" "$1/merged"
mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" "$1/merged" &&
  umount "$1/merged"
"""


class Node:
    """A real node.

    Attributes:
        name: The name of the Node object.
        folder: The folder of all its files.
        boot_id: A file with the id of its boot, in place of the machine's.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        """Name it; nothing is started yet."""
        self.name = name
        self.folder = cluster.directory / name
        self._cluster = cluster
        self.namespaces = Namespaces(cluster, f"{name}-namespaces-{os.getpid()}", self.folder)
        self.boot_id = self.folder / "boot_id"
        self._port = free_ports(1)[0]
        self._address = _own_address()

    # --- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and return when the node is Ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_files()
        self._boot()
        self._import_box()
        self.start_kubelet()
        self.wait_ready()

    def stop(self) -> None:
        """End everything on the node and forget its object."""
        self._shut_down()
        self._cluster.remove_nodes([self.name])

    def reboot(self) -> None:
        """End everything at once and start it again, but for programs of others.

        /run is empty then, and the boot another one.
        """
        self._shut_down()
        shutil.rmtree(self.folder / "run")
        self._boot()
        self.restart_kubelet()

    def start_containerd(self) -> Child:
        """Start the container runtime and return when it answers."""
        config = self.folder / "containerd.toml"
        config.write_text(self._containerd_config())
        child = self.run(CONTAINERD, node_programs() / "containerd", f"--config={config}")
        deadline = time.monotonic() + PATIENCE * TIMEOUT_S
        while self.ctr("version", check=False).returncode:
            assert child.exit_status is None, f"containerd ended:\n{child.tail()}"
            assert time.monotonic() < deadline, f"containerd does not answer:\n{child.tail()}"
            time.sleep(0.05)
        return child

    def start_kubelet(self) -> Child:
        """Start the kubelet."""
        return self.run(
            KUBELET,
            binaries().kubelet,
            f"--config={self.folder / 'kubelet.json'}",
            f"--kubeconfig={self.folder / 'kubelet.kubeconfig'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self._address}",
            "--root-dir=/var/lib/kubelet",
            f"--cert-dir={self.folder / 'kubelet-pki'}",
            "--v=2",
        )

    def restart_kubelet(self) -> None:
        """Stop the kubelet, start it again and return when the node is Ready anew."""
        self.stop_program(KUBELET)
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.start_kubelet()
        self.wait_ready(since)

    def wait_ready(self, since: str = "") -> None:
        """Wait until the node is Ready, as its kubelet told after a time."""

        def is_ready(node: Object) -> bool:
            conditions = {
                condition["type"]: condition for condition in node["status"].get("conditions", ())
            }
            ready = conditions.get("Ready", {"status": "", "lastHeartbeatTime": ""})
            return bool(ready["status"] == "True" and ready["lastHeartbeatTime"] >= since)

        child = self._cluster.children[f"{self.name}-{KUBELET}"]
        try:
            self._cluster.wait_for("nodes", self.name, until=is_ready, timeout_s=TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{child.tail()}") from error

    # --- programs --------------------------------------------------------------------------------

    def run(
        self, name: str, *command: str | Path, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Start a program on the node; one of this name must have been stopped."""
        words = self.namespaces.command(*command)
        return self._cluster.run(f"{self.name}-{name}", words, environment)

    def stop_program(self, name: str, *, grace_s: float = 10.0) -> None:
        """End a program of the node; fine when it has ended."""
        child = self._cluster.children.pop(f"{self.name}-{name}", None)
        if child is not None:
            child.stop(grace_s)

    def ctr(self, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `ctr` in the kubelet's namespace of containerd."""
        words = (node_programs() / "ctr", f"--address={_SOCKET}", "--namespace=k8s.io", *arguments)
        return self.execute(*words, check=check)

    def import_image(self, archive: Path) -> None:
        """Have the images of an archive, as `docker save` would write it."""
        # Other ways of importing want a registry's metadata.
        self.ctr("images", "import", "--local", f"--snapshotter={self.snapshotter}", archive)

    def shim_of(self, container: str) -> int:
        """Process id, here, of the shim that looks after a container (its id as pods name it).

        A shim that is stopped ends no container, and everything else on the node goes on.
        """
        information = self.ctr("containers", "info", container.removeprefix("containerd://")).stdout
        sandbox = json.loads(information)["Spec"]["annotations"]["io.kubernetes.cri.sandbox-id"]
        (shim,) = (
            int(process.name)
            for process in Path("/proc").glob("[0-9]*")
            if _is_shim(process / "cmdline", sandbox)
        )
        return shim

    def execute(self, *command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program on the node and return its output."""
        completed = subprocess.run(
            self.namespaces.command(*command), capture_output=True, text=True, check=False
        )
        if check and completed.returncode:
            raise AssertionError(f"{command} ended with {completed.returncode}\n{completed.stderr}")
        return completed

    def path(self, path: str) -> Path:
        """Return the path of a file of the node, seen from here."""
        return self.namespaces.path(path)

    @cached_property
    def snapshotter(self) -> str:
        """Return containerd's way to make a container's files: an overlay, or a copy if none can be mounted."""
        completed = self.execute("sh", "-c", _TRY_OVERLAY, "sh", "/var/lib/overlay", check=False)
        return "native" if completed.returncode else "overlayfs"

    # --- inside ----------------------------------------------------------------------------------

    def _boot(self) -> None:
        self.boot_id.write_text(f"{uuid.uuid4()}\n")
        self.namespaces.start()
        self.start_containerd()

    def _shut_down(self) -> None:
        for name in (KUBELET, CONTAINERD):
            self.stop_program(name)
        self.namespaces.stop()

    def _import_box(self) -> None:
        archive = self.folder / "box.tar"
        write_image(box(), archive)
        self.import_image(archive)

    def _write_files(self) -> None:
        self._cluster.write_kubelet_credentials(self.folder, self.name, self._address)
        cni = self.folder / "cni"
        cni.mkdir(exist_ok=True)
        (cni / "loopback.conflist").write_text(json.dumps(_CNI))
        config = json.dumps(self._kubelet_config(), indent=1)
        (self.folder / "kubelet.json").write_text(config)

    def _containerd_config(self) -> str:
        shim = node_programs() / "containerd-shim-runc-v2"
        return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
  address = "{_SOCKET}"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{self.snapshotter}"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
  cdi_spec_dirs = ["/var/run/cdi"]
  disable_apparmor = true
  # Root without CAP_SYS_RESOURCE may not lower it.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      runtime_path = "{shim}"
      snapshotter = "{self.snapshotter}"
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{node_programs()}"]
    conf_dir = "{self.folder / "cni"}"
"""

    def _kubelet_config(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self._address,
            "port": self._port,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(self.folder / "ca.crt")},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "tlsCertFile": str(self.folder / "kubelet.crt"),
            "tlsPrivateKeyFile": str(self.folder / "kubelet.key"),
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "evictionHard": {
                "memory.available": "1Mi",
                "nodefs.available": "0%",
                "nodefs.inodesFree": "0%",
                "imagefs.available": "0%",
            },
            "imageGCHighThresholdPercent": 100,
            "nodeStatusUpdateFrequency": "1s",
            "syncFrequency": "10s",
            "featureGates": dict(self._cluster.feature_gates),
            "podLogsDir": str(self.folder / "logs"),
        }


def _is_shim(command_line: Path, sandbox: str) -> bool:
    """Return True if a process is the shim of a sandbox; one that has ended meanwhile is not."""
    try:
        words = command_line.read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"containerd-shim-runc-v2") and sandbox.encode() in words


def _own_address() -> str:
    """An address of this machine that is not loopback's, impossible for a node, if there is one.

    Without one pods run nevertheless, but `kubectl logs` has nowhere to go.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Nothing is sent.
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def pod_on(node: str, name: str, *args: str, **spec: Any) -> Object:
    """A pod for a real node: the box program with these arguments."""
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "args": list(args)}
    return api_object(
        "Pod",
        name,
        spec={
            "hostNetwork": True,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 2,
            "automountServiceAccountToken": False,
            "containers": [container],
            **spec,
        },
    )
