"""Pods that an eviction takes something from that nobody gives back. Pure.

Sources: k8s.io/kubernetes v1.37.1, pkg/controller/job: an evicted pod counts as failed against
`backoffLimit`, unless its podFailurePolicy ignores the condition DisruptionTarget, and the first rule
that matches decides. The annotations are those of the cluster autoscaler and of Karpenter.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kube.api.core import FINISHED_PHASES
from kube.api.workloads import DAEMON_SET, pod_path, resolve_path
from kube.manifests.source import SourceObject
from migration.assessment.evidence import list_at, mapping_at, text_map
from migration.assessment.outcomes import CREATED_AGAIN
from migration.assessment.workloads import Workload
from migration.plan.model.plan import PlannedWork

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
RUN_TO_COMPLETION: Final = frozenset({"Never", "OnFailure"})
HOSTNAME: Final = "kubernetes.io/hostname"
_LEADER_WORKER_SET: Final = "leaderworkerset.sigs.k8s.io/name"
"""The label of pods of a LeaderWorkerSet, whose controller is a StatefulSet."""
_MIRROR: Final = "kubernetes.io/config.mirror"
_DEFAULT_BACKOFF_LIMIT: Final = 6

_Documents = Mapping[tuple[str, str, str], Mapping[str, Any]]


def read_work(objects: Sequence[SourceObject], namespace: str) -> dict[str, list[PlannedWork]]:
    """Return node to the pods that lose something when they are evicted, by namespace and name.

    Pods of DaemonSets and of files stay where they are, and are not among them.

    Args:
        objects: The cluster's objects.
        namespace: The namespace for objects that name none.
    """
    owners = {
        (source.kind, source.namespace or namespace, source.name): source.document
        for source in objects
        if source.kind in {"Job", "PersistentVolumeClaim"}
    }
    volumes = {
        ("PersistentVolume", "", source.name): source.document
        for source in objects
        if source.kind == "PersistentVolume"
    }
    works: dict[str, list[PlannedWork]] = {}
    for source in objects:
        if (source.api_version, source.kind) == ("v1", "Pod"):
            work = _work(source, source.namespace or namespace, {**owners, **volumes})
            if work is not None:
                works.setdefault(work.node, []).append(work)
    return {node: sorted(entries, key=lambda work: work.pod) for node, entries in works.items()}


def bound_pods(objects: Sequence[SourceObject], namespace: str) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the pods that run until they are ended, with a PersistentVolume of one node.

    Args:
        objects: The cluster's objects.
        namespace: The namespace for objects that name none.
    """
    volumes = {
        source.name
        for source in objects
        if source.kind == "PersistentVolume" and _is_bound(source.document)
    }
    claims = {
        (source.namespace or namespace, source.name)
        for source in objects
        if source.kind == "PersistentVolumeClaim"
        and mapping_at(source.document, "spec").get("volumeName") in volumes
    }
    return frozenset(
        (place, source.name)
        for source in objects
        if (source.api_version, source.kind) == ("v1", "Pod")
        and (spec := mapping_at(source.document, "spec")).get("restartPolicy")
        not in RUN_TO_COMPLETION
        and (place := source.namespace or namespace)
        and any(
            (place, mapping_at(entry, "persistentVolumeClaim").get("claimName")) in claims
            for entry in list_at(spec, "volumes")
        )
    )


def describe_work(work: PlannedWork) -> str:
    """Return the description of a pod: its owner, its start, and the losses of an eviction."""
    limit = f", backoffLimit {work.backoff_limit}" if work.backoff_limit is not None else ""
    policy = f", podFailurePolicy {work.pod_failure_policy}" if work.pod_failure_policy else ""
    owner = f"of {work.owner}" if work.owner else "of nothing that creates it again"
    since = f", since {work.since}" if work.since else ""
    moved = ", where an earlier wave moves it" if work.moved else ""
    return f"{owner} on {work.node}{moved}{since}{limit}{policy}: {'; '.join(work.reasons)}"


class Restart(NamedTuple):
    """The cost of restarting a workload.

    Attributes:
        losses: The losses of each of its pods, each with its source.
        asks: Its pods ask not to be evicted, so a person decides.
    """

    losses: tuple[str, ...] = ()
    asks: bool = False


def read_restart(workload: Workload) -> Restart:
    """Return the losses of a workload's pods by a restart.

    What is on a PersistentVolume of a node stays, since the node takes pods then.
    """
    pods: list[Mapping[str, Any]] = [pod.document for pod in workload.pods]
    if not pods and workload.owner is not None:
        path = pod_path(workload.owner.api_version, workload.owner.kind)
        _, template = resolve_path(workload.owner.document, path or ())
        pods = [mapping_at(template)]
    refusals = dict.fromkeys(reason for pod in pods for reason in _refusals(pod))
    volumes = dict.fromkeys(
        reason for pod in pods for reason in _empty_dirs(mapping_at(pod, "spec"))
    )
    return Restart(losses=(*refusals, *volumes), asks=bool(refusals))


