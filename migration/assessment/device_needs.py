"""The devices that workloads need at a time, and the lines of ResourceQuotas that their pods count on. Pure.

A pod with device keys counts on the lines of these when it is created. Its claims count on the lines of their
DeviceClasses, those of a translation also on the line of the resource name that a class maps. kube-scheduler creates the
claim of a native pod, which counts on the line of the class alone, as the pod has paid the other.

Source: k8s.io/kubernetes v1.37.1, pkg/quota/v1/evaluator/core, resource_claims.go, addExtendedResourceQuota.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from allocator.pods.extended_resource_claim import (
    ANNOTATION,
    extended_resource_claim,
    mapped_resources,
)
from answers.model.cluster_state import ClusterState
from answers.model.views import decode_view
from kube.api.core import FINISHED_PHASES, Pod
from kube.api.extended_resources import extended_resources
from kube.api.resource import DeviceClaim, DeviceClass, ResourceClaim
from kube.api.workloads import pod_path, resolve_path
from kube.manifests.source import SourceObject
from kube.quantity import ZERO, Quantity
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.capacity import release_claims
from migration.assessment.claim_counts import surge_of
from migration.assessment.outcomes import (
    AssessedWorkload,
    Outcome,
    devices_of_pod,
    translated_pod,
)
from migration.assessment.quota_amounts import DeviceUse, NamespaceUse, Start
from migration.assessment.quota_conversion import knows_use
from migration.assessment.workloads import requested_pods
from quotas.resource_quotas.scopes import PodScopes, Quota, scopes_of
from quotas.resource_quotas.usage import (
    DEVICES_OF_CLASS,
    REQUESTS,
    Usage,
    claim_usage,
    pod_usage,
    subtract_usage,
)


class Counting(msgspec.Struct, frozen=True):
    """The counting of claims by the quotas of a cluster.

    Attributes:
        classes: Name to DeviceClass.
        mapped: Resource name to the DeviceClass that maps it.
        counts_extended: Claims count on the lines of resource names, as from Kubernetes 1.35 on.
    """

    classes: Mapping[str, DeviceClass]
    mapped: Mapping[str, str]
    counts_extended: bool = True

    def usage(self, claim: ResourceClaim) -> Usage:
        """Return the usage of a claim; a pod with extended resources has paid for its own already."""
        usage = self.of_devices(claim.spec.devices)
        if (claim.metadata.annotations or {}).get(ANNOTATION) != "true":
            return usage
        return {line: amount for line, amount in usage.items() if not line.startswith(REQUESTS)}

    def of_devices(self, devices: DeviceClaim) -> Usage:
        """Return the usage of the devices of a claim."""
        return claim_usage(devices, self.classes, counts_extended=self.counts_extended)


def counting_of(
    classes: Mapping[str, DeviceClass], mappings: Mapping[str, str], *, counts_extended: bool
) -> Counting:
    """Return the counting of a cluster with other mappings of its classes.

    Args:
        classes: Name to DeviceClass.
        mappings: DeviceClass to the resource name that it maps in place of its own; empty for none.
        counts_extended: Claims count on the lines of resource names.
    """
    changed = dict(classes)
    for name, resource in mappings.items():
        own = changed.get(name) or DeviceClass()
        changed[name] = msgspec.structs.replace(
            own,
            metadata=msgspec.structs.replace(own.metadata, name=name),
            spec=msgspec.structs.replace(own.spec, extended_resource_name=resource or None),
        )
    return Counting(changed, extended_resources(changed.values()), counts_extended)


class PodCharge(NamedTuple):
    """The amounts that quotas count of a pod.

    Attributes:
        own: Those of its extended resources.
        scopes: The scopes that match it.
        claims: Those of its claims, which quotas with scopes do not count.
    """

    own: Usage
    scopes: PodScopes
    claims: Usage

    def on(self, quota: Quota, line: str) -> Quantity:
        """Return the amount that counts on a line of a quota."""
        amount = self.own.get(line, ZERO) if quota.counts(self.scopes) else ZERO
        return amount if quota.scopes else amount + self.claims.get(line, ZERO)


def charge_of_next_pod(workload: AssessedWorkload, counting: Counting) -> PodCharge:
    """Return the amounts of the next pod of a workload that has moved; nothing for one that does not move."""
    if workload.outcome is Outcome.NATIVE:
        return _native_charge(workload, counting)
    return _translated_charge(workload, counting)


def charge_of_pod_today(
    workload: AssessedWorkload, counting: Counting, *, is_opted_in: bool
) -> PodCharge:
    """Return the amounts of a pod of a workload if it starts today.

    Args:
        workload: The workload.
        counting: The counting of today.
        is_opted_in: Its pods get claims today, unless classes map all their keys.
    """
    if not is_opted_in:
        return charge_of_keys(_untranslated_pod(workload))
    if workload.outcome is Outcome.NATIVE and workload.keys <= counting.mapped.keys():
        return _native_charge(workload, counting)
    return _translated_charge(workload, counting)


def charge_of_keys(pod: Pod) -> PodCharge:
    """Return the amounts of a pod without its claims."""
    return PodCharge(pod_usage(pod), scopes_of(pod), {})


def pods_to_start(workload: AssessedWorkload) -> int:
    """Return the number of pods that a workload without pods starts at a time; of a CronJob those of the next run.

    Of a suspended one these are the pods once it is resumed, and of one that was scaled to 0 it is one pod.
    """
    running = len(workload.members)
    if workload.result is None or (running and workload.key.kind != "CronJob"):
        return 0
    requested = workload.pods if not running else 0
    return max(requested or requested_pods(workload.result.source), 1) - running


class NamespaceObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The pods and claims of a namespace.

    Attributes:
        pods: The pods that have not ended, by namespace and name.
        claims_of: Pod to its claims.
        claims: The claims of no pod.
    """

    pods: dict[tuple[str, str], Pod] = msgspec.field(default_factory=dict)
    claims_of: dict[tuple[str, str], list[ResourceClaim]] = msgspec.field(default_factory=dict)
    claims: list[ResourceClaim] = msgspec.field(default_factory=list)

    def charges(self, names: Collection[tuple[str, str]], counting: Counting) -> list[PodCharge]:
        """Return the amounts of pods with their claims.

        Args:
            names: Namespace and name of each pod.
            counting: The way in which claims count.
        """
        charges = []
        for name in sorted(names):
            pod = self.pods.get(name, Pod())
            usages = [counting.usage(claim) for claim in self.claims_of.get(name, ())]
            charges.append(charge_of_keys(pod)._replace(claims=_added(usages)))
        return charges

    def all_charges(self, counting: Counting) -> list[PodCharge]:
        """Return the amounts of all pods and claims."""
        names = self.pods.keys() | self.claims_of.keys()
        return [*self.charges(names, counting), self.unowned(counting)]

    def unowned(self, counting: Counting) -> PodCharge:
        """Return the amounts of the claims of no pod."""
        usage = _added(counting.usage(claim) for claim in self.claims)
        return charge_of_keys(Pod())._replace(claims=usage)


