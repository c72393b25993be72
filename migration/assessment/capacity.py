"""The check that all pods of the assessed workloads find nodes at once, with devices published or assumed."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.model.feature_gates import Features
from allocator.nodes.node_resources import NodeResources
from allocator.simulation.model import SimulationInput, SimulationOptions
from allocator.simulation.simulate import simulate_in_order
from answers.cluster.device_classes import select_devices
from answers.cluster.devices import published_devices
from answers.manifests.translate import build_template
from answers.model.cluster_state import ClusterState
from answers.model.views import decode_view
from findings.field_path import Key
from findings.finding import Code, Finding
from kube.api.core import Pod, Toleration
from kube.api.resource import DeviceClass, ResourceClaim, ResourceClaimTemplate
from migration.assessment.outcomes import AssessedWorkload, Outcome, translated_pod
from migration.cluster.node_devices import NodeDevices
from quotas.resource_quotas.usage import class_devices
from translation.compiling.claims import Claim
from translation.profiles.profile import Profile
from translation.reading.arbiter import NICS
from translation.reading.kept_keys import find_kept

MAX_PODS: Final = 20_000
"""Pods of one workload that are placed one by one; more count as unplaced. A manifest may name any number, and
Kubernetes supports 15,000 nodes at most."""
_CORDONED: Final = Toleration(key="node.kubernetes.io/unschedulable", operator="Exists")
MAX_ALL_PODS: Final = 100_000
"""Pods of all workloads together that are placed."""


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that were placed.

    Attributes:
        pods: The number of pods of native and translated workloads.
        placed: The number of pods that found devices.
        unplaced: `Kind/namespace/name` of workloads to the number of their pods that found none.
        waiting: Those of these workloads to the number of such pods that have no node today, either.
        not_counted: Workloads that were not placed, because their drivers have no devices here,
            neither published nor assumed.
        claim_owners: `namespace/name` of each claim of a placed pod to `Kind/namespace/name` of its
            workload.
        keys_to_keep: Names for `translation.keep` to the workloads that move with their GPUs only if these stay.
    """

    pods: int
    placed: int
    unplaced: Mapping[str, int]
    not_counted: tuple[str, ...]
    claim_owners: Mapping[str, str] = {}
    waiting: Mapping[str, int] = {}
    keys_to_keep: Mapping[str, tuple[str, ...]] = {}


