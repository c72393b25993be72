"""Pods that an eviction takes something from that nobody gives back. Pure.

Sources: k8s.io/kubernetes v1.37.1, pkg/controller/job: an evicted pod counts as failed against
`backoffLimit`, unless its podFailurePolicy ignores the condition DisruptionTarget, and the first rule
that matches decides. A Job fails when more pods have failed than the limit, and its other pods are deleted then. The
annotations are those of the cluster autoscaler and of Karpenter.
"""

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from findings.text import count_text, join_names
from kube.api.core import FINISHED_PHASES
from kube.api.workloads import DAEMON_SET, pod_path, resolve_path
from kube.manifests.source import SourceObject
from migration.cluster.evidence import (
    RUN_TO_COMPLETION,
    controller_kind,
    list_at,
    mapping_at,
    text_map,
)
from migration.cluster.owners import OwnerKey, owner_key, owners_by_key
from migration.cluster.volumes import Volumes, claim_names
from migration.cluster.work_groups import Ending, group_of, is_hub_server, read_creators
from migration.cluster.workloads import Workload
from migration.plan.model.plan import RUN_OUT, PlannedWork
from migration.plan.neighbours.node_autoscalers import DO_NOT_DISRUPT

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_MIRROR: Final = "kubernetes.io/config.mirror"
_DEFAULT_BACKOFF_LIMIT: Final = 6

_JOB: Final = ("batch/v1", "Job")
"""A Job of another project, as Volcano, has neither a backoffLimit nor a podFailurePolicy."""
_HUB_SERVER: Final = "it is the server of a user of JupyterHub: tell them first, since what it has in memory, as a kernel, ends with it"

_IN_MEMORY: Final = "what it has in memory is lost"

_Jobs = Mapping[str, Mapping[str, Any]]
"""The Jobs of Kubernetes by `Job/namespace/name`, which one of Volcano with the same name has with its group."""
_OF_DEPLOYMENT: Final = (
    "it has restartPolicy {} and a Deployment as its owner, as the TaskManagers of Flink: that of a stream never ends by itself, so "
    "take a savepoint and let it be evicted (--evict-jobs), or stop the job before"
)
"""Source: apache/flink, flink-kubernetes, KubernetesResourceManagerDriver: the Deployment of the JobManager owns them."""


class _Owners(NamedTuple):
    """The workloads of a cluster, its Jobs, and the kinds that its RayClusters are made for."""

    by_key: Mapping[OwnerKey, SourceObject]
    jobs: _Jobs
    ray_creators: Mapping[tuple[str, str], str]


def read_work(
    objects: Sequence[SourceObject],
    namespace: str,
    at_home: Collection[tuple[str, str]] = (),
) -> dict[str, list[PlannedWork]]:
    """Return node to the pods that lose something when they are evicted, by namespace and name.

    Pods of DaemonSets and of files stay where they are, and are not among them.

    Args:
        objects: The cluster's objects.
        namespace: The namespace for objects that name none.
        at_home: Namespace and name of the pods on the only node with devices for them that reaches their volumes.
    """
    by_key = owners_by_key((source for source in objects if source.kind != "Pod"), namespace)
    jobs = {
        f"Job/{source.namespace or namespace}/{source.name}": source.document
        for source in objects
        if (source.api_version, source.kind) == _JOB
    }
    owners = _Owners(by_key, jobs, read_creators(objects, namespace))
    members = _members_of_jobs(objects, namespace, by_key)
    volumes = Volumes(objects, namespace)
    works: dict[str, list[PlannedWork]] = {}
    for source in objects:
        if (source.api_version, source.kind) == ("v1", "Pod"):
            work = _work(source, source.namespace or namespace, owners, volumes, at_home)
            if work is not None:
                work = _with_job(work, jobs, members)
                works.setdefault(work.node, []).append(work)
    return {node: sorted(entries, key=lambda work: work.pod) for node, entries in works.items()}