def objects_by_namespace(
    state: ClusterState, namespaces: Collection[str]
) -> Mapping[str, NamespaceObjects]:
    """Return namespace to its pods and claims."""
    objects = {namespace: NamespaceObjects() for namespace in namespaces}
    for name, pod in state.pods.items():
        has_ended = pod.status is not None and pod.status.phase in FINISHED_PHASES
        if name[0] in objects and not has_ended:
            objects[name[0]].pods[name] = pod
    for (namespace, _), claim in state.claims.items():
        if namespace not in objects:
            continue
        owners = claim.metadata.owner_references or ()
        owner = next((entry.name for entry in owners if entry.kind == "Pod"), "")
        if owner:
            objects[namespace].claims_of.setdefault((namespace, owner), []).append(claim)
        else:
            objects[namespace].claims.append(claim)
    return objects


def devices_in_use(
    workloads: Iterable[AssessedWorkload], state: ClusterState
) -> dict[str, NamespaceUse]:
    """Return namespace to the devices of all pods with keys, those to come, and those of the claims of all others.

    A ResourceQuota counts all of them once these pods have claims. Of alternatives the largest counts.
    """
    own = tuple(workloads)
    members = frozenset[tuple[str, str]]().union(*(workload.members for workload in own))
    live = {namespace for namespace, _ in members}
    uses: dict[str, list[tuple[frozenset[str], DeviceUse]]] = {}
    for workload in own:
        namespace = workload.key.namespace
        use = _use_of(workload, is_live=namespace in live)
        uses.setdefault(namespace, []).append((workload.counted_keys, use))
    claimed: dict[str, Counter[str]] = {}
    for (namespace, _), claim in release_claims(state.claims, members).items():
        counts = claimed.setdefault(namespace, Counter())
        for line, amount in claim_usage(claim.spec.devices, {}, counts_extended=False).items():
            if line.endswith(DEVICES_OF_CLASS):
                counts[line.removesuffix(DEVICES_OF_CLASS)] += int(amount)
    for namespace, counts in claimed.items():
        uses.setdefault(namespace, []).append((frozenset(), DeviceUse(+counts)))
    return {namespace: NamespaceUse(tuple(entries)) for namespace, entries in uses.items()}


