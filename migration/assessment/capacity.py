"""The check that all pods of the assessed workloads find nodes at once, with devices published or assumed."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.nodes.node_resources import NodeResources
from allocator.simulation.model import SimulationInput, SimulationOptions
from allocator.simulation.simulate import simulate_in_order
from answers.manifests.translate import build_template
from answers.model.views import decode_view
from kube.api.core import Pod
from kube.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate
from migration.assessment.outcomes import AssessedWorkload, translated_pod
from translation.compiling.claims import Claim

MAX_PODS: Final = 20_000
"""Pods of one workload that are placed one by one; more count as unplaced. A manifest may name any number, and
Kubernetes supports 15,000 nodes at most."""
MAX_ALL_PODS: Final = 100_000
"""Pods of all workloads together that are placed."""


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that were placed.

    Attributes:
        pods: The number of pods of native and translated workloads.
        placed: The number of pods that found devices.
        unplaced: `Kind/namespace/name` of workloads to the number of their pods that found none.
        not_counted: Workloads that were not placed, because their drivers have no devices here,
            neither published nor assumed.
        claim_owners: `namespace/name` of each claim of a placed pod to `Kind/namespace/name` of its
            workload.
    """

    pods: int
    placed: int
    unplaced: Mapping[str, int]
    not_counted: tuple[str, ...]
    claim_owners: Mapping[str, str] = {}


def place_workloads(
    workloads: Iterable[AssessedWorkload],
    cluster: Cluster,
    classes: Mapping[str, DeviceClass],
    usable_classes: frozenset[str],
    resources: Mapping[str, NodeResources],
    *,
    running: Collection[tuple[str, str]] = (),
) -> Capacity:
    """Place all pods one after the other, first those that run.

    Args:
        cluster: The cluster with the claims that are allocated already; has the new ones
            afterwards.
        usable_classes: Names of the DeviceClasses that select any device.
        resources: Node to its CPU, memory and other counted resources, with all other pods.
        running: Namespace and name of the pods that have a node today.
    """
    translated_workloads = [workload for workload in workloads if workload.result is not None]
    counted_workloads = [
        workload for workload in translated_workloads if class_names(workload) <= usable_classes
    ]
    owners: list[str] = []
    pods: list[Pod] = []
    waits: list[bool] = []
    templates: dict[tuple[str, str], ResourceClaimTemplate] = {}
    unplaced_counts: dict[str, int] = {}
    for workload in counted_workloads:
        own = list(islice(build_pods(workload), MAX_ALL_PODS - len(pods)))
        is_cut = len(own) == MAX_PODS or len(pods) + len(own) == MAX_ALL_PODS
        if is_cut and workload.pods > len(own):
            unplaced_counts[workload.key.reference] = workload.pods - len(own)
        pods += own
        owners += [workload.key.reference] * len(own)
        running_count = len(workload.members.intersection(running))
        waits += [number >= running_count for number in range(len(own))]
        templates.update(build_templates(workload))
    # Where devices are missing, those that wait today are the ones that lack them.
    order = sorted(range(len(pods)), key=waits.__getitem__)
    owners, pods = [owners[place] for place in order], [pods[place] for place in order]
    question = SimulationInput(
        pods=tuple(pods), templates=templates, classes=classes, resources=resources
    )
    answer = simulate_in_order(cluster, question, SimulationOptions())
    not_built = sum(unplaced_counts.values())
    for owner, placed_pod in zip(owners, answer.pods, strict=True):
        if placed_pod.node is None:
            unplaced_counts[owner] = unplaced_counts.get(owner, 0) + 1
    return Capacity(
        pods=len(pods) + not_built,
        placed=len(pods) + not_built - sum(unplaced_counts.values()),
        unplaced=unplaced_counts,
        not_counted=tuple(
            workload.key.reference
            for workload in translated_workloads
            if workload not in counted_workloads
        ),
        claim_owners={
            f"{pod.namespace}/{claim}": owner
            for owner, pod in zip(owners, answer.pods, strict=True)
            for claim in answer.uses.get((pod.namespace, pod.name), ())
        },
    )


def release_claims(
    claims: Mapping[tuple[str, str], ResourceClaim], pods: Collection[tuple[str, str]]
) -> dict[tuple[str, str], ResourceClaim]:
    """Return the claims without those of pods that are placed anew.

    A pod that has moved already would else be counted twice: by its claim, and among the pods.

    Args:
        claims: The claims by namespace and name.
        pods: Namespace and name of the pods of workloads.
    """
    return {name: claim for name, claim in claims.items() if not _is_of(claim, pods)}


def _is_of(claim: ResourceClaim, pods: Collection[tuple[str, str]]) -> bool:
    owners = claim.metadata.owner_references or ()
    return any(
        owner.kind == "Pod" and (claim.metadata.namespace, owner.name) in pods for owner in owners
    )


def class_names(workload: AssessedWorkload) -> frozenset[str]:
    """Return the DeviceClasses that a workload's claims name."""
    claims = workload.result.claims if workload.result is not None else ()
    return frozenset(name for claim in claims for name in claim.class_names())


def build_pods(workload: AssessedWorkload) -> Iterator[Pod]:
    """Yield the pods of a workload, `MAX_PODS` at most; its claims are those of the translation."""
    document = translated_pod(workload.result) if workload.result is not None else None
    pod = decode_view(document, Pod) if document is not None else None
    if not isinstance(pod, Pod):
        return
    key = workload.key
    for number in range(min(workload.pods, MAX_PODS)):
        # Workloads of one name may be of several kinds.
        metadata = msgspec.structs.replace(
            pod.metadata, name=f"{key.kind}-{key.name}-{number}", namespace=key.namespace
        )
        yield msgspec.structs.replace(pod, metadata=metadata)


def build_templates(
    workload: AssessedWorkload,
) -> Iterator[tuple[tuple[str, str], ResourceClaimTemplate]]:
    """Yield the claim templates of a workload's pods by namespace and name."""
    claims: Sequence[Claim] = workload.result.claims if workload.result is not None else ()
    for claim in claims:
        template = decode_view(build_template(claim, workload.key.namespace), ResourceClaimTemplate)
        if isinstance(template, ResourceClaimTemplate):
            yield (workload.key.namespace, claim.template), template
