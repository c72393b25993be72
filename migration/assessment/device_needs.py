"""The devices that workloads need at a time, and the lines of ResourceQuotas that their pods count on. Pure.

A pod with device keys counts on the lines of these when it is created. Its claims count on the lines of their
DeviceClasses, those of a translation also on the line of the resource name that a class maps. kube-scheduler creates the
claim of a native pod, which counts on the line of the class alone, as the pod has paid the other.

Source: k8s.io/kubernetes v1.37.1, pkg/quota/v1/evaluator/core, resource_claims.go, addExtendedResourceQuota.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from allocator.pods.extended_resource_claim import extended_resource_claim, mapped_resources
from answers.model.cluster_state import ClusterState
from answers.model.kubernetes_version import counts_extended, parse_version
from answers.model.objects import decode_objects, of_kind
from answers.model.views import decode_view
from kube.api.core import FINISHED_PHASES, Pod, ResourceQuota
from kube.api.resource import DeviceClaim, DeviceClass, ResourceClaim
from kube.api.workloads import DAEMON_SET, pod_path, resolve_path
from kube.manifests.source import SourceObject
from kube.names import TRANSLATE_LABEL
from kube.quantity import ZERO, Quantity
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.claim_counts import surge_of
from migration.assessment.outcomes import AssessedWorkload, Outcome, devices_of_pod, translated_pod
from migration.cluster.evidence import mapping_at
from migration.cluster.workloads import requested_pods
from migration.conversion.quota_amounts import DeviceUse, NamespaceUse, Start
from quotas.resource_quotas.scopes import devices_of_class, quota_of, scopes_of
from quotas.resource_quotas.usage import (
    CLAIM_COUNT,
    Account,
    Counting,
    PodCharge,
    added_usage,
    charge_of_keys,
    class_devices,
    counting_of,
    is_of_devices,
    pod_usage,
    subtract_usage,
    sum_on,
)
from translation.cluster.snapshot import TranslationSnapshot

_UNCOUNTED: Final = "no line counts its claims (quotaNotCounted)"
_NO_REPLICAS: Final = "it has no replicas"
_SCALED_KINDS: Final = frozenset(
    {"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"}
)


def countings_of(
    classes: Mapping[str, DeviceClass],
    mappings: Mapping[str, str],
    taken_back: Iterable[str],
    version: str,
) -> tuple[Counting, Counting]:
    """Return the counting of a cluster before a plan is prepared, and the one after it.

    Args:
        classes: Name to DeviceClass.
        mappings: Resource name to the DeviceClass that the plan has map it.
        taken_back: The DeviceClasses that lose the resource name which they map today.
        version: The API server's version; empty if it is not known.
    """
    is_extended = counts_extended(parse_version(version))
    # A class may have the name already, where the preparation has been run.
    unmapped = {
        name: ""
        for key, name in mappings.items()
        if name in classes and classes[name].spec.extended_resource_name == key
    }
    planned = {**dict.fromkeys(taken_back, ""), **{mappings[key]: key for key in mappings}}
    return (
        counting_of(classes, unmapped, counts_extended=is_extended),
        counting_of(classes, planned, counts_extended=is_extended),
    )


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
    replicas = own or workload.next_pods or requested_pods(workload.result.source)
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
        are_files: They are of files without pods, not of a cluster.
    """

    pods: dict[tuple[str, str], Pod] = msgspec.field(default_factory=dict)
    claims_of: dict[tuple[str, str], list[ResourceClaim]] = msgspec.field(default_factory=dict)
    claims: list[ResourceClaim] = msgspec.field(default_factory=list)
    are_files: bool = False

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
            charges.append(charge_of_keys(pod)._replace(claims=added_usage(usages)))
        return charges

    def claims_but_of(self, names: Collection[tuple[str, str]]) -> Iterator[ResourceClaim]:
        """Yield the claims of no pod, and those of all pods but some."""
        yield from self.claims
        for name, claims in self.claims_of.items():
            if name not in names:
                yield from claims

    def all_charges(self, counting: Counting) -> list[PodCharge]:
        """Return the amounts of all pods and claims."""
        names = self.pods.keys() | self.claims_of.keys()
        return [*self.charges(names, counting), self.unowned(counting)]

    def unowned(self, counting: Counting) -> PodCharge:
        """Return the amounts of the claims of no pod."""
        usage = added_usage(counting.usage(claim) for claim in self.claims)
        return charge_of_keys(Pod())._replace(claims=usage)