def _use_of(workload: AssessedWorkload, *, is_live: bool) -> DeviceUse:
    """Return the devices of a workload.

    Args:
        workload: The workload.
        is_live: Pods of its namespace are known. Files without pods have workloads that run.
    """
    of_pod, pods, starting = (
        devices_of_pod(workload),
        len(workload.members),
        pods_to_start(workload),
    )
    if not is_live and workload.pods and workload.key.kind != "CronJob":
        pods, starting = workload.pods, 0
    surge = surge_of(workload)
    return DeviceUse(
        now={name: number * pods for name, number in of_pod.items() if pods},
        starts=(Start(starting, of_pod),) if starting else (),
        rollouts={name: number * surge for name, number in of_pod.items() if surge},
    )


def planned_use(
    cluster: AssessedCluster, objects: Iterable[SourceObject], unreadable: Iterable[str] = ()
) -> Mapping[str, NamespaceUse] | None:
    """Return namespace to the devices in use, for the division of amounts; None if pods are unknown.

    Args:
        cluster: The cluster.
        objects: Its objects.
        unreadable: Resources that could not be read.
    """
    if not knows_use(objects, unreadable):
        return None
    return devices_in_use(cluster.workloads, cluster.state)


def _native_charge(workload: AssessedWorkload, counting: Counting) -> PodCharge:
    pod = _untranslated_pod(workload)
    own = pod_usage(pod)
    claim = extended_resource_claim(pod, mapped_resources(pod, counting.mapped), counting.mapped)
    usage = counting.of_devices(claim.spec.devices) if claim.spec.devices.requests else {}
    return PodCharge(own, scopes_of(pod), subtract_usage(usage, own))


def _translated_charge(workload: AssessedWorkload, counting: Counting) -> PodCharge:
    document = translated_pod(workload.result) if workload.result is not None else None
    pod = decode_view(document, Pod) if document is not None else None
    charge = charge_of_keys(pod if isinstance(pod, Pod) else Pod())
    usage: dict[str, Quantity] = {}
    for claim in workload.result.claims if workload.result is not None else ():
        devices = decode_view(claim.spec["spec"]["devices"], DeviceClaim)
        if isinstance(devices, DeviceClaim):
            for line, amount in counting.of_devices(devices).items():
                usage[line] = usage.get(line, ZERO) + amount
    return charge._replace(claims=usage)


def _untranslated_pod(workload: AssessedWorkload) -> Pod:
    """Return the pod of a workload as its author wrote it."""
    if workload.result is None:
        return Pod()
    source = workload.result.source
    _, document = resolve_path(source.document, pod_path(source.api_version, source.kind) or ())
    pod = decode_view(document, Pod)
    return pod if isinstance(pod, Pod) else Pod()


def _added(usages: Iterable[Mapping[str, Quantity]]) -> dict[str, Quantity]:
    sums: dict[str, Quantity] = {}
    for usage in usages:
        for line, amount in usage.items():
            sums[line] = sums.get(line, ZERO) + amount
    return sums
