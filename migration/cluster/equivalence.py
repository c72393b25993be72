"""The pods and nodes that are the same to the simulation: pods of one shape, and nodes of one group. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from kube.api.core import Container, Node, Pod, Taint, Toleration
from kube.api.meta import encode
from kube.api.resource import ResourceClaimTemplate
from migration.cluster.volumes import HOSTNAME
from translation.model.required_labels import required_labels


class NodeGroup(NamedTuple):
    """The properties of a node that decide on the pods that may use its devices.

    Attributes:
        classes: The DeviceClasses that select any of its devices.
        labels: Its labels that pods select nodes by, with their values.
    """

    classes: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    taints: tuple[Taint, ...]


def group_nodes(
    nodes: Mapping[str, Node], pods: Iterable[Pod], serving: Mapping[str, Collection[str]]
) -> dict[str, NodeGroup]:
    """Return node to its group: the nodes of one are the same to every pod.

    They have devices of the same classes, the same taints, and the same values of all labels that pods
    select nodes by. The name of the host does not count: a pod that selects it has no other node.

    Args:
        nodes: The nodes by name.
        pods: All pods that are placed.
        serving: DeviceClass to the nodes with devices that it selects.
    """
    keys = {key for pod in pods for key in selected_labels(pod)} - {HOSTNAME}
    classes: dict[str, list[str]] = {}
    for class_name, names in sorted(serving.items()):
        for name in names:
            classes.setdefault(name, []).append(class_name)
    return {
        name: NodeGroup(
            classes=tuple(classes.get(name, ())),
            labels=tuple(sorted((key, node.labels[key]) for key in keys & node.labels.keys())),
            taints=tuple(node.spec.taints or ()),
        )
        for name, node in nodes.items()
    }


def selected_labels(pod: Pod) -> Iterator[str]:
    """Yield the keys of the node labels that a pod selects its nodes by."""
    return (entry.key for entry in required_labels(pod.spec))


def pod_shape(pod: Pod, templates: Mapping[tuple[str, str], ResourceClaimTemplate]) -> bytes:
    """Return all of a pod and its claims but their names."""
    spec = pod.spec
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    names = (entry.resource_claim_template_name or "" for entry in spec.resource_claims or ())
    named_templates = [templates.get((pod.metadata.namespace, name)) for name in names]
    return encode(
        (
            *(spec.node_selector, spec.affinity, spec.tolerations),
            [container.resources for container in containers],
            [template.spec if template is not None else None for template in named_templates],
            [
                (template.metadata.annotations if template is not None else None)
                for template in named_templates
            ],
            pod.metadata.annotations,
        )
    )


def bound_pod(pod: Pod, node: str) -> Pod:
    """Return a pod fixed to a node, without its scheduling constraints."""
    spec = msgspec.structs.replace(
        pod.spec,
        node_name=node,
        node_selector=None,
        affinity=None,
        tolerations=(Toleration(operator="Exists"),),
    )
    return msgspec.structs.replace(pod, spec=spec)


def device_pod(pod: Pod) -> Pod:
    """Return a pod with its devices, without scheduling constraints, CPU and memory."""
    spec = bound_pod(pod, "").spec
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(
            spec,
            containers=tuple(map(_with_devices, spec.containers or ())),
            init_containers=tuple(map(_with_devices, spec.init_containers or ())),
        ),
    )


def _with_devices(container: Container) -> Container:
    """Return a container without amounts of CPU, memory and other resources of Kubernetes itself."""
    resources = container.resources
    if resources is None:
        return container
    limits, requests = (
        {name: amount for name, amount in (amounts or {}).items() if "/" in name}
        for amounts in (resources.limits, resources.requests)
    )
    return msgspec.structs.replace(
        container,
        resources=msgspec.structs.replace(resources, limits=limits, requests=requests),
    )
