"""Stand-ins for the vendors' processes in a migration, and the charts of their drivers.

They do what device plugins, DRA drivers and HAMi's scheduler do, as far as an API server sees it: they
follow the labels of nodes, and nothing of the product. They also end the work of Jobs.
"""

import http.client
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from e2e import inventory
from e2e.access import Access, Object
from e2e.hami_scheduler import exchanged_annotations
from e2e.migration import (
    ENDS_LABEL,
    HAMI_SCHEDULER,
    NodeKind,
    kind_of_node,
    offered_amounts,
    published_slices,
)
from e2e.objects import deployment, pod
from e2e.stand_in import StandIn
from testing.documents import api_object

DEVICE_PLUGIN: Final = "nvidia.com/gpu.deploy.device-plugin"
HAMI_LABEL: Final = ("drawbridge.internal/dra-driver", inventory.HAMI)
PACKED: Final = 20
"""Pods that HAMi's scheduler puts on a node before it takes the next one, as with its policy binpack."""
OPERATOR: Final = "v26.7.0"
WORK_S: Final = 3.0
"""The time for the work of a Job to go on once its node is cordoned."""
LOOK_S: Final = 0.5


# --- charts of drivers ------------------------------------------------------------------------------

_DRIVER_CHART: Final = """\
{{- if and .Values.resources.gpus.enabled (not .Values.gpuResourcesEnabledOverride) }}
{{- fail "the driver must not share a node with the device plugin: set gpuResourcesEnabledOverride" }}
{{- end }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: dra-driver-nvidia-gpu-kubelet-plugin
spec:
  selector: {matchLabels: {app: dra-driver-nvidia-gpu}}
  template:
    metadata: {labels: {app: dra-driver-nvidia-gpu}}
    spec:
      nodeSelector: {{- toYaml .Values.kubeletPlugin.nodeSelector | nindent 8 }}
      containers: [{name: gpus, image: registry.internal/driver:1}]
"""


def write_driver_chart(folder: Path) -> None:
    """Write a chart below a folder, under the name that `prepare.sh` uses for NVIDIA's.

    It has the values of the real one that matter here, and refuses what that refuses.
    """
    chart = folder / "nvidia" / "dra-driver-nvidia-gpu"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text(
        "apiVersion: v2\nname: dra-driver-nvidia-gpu\nversion: 0.5.0\n"
    )
    (chart / "values.yaml").write_text(
        "resources: {gpus: {enabled: true}}\n"
        "gpuResourcesEnabledOverride: false\n"
        "kubeletPlugin: {nodeSelector: {}}\n"
    )
    (chart / "templates" / "plugin.yaml").write_text(_DRIVER_CHART)
    classes = "---\n".join(
        json.dumps(each) + "\n" for each in inventory.nvidia_classes(extended_resource="")
    )
    (chart / "templates" / "classes.yaml").write_text(classes)


