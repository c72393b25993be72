"""Faults of amounts of extended resources that DeviceClasses map: Kubernetes allocates them without us.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/framework/plugins/dynamicresources,
extendeddynamicresources.go: one claim for all of a pod; pkg/apis/core/validation for negative amounts.
"""

from collections.abc import Iterator
from typing import Final

from allocator.pods.extended_resource_claim import (
    extended_resource_claim,
    limit_paths,
    mapped_resources,
)
from findings.field_path import FieldPath
from findings.finding import Code, Finding, error, warning
from findings.text import quote_text
from kube.api.core import Pod
from kube.api.resource import MAX_RESULTS, DeviceClaim
from kube.quantity import ZERO
from rules.context.claim_entries import resources_in_claim
from rules.context.context import Context
from rules.context.rule import BUILT_IN_VALIDATION, OTHER_OBJECTS, Category, PodRule, Scope, Subject

PodSubject = Subject[Pod]


def find_negative_amounts(pod: PodSubject, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield negative amounts of resources that classes map."""
    spec = pod.view.spec
    for field, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
    ):
        for index, container in enumerate(containers or ()):
            for part in ("limits", "requests"):
                for name, amount in sorted(getattr(container, part).items()):
                    if name in context.extended_resources and amount < ZERO:
                        place = path.child("spec", field, index, "resources", part)
                        yield error(
                            Code.NEGATIVE,
                            place.key(name),
                            f"{amount} is negative",
                            "write 0 or more",
                        )


def find_too_many_devices(pod: PodSubject, path: FieldPath, context: Context) -> Iterator[Finding]:
    """Yield a pod with resources of more devices than a claim can have, so that it never gets any."""
    resources = resources_in_claim(pod, context)
    if not resources:
        return
    claim = extended_resource_claim(pod.view, resources, context.extended_resources)
    total = _number(claim.spec.devices)
    if total <= MAX_RESULTS:
        return
    places = sorted(limit_paths(pod.view, resources).values(), key=str)
    place = path.join(places[0]) if places else path.child("spec", "containers")
    names = " and ".join(quote_text(name) for name in sorted(resources))
    yield error(
        Code.TOO_MANY_DEVICES,
        place,
        f"{total} devices by {names}: Kubernetes makes one claim for all of a pod, and a claim has at "
        f"most {MAX_RESULTS} devices",
        f"request at most {MAX_RESULTS} in all containers together",
    )


def find_more_than_any_node_has(
    pod: PodSubject, path: FieldPath, context: Context
) -> Iterator[Finding]:
    """Yield amounts above those of every node, of resources that device plugins offer beside a class.

    The scheduler makes no claim on a node with the plugin, so the claim alone tells nothing.
    """
    idle_cluster, classes = context.idle_cluster, context.extended_resources
    if idle_cluster is None or not classes or pod.view.spec.node_name:
        return
    for name in sorted(mapped_resources(pod.view, classes)):
        by_plugin = idle_cluster.largest_plugin_offer(name)
        if not by_plugin:
            continue
        claim = extended_resource_claim(pod.view, {name}, classes)
        total = _number(claim.spec.devices)
        stock = idle_cluster.class_stock(classes[name]).values()
        by_class = max((driver.on_one_node for driver in stock), default=0)
        if total <= max(by_plugin, by_class):
            continue
        places = sorted(limit_paths(pod.view, {name}).values(), key=str)
        limit = path.join(places[0]) if places else path.child("spec", "containers")
        yield warning(
            Code.EXCEEDS_LARGEST_NODE,
            limit,
            f"{quote_text(name)}: {total} is more than one node has: a device plugin offers at most {by_plugin}, "
            f"DeviceClass {quote_text(classes[name])} {by_class}",
            f"write {max(by_plugin, by_class)}{' in all containers together' if len(places) != 1 else ''}",
        )


def _number(devices: DeviceClaim) -> int:
    requests = devices.requests or ()
    return sum(request.exactly.count or 1 for request in requests if request.exactly is not None)


RULES: Final[tuple[PodRule, ...]] = (
    PodRule(
        code=Code.NEGATIVE,
        scope=Scope.POD,
        category=Category.INVALID,
        validate=find_negative_amounts,
        fix="Write 0 or more.",
        no_cel_reason=BUILT_IN_VALIDATION,
    ),
    PodRule(
        code=Code.TOO_MANY_DEVICES,
        scope=Scope.POD,
        category=Category.INVALID,
        validate=find_too_many_devices,
        fix="Request fewer devices, or several pods.",
        no_cel_reason=OTHER_OBJECTS,
    ),
    PodRule(
        code=Code.EXCEEDS_LARGEST_NODE,
        scope=Scope.POD,
        category=Category.INFEASIBLE,
        validate=find_more_than_any_node_has,
        fix="Request no more devices than one node has; for more, start several pods.",
        no_cel_reason=OTHER_OBJECTS,
    ),
)