def placed_pods(workloads: Iterable[AssessedWorkload]) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the pods that are placed anew."""
    return frozenset(
        pod for workload in workloads if workload.result is not None for pod in workload.members
    )


def place_workloads(
    workloads: Iterable[AssessedWorkload],
    cluster: Cluster,
    classes: Mapping[str, DeviceClass],
    usable_classes: frozenset[str],
    resources: Mapping[str, NodeResources],
    *,
    present: Mapping[tuple[str, str], Pod] = {},
    unserved_next: Collection[str] = (),
) -> Capacity:
    """Place all pods one after the other: first running ones, on their nodes if possible.

    Elsewhere pods would stand in another order than they do, and one that runs might find its node taken.

    Args:
        cluster: The cluster with the claims that are allocated already; has the new ones
            afterwards.
        usable_classes: Names of the DeviceClasses that select any device.
        resources: Node to its CPU, memory and other counted resources, with all other pods.
        present: The pods of today by namespace and name.
        unserved_next: The workloads of `find_unserved_next`.
    """
    workloads = tuple(workloads)
    translated_workloads = [workload for workload in workloads if workload.result is not None]
    counted_workloads = [
        workload for workload in translated_workloads if class_names(workload) <= usable_classes
    ]
    owners: list[str] = []
    pods: list[Pod] = []
    nodes: list[str] = []
    templates: dict[tuple[str, str], ResourceClaimTemplate] = {}
    unplaced_counts: dict[str, int] = {}
    for workload in counted_workloads:
        own = list(islice(build_pods(workload), MAX_ALL_PODS - len(pods)))
        is_cut = len(own) == MAX_PODS or len(pods) + len(own) == MAX_ALL_PODS
        if is_cut and workload.pods > len(own):
            unplaced_counts[workload.key.reference] = workload.pods - len(own)
        pods += own
        owners += [workload.key.reference] * len(own)
        own_nodes = [
            node
            for name in sorted(workload.members & present.keys())
            if (node := present[name].spec.node_name)
        ]
        nodes += [*own_nodes, *("" for _ in own)][: len(own)]
        templates.update(build_templates(workload))
    # Where devices are missing, those that wait today are the ones that lack them.
    question = SimulationInput(
        pods=tuple(_on_node(pod, node) for pod, node in zip(pods, nodes, strict=True) if node),
        templates=templates,
        classes=classes,
        resources=resources,
    )
    staying = simulate_in_order(cluster, question, SimulationOptions())
    stays = {(pod.namespace, pod.name) for pod in staying.pods if pod.node is not None}
    left = [
        (not node, number)
        for number, (pod, node) in enumerate(zip(pods, nodes, strict=True))
        if (pod.metadata.namespace, pod.metadata.name) not in stays
    ]
    question = msgspec.structs.replace(
        question,
        pods=tuple(pods[number] for _, number in sorted(left)),
        resources=staying.resources,
    )
    moving = simulate_in_order(cluster, question, SimulationOptions())
    not_built = sum(unplaced_counts.values())
    owner_of = {
        (pod.metadata.namespace, pod.metadata.name): owner
        for pod, owner in zip(pods, owners, strict=True)
    }
    waiting_counts: Counter[str] = Counter()
    for (waits, _), placed_pod in zip(sorted(left), moving.pods, strict=True):
        if placed_pod.node is None:
            owner = owner_of[placed_pod.namespace, placed_pod.name]
            unplaced_counts[owner] = unplaced_counts.get(owner, 0) + 1
            waiting_counts[owner] += waits
    not_counted = tuple(
        workload.key.reference
        for workload in translated_workloads
        if workload not in counted_workloads
    )
    return Capacity(
        pods=len(pods) + not_built,
        placed=len(pods) + not_built - sum(unplaced_counts.values()),
        unplaced=unplaced_counts,
        not_counted=not_counted,
        keys_to_keep=_find_keys_to_keep(workloads, {*not_counted, *unserved_next}),
        waiting=+waiting_counts,
        claim_owners={
            f"{name[0]}/{claim}": owner_of[name]
            for answer in (staying, moving)
            for name, claims in answer.uses.items()
            for claim in claims
        },
    )


def _on_node(pod: Pod, node: str) -> Pod:
    """Return a pod for its own node only, also for a cordoned one."""
    tolerations = (*(pod.spec.tolerations or ()), _CORDONED)
    spec = msgspec.structs.replace(pod.spec, node_name=node, tolerations=tolerations)
    return msgspec.structs.replace(pod, spec=spec)


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


def absent_classes(
    workloads: Iterable[AssessedWorkload], state: ClusterState, profiles: Iterable[Profile]
) -> frozenset[str]:
    """Return the DeviceClasses of profiles without a trace in a cluster, none of a cluster without nodes.

    Neither does the class exist, nor does a node publish devices of its driver, or would after a migration, nor does a
    workload or a claim name it.

    Args:
        workloads: The cluster's workloads.
        state: Its state, with the assumed inventory.
        profiles: The profiles of all drivers.
    """
    if not state.nodes:
        return frozenset()
    drivers = {slice_.spec.driver for slice_ in state.slices}
    claimed_classes = frozenset[str]().union(*map(class_names, workloads))
    present_names = (
        claimed_classes | state.classes.keys() | class_devices(state.claims.values()).keys()
    )
    of_profiles = (profile.class_names() for profile in profiles if profile.driver not in drivers)
    return frozenset[str]().union(*of_profiles) - present_names


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


def _find_keys_to_keep(
    workloads: Iterable[AssessedWorkload], unserved: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return names for `translation.keep` to workloads, as in `Capacity`.

    They are vocabularies of NICs without devices of a DRA driver, and resource names that nothing translates beside
    others that something does.

    Args:
        workloads: The workloads.
        unserved: Those of them whose drivers have no devices here.
    """
    proposals: dict[str, list[str]] = {}
    for workload in workloads:
        names: Iterable[str] = ()
        if workload.key.reference in unserved:
            names = nics_of(workload)
        elif workload.keys and workload.outcome is Outcome.UNKNOWN:
            names = dict.fromkeys(untranslated_names(workload.findings))
        for name in names:
            proposals.setdefault(name, []).append(workload.key.reference)
    return {name: tuple(proposals[name]) for name in sorted(proposals)}


def nics_of(workload: AssessedWorkload) -> list[str]:
    """Return the vocabularies of the NICs that a workload requests."""
    return [name for name in NICS if any(find_kept(workload.keys, {name}))]


def usable_classes(classes: Mapping[str, DeviceClass], cluster: Cluster) -> frozenset[str]:
    """Return the classes that select a device, or cannot be evaluated on every device."""
    selected_devices = select_devices(classes, published_devices(cluster))
    return frozenset(name for name, devices in selected_devices.items() if devices)