def read_bare_pods(
    objects: Iterable[SourceObject], namespace: str, work: Mapping[str, Iterable[PlannedWork]]
) -> dict[str, PlannedWork]:
    """Return the pods with a node that nothing creates again, as `Pod/namespace/name`, with the losses of their deletion.

    Args:
        objects: The cluster's objects.
        namespace: The namespace for objects that name none.
        work: Node to the pods that lose something when they are evicted.
    """
    lossy = {item.pod: item for items in work.values() for item in items}
    bare_pods: dict[str, PlannedWork] = {}
    for source in objects:
        if (source.api_version, source.kind) != ("v1", "Pod") or controller_kind(source.document):
            continue
        reference = f"Pod/{source.namespace or namespace}/{source.name}"
        node = mapping_at(source.document, "spec").get("nodeName")
        if isinstance(node, str) and node:
            item = lossy.get(reference) or PlannedWork(
                pod=reference,
                node=node,
                owner="",
                since=_since(source.document),
                backoff_limit=None,
                pod_failure_policy="",
                reasons=(),
                waits=False,
            )
            in_memory = () if item.hub_server else (_IN_MEMORY,)
            bare_pods[reference] = msgspec.structs.replace(
                item, reasons=(*item.reasons, *in_memory)
            )
    return bare_pods


def describe_work(work: PlannedWork) -> str:
    """Return the description of a pod: its owner, its start, and the losses of an eviction."""
    limit = f", backoffLimit {work.backoff_limit}" if work.backoff_limit is not None else ""
    policy = f", podFailurePolicy {work.pod_failure_policy}" if work.pod_failure_policy else ""
    owner = f"of {work.owner}" if work.owner else "of nothing that creates it again"
    since = f", since {work.since}" if work.since else ""
    moved = ", where an earlier wave moves it" if work.moved else ""
    reasons = [*work.reasons, _way_on(work)] if work.never_ends else work.reasons
    return f"{owner} on {work.node}{moved}{since}{limit}{policy}: {'; '.join(reasons)}"


def _way_on(work: PlannedWork) -> str:
    """Return the text about a pod without an end of its own, with the command that allows its eviction."""
    _, namespace, name = work.pod.split("/", 2)
    if work.in_group:
        owner = f"let those who use {work.owner} end it" if work.owner else "end it"
        return (
            f"it never ends by itself; if its work may end: {owner}, or --evict-jobs={work.node} evicts it with all other "
            "pods of the node that are waited for or asked about, whose Jobs may fail with them"
        )
    words = ["kubectl", "annotate", "pod", name, f"--namespace={namespace}"]
    words += [f"{key}-" for key in work.annotations]
    if not work.owner:
        words = ["kubectl", "delete", "pod", name, f"--namespace={namespace}"]
    if work.hub_server:
        return (
            f"it ends when its user, or the hub, stops it; if it may end: {shlex.join(words)}, and its user starts it "
            "again in the hub"
        )
    if work.moved:
        return "it never ends by itself; without the annotation the drain evicts it"
    end = "the drain evicts it then" if work.owner else "nothing creates it again"
    return f"it never ends by itself; if it may end: {shlex.join(words)}, and {end}"


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
    refusals = dict.fromkeys(text for pod in pods for _, text in _refusals(pod))
    volumes = dict.fromkeys(
        reason for pod in pods for reason in _empty_dirs(mapping_at(pod, "spec"))
    )
    return Restart(losses=(*refusals, *volumes), asks=bool(refusals))


def ends_as_it_is(group: Workload | None) -> bool:
    """Return True if a workload is a Job with all completions under way, so that no other pod follows."""
    if group is None or group.owner is None or group.key.kind != "Job" or not group.pods:
        return False
    job = group.owner.document
    if type(mapping_at(job, "spec").get("completions")) is not int:
        return False
    running = sum(
        bool(mapping_at(pod.document, "spec").get("nodeName"))
        and str(mapping_at(pod.document, "status").get("phase")) not in FINISHED_PHASES
        for pod in group.pods
    )
    return running > 0 and not _is_followed(job, running)


def starts_pods(group: Workload) -> bool:
    """Return True if other pods follow those of a workload: it has none, it is a CronJob, or its Job goes on."""
    if not group.pod_count or group.key.kind == "CronJob":
        return True
    if group.key.kind != "Job" or group.owner is None:
        return False
    return _is_followed(group.owner.document, len(group.pods))


