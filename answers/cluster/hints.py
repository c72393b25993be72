"""Advice for pending pods, and hints on mistakes that are common in copies of old examples. Pure.

The allocator treats objects with such mistakes as Kubernetes does: they fail, or select nothing.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.explain.failure import Failure, NodeGroup
from allocator.model.feature_gates import Features
from allocator.model.outcome import Reason
from allocator.nodes.node_resources import NodeResources
from allocator.pods.claims import allocation_of, pinned_to, pod_claims, pod_name
from allocator.pods.extended_resource_claim import mapped_resources
from allocator.simulation.model import SimulationInput, SimulationOptions
from allocator.simulation.node_advice import node_advice
from allocator.simulation.rejecting_nodes import divide_by_devices, rejecting_nodes_with_devices
from allocator.simulation.simulate import simulate_in_order
from answers.cluster.bridge import context_of
from answers.cluster.uses import USERS_SHOWN, users_of_node
from answers.model.cluster_state import ClusterState
from findings.field_path import FieldPath
from findings.text import join_names, printable
from kube.api.core import Pod
from kube.api.extended_resources import extended_resources
from kube.api.resource import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    ResourceClaim,
    ResourceClaimTemplate,
)
from rules.context.rule import Subject
from rules.feasibility.incomplete_pools import completed_slices, wait_for_pool
from rules.model.missing_claims import locate_missing, named_object
from rules.model.naming import find_similar_name
from rules.objects.published import INSTALL, find_classes_without_devices, find_failing_selectors
from translation.reading.legacy_pod import containers, device_keys

_CLAIMS_SHOWN: Final = 3
_BARE: Final = re.compile(r"(?<![\w.\"'])(attributes|capacity)\s*\[")
_TYPED: Final = re.compile(
    r"\]\s*(?:\.\w+|\[[^]]*\])\.(string|int|bool|version|stringValue|intValue|boolValue|value)\b(?!\()"
)
_NO_DOMAIN: Final = re.compile(r"device\.(attributes|capacity)\[\s*([\"'])([^\"'./]+)\2\s*\]")
_NO_SUCH_DEVICE: Final = frozenset({Reason.SELECTOR, Reason.NO_DEVICES})
_DOTTED: Final = re.compile(r"device\.(attributes|capacity)\.(\w+)")


def hints(
    classes: Mapping[str, DeviceClass],
    claims: Iterable[ResourceClaim] = (),
    templates: Iterable[ResourceClaimTemplate] = (),
) -> list[str]:
    """Return the hints on these objects, each once."""
    return list(dict.fromkeys((*_class_hints(classes), *_claims_hints(claims, templates))))


def legacy_hints(pod: Pod, mapped_names: Collection[str]) -> list[str]:
    """Return a hint on a pod that requests devices of device plugins.

    Args:
        mapped_names: Extended resources that a DeviceClass maps.
    """
    keys = {key for _, container in containers(pod) for key in device_keys(container)}
    names = ", ".join(sorted(keys.difference(mapped_names)))
    if not names:
        return []
    return [
        (
            f"Pod {pod.metadata.namespace}/{pod_name(pod)}: {names} can only come from a device plugin,"
            " which gives no choice of devices; `drawbridge translate` says whether claims can take their place"
        )
    ]


def missing_claim_advice(pod: Pod, state: ClusterState) -> Iterator[str]:
    """Yield the name, the field or the namespace that was probably meant for each missing claim or template."""
    namespace = pod.metadata.namespace
    for entry in pod.spec.resource_claims or ():
        reference = named_object(entry, state.claims.keys(), state.templates.keys())
        if reference is None or (namespace, reference.name) in reference.existing:
            continue
        similar = find_similar_name(
            reference.name, (other for place, other in reference.existing if place == namespace)
        )
        advice = locate_missing(namespace, reference, similar)
        if advice:
            yield advice


def shared_claim_advice(pod: Pod, state: ClusterState) -> Iterator[str]:
    """Yield in a sentence each named claim that keeps a pod on the node of its allocation."""
    namespace = pod.metadata.namespace
    names = [entry.resource_claim_name or "" for entry in pod.spec.resource_claims or ()]
    for name in dict.fromkeys(names):
        claim = state.claims.get((namespace, name))
        allocation = None if claim is None else allocation_of(claim)
        node = None if allocation is None else pinned_to(allocation)
        if claim is None or node is None:
            continue
        reserved = (claim.status.reserved_for if claim.status else None) or ()
        users = [entry.name for entry in reserved if entry.name != pod.metadata.name]
        used_by = f", used by {join_names(users)}," if users else ""
        yield (
            f"claim {printable(name)}{used_by} is allocated on node {printable(node)}, and the pod can go to "
            "that node only; a claim of its own (resourceClaimTemplateName) may get devices on another"
        )


def pool_advice(
    pod: Pod, failure: Failure, state: ClusterState, features: Features
) -> Iterator[str]:
    """Yield in a sentence the incomplete pool of a node for a pod, proved by a placement."""
    causes = {
        name: reason.message
        for group in failure.groups or ()
        for reason in group.reasons
        if reason.code == Reason.POOL_INCOMPLETE
        for name in group.nodes
    }
    if not causes:
        return
    slices = completed_slices(state.slices)
    question = SimulationInput(
        pods=(pod,),
        known=state.claims,
        templates=state.templates,
        classes=state.classes,
        extended_resources=extended_resources(state.classes.values()),
        resources=state.node_resources(),
    )
    cluster = replace(state, slices=slices).cluster(features)
    node = simulate_in_order(cluster, question, SimulationOptions()).pods[0].node
    if node in causes:
        yield f"{wait_for_pool(causes[node], node)}: the pod fits that node then"


def advise_pod(
    pod: Pod,
    failure: Failure,
    state: ClusterState,
    cluster: Cluster,
    resources: Mapping[str, NodeResources],
) -> tuple[Failure, tuple[str, ...]]:
    """Return the failure of a pod as people need it, and advice beside the changes to its claims.

    Args:
        cluster: The cluster as the pod was tried on it.
        resources: Node to its CPU, memory and other counted resources.
    """
    waits = tuple(pool_advice(pod, failure, state, cluster.options.features))
    claims = pod_claims(pod, state.claims, state.templates)
    classes = extended_resources(state.classes.values())
    groups = failure.groups or ()
    rejecting = tuple(rejecting_nodes_with_devices(cluster, pod, claims.open, classes, groups))
    mapped_classes = {classes[resource] for resource in mapped_resources(pod, classes)}
    advice = (
        *waits,
        *islice(shared_claim_advice(pod, state), _CLAIMS_SHOWN),
        *toleration_advice(pod, failure),
        *node_advice(
            pod, claims, rejecting, cluster, extended_resources=classes, resources=resources
        ),
        *selection_advice(claims.open, groups, state, cluster, mapped_classes=mapped_classes),
        *_users_advice(failure, state),
    )
    shown_failure = replace(failure, groups=divide_by_devices(groups, rejecting) or failure.groups)
    return shown_failure.of_same_kinds() if waits else shown_failure, advice


def _users_advice(failure: Failure, state: ClusterState) -> Iterator[str]:
    """Yield the users of the devices that a pod waits for, in a sentence."""
    idle = failure.closest_fit_when_idle
    if idle is not None and not idle.changes:
        users = users_of_node(idle.node, state)
        if users:
            yield f"devices of node {idle.node} are used by {join_names(users, USERS_SHOWN)}"


def selection_advice(
    claims: Sequence[ResourceClaim],
    groups: Iterable[NodeGroup],
    state: ClusterState,
    cluster: Cluster,
    *,
    mapped_classes: Collection[str] = (),
) -> Iterator[str]:
    """Yield in a sentence each class without devices, and each selector that errors, with the fix.

    Args:
        claims: The open claims of a pod that no node takes.
        groups: The reasons of the nodes.
        cluster: The cluster as the pod's scheduler sees it.
        mapped_classes: The DeviceClasses of the pod's resource names.
    """
    codes = {reason.code for group in groups for reason in group.reasons}
    lacks_devices = bool(codes) and codes <= _NO_SUCH_DEVICE
    if not lacks_devices and Reason.ATTEMPT_FAILED not in codes:
        return
    context = replace(context_of(state), current_cluster=cluster, has_all_classes=True)
    find = find_classes_without_devices if lacks_devices else find_failing_selectors
    sentences: dict[str, None] = {}
    for claim in claims:
        subject = Subject(view=claim.spec.devices, namespace=claim.metadata.namespace)
        for finding in find(subject, FieldPath(), context):
            if finding.fix and finding.fix != INSTALL:
                # The reasons have the error of a selector.
                text = f"{finding.detail}; {finding.fix}" if lacks_devices else finding.fix
                sentences[text] = None
    yield from sentences
    if codes == {Reason.NO_DEVICES} and not sentences:
        names = {name for claim in claims for name in _class_names(claim)}.union(mapped_classes)
        yield (
            f"no node has devices of class {', '.join(sorted(names))}: a DRA driver that publishes them has to run "
            "there (drawbridge inventory lists the drivers that do)"
        )


def _class_names(claim: ResourceClaim) -> Iterator[str]:
    for request in claim.spec.devices.requests or ():
        for alternative in (request.exactly, *(request.first_available or ())):
            if alternative is not None:
                yield alternative.device_class_name


def toleration_advice(pod: Pod, failure: Failure) -> Iterator[str]:
    """Yield in a sentence the place of a toleration of devices, for a pod with one of the same taint."""
    fit = failure.closest_fit
    taints = {key for change in (fit.changes if fit is not None else ()) for key in change.taints}
    if any(toleration.key in taints for toleration in pod.spec.tolerations or ()):
        yield (
            "the tolerations of the pod are for taints of nodes, not of devices; write this one in the "
            "request of the claim or template: exactly.tolerations"
        )


def _class_hints(classes: Mapping[str, DeviceClass]) -> Iterator[str]:
    for name, device_class in sorted(classes.items()):
        yield from _selector_hints(f"DeviceClass {name}", device_class.spec.selectors)


def _claims_hints(
    claims: Iterable[ResourceClaim], templates: Iterable[ResourceClaimTemplate]
) -> Iterator[str]:
    for claim in claims:
        place = f"ResourceClaim {claim.metadata.namespace}/{claim.metadata.name}"
        yield from _claim_hints(place, claim.spec.devices)
    for template in templates:
        place = f"ResourceClaimTemplate {template.metadata.namespace}/{template.metadata.name}"
        yield from _claim_hints(place, template.spec.spec.devices)


def _claim_hints(place: str, devices: DeviceClaim) -> Iterator[str]:
    for request in devices.requests or ():
        yield from _request_hints(f"{place}, request {request.name}", request)


def _request_hints(place: str, request: DeviceRequest) -> Iterator[str]:
    if request.exactly is None and not request.first_available:
        yield (
            f"{place}: since v1beta2 deviceClassName, selectors and count are fields of `exactly`, "
            "which is missing, so nothing is requested"
        )
    for alternative in (request.exactly, *(request.first_available or ())):
        if alternative is not None:
            yield from _selector_hints(place, alternative.selectors)


def _selector_hints(place: str, selectors: Iterable[DeviceSelector] | None) -> Iterator[str]:
    for selector in selectors or ():
        if selector.cel is not None:
            for hint in _expression_hints(selector.cel.expression):
                yield f"{place}: {hint}"


def _expression_hints(expression: str) -> Iterator[str]:
    """Yield hints on an expression.

    >>> list(_expression_hints('attributes["gpu.example.com"].model.string == "H100"'))[0]
    'write device.attributes[...], there is no variable attributes'
    """
    if bare := _BARE.search(expression):
        yield f"write device.{bare[1]}[...], there is no variable {bare[1]}"
    if match := _TYPED.search(expression):
        yield f"leave out .{match[1]}: an attribute is its value already"
    if lone := _NO_DOMAIN.search(expression):
        yield (
            f"device.{lone[1]}[...] takes the domain first, usually the driver's name: "
            f'device.{lone[1]}["DOMAIN"].{lone[3]}'
        )
    if match := _DOTTED.search(expression):
        yield (
            f'write device.{match[1]}["DOMAIN"].{match[2]}; the domain is usually the driver\'s name'
        )
