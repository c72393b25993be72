"""The pods of a workload that run and are ready, and the number that its controller wants. Pure.

Pods that waited, or were not ready, when the plan was made are no reason to stop a wave.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from findings.text import join_names
from kube.api.workloads import DAEMON_SET, pods_at_a_time
from kube.manifests.source import SourceObject
from migration.cluster.evidence import list_at, mapping_at
from migration.cluster.workloads import Workload
from migration.plan.model.plan import RUN_OUT, PlannedWorkload

_COMING_LATER: Final = RUN_OUT | {DAEMON_SET}
"""Kinds that have as many pods as there is work, or nodes."""


def is_running(pod: SourceObject) -> bool:
    """Return True if a pod runs, is ready, and is not on its way out."""
    return mapping_at(pod.document, "status").get("phase") == "Running" and _is_sound(pod)


def count_ready_pods(workload: Workload, left_out: Collection[str] = ()) -> int | None:
    """Return the number of a workload's pods that run and are ready; None without a pod.

    Args:
        workload: The workload with its pods.
        left_out: The nodes whose pods do not count.
    """
    pods = [pod for pod in workload.pods if node_of(pod) not in left_out]
    return sum(map(has_run, pods)) if pods else None


def has_run(pod: SourceObject) -> bool:
    """Return True if a pod of a snapshot runs and is ready.

    One with a node runs if the object has no phase.
    """
    has_phase = "phase" in mapping_at(pod.document, "status")
    return bool(node_of(pod)) and (is_running(pod) or (not has_phase and _is_sound(pod)))


def scheduled_pods(workloads: Iterable[Workload]) -> dict[str, int]:
    """Return workload, as `Kind/namespace/name`, to the number of its pods that have a node.

    Pods that run to their end may begin later, and those of a DaemonSet come with nodes, so neither are in it.
    """
    return {
        workload.key.reference: sum(bool(node_of(pod)) for pod in workload.pods)
        for workload in workloads
        if workload.key.kind not in _COMING_LATER and not workload.runs_to_completion
    }


def replaces_pods_that_ran(
    running: Sequence[SourceObject], others: Iterable[SourceObject], ready_pods: int
) -> bool:
    """Return True if the new pods of a rollout work, and only such stop it as may have waited before.

    Those with a node have got their devices, and fail there: the pods with device keys are all that works.

    Args:
        running: The pods of its workload that run, with claims or device keys.
        others: Those that do not run, or are not ready.
        ready_pods: The number of pods that ran when the plan was made.
    """
    replaced = sum(map(has_claims, running))
    return replaced >= ready_pods or (
        replaced > 0
        and len(running) >= ready_pods
        and not any(node_of(pod) and not is_leaving(pod) for pod in others)
    )


def has_claims(pod: SourceObject) -> bool:
    """Return True if a pod has claims instead of device keys."""
    return bool(list_at(pod.document, "spec", "resourceClaims"))


def wanted_pods(workload: Workload) -> int:
    """Return the number of pods that a workload's controller keeps; of one that runs out the number of its live pods."""
    owner = workload.owner
    if owner is None or owner.kind in {"Pod", "CronJob", "Job"}:
        return len(workload.pods)
    if owner.kind == DAEMON_SET:
        expected_count = mapping_at(owner.document, "status").get("desiredNumberScheduled")
        return expected_count if isinstance(expected_count, int) else len(workload.pods)
    return pods_at_a_time(owner.kind, owner.document)


def lacking_notes(
    workloads: Iterable[PlannedWorkload], groups: Mapping[str, Workload]
) -> Iterator[str]:
    """Yield a note on the workloads of a wave with pods that wait or are not ready today; those of Jobs may wait."""
    lacking = {}
    for workload in workloads:
        group = groups.get(workload.object)
        if group is None or workload.ends or group.key.kind in RUN_OUT:
            continue
        expected_count = wanted_pods(group) - len(workload.waiting)
        if workload.ready_pods is not None and workload.ready_pods < expected_count:
            lacking[f"{workload.ready_pods} of {expected_count} of {workload.object}"] = workload
    if lacking:
        rollout = (
            "; a rollout may stop at pods that wait, and leave others with device keys: see first why they wait, or scale "
            "the workload to what runs"
        )
        yield (
            f"not all pods of its workloads are ready today: {join_names([*lacking])}; no script waits for more than that"
            f"{rollout if any(workload.is_restarted for workload in lacking.values()) else ''}"
        )


def node_of(pod: SourceObject) -> Any:
    """Return the name of a pod's node; None without one."""
    return mapping_at(pod.document, "spec").get("nodeName")


def _is_sound(pod: SourceObject) -> bool:
    """Return True if no condition says that a pod is not ready, and it is not being deleted."""
    conditions = list_at(pod.document, "status", "conditions")
    ready = [
        entry.get("status")
        for entry in conditions
        if isinstance(entry, Mapping) and entry.get("type") == "Ready"
    ]
    return (not ready or ready[0] == "True") and not is_leaving(pod)


def is_leaving(pod: SourceObject) -> bool:
    """Return True if a pod is on its way out."""
    return "deletionTimestamp" in mapping_at(pod.document, "metadata")
