"""A pod with keys of HAMi that request more than the largest device, in the cluster of the examples."""

from collections.abc import Mapping
from typing import Final

from controllers.templates.actions import derive_claims
from kube.api.urls import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from kube.manifests.reader import read_paths
from kube.names import REQUEST_ANNOTATION
from testing.builders import NAMESPACE, gpus, profiles
from testing.command import CLUSTER
from testing.documents import Document
from testing.fake_api_server import FakeApiServer
from testing.translated_pods import translated

LARGE_FIT: Final = "Closest fit: write nvidia.com/gpumem: 81920 to fit node hami-1."
_RESOURCES: Final[Mapping[str, Resource]] = {
    "DeviceClass": DEVICE_CLASSES,
    "Node": NODES,
    "ResourceSlice": RESOURCE_SLICES,
}


def large_pod() -> Document:
    """A pod that requests 200000 MiB by a key, and waits; its claim is `train-gpu-x`."""
    document = translated(gpus(1, mem=200000), claims={"gpu-main": "train-gpu-x"})
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    document["status"]["conditions"] = [condition]
    return document


def put_large_pod(server: FakeApiServer) -> Document:
    """Store the cluster, the pod and its claim."""
    for entry in read_paths([str(CLUSTER)]):
        server.put(_RESOURCES[entry.document["kind"]], entry.document)
    document = large_pod()
    annotation = document["metadata"]["annotations"][REQUEST_ANNOTATION]
    (claim,) = derive_claims(annotation, profiles()).claims
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": "pod-1", "controller": True}
    metadata = {"name": "train-gpu-x", "namespace": NAMESPACE, "ownerReferences": [owner]}
    server.put(RESOURCE_CLAIMS, {"metadata": metadata, "spec": claim.spec["spec"]})
    return server.put(PODS, document)