def _work(source: SourceObject, namespace: str, documents: _Documents) -> PlannedWork | None:
    """Return a pod as work; None if it loses nothing, or does not run."""
    pod = source.document
    spec, status = mapping_at(pod, "spec"), mapping_at(pod, "status")
    node, notes = spec.get("nodeName"), text_map(pod, "metadata", "annotations")
    kind, name = _controller(pod)
    is_running = isinstance(node, str) and node and str(status.get("phase")) not in FINISHED_PHASES
    if not is_running or kind == DAEMON_SET or _MIRROR in notes:
        return None
    job = documents.get((kind, namespace, name), {}) if kind == "Job" else {}
    policy = _disruption_action(job)
    waiting: list[str] = []
    losing: list[str] = []
    restart_policy = str(spec.get("restartPolicy"))
    if restart_policy in RUN_TO_COMPLETION:
        is_safe = policy == "Ignore"
        (losing if is_safe else waiting).append(
            f"it runs to its end (restartPolicy {restart_policy})"
        )
    waiting += _refusals(pod)
    losing += _volume_losses(spec, namespace, documents)
    group = "LeaderWorkerSet" if _LEADER_WORKER_SET in text_map(pod, "metadata", "labels") else kind
    if group in CREATED_AGAIN:
        losing.append(f"its {group} may start its other pods anew, too, and their work with them")
    if not waiting and not losing:
        return None
    backoff_limit = mapping_at(job, "spec").get("backoffLimit", _DEFAULT_BACKOFF_LIMIT)
    since = status.get("startTime") or mapping_at(pod, "metadata").get("creationTimestamp")
    return PlannedWork(
        pod=f"Pod/{namespace}/{source.name}",
        node=str(node),
        owner=f"{kind}/{namespace}/{name}" if kind else "",
        since=since if isinstance(since, str) else "",
        backoff_limit=backoff_limit if job and type(backoff_limit) is int else None,
        pod_failure_policy=policy,
        reasons=(*waiting, *losing),
        waits=bool(waiting),
    )


def _controller(pod: Mapping[str, Any]) -> tuple[str, str]:
    for entry in list_at(pod, "metadata", "ownerReferences"):
        if isinstance(entry, Mapping) and entry.get("controller") is True:
            return str(entry.get("kind") or "unknown"), str(entry.get("name") or "")
    return "", ""


def _disruption_action(job: Mapping[str, Any]) -> str:
    """Return the action of a Job's podFailurePolicy on an evicted pod; empty if it has none.

    A rule about exit codes may match first, since an evicted container ends with one, too.
    """
    for rule in list_at(job, "spec", "podFailurePolicy", "rules"):
        action = str(mapping_at(rule).get("action") or "")
        if mapping_at(rule, "onExitCodes") and action != "Ignore":
            return "may count an exit code"
        for condition in list_at(rule, "onPodConditions"):
            entry = mapping_at(condition)
            is_status = entry.get("status", "True") == "True"
            if entry.get("type") == "DisruptionTarget" and is_status:
                return action
    return ""


def _refusals(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield the annotations of a pod that ask not to evict it."""
    notes = text_map(pod, "metadata", "annotations")
    if notes.get(SAFE_TO_EVICT) == "false":
        yield f"{SAFE_TO_EVICT} is false"
    if notes.get(DO_NOT_DISRUPT) == "true":
        yield f"{DO_NOT_DISRUPT} is true"


def _empty_dirs(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield a loss for each volume of a pod that ends with it."""
    for entry in list_at(spec, "volumes"):
        volume = mapping_at(entry)
        # What is in memory only, as /dev/shm, is no work that a pod has stored.
        if "emptyDir" in volume and mapping_at(volume, "emptyDir").get("medium") != "Memory":
            yield f"what is in its emptyDir {volume.get('name') or ''} is lost"


def _volume_losses(spec: Mapping[str, Any], namespace: str, documents: _Documents) -> Iterator[str]:
    yield from _empty_dirs(spec)
    for entry in list_at(spec, "volumes"):
        claim = mapping_at(entry, "persistentVolumeClaim").get("claimName")
        document = documents.get(("PersistentVolumeClaim", namespace, str(claim)), {})
        volume_name = str(mapping_at(document, "spec").get("volumeName") or "")
        if _is_bound(documents.get(("PersistentVolume", "", volume_name), {})):
            yield f"its PersistentVolume {volume_name} stays on the node, so it waits until that is back"


def _is_bound(volume: Mapping[str, Any]) -> bool:
    """Return True if a PersistentVolume is on one node."""
    spec = mapping_at(volume, "spec")
    if "local" in spec or "hostPath" in spec:
        return True
    return any(
        mapping_at(requirement).get("key") == HOSTNAME
        for term in list_at(spec, "nodeAffinity", "required", "nodeSelectorTerms")
        for requirement in list_at(term, "matchExpressions")
    )
