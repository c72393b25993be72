"""Requests of pods and resources of nodes, beside devices."""

from collections.abc import Mapping, Sequence
from typing import Any

from allocator.nodes.node_resources import NodeResources, node_resources
from allocator.nodes.pod_requests import PodRequest, pod_request
from kube.api.core import Node
from kube.api.meta import convert
from testing.builders import container, pod, pod_view

GPU = "nvidia.com/gpu"


def request(*containers: Mapping[str, Any], **spec: Any) -> PodRequest:
    """Return the request of a pod with containers that request these amounts."""
    return pod_request(
        pod_view(pod(*(container(amounts=dict(amounts)) for amounts in containers), **spec))
    )


def resources(
    allocatable: Mapping[str, Any] | None, pods: Sequence[PodRequest] = ()
) -> NodeResources:
    """Return a node with these amounts and pods; 110 pods if nothing is said."""
    status: dict[str, Any] = {}
    if allocatable is not None:
        status["allocatable"] = {"pods": 110} | dict(allocatable)
    document = {"metadata": {"name": "node-a"}, "status": status}
    return node_resources(convert(_texts(document), Node), pods)


def _texts(value: Any) -> Any:
    """Return a document with the texts of quantities as its numbers."""
    if isinstance(value, dict):
        return {key: _texts(entry) for key, entry in value.items()}
    return str(value)
