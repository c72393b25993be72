"""Checks of a cluster after a wave, as values. Pure."""

from collections.abc import Iterator, Sequence

from answers.model.snapshot_kinds import KINDS
from findings.text import join_names
from kube.manifests.source import SourceObject
from kube.names import TRANSLATE_LABEL, TRANSLATE_SELECTED
from migration.cluster.evidence import is_ready, mapping_at, text_map
from migration.cluster.owners import kind_of
from migration.cluster.unread_templates import CREATED_AGAIN
from migration.plan.checks.checks import (
    GONE,
    Check,
    ClusterView,
    WaveAnswer,
    check_cluster,
    check_switched,
    failed_check,
    gone_check,
    is_gone,
    note_check,
    ok_check,
    waiting_check,
)
from migration.plan.checks.gpu_labels import check_switched_labels
from migration.plan.checks.stopped import check_stopped
from migration.plan.facts.ready_pods import (
    has_claims,
    is_leaving,
    is_running,
    node_of,
    replaces_pods_that_ran,
    wanted_pods,
)
from migration.plan.facts.rollouts import has_given_up, has_rolled_out
from migration.plan.facts.work import runs_out
from migration.plan.model.plan import RUN_OUT, Plan, PlannedNode, PlannedWorkload, Wave


def check_wave(plan: Plan, wave: Wave, view: ClusterView) -> WaveAnswer:
    """Check that the cluster is as a wave of the plan should leave it."""
    checks = [
        *check_cluster(plan, view),
        *(check_switched(node, view) for node in wave.nodes),
        *(_check_schedulable(node, view) for node in wave.nodes if view.find("Node", node.name)),
        *(_check_opted_in(namespace, view) for namespace in wave.namespaces),
        *(_check_selective(part.namespace, view) for part in wave.partial_namespaces),
        *(_check_workload(workload, plan, view) for workload in wave.workloads),
        *(
            _check_workload(workload, plan, view, may_have_keys=True)
            for workload in wave.evicted_workloads
        ),
        *_check_daemon_pods(wave, view),
        *check_stopped(plan, wave, view),
        *check_switched_labels(plan, wave, view),
    ]
    return WaveAnswer(wave=wave.wave, checks=tuple(checks))


def _check_schedulable(node: PlannedNode, view: ClusterView) -> Check:
    reference = f"Node//{node.name}"
    document = view.find("Node", node.name)
    if mapping_at(document, "spec").get("unschedulable") is True:
        return failed_check(reference, "it is cordoned: kubectl uncordon it")
    if document is not None and not is_ready(document):
        return waiting_check(reference, "it is not ready")
    return ok_check(reference, "takes pods")


def _check_opted_in(namespace: str, view: ClusterView) -> Check:
    return _check_label(namespace, view, ("true",), "is opted in")


def _check_selective(namespace: str, view: ClusterView) -> Check:
    """Check that pods with the label of their own are opted in; later waves opt in the whole namespace."""
    values = (TRANSLATE_SELECTED, "true")
    return _check_label(namespace, view, values, "is opted in, for pods with the label")


def _check_label(namespace: str, view: ClusterView, values: Sequence[str], success: str) -> Check:
    """Check that the label that opts a namespace in has one of some values; its wave sets the first."""
    reference = f"Namespace//{namespace}"
    document = view.find("Namespace", namespace)
    if document is None:
        return gone_check(reference, "namespaces", view, GONE)
    value = text_map(document, "metadata", "labels").get(TRANSLATE_LABEL)
    if value not in values:
        text = f"label {TRANSLATE_LABEL} is {value or 'missing'}, not {values[0]}"
        return failed_check(reference, text)
    return ok_check(reference, success)


