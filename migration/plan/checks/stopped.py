"""Checks of the workloads that a person starts again after the last wave of a plan. Pure."""

from collections.abc import Collection, Iterator
from typing import Final

from answers.model.snapshot_kinds import ALL_KINDS, resource_name
from findings.text import count_text
from kube.manifests.source import SourceObject
from migration.assessment.outcomes import Outcome
from migration.cluster.device_pods import pod_of
from migration.plan.checks.checks import Check, ClusterView, note_check, ok_check
from migration.plan.facts.ready_pods import has_claims
from migration.plan.model.plan import Plan, Wave
from migration.plan.model.stopped_workloads import StoppedWorkload
from translation.reading.legacy_pod import containers
from translation.reading.untranslated_keys import is_probable_device_key

_NATIVE: Final = Outcome.NATIVE.value


def check_stopped(plan: Plan, wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Yield a check of each workload that waits for the last wave; it may stay as it is, so none stops the wave.

    Args:
        plan: The plan.
        wave: The wave that is done; only after the last one there is anything to start.
        view: The cluster.
    """
    if wave.wave == plan.waves[-1].wave:
        offered = {key for entry in plan.waves for node in entry.nodes for key in node.resources}
        for workload in plan.stopped_workloads:
            yield _check_started(workload, view, offered)


def _check_started(workload: StoppedWorkload, view: ClusterView, offered: Collection[str]) -> Check:
    """Check that a workload has pods with devices; others, as the head of a RayCluster, tell nothing of these.

    Args:
        workload: The workload.
        view: The cluster.
        offered: The resource names that device plugins offered on the nodes of the plan.
    """
    group = view.groups.get(workload.object)
    if group is None:
        return _check_unseen(workload, view)
    if not group.pods:
        return note_check(workload.object, f"it has no pods: {workload.fix}")
    pods = [pod for pod in group.pods if has_claims(pod) or _has_device_key(pod, offered)]
    if not pods:
        return note_check(workload.object, f"no pod of it requests devices: {workload.fix}")
    number = count_text(len(pods), "pod")
    if workload.outcome == _NATIVE:
        return ok_check(workload.object, f"it has {number}")
    if any(map(has_claims, pods)):
        return ok_check(workload.object, f"it has {number}, with claims")
    text = f"it has {number}, none with claims: stop it, and then {workload.fix}"
    return note_check(workload.object, text)


def _has_device_key(source: SourceObject, offered: Collection[str]) -> bool:
    """Return True if a pod requests devices by a resource name, a renamed one included."""
    pod = pod_of(source)
    keys = {key for _, own in containers(pod) for key in own.limits} if pod is not None else ()
    return any(key in offered or is_probable_device_key(key) for key in keys)


def _check_unseen(workload: StoppedWorkload, view: ClusterView) -> Check:
    """Check a workload that is gone, or that has its pods by another owner now, such as a newer revision."""
    kind, namespace, name = workload.object.split("/")
    if view.find(kind, name, namespace) is not None:
        return ok_check(workload.object, "it has started, or has ended")
    names = {resource_name(entry): entry for entry in ALL_KINDS if entry.partition(".")[0] == kind}
    if unread := sorted(names.keys() & view.unreadable):
        return note_check(workload.object, f"{', '.join(unread)} cannot be read: {workload.fix}")
    return note_check(workload.object, "it is gone")