def objects_by_namespace(
    state: ClusterState, namespaces: Collection[str]
) -> Mapping[str, NamespaceObjects]:
    """Return namespace to its pods and claims."""
    are_files = not state.pods
    objects = {namespace: NamespaceObjects(are_files=are_files) for namespace in namespaces}
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


class PodsToCome(NamedTuple):
    """The pods that a workload lacks or starts later.

    Attributes:
        charge: The amounts that quotas count of one if it starts today.
        number: The number of pods.
        reason: The reason that it starts none of them today; empty if it may.
    """

    charge: PodCharge
    number: int
    reason: str


class TodaysLines:
    """The lines for devices of a namespace's quotas of today, with the use of its pods and claims."""

    def __init__(
        self, accounts: Sequence[Account], objects: NamespaceObjects, counting: Counting
    ) -> None:
        """Begin with the quotas and the objects of a namespace.

        Args:
            accounts: The quotas.
            objects: The pods and claims.
            counting: The counting of today.
        """
        self.accounts, self.counting = accounts, counting
        now = objects.all_charges(counting) if accounts else []
        self._used = {
            (account.reference, line): sum_on(now, account, line)
            for account in accounts
            for line in account.hard
        }

    @property
    def names(self) -> frozenset[str]:
        """The lines of all its quotas."""
        return frozenset(line for account in self.accounts for line in account.hard)

    def excess(
        self,
        charges: Iterable[tuple[PodCharge, int]],
        beside: Mapping[tuple[str, str], Quantity] = {},
    ) -> str:
        """Explain the excess of pods over a line, beside the present ones, and more by quota and line; empty without any."""
        own = tuple(charges)
        for account in self.accounts:
            for line, hard in account.hard.items():
                amount = sum((charge.on(account.quota, line) * pods for charge, pods in own), ZERO)
                key = account.reference, line
                if amount > ZERO and self._used[key] + beside.get(key, ZERO) + amount > hard:
                    return f"{line} of {account.reference} is {hard}"
        return ""

    def pods_to_come(
        self, workload: AssessedWorkload, running: int, *, is_opted_in: bool, is_rejected: bool
    ) -> PodsToCome:
        """Return the pods that a workload starts beside those that there are: all that it lacks, or one if all are too many.

        Args:
            workload: The workload.
            running: The number of pods that it has and keeps.
            is_opted_in: Its next pods get claims by a label of today.
            is_rejected: The webhook rejects them, since no line counts their claims.
        """
        charge = charge_of_pod_today(workload, self.counting, is_opted_in=is_opted_in)
        number, reason = pods_to_start(workload, running), ""
        if number and self.excess([(charge, number)]):
            number, reason = 1, self.excess([(charge, 1)])
        elif number and is_rejected:
            reason = _UNCOUNTED
        elif is_scaled_to_zero(workload):
            reason = _NO_REPLICAS
        return PodsToCome(charge, number, reason)