def find_unserved_next(
    workloads: Iterable[AssessedWorkload], state: ClusterState
) -> dict[str, tuple[str, ...]]:
    """Return the unmoved workloads with claims to come for devices of no node.

    Nothing here moves them, and their next pods get claims once their namespace is opted in.

    Args:
        workloads: The workloads.
        state: The state with assumed slices.

    Returns:
        `Kind/namespace/name` to the DeviceClasses without devices.
    """
    left = [workload for workload in workloads if workload.next_classes]
    if not left:
        return {}
    usable = usable_classes(state.classes, state.cluster(Features()))
    return {
        workload.key.reference: tuple(sorted(lacking))
        for workload in left
        if (lacking := workload.next_classes - usable)
    }


def pods_in_parts(
    workloads: Iterable[AssessedWorkload],
    pods: Mapping[tuple[str, str], Pod],
    sliced: Collection[str],
) -> dict[str, int]:
    """Return workload, as `Kind/namespace/name`, to the number of its pods that have a part of a device.

    Args:
        workloads: The cluster's workloads.
        pods: The pods by namespace and name.
        sliced: The nodes that offer parts of devices.
    """
    numbers = {
        workload.key.reference: sum(
            name in pods and pods[name].spec.node_name in sliced for name in workload.members
        )
        for workload in workloads
        if workload.result is not None
    }
    return {reference: number for reference, number in numbers.items() if number}


def without_parts(
    workloads: Sequence[AssessedWorkload],
    pods: Mapping[tuple[str, str], Pod],
    sliced: Collection[str],
) -> Iterator[AssessedWorkload]:
    """Yield workloads without the pods that have a part of a device each; arguments as of `pods_in_parts`."""
    in_parts = pods_in_parts(workloads, pods, sliced)
    for workload in workloads:
        number = in_parts.get(workload.key.reference, 0)
        yield msgspec.structs.replace(workload, pods=workload.pods - number) if number else workload


def without_staying_pods(
    workloads: Iterable[AssessedWorkload],
    pods: Mapping[tuple[str, str], Pod],
    nodes: Collection[str],
) -> Iterator[AssessedWorkload]:
    """Yield workloads without the pods that keep their keys and run on nodes that stay as they are.

    Args:
        workloads: The cluster's workloads.
        pods: The pods by namespace and name.
        nodes: The nodes that stay with their device plugin.
    """
    for workload in workloads:
        own = {
            name
            for name in (workload.members & pods.keys() if nodes else ())
            if workload.outcome is Outcome.NATIVE and pods[name].spec.node_name in nodes
        }
        yield (
            msgspec.structs.replace(
                workload, pods=workload.pods - len(own), members=workload.members - own
            )
            if own
            else workload
        )


# --- devices that no node has ---------------------------------------------------------------------


def legacy_keys(
    nodes: Iterable[NodeDevices], sliced: Collection[str]
) -> dict[str, Collection[str]]:
    """Return node to the keys of its devices of a legacy system.

    Args:
        nodes: The nodes with devices.
        sliced: Those that offer parts of GPUs, and are left out.
    """
    return {
        node.node: {device.key for device in node.legacy}
        for node in nodes
        if node.node not in sliced
    }


def without_devices(
    workloads: Iterable[AssessedWorkload],
    not_counted: Collection[str],
    nodes_of: Mapping[str, Sequence[str]],
    keys_on: Mapping[str, Collection[str]],
    moved: Collection[str] = (),
) -> Iterator[AssessedWorkload]:
    """Yield the workloads that run, and would get devices of a driver that has some on no node.

    Pods that keep their device keys need one only on nodes whose switch takes away what they have, unlike that of a NIC.

    Args:
        workloads: The workloads.
        not_counted: Those whose devices are neither published nor assumed, as `Kind/namespace/name`.
        nodes_of: Workload to the nodes of its pods.
        keys_on: Node to the keys of its devices of a legacy system.
        moved: The workloads whose pods have claims already.
    """
    uncounted = frozenset(not_counted)
    for workload in workloads:
        reference = workload.key.reference
        if reference not in uncounted:
            continue
        nodes = nodes_of[reference]
        if workload.outcome is Outcome.NATIVE:
            lacks = any(not workload.keys.isdisjoint(keys_on.get(node, ())) for node in nodes)
        else:
            lacks = any(nodes) and reference not in moved
        if lacks:
            yield workload


def untranslated_names(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield the resource names that findings say are not translated, of each family the first."""
    for finding in findings:
        match finding.path.steps:
            case (*_, "limits" | "requests", Key(name=name)):
                if finding.code is Code.UNTRANSLATED_DEVICE_KEY:
                    yield name
            case _:
                pass
