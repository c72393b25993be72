"""Clusters before and during a migration: nodes of legacy systems, and their pods."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from testing import documents
from testing.documents import api_object, node

GPU: Final = "nvidia.com/gpu"
WHOLE: Final = {GPU: "1"}
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
        api_object(
            "Pod",
            f"{name}-{number}",
            namespace,
            labels=labels,
            ownerReferences=[reference],
            spec={**pod_spec, "nodeName": node},
        )
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
    return api_object(
        "DaemonSet",
        name,
        "kube-system",
        spec={"template": {"spec": {"containers": [{"name": "c", "image": "a"}], **spec}}},
    )


def budget(namespace: str = "team", app: str = "web", **spec: Any) -> dict[str, Any]:
    return api_object(
        "PodDisruptionBudget",
        "budget",
        namespace,
        spec={"selector": {"matchLabels": {"app": app}}, **spec},
    )


def resource_slice(node: str, driver: str, uuids: Sequence[str]) -> dict[str, Any]:
    """The only slice of a node, with these devices."""
    return documents.resource_slice(
        *[
            {"name": f"device-{number}", "attributes": {"uuid": {"string": uuid}}}
            for number, uuid in enumerate(uuids)
        ],
        driver=driver,
        node=node,
        name=f"slice-{node}",
    )


def origin(*unreadable: str, version: object = "") -> dict[str, Any]:
    """Return the origin of a snapshot that lacks these resources. A version is text, unless a file is wrong."""
    return api_object("Snapshot", "cluster", kubernetesVersion=version, unreadable=list(unreadable))


def device_quota(*legacy_keys: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """Return an enforced DeviceQuota of the namespace `team` that counts pods with keys of HAMi, and claims."""
    limit = {
        "name": "devices",
        "driver": "hami-core-gpu.project-hami.io",
        "devices": {},
        "max": "8",
        "legacyKeys": [*legacy_keys],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "team"}}
    return api_object(
        "DeviceQuota", "team", spec={"namespaceSelector": selector, "limits": [limit], **spec}
    )


def early_namespace(
    hard: Mapping[str, str], limits: Mapping[str, str] = WHOLE, kind: str = "StatefulSet"
) -> list[dict[str, Any]]:
    """Return the namespace `team` as opted in before a plan, with a quota and a pod that has a claim."""
    name = "gpu.nvidia.com" if limits == WHOLE else "hami-core-gpu.project-hami.io"
    owner, pod = workload("early", limits, ["done"], kind=kind)
    owned = {"apiVersion": "v1", "kind": "Pod", "name": "early-0", "controller": True}
    devices = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": name, "count": 1}}]}
    pod = copy.deepcopy(pod)
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "own"}]
    own_claim = api_object(
        "ResourceClaim", "own", "team", ownerReferences=[owned], spec={"devices": devices}
    )
    done = plugin_node("done", 0)
    done["status"]["allocatable"] = {"cpu": "8"}
    return [
        *(done, resource_slice("done", name, ["GPU-a", "GPU-b"])),
        documents.device_class(f"device.driver == '{name}'", name=name),
        documents.namespace("team", {"drawbridge.internal/translate": "true"}),
        *(documents.resource_quota(hard), owner, pod, own_claim),
    ]


def ray_cluster(name: str, creator: str) -> dict[str, Any]:
    """A RayCluster as KubeRay makes it for an object of another kind; its pods have no sign of that.

    Source: ray-project/kuberay 1.5, constructRayClusterForRayJob and labelPod.
    """
    document = api_object("RayCluster", name, api_version="ray.io/v1", namespace="team")
    document["metadata"] |= {
        "labels": {"ray.io/originated-from-crd": creator},
        "ownerReferences": [
            {
                "apiVersion": "ray.io/v1",
                "kind": creator,
                "name": name,
                "uid": "0",
                "controller": True,
            }
        ],
    }
    return document