def devices_in_use(
    cluster: AssessedCluster,
    objects: Sequence[SourceObject],
    namespace: str,
    mappings: Mapping[str, str] = {},
    taken_back: Iterable[str] = (),
    *,
    rejects_uncounted: bool = True,
) -> dict[str, NamespaceUse]:
    """Return namespace to the devices of all pods with keys, those to come, and those of the claims of all others.

    A ResourceQuota counts all of them once these pods have claims. The pods to come are those that the lines of today let
    start, as where lines are compared with them. Of alternatives the largest counts.

    Args:
        cluster: The cluster.
        objects: Its objects.
        namespace: The namespace for objects that name none.
        mappings: Resource name to the DeviceClass that a plan has map it.
        taken_back: The DeviceClasses that lose the resource name which they map today.
        rejects_uncounted: The webhook rejects pods with claims that no line counts.
    """
    counting, _ = countings_of(cluster.state.classes, mappings, taken_back, cluster.version)
    accounts = accounts_by_namespace(objects, namespace)
    opted_in = opted_in_workloads(objects, cluster.state.namespaces, namespace)
    workloads: dict[str, list[AssessedWorkload]] = {}
    for workload in cluster.workloads:
        workloads.setdefault(workload.key.namespace, []).append(workload)
    places = workloads.keys() | {place for place, _ in cluster.state.claims}
    uses = {}
    for place, own in objects_by_namespace(cluster.state, places).items():
        lines = TodaysLines(accounts.get(place, ()), own, counting)
        members = workloads.get(place, [])
        coming = [
            _coming(workload, own, lines, opted_in, rejects_uncounted=rejects_uncounted)
            for workload in members
        ]
        possible = ((entry.charge, entry.number) for entry in coming if not entry.reason)
        at_once = not lines.excess(possible)
        entries = [
            (workload.counted_keys, _use_of(workload, own, entry, starts_at_once=at_once))
            for workload, entry in zip(members, coming, strict=True)
        ]
        names = frozenset[tuple[str, str]]().union(*(workload.members for workload in members))
        others = class_devices(own.claims_but_of(names))
        if others:
            entries.append((frozenset(), DeviceUse(others)))
        uses[place] = NamespaceUse(tuple(entries))
    return uses


def _coming(
    workload: AssessedWorkload,
    objects: NamespaceObjects,
    lines: TodaysLines,
    opted_in: Collection[str],
    *,
    rejects_uncounted: bool,
) -> PodsToCome:
    """Return the pods that a workload starts today; others that it lacks have a reason."""
    is_opted_in = workload.key.reference in opted_in
    classes = devices_of_pod(workload) if is_opted_in and rejects_uncounted else ()
    return lines.pods_to_come(
        *(workload, _present_pods(workload, objects)),
        is_opted_in=is_opted_in,
        is_rejected=any(devices_of_class(name) not in lines.names for name in classes),
    )


def _use_of(
    workload: AssessedWorkload,
    objects: NamespaceObjects,
    coming: PodsToCome,
    *,
    starts_at_once: bool,
) -> DeviceUse:
    """Return the devices of a workload.

    Args:
        workload: The workload.
        objects: The pods and claims of its namespace.
        coming: The pods that it lacks or starts later.
        starts_at_once: The lines of today let those of all workloads start at once.
    """
    of_pod, surge = devices_of_pod(workload), surge_of(workload)
    pods = _present_pods(workload, objects)
    own = [
        (devices_of_pod(workload, name) if name in objects.pods else Counter[str]())
        | class_devices(objects.claims_of.get(name, ()))
        for name in workload.members
    ]
    own += [of_pod] * (pods - len(own))
    start = Start(coming.number, of_pod, is_possible=not coming.reason)
    return DeviceUse(
        now={
            name: sum(sorted(devices[name] for devices in own)[-pods:])
            for name in frozenset[str]().union(*own)
            if pods
        },
        starts=(start,) if start.pods else (),
        rollouts={name: number * surge for name, number in of_pod.items() if surge},
        starts_at_once=starts_at_once,
    )


def _present_pods(workload: AssessedWorkload, objects: NamespaceObjects) -> int:
    """Return the number of pods that a workload has and keeps; in files without pods all run."""
    if objects.are_files and workload.key.kind != "CronJob":
        return workload.pods
    return running_pods(workload, objects.pods)


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
