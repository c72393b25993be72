"""A cluster before its migration, and stand-ins for what its vendors run.

40 simulated nodes, 24 with NVIDIA's device plugin and its Operator and 16 with HAMi, and 200 workloads of
12 teams. The stand-ins do what device plugins, DRA drivers and HAMi's scheduler do, as far as an API
server sees it: they follow the labels of nodes, and nothing of the product.
"""

import http.client
import json
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import msgspec

from e2e import inventory
from e2e.access import Access, Object
from e2e.objects import cron_job, deployment, pod, stateful_set

GPU: Final = "nvidia.com/gpu"
MEMORY: Final = "nvidia.com/gpumem"
CORES: Final = "nvidia.com/gpucores"
PRODUCT: Final = "nvidia.com/gpu.product"
OPERANDS: Final = "nvidia.com/gpu.deploy.operands"
REGISTER: Final = "hami.io/node-nvidia-register"
HAMI_SCHEDULER: Final = "hami-scheduler"
BINPACK: Final = {"hami.io/gpu-scheduler-policy": "binpack"}

WHOLE_MODEL: Final = inventory.H100_80GB
SHARED_MODEL: Final = inventory.A100_40GB
WHOLE_GPUS: Final = 8
SHARED_GPUS: Final = 4
SPLIT: Final = 10
"""Shares of one GPU that HAMi's device plugin offers."""
PACKED: Final = 20
"""Pods that HAMi's scheduler puts on a node before it takes the next one, as with its policy binpack."""
WHOLE_NODES: Final = tuple(f"whole-{number:02}" for number in range(24))
SHARED_NODES: Final = tuple(f"shared-{number:02}" for number in range(16))
TEAMS: Final = tuple(f"team-{number:02}" for number in range(12))
FULL: Final = TEAMS[0]
"""The team without a whole GPU, whose quota is used up."""
BUDGETS: Final = 3
OPERATOR: Final = "v26.7.0"
HAMI_LABEL: Final = ("drawbridge.internal/dra-driver", inventory.HAMI)
TRANSIENT: Final = (AssertionError, OSError, http.client.HTTPException)
"""Errors of a call, on a machine where programs are held still now and then."""
PERIOD_S: Final = 0.3
LOOK_S: Final = 0.5


# --- nodes ------------------------------------------------------------------------------------------


def nodes() -> list[Object]:
    """Return the nodes, each with what its device plugin offers."""
    return [*map(_whole_node, WHOLE_NODES), *map(_shared_node, SHARED_NODES)]


def _whole_node(name: str) -> Object:
    labels = {
        PRODUCT: WHOLE_MODEL.product_name.replace(" ", "-"),
        "nvidia.com/gpu.memory": str(WHOLE_MODEL.memory_mib),
        "nvidia.com/gpu.count": str(WHOLE_GPUS),
        "nvidia.com/cuda.driver-version.major": "580",
        "nvidia.com/gpu.deploy.device-plugin": "true",
    }
    return _node(name, labels, {}, WHOLE_GPUS)


def _shared_node(name: str) -> Object:
    registered = [
        {
            "id": inventory.gpu_uuid(name, minor),
            "count": SPLIT,
            "devmem": SHARED_MODEL.memory_mib,
            "devcore": 100,
            "type": SHARED_MODEL.product_name,
            "health": True,
        }
        for minor in range(SHARED_GPUS)
    ]
    labels = {"gpu": "on", "nvidia.com/cuda.driver-version.major": "580"}
    return _node(name, labels, {REGISTER: json.dumps(registered)}, SHARED_GPUS * SPLIT)


def _node(name: str, labels: Mapping[str, str], notes: Mapping[str, str], offered: int) -> Object:
    node = inventory.kwok_node(name)
    node["metadata"]["labels"] |= labels
    node["metadata"]["annotations"] |= notes
    room = {**node["status"]["allocatable"], GPU: str(offered)}
    node["status"] = {"capacity": room, "allocatable": room}
    return node