def _work(
    source: SourceObject,
    namespace: str,
    owners: _Owners,
    volumes: Volumes,
    at_home: Collection[tuple[str, str]],
) -> PlannedWork | None:
    """Return a pod as work; None if it loses nothing, or does not run."""
    pod = source.document
    spec, status = mapping_at(pod, "spec"), mapping_at(pod, "status")
    node, notes = spec.get("nodeName"), text_map(pod, "metadata", "annotations")
    kind, owner = _controller(pod, namespace, owners.by_key)
    is_running = isinstance(node, str) and node and str(status.get("phase")) not in FINISHED_PHASES
    if not is_running or kind == DAEMON_SET or _MIRROR in notes:
        return None
    job = owners.jobs.get(owner, {})
    policy = _disruption_action(job)
    waiting: list[str] = []
    losing: list[str] = []
    restart_policy = str(spec.get("restartPolicy"))
    in_hub = is_hub_server(pod)
    if in_hub:
        waiting.append(_HUB_SERVER)
    elif restart_policy in RUN_TO_COMPLETION:
        is_safe = policy == "Ignore"
        (losing if is_safe else waiting).append(
            _OF_DEPLOYMENT.format(restart_policy)
            if kind == "Deployment"
            else f"it runs to its end (restartPolicy {restart_policy})"
        )
    refusals = dict(_refusals(pod))
    waiting += refusals.values()
    losing += [*_empty_dirs(spec), *_volume_losses(spec, namespace, volumes)]
    is_at_home = (namespace, source.name) in at_home
    if is_at_home and not any(
        volumes.is_of_one_node(namespace, claim) for claim in claim_names(spec)
    ):
        losing.append(
            "no other node that reaches its PersistentVolume takes it and has devices for it, so it waits until this one is back"
        )
    group = group_of(pod, namespace, owners.ray_creators, owners.by_key, job)
    ending = group.ending if group is not None else None
    if group is not None:
        is_evicted = ending is Ending.EVICTED or policy == "Ignore"
        (losing if is_evicted else waiting).append(group.loss)
    if not waiting and not losing:
        return None
    backoff_limit = mapping_at(job, "spec").get("backoffLimit", _DEFAULT_BACKOFF_LIMIT)
    endless = (
        bool(refusals) and restart_policy not in RUN_TO_COMPLETION and ending is not Ending.WAITS
    )
    return PlannedWork(
        pod=f"Pod/{namespace}/{source.name}",
        node=str(node),
        owner=owner,
        since=_since(pod),
        backoff_limit=backoff_limit if job and type(backoff_limit) is int else None,
        pod_failure_policy=policy,
        reasons=(*waiting, *losing),
        waits=bool(waiting),
        never_ends=endless or in_hub or ending is Ending.ASKS,
        annotations=tuple(refusals),
        in_group=ending is Ending.ASKS,
        hub_server=in_hub,
        group=group.workload if group is not None else "",
    )


def _since(pod: Mapping[str, Any]) -> str:
    """Return the begin of a pod in RFC 3339; empty if it is not known."""
    began = mapping_at(pod, "status").get("startTime")
    since = began or mapping_at(pod, "metadata").get("creationTimestamp")
    return since if isinstance(since, str) else ""


def _members_of_jobs(
    objects: Iterable[SourceObject], namespace: str, by_key: Mapping[OwnerKey, SourceObject]
) -> Mapping[str, Mapping[str, str]]:
    """Return each Job, as `Job/namespace/name`, to its running pods, as `Pod/namespace/name`, with their nodes."""
    members: dict[str, dict[str, str]] = {}
    for source in objects:
        if (source.api_version, source.kind) != ("v1", "Pod"):
            continue
        place = source.namespace or namespace
        kind, owner = _controller(source.document, place, by_key)
        node = mapping_at(source.document, "spec").get("nodeName")
        phase = str(mapping_at(source.document, "status").get("phase"))
        if kind == "Job" and isinstance(node, str) and node and phase not in FINISHED_PHASES:
            members.setdefault(owner, {})[f"Pod/{place}/{source.name}"] = node
    return members


