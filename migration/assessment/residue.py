"""The remains of legacy systems at the end of a migration."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from answers.model.snapshot_kinds import TEMPLATE_RESOURCES
from findings.finding import Code
from findings.text import join_names
from kube.api.urls import NODES
from kube.manifests.source import SourceObject
from kube.names import DEFAULT_SCHEDULER_NAME, TRANSLATE_LABEL
from migration.assessment.assessed_cluster import AssessedCluster
from migration.assessment.blockers import NEEDED, Blocker, check_readable
from migration.assessment.doubled import check_doubled
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.device_pods import has_other_scheduler, pod_of
from migration.cluster.node_devices import Source
from migration.cluster.workloads import group_workloads
from translation.cluster.snapshot import TranslationOptions
from translation.vocabularies.nvidia import is_replica_name

_WITH_CLAIMS: Final = frozenset({Outcome.TRANSLATED, Outcome.LOSSY})


class Residue(msgspec.Struct, frozen=True, kw_only=True):
    """The remains of legacy systems.

    Attributes:
        left: The objects that keep legacy systems from being removed, and kinds that may hide some.
        schedulers: Scheduler that next pods go to, beside Kubernetes' own and the bridge, to their workloads, as
            `Kind/namespace/name`: it has to stay.
    """

    left: tuple[Blocker, ...]
    schedulers: Mapping[str, tuple[str, ...]] = {}


def has_uncounted(cluster: AssessedCluster) -> bool:
    """Return True if ResourceQuotas have next pods of workloads rejected, as they are."""
    return any(workload.is_uncounted for workload in cluster.workloads)


def find_residue(
    cluster: AssessedCluster,
    converted: AssessedCluster,
    objects: Sequence[SourceObject],
    namespace: str,
    unreadable: Iterable[str] = (),
    *,
    options: TranslationOptions,
) -> Residue:
    """Find the remains of legacy systems.

    Args:
        cluster: The cluster, assessed by its quotas as they are.
        converted: The same by its quotas as they would be converted; the first again if these reject no pods.
        objects: The cluster's objects.
        namespace: The namespace for objects that name none.
        unreadable: Resources that could not be read.
        options: The settings of the cluster.
    """
    left = _objects(
        _without_staying_workloads(cluster), converted, objects, namespace, options=options
    )
    return Residue(
        left=(*_hidden(objects, unreadable), *check_doubled(cluster.nodes, cluster.state), *left),
        schedulers=_staying_schedulers(cluster, objects, namespace, options),
    )


def _without_staying_workloads(cluster: AssessedCluster) -> AssessedCluster:
    """Return a cluster without the opted-out workloads with all pods on nodes that stay."""
    pods, nodes = cluster.state.pods, cluster.remaining.nodes
    workloads = tuple(
        workload
        for workload in cluster.workloads
        if Code.OPTED_OUT.value not in workload.codes
        or not workload.members
        or any(
            name not in pods or pods[name].spec.node_name not in nodes for name in workload.members
        )
    )
    return msgspec.structs.replace(cluster, workloads=workloads)


def _hidden(objects: Iterable[SourceObject], unreadable: Iterable[str]) -> Iterator[Blocker]:
    """Yield the reasons that something may be left that nobody sees."""
    names = tuple(unreadable)
    # A workload without pods, such as a suspended one, is seen by its template only.
    yield from check_readable(names, (*NEEDED, *sorted(TEMPLATE_RESOURCES.difference(NEEDED))))
    if NODES.plural not in names and not any(source.kind == "Node" for source in objects):
        yield Blocker(
            code="noNodes",
            message="there is no node, so nothing says who hands out devices",
            fix="call it with --live, or with a snapshot of the whole cluster",
            objects=(),
        )


def _objects(
    cluster: AssessedCluster,
    converted: AssessedCluster,
    objects: Sequence[SourceObject],
    namespace: str,
    *,
    options: TranslationOptions,
) -> list[Blocker]:
    """Return the remaining objects by kind of residue."""
    residue = (
        _residue(
            "devicePluginLeft",
            "nodes have devices that a device plugin, HAMi or Koordinator hands out",
            "drawbridge plan writes the waves that switch them",
            (f"Node//{name}" for name in _legacy_nodes(cluster)),
        ),
        *_not_opted_in(cluster, converted, objects, namespace),
        _residue(
            "podsWithoutClaims",
            "workloads have pods that run with device keys, and would get claims",
            "once their namespace is opted in, restart them (kubectl rollout restart), or have their controllers create "
            "their pods again",
            _with_old_pods(cluster.workloads, objects, namespace),
        ),
        _residue(
            "untranslatable",
            "workloads get no claims, for what they request or because of a ResourceQuota",
            "assess --quotas as-they-are, without --residue, tells why",
            (
                workload.key.reference
                for workload in cluster.workloads
                if workload.pod_outcome in {Outcome.REFUSED, Outcome.UNKNOWN}
            ),
        ),
        _residue(
            "foreignScheduler",
            "pods with device keys are placed by the scheduler of a legacy system",
            "restart them once their namespace is opted in; then the scheduler can go",
            _with_foreign_scheduler(cluster, objects, namespace, options),
        ),
    )
    return [entry for entry in residue if entry.objects]


def _residue(code: str, message: str, fix: str, objects: Iterable[str]) -> Blocker:
    return Blocker(code=code, message=message, fix=fix, objects=tuple(sorted(set(objects))))


def _legacy_nodes(cluster: AssessedCluster) -> Iterator[str]:
    """Yield the nodes of legacy systems, and those that offer replicas."""
    yield from (node.node for node in cluster.nodes if node.source is not Source.DRA)
    for node, keys in cluster.unknown_devices.items():
        if any(map(is_replica_name, keys)):
            yield node


def _not_opted_in(
    cluster: AssessedCluster,
    converted: AssessedCluster,
    objects: Sequence[SourceObject],
    namespace: str,
) -> Iterator[Blocker]:
    """Yield the namespaces without the label by the outcome of their next pods."""
    namespaces = _rejected_by_namespace(_with_keys(cluster.workloads, objects, namespace), objects)
    uncounted = {
        name for name, own in namespaces.items() if any(workload.is_uncounted for workload in own)
    }
    rejected = {
        workload.key for own in namespaces.values() for workload in own if not workload.is_uncounted
    }
    yield _residue(
        "namespaceNotOptedIn",
        "namespaces have workloads with device keys, and no label that opts them in",
        f"label them {TRANSLATE_LABEL}=true, unless the mode is OptOut",
        (f"Namespace//{name}" for name, own in namespaces.items() if not own),
    )
    yield _residue(
        Code.QUOTA_NOT_COUNTED.value,
        "namespaces have no label that opts them in, and quotas by which their next pods would be rejected with it "
        "(today already in mode OptOut, without any label)",
        f"{_conversion(converted, uncounted)}, then label them {TRANSLATE_LABEL}=true",
        (f"Namespace//{name}" for name in uncounted),
    )
    names = sorted(key.reference for key in rejected)
    yield _residue(
        "nextPodsRejected",
        "namespaces have no label that opts them in, and workloads whose next pods would be rejected with it (today "
        "already in mode OptOut, without any label)",
        f"do not label them {TRANSLATE_LABEL}=true before {join_names(names)} are gone or changed, or have the label "
        f'{TRANSLATE_LABEL}: "false" in their pod templates and keep their keys: assess --quotas as-they-are, without '
        "--residue, tells why",
        (f"Namespace//{key.namespace}" for key in rejected),
    )


def _rejected_by_namespace(
    workloads: Iterable[AssessedWorkload], objects: Iterable[SourceObject]
) -> dict[str, list[AssessedWorkload]]:
    """Return the namespaces without the label, each with the workloads of rejected pods."""
    labels = {
        source.name: _mapping(source.document.get("metadata")).get("labels")
        for source in objects
        if (source.api_version, source.kind) == ("v1", "Namespace")
    }
    namespaces: dict[str, list[AssessedWorkload]] = {}
    for workload in workloads:
        name = workload.key.namespace
        if _mapping(labels.get(name)).get(TRANSLATE_LABEL) != "true":
            rejected = namespaces.setdefault(name, [])
            if workload.pod_outcome is Outcome.REFUSED:
                rejected.append(workload)
    return namespaces


def _conversion(converted: AssessedCluster, namespaces: Collection[str]) -> str:
    """Return the step that has the quotas of namespaces count claims."""
    replaced = (f"ResourceQuota/{line.namespace}/{line.name}" for line in converted.replaced_lines)
    own = {*converted.quotas_to_convert, *converted.quotas_left, *replaced}
    names = sorted(name for name in own if name.split("/")[1] in namespaces)
    # Lines of memory or compute have a counterpart in a DeviceQuota only.
    left = [name for name in names if name in converted.quotas_left]
    more = f"; with --to device for {join_names(left)}" if left else ""
    return f"convert {join_names(names)} first (drawbridge quota convert{more})"


def _with_keys(
    workloads: Iterable[AssessedWorkload], objects: Sequence[SourceObject], namespace: str
) -> Iterator[AssessedWorkload]:
    """Yield the workloads with device keys to translate; a pod without a controller that has claims has none."""
    for workload, pods in _with_pods(workloads, objects, namespace):
        if workload.pod_outcome is Outcome.NATIVE:
            continue
        if workload.key.kind != "Pod" or not all(map(_has_claims, pods)):
            yield workload


def _with_old_pods(
    workloads: Iterable[AssessedWorkload], objects: Sequence[SourceObject], namespace: str
) -> Iterator[str]:
    """Yield the workloads that become claims, but have a pod without claims."""
    for workload, pods in _with_pods(workloads, objects, namespace):
        if workload.pod_outcome in _WITH_CLAIMS and not all(map(_has_claims, pods)):
            yield workload.key.reference


def _has_claims(pod: SourceObject) -> bool:
    return bool(_mapping(pod.document.get("spec")).get("resourceClaims"))


def _with_foreign_scheduler(
    cluster: AssessedCluster,
    objects: Sequence[SourceObject],
    namespace: str,
    options: TranslationOptions,
) -> Iterator[str]:
    """Yield the workloads with pods of a scheduler that translated ones leave, as the settings have it."""
    for workload, pods in _with_pods(cluster.workloads, objects, namespace):
        if has_other_scheduler(pods, cluster.state.bridge_scheduler, options):
            yield workload.key.reference


def _staying_schedulers(
    cluster: AssessedCluster,
    objects: Sequence[SourceObject],
    namespace: str,
    options: TranslationOptions,
) -> dict[str, tuple[str, ...]]:
    """Return the schedulers that next pods go to, beside Kubernetes' own and the bridge, to their workloads.

    Translated pods leave a scheduler, unless the settings keep them there; others go where their template says.
    """
    bridge = cluster.state.bridge_scheduler
    translated = {
        workload.key for workload in cluster.workloads if workload.pod_outcome in _WITH_CLAIMS
    }
    workloads_of: dict[str, set[str]] = {}
    for group in group_workloads(objects, namespace):
        for source in group.pods if group.owner is None else (group.owner, *group.pods):
            pod = pod_of(source)
            name = "" if pod is None else pod.spec.scheduler_name
            if group.key in translated:
                name = options.scheduler_for(name, bridge, opted_in=True) or ""
            if name not in {"", DEFAULT_SCHEDULER_NAME, bridge}:
                workloads_of.setdefault(name, set()).add(group.key.reference)
    return {name: tuple(sorted(own)) for name, own in sorted(workloads_of.items())}


def _with_pods(
    workloads: Iterable[AssessedWorkload], objects: Sequence[SourceObject], namespace: str
) -> Iterator[tuple[AssessedWorkload, Sequence[SourceObject]]]:
    groups = {group.key: group.pods for group in group_workloads(objects, namespace)}
    for workload in workloads:
        yield workload, groups.get(workload.key, ())


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