def _check_workload(
    workload: PlannedWorkload, plan: Plan, view: ClusterView, *, may_have_keys: bool = False
) -> Check:
    """Check that the pods of a workload run, with the claims that they have to have, or with device keys."""
    kind = workload.object.partition("/")[0]
    group = view.groups.get(workload.object)
    if group is None or is_gone(workload, view):
        resource = KINDS.get(kind)
        if kind in CREATED_AGAIN:
            return note_check(
                workload.object, f"no pod of it is left; whether its {kind} is, is not read"
            )
        if resource is not None and resource.plural in view.unreadable:
            return failed_check(
                workload.object, f"{resource.plural} cannot be read, and no pod of it is there"
            )
        return note_check(workload.object, GONE)
    # On nodes of later waves a DaemonSet's pods may stay as they are, or have ended and wait.
    expected_count = wanted_pods(group) - len(workload.waiting)
    own = [pod for pod in group.pods if node_of(pod) not in workload.waiting]
    running = [pod for pod in own if is_running(pod)]
    others = [pod for pod in own if not is_running(pod)]
    without = [pod.name for pod in running if not has_claims(pod)]
    if workload.asks and without and has_rolled_out(group):
        return note_check(
            workload.object,
            f"{len(without)} of {len(running)} pods have device keys still, since nobody has restarted them: "
            f"{join_names(without)}; they get claims when they are created again",
        )
    lacked_pods = workload.ready_pods is not None and workload.ready_pods < expected_count
    has_claims_late = workload.is_translated and kind_of(kind) not in RUN_OUT and not workload.ends
    if without and has_claims_late and not may_have_keys:
        if (
            lacked_pods
            and has_given_up(group)
            and replaces_pods_that_ran(running, others, workload.ready_pods or 0)
        ):
            return note_check(
                workload.object,
                f"{len(without)} of {len(running)} pods have device keys still ({join_names(without)}): its rollout waits for "
                f"{_names(others)}, and only {workload.ready_pods} of its pods ran when the plan was made; those with keys get "
                f"claims when their node is drained, or when the rollout ends: scale it to {workload.ready_pods} for that",
            )
        text = (
            f"{len(without)} of {len(running)} pods have no claims, and were created before the "
            f"namespace or the workload was opted in: {join_names(without)}"
        )
        if lacked_pods and others:
            text += (
                f"; only {workload.ready_pods} of its pods ran when the plan was made, and where its rollout waits for "
                f"{_names(others)}, scale it to {workload.ready_pods}"
            )
        return waiting_check(workload.object, text)
    if len(running) < expected_count:
        text = f"{len(running)} of {expected_count} pods run"
        scheduled = (plan.scheduled_pods or {}).get(workload.object)
        return _check_missing_pods(workload, text, running, others, scheduled)
    claims = "with claims" if workload.is_translated and not without else "with device keys"
    return ok_check(workload.object, f"{len(running)} of {expected_count} pods run, {claims}")


def _check_missing_pods(
    workload: PlannedWorkload,
    text: str,
    running: Sequence[SourceObject],
    others: Sequence[SourceObject],
    scheduled: int | None,
) -> Check:
    """Return the check of a workload with too few pods; those that did not run when the plan was made stop nothing.

    Args:
        workload: The workload.
        text: The number of its pods that run.
        running: These pods.
        others: Those that do not run, or are not ready.
        scheduled: The number of its pods that had a node when the plan was made; None if that is not known.
    """
    if others and all(map(runs_out, others)):
        return note_check(
            workload.object,
            f"{text}: nothing waits for {_names(others)}, since pods that run to their end may begin later",
        )
    unplaced = [pod for pod in others if not node_of(pod) and not is_leaving(pod)]
    if workload.ready_pods is None:
        return waiting_check(workload.object, f"{text}{_waiting_text(unplaced)}")
    text += f", and {workload.ready_pods or 'none'} did when the plan was made"
    waiting = _waiting_text(unplaced)
    if unplaced and scheduled is not None:
        placed_count = len(running) + len(others) - len(unplaced)
        waiting += _scheduled_text(placed_count, scheduled)
    if len(running) < workload.ready_pods:
        return waiting_check(workload.object, f"{text}{waiting}")
    return note_check(
        workload.object, f"{text}, so the wave does not wait for {_names(others)}{waiting}"
    )


def _waiting_text(unplaced: Sequence[SourceObject]) -> str:
    """Return the text about pods without a node; empty without any."""
    verb = "waits" if len(unplaced) == 1 else "wait"
    return f"; {_names(unplaced)} {verb} for a node with devices" if unplaced else ""


def _scheduled_text(placed: int, scheduled: int) -> str:
    """Return the text about the number of pods with a node, now and when the plan was made."""
    if placed < scheduled:
        return f", though {scheduled} had one then"
    return (
        f", and no more than {scheduled} had one then" if scheduled else ", and none had one then"
    )


def _names(pods: Sequence[SourceObject]) -> str:
    return join_names([pod.name for pod in pods]) if pods else "the others"


def _check_daemon_pods(wave: Wave, view: ClusterView) -> Iterator[Check]:
    """Check that pods of DaemonSets opted in by an earlier wave run with claims on the wave's nodes."""
    own = {workload.object for workload in wave.workloads}
    for node in wave.nodes:
        for entry in node.daemon_sets if view.find("Node", node.name) else ():
            group = view.groups.get(entry.reference)
            if not entry.translated or entry.reference in own or group is None:
                continue
            pods = [pod for pod in group.pods if node_of(pod) == node.name]
            if any(is_running(pod) and has_claims(pod) for pod in pods):
                yield ok_check(entry.reference, f"its pod on {node.name} runs, with claims")
            elif not entry.ready and any(map(has_claims, pods)):
                yield note_check(
                    entry.reference,
                    f"its pod on {node.name} has claims and is not ready, as when the plan was made",
                )
            else:
                yield waiting_check(
                    entry.reference, f"no pod of it runs on {node.name} with claims"
                )