def _with_job(
    work: PlannedWork,
    jobs: _Jobs,
    members: Mapping[str, Mapping[str, str]],
) -> PlannedWork:
    """Return a pod with the effects of its end and its eviction on its Job, and on the other pods of it."""
    job = jobs.get(work.owner)
    if job is None:
        return work
    running = members.get(work.owner, {})
    work = msgspec.structs.replace(work, followed=_is_followed(job, len(running)))
    if work.pod_failure_policy == "Ignore":
        return work
    per_index = mapping_at(job, "spec").get("backoffLimitPerIndex")
    failed = mapping_at(job, "status").get("failed", 0)
    left = (work.backoff_limit or 0) - (failed if type(failed) is int else 0)
    fails = work.pod_failure_policy == "FailJob"
    if not fails and (type(per_index) is int or work.pod_failure_policy == "FailIndex"):
        text = "its eviction counts as a failure of its index"
    elif not fails and left > 0:
        text = f"its eviction counts as 1 of {count_text(left, 'failure')} that its Job survives"
    else:
        fails, text = True, ""
    ending = dict(sorted(running.items())) if fails else {}
    ending.pop(work.pod, None)
    creator, _ = _controller(job, "", {})
    texts = [_failing_text(ending) if fails else text]
    if fails and creator:
        # The reason of its group says the rest.
        anew = "" if work.group else " or start its other pods anew"
        texts.append(f"its {creator} may fail{anew}, too")
    return msgspec.structs.replace(
        work,
        reasons=(*work.reasons, *texts),
        group=work.group or (work.owner if ending else ""),
        fails_job=fails,
        ending=ending,
    )


def _failing_text(ending: Mapping[str, str]) -> str:
    """Return the text about a Job that fails, with its other pods that end and their nodes."""
    if not ending:
        return "the Job fails with it"
    verb = "ends" if len(ending) == 1 else "end"
    nodes = join_names(sorted(set(ending.values())))
    return f"the Job fails with it, and {count_text(len(ending), 'other pod')} on {nodes} {verb}"


def without_ended(work: PlannedWork, ended: Collection[str]) -> PlannedWork:
    """Return a pod without those other pods of its Job that have ended by then, as `Pod/namespace/name`."""
    left = {pod: node for pod, node in work.ending.items() if pod not in ended}
    if left == work.ending:
        return work
    former = _failing_text(work.ending)
    return msgspec.structs.replace(
        work,
        ending=left,
        reasons=tuple(_failing_text(left) if text == former else text for text in work.reasons),
    )


def _is_followed(job: Mapping[str, Any], running: int) -> bool:
    """Return True if a Job creates another pod when one of its running ones has ended."""
    completions = mapping_at(job, "spec").get("completions")
    succeeded = mapping_at(job, "status").get("succeeded", 0)
    if type(completions) is not int or type(succeeded) is not int:
        return False
    return completions - succeeded > running


def _controller(
    document: Mapping[str, Any], namespace: str, by_key: Mapping[OwnerKey, SourceObject]
) -> tuple[str, str]:
    """Return the kind of an object's controller, and it as `Kind/namespace/name`; both are empty without one."""
    for entry in list_at(document, "metadata", "ownerReferences"):
        if isinstance(entry, Mapping) and entry.get("controller") is True:
            kind, name = str(entry.get("kind") or "unknown"), str(entry.get("name") or "")
            key = OwnerKey(kind=kind, namespace=namespace, name=name)
            return kind, owner_key(str(entry.get("apiVersion") or ""), key, by_key).reference
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


def _refusals(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the annotations of a pod that ask not to evict it, each with a text."""
    notes = text_map(pod, "metadata", "annotations")
    if notes.get(SAFE_TO_EVICT) == "false":
        yield SAFE_TO_EVICT, f"{SAFE_TO_EVICT} is false"
    if notes.get(DO_NOT_DISRUPT) == "true":
        yield DO_NOT_DISRUPT, f"{DO_NOT_DISRUPT} is true"


def _empty_dirs(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield a loss for each volume of a pod that ends with it."""
    for entry in list_at(spec, "volumes"):
        volume = mapping_at(entry)
        # What is in memory only, as /dev/shm, is no work that a pod has stored.
        if "emptyDir" in volume and mapping_at(volume, "emptyDir").get("medium") != "Memory":
            yield f"what is in its emptyDir {volume.get('name') or ''} is lost"


def _volume_losses(spec: Mapping[str, Any], namespace: str, volumes: Volumes) -> Iterator[str]:
    """Yield a loss for each volume of a pod that is of one node."""
    for claim in claim_names(spec):
        if volumes.is_of_one_node(namespace, claim):
            name = volumes.name(namespace, claim)
            yield f"its PersistentVolume {name} stays on the node, so it waits until that is back"


def runs_out(pod: SourceObject) -> bool:
    """Return True if a pod is of a Job, or ends by itself."""
    owners = map(mapping_at, list_at(pod.document, "metadata", "ownerReferences"))
    policy = mapping_at(pod.document, "spec").get("restartPolicy")
    return policy in RUN_TO_COMPLETION or any(owner.get("kind") in RUN_OUT for owner in owners)