def hami_driver() -> list[Object]:
    """Return the driver that a person installs beside HAMi, as `prepare.sh` tells."""
    labels = {"app": "hami-dra-driver"}
    key, value = HAMI_LABEL
    spec = {
        "nodeSelector": {key: value},
        "containers": [{"name": "gpus", "image": "registry.internal/driver:1"}],
        "volumes": [
            {"name": "registry", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}}
        ],
    }
    daemon_set = api_object(
        "DaemonSet",
        "hami-dra-driver",
        "kube-system",
        spec={
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    )
    return [inventory.hami_class(), daemon_set]


def gpu_operator() -> Object:
    """Return the Deployment of NVIDIA's Operator; it tells its version and has no pod here."""
    template = pod("pod")
    template["spec"]["containers"][0]["image"] = f"registry.internal/gpu-operator:{OPERATOR}"
    manifest = deployment("gpu-operator", template, replicas=0)
    manifest["metadata"]["namespace"] = "kube-system"
    manifest["metadata"]["labels"] = {"app.kubernetes.io/name": "gpu-operator"}
    return manifest


# --- stand-ins --------------------------------------------------------------------------------------


class Vendors(StandIn):
    """Device plugins, DRA drivers and HAMi's scheduler.

    A node's device plugin offers its devices where the Operator, or the label of HAMi, wants it; a DRA
    driver publishes a node's devices where the node selector of its DaemonSet matches.
    """

    def __init__(self, cluster: Access, names: Sequence[str]) -> None:
        """Take a cluster and the names of its nodes."""
        super().__init__("vendors")
        self._cluster = cluster
        self._names = tuple(names)
        self._published: set[str] = set()
        self._offered: dict[str, Mapping[str, str]] = {}
        self._first: dict[str, Object] = {}
        self._cordoned: dict[str, float] = {}

    def _turn(self) -> None:
        by_name = {node["metadata"]["name"]: node for node in self._list("/api/v1/nodes")}
        selectors = [
            daemon_set["spec"]["template"]["spec"].get("nodeSelector", {})
            for daemon_set in self._list("/apis/apps/v1/daemonsets")
        ]
        for name in self._names:
            # What a node that died had published goes with it.
            labels = by_name[name]["metadata"]["labels"] if name in by_name else {}
            if name in by_name:
                self._first.setdefault(name, by_name[name])
                self._offer(name, _offered(name, labels))
            self._publish(name, is_published=_is_chosen(name, labels, selectors))
        self._bind(by_name)
        self._end_work(by_name)

    def _offer(self, name: str, amounts: Mapping[str, str]) -> None:
        """Have a node's kubelet report the resources of its device plugin."""
        if self._offered.get(name) == amounts:
            return
        room = {"allocatable": amounts, "capacity": amounts}
        self._patch(f"/api/v1/nodes/{name}/status", {"status": room})
        is_left = set(amounts.values()) == {"0"}
        exchanged = exchanged_annotations(self._first[name], is_left=is_left, moment=time.gmtime())
        if exchanged:
            self._patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": exchanged}})
        self._offered[name] = amounts

    def _publish(self, name: str, *, is_published: bool) -> None:
        """Publish a node's devices, or withdraw them."""
        if is_published is (name in self._published):
            return
        path = "/apis/resource.k8s.io/v1/resourceslices"
        for piece in published_slices(name):
            if is_published:
                self._send("POST", path, piece)
            else:
                self._send("DELETE", f"{path}/{piece['metadata']['name']}")
        self._published ^= {name}

    def _end_work(self, by_name: Mapping[str, Object]) -> None:
        """Let the work of Jobs end a while after their node was cordoned."""
        path = f"/api/v1/pods?labelSelector={ENDS_LABEL}%3Dcordoned"
        now = time.monotonic()
        for running in self._list(path):
            metadata, node = running["metadata"], running["spec"].get("nodeName", "")
            is_running = running["status"].get("phase") == "Running"
            if not is_running or not by_name.get(node, {}).get("spec", {}).get("unschedulable"):
                continue
            since = self._cordoned.setdefault(metadata["uid"], now)
            if now - since >= WORK_S:
                target = (
                    f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
                )
                self._patch(target, {"status": {"phase": "Succeeded"}})

    def _bind(self, by_name: Mapping[str, Object]) -> None:
        """Place the pods of HAMi's scheduler on the fullest node that is not full."""
        pods = self._pods(f"spec.schedulerName={HAMI_SCHEDULER},spec.nodeName=")
        pending = [each for each in pods if "deletionTimestamp" not in each["metadata"]]
        if not pending:
            return
        counts = Counter(
            {
                name: 0
                for name in self._names
                if kind_of_node(name) is NodeKind.SHARED
                and name in by_name
                and by_name[name]["metadata"]["labels"].get("gpu") == "on"
                and not by_name[name]["spec"].get("unschedulable")
            }
        )
        for each in self._pods(f"spec.schedulerName={HAMI_SCHEDULER}"):
            node = each["spec"].get("nodeName")
            if node in counts:
                counts[node] += 1
        for each in pending if counts else ():
            node = packed_node(counts)
            counts[node] += 1
            self._send(*_binding(each, node))

    def _pods(self, fields: str) -> list[Object]:
        return self._list(f"/api/v1/pods?fieldSelector={quote(fields, safe='')}")

    def _list(self, path: str) -> list[Object]:
        items: list[Object] = json.loads(self._cluster.raw(path))["items"]
        return items

    def _patch(self, path: str, change: Object) -> None:
        self._send("PATCH", path, change, content_type="application/merge-patch+json")

    def _send(self, method: str, path: str, body: Any = None, **options: str) -> None:
        status, answer = self._cluster.request(method, path, body, **options)
        # A pod may be gone meanwhile.
        gone = (http.client.NOT_FOUND, http.client.CONFLICT)
        assert status < http.client.BAD_REQUEST or status in gone, (method, path, answer)


def packed_node(counts: Mapping[str, int]) -> str:
    """Return the fullest node that is not full; the emptiest if all are."""
    return min(
        counts,
        key=lambda name: (counts[name] >= PACKED, abs(PACKED - counts[name]), name),
    )


def _offered(name: str, labels: Mapping[str, str]) -> dict[str, str]:
    kind = kind_of_node(name)
    is_off = (
        labels.get("gpu") != "on"
        if kind is NodeKind.SHARED
        else labels.get(DEVICE_PLUGIN) == "false"
    )
    return {key: "0" if is_off else str(amount) for key, amount in offered_amounts(kind).items()}


def _is_chosen(name: str, labels: Mapping[str, str], selectors: list[Mapping[str, str]]) -> bool:
    """Return True if the DaemonSet of the node's DRA driver has a pod there."""
    key = (
        HAMI_LABEL[0] if kind_of_node(name) is NodeKind.SHARED else "nvidia.com/dra-kubelet-plugin"
    )
    return any(key in selector and selector.items() <= labels.items() for selector in selectors)


def _binding(pending: Object, node: str) -> tuple[str, str, Object]:
    metadata = pending["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = api_object("Binding", metadata["name"], target=target)
    return "POST", path, body