# --- workloads --------------------------------------------------------------------------------------


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload, and what has to become of it.

    Attributes:
        outcome: As `drawbridge assess` calls it.
        pods: That run.
        amount: Devices of a pod.
    """

    document: Object
    namespace: str
    outcome: str
    pods: int
    amount: int = 1

    @property
    def reference(self) -> str:
        """`Kind/namespace/name`."""
        return f"{self.document['kind']}/{self.namespace}/{self.document['metadata']['name']}"


def workloads() -> list[Workload]:
    """Return the workloads, of which one would be refused."""
    return [
        *(_whole(number) for number in range(60)),
        *(_share(number) for number in range(124)),
        *(_stateful(number) for number in range(9)),
        *(_nightly(number) for number in range(6)),
        _wrong(),
    ]


def _whole(number: int) -> Workload:
    """Return a Deployment with one or two whole GPUs."""
    amount = 2 if number % 15 == 0 else 1
    product = {PRODUCT: WHOLE_MODEL.product_name.replace(" ", "-")}
    template = pod("pod", limits={GPU: amount}, nodeSelector=product)
    # Of all teams but the first.
    team = TEAMS[1 + number % (len(TEAMS) - 1)]
    return _workload(deployment(f"train-{number:03}", template), team, "native", amount=amount)


def _share(number: int) -> Workload:
    """Return a Deployment of shares; each eighth asks for a policy that a claim cannot express."""
    is_lossy = number % 8 == 7
    replicas = 2 if number % 6 == 0 else 1
    manifest = deployment(
        f"serve-{number:03}", _shared_pod(number, BINPACK if is_lossy else {}), replicas=replicas
    )
    outcome = "lossy" if is_lossy else "translated"
    return _workload(manifest, TEAMS[number % len(TEAMS)], outcome, pods=replicas)


def _stateful(number: int) -> Workload:
    manifest = stateful_set(f"notebook-{number:03}", _shared_pod(number, {}))
    return _workload(manifest, TEAMS[number], "translated")


def _nightly(number: int) -> Workload:
    manifest = cron_job(f"nightly-{number:03}", _shared_pod(number, {}))
    return _workload(manifest, TEAMS[number], "translated", pods=0)


def _wrong() -> Workload:
    """Return a workload whose amount is in bytes, which HAMi takes for mebibytes."""
    template = pod("pod", limits={GPU: 1, MEMORY: "4Gi"}, schedulerName=HAMI_SCHEDULER)
    return _workload(deployment("bytes", template), TEAMS[-1], "refused")


def _shared_pod(number: int, annotations: Mapping[str, str]) -> Object:
    limits = {GPU: 1, MEMORY: 2000 + 500 * (number % 5), CORES: 10}
    return pod("pod", limits=limits, annotations=annotations, schedulerName=HAMI_SCHEDULER)


def _workload(
    manifest: Object, namespace: str, outcome: str, *, pods: int = 1, amount: int = 1
) -> Workload:
    manifest["metadata"]["namespace"] = namespace
    return Workload(
        document=manifest, namespace=namespace, outcome=outcome, pods=pods, amount=amount
    )


def quotas(members: list[Workload]) -> list[Object]:
    """Return the quota of each team: what it uses, and four more for all but the first."""
    used = Counter[str]()
    for workload in members:
        used[workload.namespace] += workload.pods * workload.amount
    return [
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus", "namespace": team},
            "spec": {"hard": {f"requests.{GPU}": str(used[team] + (0 if team == FULL else 4))}},
        }
        for team in TEAMS
    ]


def budgets(members: list[Workload]) -> list[Object]:
    """Return a PodDisruptionBudget for some Deployments of two pods."""
    paired = [workload for workload in members if workload.pods > 1]
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {
                "name": workload.document["metadata"]["name"],
                "namespace": workload.namespace,
            },
            "spec": {"maxUnavailable": 1, "selector": workload.document["spec"]["selector"]},
        }
        for workload in paired[:BUDGETS]
    ]


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
    """Write a chart below a folder, under the name by which `prepare.sh` installs NVIDIA's.

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
    }
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "hami-dra-driver", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    return [inventory.hami_class(), daemon_set]


def gpu_operator() -> Object:
    """Return the Deployment of NVIDIA's Operator, which tells its version and has no pod here."""
    template = pod("pod")
    template["spec"]["containers"][0]["image"] = f"registry.internal/gpu-operator:{OPERATOR}"
    manifest = deployment("gpu-operator", template, replicas=0)
    manifest["metadata"]["namespace"] = "kube-system"
    manifest["metadata"]["labels"] = {"app.kubernetes.io/name": "gpu-operator"}
    return manifest


def namespaces() -> list[Object]:
    """Return the namespaces of the teams."""
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}} for team in TEAMS]


