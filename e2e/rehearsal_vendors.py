"""Stand-ins for the device plugins, drivers and schedulers of a cluster that `drawbridge rehearse` tries.

They follow the labels that a plan gives to nodes: with them a node's device plugin offers nothing, and
its DRA driver publishes. Pods of other schedulers get a node that has their devices free, and passes
kube-scheduler's filters; those of HAMi get cards of nodes that HAMi serves. Its scheduler marks the handshake
of a node that its plugin has left.
"""

import http.client
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from e2e.access import Access, Object
from e2e.checker.history import is_gated
from e2e.foreign_placement import Place, choose, is_foreign, occupy
from e2e.hami_scheduler import CardShare, exchanged_annotations
from e2e.stand_in import StandIn
from kube.api.core import Node, Pod
from kube.api.meta import convert
from migration.rehearsal.documents import ENDS_LABEL
from migration.rehearsal.model import RehearsalInput, RehearsedNode
from testing.documents import api_object

WORK_S: Final = 3.0
"""The time for the work of a Job to go on once its node is cordoned."""
_FINISHED: Final = ("Succeeded", "Failed")
_OWNERS: Final = {"ReplicaSet": "replicasets", "Job": "jobs"}


class RehearsedVendors(StandIn):
    """The processes of a cluster's vendors."""

    def __init__(self, cluster: Access, rehearsal: RehearsalInput) -> None:
        super().__init__("vendors")
        self._cluster = cluster
        self._nodes = {str(node.document["metadata"]["name"]): node for node in rehearsal.nodes}
        self._places = {
            reference: Counter(node for node in nodes if node in self._nodes)
            for reference, nodes in rehearsal.places.items()
        }
        self._switched: set[str] = set()
        self._cordoned: dict[str, float] = {}
        self._shares: dict[str, tuple[CardShare, ...]] = {}

    def place_as_before(self) -> int:
        """Bind pods to the nodes that the pods of their workload had; return the number of bound ones.

        kube-scheduler does not run meanwhile.
        """
        owners = {
            entry["metadata"]["uid"]: entry
            for kind in _OWNERS.values()
            for entry in self._cluster.objects(kind)
        }
        bound = 0
        for pod in self._cluster.objects("pods"):
            # A pod with claims needs the scheduler, which allocates them.
            if "nodeName" in pod["spec"] or pod["spec"].get("resourceClaims"):
                continue
            metadata = pod["metadata"]
            references = (
                f"Pod/{metadata['namespace']}/{metadata['name']}",
                _top_owner(pod, owners),
            )
            places = next(
                (self._places[entry] for entry in references if entry in self._places), Counter()
            )
            own = _own_node(pod)
            name = next(
                (name for name, count in sorted(places.items()) if count > 0 and own in {"", name}),
                "",
            )
            if name:
                places[name] -= 1
                self._bind(pod, name)
                bound += 1
        return bound

    def _turn(self) -> None:
        nodes = {node["metadata"]["name"]: node for node in self._cluster.objects("nodes")}
        for name, node in self._nodes.items():
            if node.labels and name in nodes:
                labels = nodes[name]["metadata"].get("labels", {})
                self._switch(name, node, is_switched=node.labels.items() <= labels.items())
        pods = self._cluster.objects("pods")
        self._bind_pending(pods, nodes)
        self._end_work(pods, nodes)

    def _switch(self, name: str, node: RehearsedNode, *, is_switched: bool) -> None:
        """Have a node's plugin or its driver hand out its devices."""
        if is_switched is (name in self._switched):
            return
        amounts = dict.fromkeys(node.resources, "0") if is_switched else dict(node.resources)
        room = {"status": {"allocatable": amounts, "capacity": amounts}}
        self._send("PATCH", f"/api/v1/nodes/{name}/status", room)
        exchanged = exchanged_annotations(node.document, is_left=is_switched, moment=time.gmtime())
        if exchanged:
            self._send("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"annotations": exchanged}})
        path = "/apis/resource.k8s.io/v1/resourceslices"
        for piece in node.later_slices:
            if is_switched:
                self._send("POST", path, piece)
            else:
                self._send("DELETE", f"{path}/{piece['metadata']['name']}")
        self._switched ^= {name}

    def _bind_pending(self, pods: Iterable[Object], nodes: Mapping[str, Object]) -> None:
        """Place the pods that kube-scheduler does not place, on the node that their scheduler prefers."""
        current = {
            document["metadata"]["uid"]: document
            for document in pods
            if document["status"].get("phase") not in _FINISHED
            and "deletionTimestamp" not in document["metadata"]
            and not is_gated(document)
        }
        views = [convert(document, Pod) for document in current.values()]
        places = {
            name: Place(convert(document, Node), is_switched=name in self._switched)
            for name, document in nodes.items()
            if name in self._nodes
        }
        self._shares = occupy(places, views, self._shares)
        for pod in views:
            if not is_foreign(pod) or pod.spec.node_name or pod.spec.resource_claims:
                continue
            chosen = choose(pod, places.values())
            if chosen is not None:
                place, shares = chosen
                place.add(pod, shares)
                self._shares[pod.metadata.uid] = shares
                self._bind(current[pod.metadata.uid], place.node.metadata.name)

    def _end_work(self, pods: Iterable[Object], nodes: Mapping[str, Object]) -> None:
        """Let the work of Jobs end a while after their node was cordoned."""
        key, value = ENDS_LABEL
        now = time.monotonic()
        for pod in pods:
            metadata = pod["metadata"]
            node = nodes.get(pod["spec"].get("nodeName", ""), {})
            is_work = metadata.get("labels", {}).get(key) == value
            is_running = pod["status"].get("phase") == "Running"
            if not (is_work and is_running and node.get("spec", {}).get("unschedulable")):
                continue
            since = self._cordoned.setdefault(metadata["uid"], now)
            if now - since >= WORK_S:
                path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
                self._send("PATCH", path, {"status": {"phase": "Succeeded"}})

    def _bind(self, pod: Object, node: str) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
        body = api_object(
            "Binding", metadata["name"], target={"apiVersion": "v1", "kind": "Node", "name": node}
        )
        self._send("POST", path, body)

    def _send(self, method: str, path: str, body: Any = None) -> None:
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        status, answer = self._cluster.request(method, path, body, content_type=content)
        gone = (http.client.NOT_FOUND, http.client.CONFLICT)
        assert status < http.client.BAD_REQUEST or status in gone, (method, path, answer)


def _own_node(pod: Object) -> str:
    """Return the node that the controller of DaemonSets has chosen for a pod; empty for other pods."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.get("nodeSelectorTerms", []):
        for field in term.get("matchFields", []):
            if field.get("key") == "metadata.name" and field.get("values"):
                return str(field["values"][0])
    return ""


def _top_owner(pod: Object, owners: Mapping[str, Object]) -> str:
    """Return the workload of a pod as `Kind/namespace/name`."""
    entry, kind = pod, "Pod"
    while references := entry["metadata"].get("ownerReferences"):
        kind, name, uid = (references[0][field] for field in ("kind", "name", "uid"))
        if uid not in owners:
            return f"{kind}/{pod['metadata']['namespace']}/{name}"
        entry = owners[uid]
    return f"{kind}/{pod['metadata']['namespace']}/{entry['metadata']['name']}"
