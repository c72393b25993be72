"""The devices that workloads need at a time, and the lines of ResourceQuotas that their pods count on. Pure.

A pod with device keys counts on the lines of these when it is created. Its claims count on the lines of their
DeviceClasses, those of a translation also on the line of the resource name that a class maps. kube-scheduler creates the
claim of a native pod, which counts on the line of the class alone, as the pod has paid the other.

Source: k8s.io/kubernetes v1.37.1, pkg/quota/v1/evaluator/core, resource_claims.go, addExtendedResourceQuota.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from allocator.pods.extended_resource_claim import (
    ANNOTATION,
    extended_resource_claim,
    mapped_resources,
)
from answers.model.cluster_state import ClusterState
from answers.model.objects import decode_objects, of_kind
from answers.model.views import decode_view
from kube.api.core import FINISHED_PHASES, Pod, ResourceQuota
from kube.api.extended_resources import extended_resources
from kube.api.resource import DeviceClaim, DeviceClass, ResourceClaim
from kube.api.workloads import DAEMON_SET, pod_path, resolve_path
from kube.manifests.source import SourceObject
from kube.names import TRANSLATE_LABEL
from kube.quantity import ZERO, Quantity
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.capacity import release_claims
from migration.assessment.claim_counts import surge_of
from migration.assessment.evidence import mapping_at
from migration.assessment.outcomes import (
    AssessedWorkload,
    Outcome,
    devices_of_pod,
    translated_pod,
)
from migration.assessment.quota_amounts import DeviceUse, NamespaceUse, Start
from migration.assessment.quota_conversion import knows_use
from migration.assessment.workloads import requested_pods
from quotas.resource_quotas.scopes import PodScopes, Quota, quota_of, scopes_of
from quotas.resource_quotas.usage import (
    CLAIM_COUNT,
    DEVICES_OF_CLASS,
    REQUESTS,
    Usage,
    claim_usage,
    is_of_devices,
    pod_usage,
    subtract_usage,
)
from translation.cluster.snapshot import TranslationSnapshot

_SCALED_KINDS: Final = frozenset(
    {"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"}
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


def running_pods(workload: AssessedWorkload, live: Collection[tuple[str, str]]) -> int:
    """Return the number of pods that a workload has and keeps: one amid its rollout ends those above its replicas.

    Args:
        workload: The workload.
        live: Namespace and name of the pods that have not ended, and are not being deleted.
    """
    present = sum(name in live for name in workload.members)
    replicas = _replicas(workload)
    return present if replicas is None else min(present, replicas)


def pods_to_start(workload: AssessedWorkload, running: int) -> int:
    """Return the number of pods that a workload lacks, of one without pods as many as it starts at a time.

    Of a CronJob these are the pods of the next run, of a suspended workload those once it is resumed, and of one that was
    scaled to 0 it is one pod.

    Args:
        workload: The workload.
        running: The number of pods that it has and keeps.
    """
    if workload.result is None or workload.key.kind == "Pod":
        return 0
    if workload.key.kind == DAEMON_SET:
        return 0 if running else workload.pods
    if running and _replicas(workload) is None and workload.key.kind != "CronJob":
        return 0
    own = workload.pods if not workload.members else 0
    replicas = own or requested_pods(workload.result.source)
    return max(max(replicas, 1) - running, 0)


def is_scaled_to_zero(workload: AssessedWorkload) -> bool:
    """Return True if a workload has no pods until somebody gives it replicas again."""
    return _replicas(workload) == 0


def _replicas(workload: AssessedWorkload) -> int | None:
    """Return the requested number of replicas; None for kinds without replicas, and for an unknown number."""
    if workload.result is None or workload.result.source.kind not in _SCALED_KINDS:
        return None
    replicas = mapping_at(workload.result.source.document, "spec").get("replicas")
    return replicas if isinstance(replicas, int) else None


class Account(NamedTuple):
    """A ResourceQuota with its lines for devices."""

    reference: str
    quota: Quota
    hard: Mapping[str, Quantity]


def accounts_by_namespace(
    objects: Iterable[SourceObject], namespace: str
) -> dict[str, list[Account]]:
    """Return namespace to its ResourceQuotas with lines for devices."""
    sources = [source for source in objects if source.kind == "ResourceQuota"]
    views, _ = decode_objects(sources, {("v1", "ResourceQuota"): ResourceQuota}, namespace)
    accounts: dict[str, list[Account]] = {}
    for place, view in of_kind(views, ResourceQuota):
        hard = {
            line: amount
            for line, amount in (view.spec.hard or {}).items()
            if line != CLAIM_COUNT and is_of_devices(line)
        }
        if hard:
            reference = f"ResourceQuota/{place}/{view.metadata.name}"
            accounts.setdefault(place, []).append(Account(reference, quota_of(view), hard))
    return accounts


def opted_in_workloads(
    objects: Iterable[SourceObject], namespaces: Mapping[str, Mapping[str, str]], namespace: str
) -> frozenset[str]:
    """Return the objects with next pods that get claims by a label of today, as `Kind/namespace/name`.

    Args:
        objects: The cluster's objects.
        namespaces: Namespace to its labels.
        namespace: The namespace for objects that name none.
    """
    labelled = {name for name, labels in namespaces.items() if TRANSLATE_LABEL in labels}
    snapshot = TranslationSnapshot(profiles={}, namespaces=namespaces)
    opted_in = set()
    for source in objects:
        place = source.namespace or namespace
        path = pod_path(source.api_version, source.kind) if place in labelled else None
        if path is not None and snapshot.is_opted_in(
            place, mapping_at(source.document, *path, "metadata", "labels")
        ):
            opted_in.add(f"{source.kind}/{place}/{source.name}")
    return frozenset(opted_in)


class NamespaceObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The pods and claims of a namespace.

    Attributes:
        pods: The pods that have not ended, and are not being deleted, by namespace and name.
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
    leaving = {name for name, pod in state.pods.items() if _is_leaving(pod)}
    for name, pod in _live_pods(state).items():
        if name[0] in objects:
            objects[name[0]].pods[name] = pod
    for (namespace, _), claim in state.claims.items():
        if namespace not in objects:
            continue
        owners = claim.metadata.owner_references or ()
        owner = next((entry.name for entry in owners if entry.kind == "Pod"), "")
        if (namespace, owner) in leaving:
            continue  # It goes with its pod.
        if owner:
            objects[namespace].claims_of.setdefault((namespace, owner), []).append(claim)
        else:
            objects[namespace].claims.append(claim)
    return objects


def _live_pods(state: ClusterState) -> dict[tuple[str, str], Pod]:
    """Return the pods that have not ended, and are not being deleted."""
    return {
        name: pod
        for name, pod in state.pods.items()
        if not _is_leaving(pod)
        and not (pod.status is not None and pod.status.phase in FINISHED_PHASES)
    }


def _is_leaving(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def devices_in_use(
    workloads: Iterable[AssessedWorkload], state: ClusterState
) -> dict[str, NamespaceUse]:
    """Return namespace to the devices of all pods with keys, those to come, and those of the claims of all others.

    A ResourceQuota counts all of them once these pods have claims. Of alternatives the largest counts.
    """
    own = tuple(workloads)
    members = frozenset[tuple[str, str]]().union(*(workload.members for workload in own))
    live, with_pods = _live_pods(state), {namespace for namespace, _ in members}
    uses: dict[str, list[tuple[frozenset[str], DeviceUse]]] = {}
    for workload in own:
        namespace = workload.key.namespace
        pods = running_pods(workload, live) if namespace in with_pods else None
        use = _use_of(workload, pods)
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


def _use_of(workload: AssessedWorkload, running: int | None) -> DeviceUse:
    """Return the devices of a workload.

    Args:
        workload: The workload.
        running: The number of pods that it has and keeps; None in files without pods, which have workloads that run.
    """
    of_pod, pods = devices_of_pod(workload), running or 0
    starting = pods_to_start(workload, pods)
    if running is None and workload.pods and workload.key.kind != "CronJob":
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
