"""The objects of a cluster as a control plane of simulated nodes gets them. Pure.

Only fields that decide where a pod runs, how it ends and what it asks for are taken over. Nothing is that
could act or hold a secret: no Secret, no webhook, no controller of others.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from allocator.nodes.amounts import CPU, MEMORY, PODS, milli_value
from allocator.nodes.node_resources import NodeResources
from kube.api.workloads import DAEMON_SET, pod_path, replace_at, resolve_path
from kube.quantity import Quantity
from migration.cluster.evidence import RUN_TO_COMPLETION, list_at, mapping_at
from migration.cluster.volumes import HOSTNAME

IMAGE: Final = "registry.internal/app:1"
"""The image of containers without one; no kubelet pulls it."""
SELECTOR: Final = "rehearsed-workload"
"""The label by which a workload finds its pods, since a snapshot may lack what the cluster had."""
ENDS_LABEL: Final = ("ends", "cordoned")
"""The label of pods that run to their end: their work ends soon after their node is cordoned."""
_POD_FIELDS: Final = (
    "affinity",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priorityClassName",
    "resourceClaims",
    "restartPolicy",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
)
STATEFUL_SET: Final = "StatefulSet"
_CONTAINER_FIELDS: Final = ("name", "image", "resources", "restartPolicy")
_WORKLOAD_FIELDS: Final = {
    "Deployment": ("replicas", "strategy"),
    STATEFUL_SET: ("replicas", "podManagementPolicy", "ordinals"),
    "ReplicaSet": ("replicas",),
    DAEMON_SET: (),
    "Job": (
        *("parallelism", "completions", "completionMode", "suspend"),
        *("backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes", "podFailurePolicy"),
    ),
    "CronJob": (),
}
KINDS: Final = tuple(_WORKLOAD_FIELDS)
"""Kinds of workloads that kube-controller-manager runs."""
_OF_ONE_JOB: Final = tuple(
    f"{prefix}{name}"
    for prefix in ("", "batch.kubernetes.io/")
    for name in ("controller-uid", "job-name")
)
"""Labels that the API server sets in the template of each Job; it rejects those of another."""
KUBERNETES_TAINTS: Final = "node.kubernetes.io/"
"""Prefix of taints that Kubernetes itself sets and removes, and lets pods tolerate."""
_CLAIM: Final[dict[str, Any]] = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
    "storageClassName": "",
}
"""The request of every claim; nothing is stored."""
EVERY_HOST: Final[Mapping[str, Any]] = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": HOSTNAME, "operator": "Exists"}]}]
}
"""The selector of all nodes."""
_ROOM: Final = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "500"}


def plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object as it would be created: without status, owners, finalizers and managers."""
    metadata = document.get("metadata") or {}
    fields = {
        field: metadata[field]
        for field in ("name", "namespace", "labels", "annotations")
        if metadata.get(field)
    }
    return {
        **{key: value for key, value in document.items() if key not in {"metadata", "status"}},
        "metadata": fields,
    }


def node(document: Mapping[str, Any], others: NodeResources) -> dict[str, Any]:
    """Return a node that kwok plays, with the devices that it offers.

    Args:
        document: The Node.
        others: The requests of pods there that are not rehearsed; the node has that much less.
    """
    created = plain(document)
    created["metadata"].setdefault("annotations", {})
    created["metadata"]["annotations"] |= {"kwok.x-k8s.io/node": "fake"}
    labels = created["metadata"].setdefault("labels", {})
    labels.setdefault("kubernetes.io/hostname", created["metadata"]["name"])
    labels.setdefault("kubernetes.io/os", "linux")
    spec = document.get("spec") or {}
    taints = [
        taint
        for taint in spec.get("taints") or ()
        if not str(taint.get("key", "")).startswith(KUBERNETES_TAINTS)
    ]
    created["spec"] = {"taints": taints} if taints else {}
    if spec.get("unschedulable"):
        created["spec"]["unschedulable"] = True
    room = {**_ROOM, **((document.get("status") or {}).get("allocatable") or {})}
    cpu_milli = milli_value(Quantity(str(room[CPU]))) - others.requested.cpu_milli
    memory = Quantity(str(room[MEMORY])).round_up() - others.requested.memory
    room[CPU] = f"{max(0, cpu_milli)}m"
    room[MEMORY] = str(max(0, memory))
    room[PODS] = str(max(0, Quantity(str(room[PODS])).round_up() - others.pods))
    created["status"] = {"capacity": room, "allocatable": room}
    return created