# --- stand-ins --------------------------------------------------------------------------------------


class Vendors:
    """A thread that stands for device plugins, DRA drivers and HAMi's scheduler while a block runs.

    A node's device plugin offers its devices where the Operator, or the label of HAMi, wants it; a DRA
    driver publishes a node's devices where the node selector of its DaemonSet matches. A call that fails
    is made again in the next turn.
    """

    def __init__(self, cluster: Access) -> None:
        self._cluster = cluster
        self._published: set[str] = set()
        self._offered: dict[str, str] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="vendors", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(PERIOD_S):
            try:
                self._turn()
            except TRANSIENT as error:
                # pytest shows it where a story fails.
                print("vendors:", error)

    def _turn(self) -> None:
        by_name = {node["metadata"]["name"]: node for node in self._list("/api/v1/nodes")}
        selectors = [
            daemon_set["spec"]["template"]["spec"].get("nodeSelector", {})
            for daemon_set in self._list("/apis/apps/v1/daemonsets")
        ]
        for name in (*WHOLE_NODES, *SHARED_NODES):
            labels = by_name[name]["metadata"]["labels"]
            self._offer(name, _offered(name, labels))
            self._publish(name, is_published=_is_chosen(name, labels, selectors))
        self._bind(by_name)

    def _offer(self, name: str, amount: str) -> None:
        """Have a node's kubelet report what its device plugin offers."""
        if self._offered.get(name) == amount:
            return
        room = {"allocatable": {GPU: amount}, "capacity": {GPU: amount}}
        self._send(
            "PATCH",
            f"/api/v1/nodes/{name}/status",
            {"status": room},
            content_type="application/merge-patch+json",
        )
        self._offered[name] = amount

    def _publish(self, name: str, *, is_published: bool) -> None:
        """Publish a node's devices, or withdraw them."""
        if is_published is (name in self._published):
            return
        path = "/apis/resource.k8s.io/v1/resourceslices"
        for published in _slices(name):
            if is_published:
                self._send("POST", path, published)
            else:
                self._send("DELETE", f"{path}/{published['metadata']['name']}")
        self._published ^= {name}

    def _bind(self, by_name: Mapping[str, Object]) -> None:
        """Place the pods of HAMi's scheduler on the fullest node that is not full."""
        pods = self._pods(f"spec.schedulerName={HAMI_SCHEDULER},spec.nodeName=")
        pending = [each for each in pods if "deletionTimestamp" not in each["metadata"]]
        if not pending:
            return
        counts = Counter(
            {
                name: 0
                for name in SHARED_NODES
                if by_name[name]["metadata"]["labels"].get("gpu") == "on"
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

    def _send(self, method: str, path: str, body: Any = None, **options: str) -> None:
        status, answer = self._cluster.request(method, path, body, **options)
        # A pod may be gone meanwhile.
        gone = (http.client.NOT_FOUND, http.client.CONFLICT)
        assert status < http.client.BAD_REQUEST or status in gone, (method, path, answer)


def packed_node(counts: Mapping[str, int]) -> str:
    """Return the fullest node that is not full; the emptiest where all are."""
    return min(
        counts,
        key=lambda name: (counts[name] >= PACKED, abs(PACKED - counts[name]), name),
    )


def _offered(name: str, labels: Mapping[str, str]) -> str:
    if name in WHOLE_NODES:
        return "0" if labels.get(OPERANDS) == "false" else str(WHOLE_GPUS)
    return str(SHARED_GPUS * SPLIT) if labels.get("gpu") == "on" else "0"


def _is_chosen(name: str, labels: Mapping[str, str], selectors: list[Mapping[str, str]]) -> bool:
    """Return whether the DaemonSet of the node's DRA driver has a pod there."""
    key = "nvidia.com/dra-kubelet-plugin" if name in WHOLE_NODES else HAMI_LABEL[0]
    return any(key in selector and selector.items() <= labels.items() for selector in selectors)


def _slices(name: str) -> list[Object]:
    if name in WHOLE_NODES:
        return inventory.nvidia_gpus(name, gpus=WHOLE_GPUS, model=WHOLE_MODEL)
    return inventory.hami_gpus(name, gpus=SHARED_GPUS, model=SHARED_MODEL)


def _binding(pending: Object, node: str) -> tuple[str, str, Object]:
    metadata = pending["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": metadata["name"]},
        "target": target,
    }
    return "POST", path, body
