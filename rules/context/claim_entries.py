"""The claims that are evaluated together: a validated claim, or those of a pod."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from allocator.pods.extended_resource_claim import (
    SUFFIX,
    extended_resource_claim,
    limit_paths,
    mapped_resources,
)
from findings.field_path import FieldPath
from kube.api.core import FINISHED_PHASES, Pod
from kube.api.meta import ObjectMeta
from kube.api.resource import MAX_REQUESTS, DeviceClaim, ResourceClaim, ResourceClaimSpec
from kube.names import DEFAULT_SCHEDULER_NAME
from rules.context.context import Context
from rules.context.rule import Subject
from rules.model.requests import MAX_CHARACTERS, exceeds_compile_cost, list_selectors

MAX_CLAIMS: Final = 16
"""Claims of a pod that are evaluated together."""
_SCHEDULERS: Final = frozenset({"", DEFAULT_SCHEDULER_NAME})
"""Schedulers that are known to make claims for extended resources; the bridge makes none."""


class ClaimEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A validated claim, or a claim of a pod.

    Attributes:
        claim: The claim as the search sees it.
        path: The path from the object to the claim's devices, or to the reference of the pod.
        holds_devices: The path leads to the devices, so it can be extended into them.
        is_reference: The path leads to a name, so messages give the path within the claim.
        limits: Request of the claim to the path of the limit that it was made from, for just as many devices.
        existing: Namespace and name of a claim that the pod names; None for one that is made for it.
    """

    claim: ResourceClaim
    path: FieldPath
    holds_devices: bool = False
    is_reference: bool = False
    limits: Mapping[str, FieldPath] = {}
    existing: tuple[str, str] | None = None


def entries_of_claim(claim: Subject[DeviceClaim], path: FieldPath) -> tuple[ClaimEntry, ...]:
    """Return a claim; empty for an allocated one."""
    status = claim.raw.get("status")
    if isinstance(status, dict) and status.get("allocation"):
        return ()
    if len(claim.view.requests or ()) > MAX_REQUESTS:
        return ()
    metadata = ObjectMeta(name="claim", namespace=claim.namespace)
    return (ClaimEntry(claim=_claim(claim.view, metadata), path=path, holds_devices=True),)


def entries_of_pod(pod: Subject[Pod], path: FieldPath, context: Context) -> tuple[ClaimEntry, ...]:
    """Return the known claims of a pod that are not allocated yet."""
    status = pod.view.status
    if pod.view.spec.node_name or (status is not None and status.phase in FINISHED_PHASES):
        return ()
    entries: dict[tuple[str, str], ClaimEntry] = {}
    # If the first claims are infeasible, all of them are.
    for index, pod_claim in enumerate((pod.view.spec.resource_claims or ())[:MAX_CLAIMS]):
        place = path.child("spec", "resourceClaims", index)
        if pod_claim.resource_claim_template_name:
            name, field = pod_claim.resource_claim_template_name, "resourceClaimTemplateName"
            devices = context.templates.get((pod.namespace, name))
            key, claim_name = ("template", str(index)), pod_claim.name
        else:
            name, field = pod_claim.resource_claim_name or "", "resourceClaimName"
            devices = context.claims.get((pod.namespace, name))
            key, claim_name = ("claim", name), name
        if devices is None or len(devices.requests or ()) > MAX_REQUESTS:
            continue
        if key[0] == "claim" and (pod.namespace, name) in context.allocated_claims:
            continue
        # The claim of a template does not exist yet, so it has the pod's name for it.
        metadata = ObjectMeta(name=claim_name, namespace=pod.namespace)
        claim = _claim(devices, metadata)
        # Two entries may refer to one claim.
        entry = ClaimEntry(
            claim=claim,
            path=place.child(field),
            is_reference=True,
            existing=(pod.namespace, name) if key[0] == "claim" else None,
        )
        entries.setdefault(key, entry)
    return (*entries.values(), *_extended_resource_entries(pod, path, context))


def resources_in_claim(pod: Subject[Pod], context: Context) -> frozenset[str]:
    """Return the extended resources of a pod that the scheduler makes one claim for.

    Resources that the device plugin of some node may offer are left out.
    """
    idle_cluster, classes = context.idle_cluster, context.extended_resources
    if idle_cluster is None or not classes or pod.view.spec.scheduler_name not in _SCHEDULERS:
        return frozenset()
    return idle_cluster.without_plugin(mapped_resources(pod.view, classes))


def _extended_resource_entries(
    pod: Subject[Pod], path: FieldPath, context: Context
) -> Iterator[ClaimEntry]:
    """Yield the claim that the scheduler makes for extended resources that classes map."""
    resources = resources_in_claim(pod, context)
    if not resources:
        return
    claim = extended_resource_claim(pod.view, resources, context.extended_resources)
    if len(claim.spec.devices.requests or ()) <= MAX_REQUESTS:
        derived_claim = _claim(claim.spec.devices, ObjectMeta(name=SUFFIX, namespace=pod.namespace))
        limits = {
            name: path.join(limit) for name, limit in limit_paths(pod.view, resources).items()
        }
        place = path.child("spec", "containers")
        yield ClaimEntry(claim=derived_claim, path=place, limits=limits)


def _claim(devices: DeviceClaim, metadata: ObjectMeta) -> ResourceClaim:
    # Opaque configuration does not affect feasibility here.
    without_config = replace(devices, config=None)
    return ResourceClaim(metadata=metadata, spec=ResourceClaimSpec(devices=without_config))


def joint_path(entries: Sequence[ClaimEntry], whole: FieldPath) -> FieldPath:
    """Return the path for a finding about all claims together.

    Args:
        whole: The path where there are several.
    """
    return entries[0].path if len(entries) == 1 else whole


def are_selectors_short(claims: Sequence[ResourceClaim]) -> bool:
    """Return True if the selectors of claims may be compiled within one review."""
    selectors = list_selectors(claim.spec.devices for claim in claims)
    return not exceeds_compile_cost(selectors, MAX_CHARACTERS)