def workload(
    document: Mapping[str, Any],
    known_priorities: frozenset[str],
    scheduler: str = "",
    tolerations: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return a workload with pods that ask for the same, in the same places.

    Args:
        document: The document of one of `KINDS`.
        known_priorities: PriorityClasses of the cluster.
        scheduler: The scheduler of its pods; empty for that of its template.
        tolerations: The tolerations of its pods that an admission plugin or a webhook may have added.
    """
    kind = str(document["kind"])
    created = plain(document)
    spec = document.get("spec") or {}
    fields: dict[str, Any] = {
        field: spec[field] for field in _WORKLOAD_FIELDS[kind] if spec.get(field) is not None
    }
    name = created["metadata"]["name"]
    if kind == "CronJob":
        inside = (spec.get("jobTemplate") or {}).get("spec") or {}
        template = pod_template(inside.get("template") or {}, known_priorities, kind)
        job = {"template": template}
        created["spec"] = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": job}}
        return created
    template = pod_template(spec.get("template") or {}, known_priorities, kind)
    if scheduler:
        template["spec"]["schedulerName"] = scheduler
    own = template["spec"].get("tolerations") or []
    if added := [toleration for toleration in tolerations if toleration not in own]:
        template["spec"]["tolerations"] = [*own, *added]
    labels = template["metadata"].setdefault("labels", {})
    if kind == "Job":
        for label in _OF_ONE_JOB:
            labels.pop(label, None)
        labels |= dict([ENDS_LABEL])
    else:
        # A name may be longer than a label's value.
        value = _digest(f"{kind}/{name}")
        labels[SELECTOR] = value
        fields["selector"] = {"matchLabels": {SELECTOR: value}}
    if kind == STATEFUL_SET:
        fields["serviceName"] = name[:63]
    created["spec"] = {**fields, "template": template}
    return created


def bare_pod(document: Mapping[str, Any], known_priorities: frozenset[str]) -> dict[str, Any]:
    """Return a pod without a controller; one that runs to its end has the label of such work.

    Args:
        document: The Pod.
        known_priorities: PriorityClasses of the cluster.
    """
    created = plain(document)
    spec = pod_template(document, known_priorities, "Pod")["spec"]
    if spec.get("restartPolicy") in RUN_TO_COMPLETION:
        labels = created["metadata"].get("labels") or {}
        created["metadata"]["labels"] = {**labels, **dict([ENDS_LABEL])}
    return {**created, "spec": spec}


def pod_template(
    template: Mapping[str, Any], known_priorities: frozenset[str], kind: str
) -> dict[str, Any]:
    """Return a pod template with the fields that decide about devices and places."""
    spec = template.get("spec") or {}
    fields = {field: spec[field] for field in _POD_FIELDS if spec.get(field) is not None}
    if fields.get("priorityClassName") not in known_priorities:
        fields.pop("priorityClassName", None)
    if kind in {"Job", "CronJob"}:
        fields.setdefault("restartPolicy", "Never")
    volumes = [volume for volume in spec.get("volumes") or () if "emptyDir" in volume]
    metadata = template.get("metadata") or {}
    return {
        "metadata": {
            field: dict(metadata[field])
            for field in ("labels", "annotations")
            if metadata.get(field)
        },
        "spec": {
            **fields,
            **({"volumes": volumes} if volumes else {}),
            **{
                field: [_container(entry) for entry in spec[field]]
                for field in ("initContainers", "containers")
                if spec.get(field)
            },
            # Nothing runs that would have to be waited for.
            "terminationGracePeriodSeconds": 0,
        },
    }


def with_claims(
    created: Mapping[str, Any], document: Mapping[str, Any], claims: Collection[str]
) -> dict[str, Any]:
    """Return a workload, or a pod, with the volumes of some PersistentVolumeClaims.

    Args:
        created: It, as `workload` or `bare_pod` returns it.
        document: The document that it was made of.
        claims: The names of the claims.
    """
    path = pod_path(str(created["apiVersion"]), str(created["kind"])) or ()
    _, template = resolve_path(document, path)
    volumes = [
        {"name": entry["name"], "persistentVolumeClaim": {"claimName": claim}}
        for entry in list_at(template, "spec", "volumes")
        if (claim := mapping_at(entry, "persistentVolumeClaim").get("claimName")) in claims
    ]
    _, pod = resolve_path(created, path)
    spec = mapping_at(pod, "spec")
    if volumes:
        spec = {**spec, "volumes": [*list_at(spec, "volumes"), *volumes]}
    changed = dict(replace_at(created, (*path, "spec"), spec))
    name = created["metadata"]["name"]
    templates = [
        {"metadata": {"name": prefix.removesuffix(f"-{name}-")}, "spec": _CLAIM}
        for prefix in claim_prefixes(document, name)
        if any(claim.startswith(prefix) for claim in claims)
    ]
    if templates:
        changed["spec"] = {**changed["spec"], "volumeClaimTemplates": templates}
    return changed


def claim_prefixes(document: Mapping[str, Any], name: str) -> Iterator[str]:
    """Yield the beginnings of the names of the claims that a StatefulSet of a name makes, up to the ordinals."""
    for entry in list_at(document, "spec", "volumeClaimTemplates"):
        if own_name := mapping_at(entry, "metadata").get("name"):
            yield f"{own_name}-{name}-"


def ordinals(document: Mapping[str, Any]) -> range:
    """Return the ordinals of a StatefulSet's pods; none if it has a number that the API server rejects."""
    spec = mapping_at(document, "spec")
    first, count = mapping_at(spec, "ordinals").get("start", 0), spec.get("replicas", 1)
    return range(first, first + count) if type(first) is int and type(count) is int else range(0)


def on_host(hostnames: Sequence[str]) -> dict[str, Any]:
    """Return the selector of the nodes with some values of the label `kubernetes.io/hostname`."""
    expression = {"key": HOSTNAME, "operator": "In", "values": [*hostnames]}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


def volume_name(namespace: str, claim: str) -> str:
    """Return the name of a PersistentVolume for a claim that has none, however long the names of both are."""
    return f"rehearsed-{_digest(f'{namespace}/{claim}')}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def bound_claim(
    namespace: str, name: str, volume: str, selector: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a PersistentVolume of some nodes, and the PersistentVolumeClaim that it is bound to.

    Args:
        namespace: The namespace of the claim.
        name: The name of the claim.
        volume: The name of the volume.
        selector: The node selector of these nodes.
    """
    return (
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                "accessModes": _CLAIM["accessModes"],
                "capacity": _CLAIM["resources"]["requests"],
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": "/rehearsed"},
                "nodeAffinity": {"required": selector},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "namespace": namespace,
                # With it kube-scheduler does not wait for the controller that binds volumes. A claimRef without the UID
                # of this claim would make that controller call the claim lost.
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {**_CLAIM, "volumeName": volume},
        },
    )


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    fields = {field: container[field] for field in _CONTAINER_FIELDS if container.get(field)}
    return {"image": IMAGE, **fields}
