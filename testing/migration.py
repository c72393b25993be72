"""Clusters before and during a migration: nodes of legacy systems, and their pods."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

GPU: Final = "nvidia.com/gpu"
SHARE: Final = {GPU: "1", "nvidia.com/gpumem": "8000"}


def plugin_node(name: str, gpus: int = 4, **labels: str) -> dict[str, Any]:
    own = {"nvidia.com/gpu.product": "NVIDIA-H100", "nvidia.com/gpu.memory": "81559", **labels}
    return node(name, {GPU: str(gpus)}, own, {})


def hami_node(name: str, gpus: int = 2) -> dict[str, Any]:
    devices = [
        {"id": f"GPU-{name}-{index}", "count": 10, "devmem": 40960, "devcore": 100, "type": "A100"}
        for index in range(gpus)
    ]
    register = {"hami.io/node-nvidia-register": json.dumps(devices)}
    return node(name, {GPU: str(10 * gpus)}, {"gpu": "on"}, register)


def node(
    name: str, allocatable: Mapping[str, str], labels: Mapping[str, str], notes: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels), "annotations": dict(notes)},
        "status": {"allocatable": dict(allocatable)},
    }


def workload(
    name: str,
    limits: Mapping[str, str],
    nodes: Sequence[str],
    *,
    namespace: str = "team",
    kind: str = "Deployment",
    **spec: Any,
) -> list[dict[str, Any]]:
    """A workload, and a pod of it on each of these nodes."""
    labels = {"app": name}
    pod_spec = {"containers": [{"name": "c", "image": "a", "resources": {"limits": dict(limits)}}]}
    pod_spec |= spec
    owner = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": len(nodes),
            "template": {"metadata": {"labels": labels}, "spec": pod_spec},
        },
    }
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": True}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{number}",
                "namespace": namespace,
                "labels": labels,
                "ownerReferences": [reference],
            },
            "spec": {**pod_spec, "nodeName": node},
        }
        for number, node in enumerate(nodes)
    ]
    return [owner, *pods]


def running_job(
    name: str, limits: Mapping[str, str], nodes: Sequence[str], *, namespace: str = "team"
) -> list[dict[str, Any]]:
    """A Job, and a pod of it that runs on each of these nodes."""
    owner, *pods = workload(
        name, limits, nodes, namespace=namespace, kind="Job", restartPolicy="Never"
    )
    owner["apiVersion"] = "batch/v1"
    del owner["spec"]["replicas"]
    for pod in pods:
        pod["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
        pod["status"] = {"phase": "Running"}
    return [owner, *pods]


def daemon_set(name: str, **spec: Any) -> dict[str, Any]:
    """A DaemonSet with pods that have these fields."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "a"}], **spec}}},
    }


def budget(namespace: str = "team", app: str = "web", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "budget", "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }


def namespace(name: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A namespace."""
    metadata = {"name": name, "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def resource_slice(node: str, driver: str, uuids: Sequence[str]) -> dict[str, Any]:
    """The only slice of a node, with these devices."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-{node}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": f"device-{number}", "attributes": {"uuid": {"string": uuid}}}
                for number, uuid in enumerate(uuids)
            ],
        },
    }


def origin(*unreadable: str, version: object = "") -> dict[str, Any]:
    """Return the origin of a snapshot that lacks these resources. A version is text, unless a file is wrong."""
    return {
        "apiVersion": "cli.drawbridge.internal/v1",
        "kind": "Snapshot",
        "metadata": {"name": "cluster"},
        "kubernetesVersion": version,
        "unreadable": list(unreadable),
    }
