"""The groups that pods and pod templates of manifests declare, and faults of the declarations. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from admission.group_routing import AdmittedMember, Groups, admit_member
from allocator.declarations.group_claims import check_group_claims
from allocator.declarations.model import Declaration, DeclaredGroup, GroupName
from allocator.declarations.pod_group import PodGroup
from allocator.declarations.read import read_declaration
from allocator.declarations.schedulers import may_read_groups
from allocator.model.outcome import Reason
from allocator.pods.claims import pod_group_name, pod_name
from allocator.simulation.group_attempt import obstacle
from answers.manifests.simulate import build_request
from answers.manifests.targets import pod_targets
from answers.manifests.translate import TranslatedObject
from answers.model.cluster_state import ClusterState, build_state, is_pending
from answers.model.findings import namespace_of, reference
from answers.model.inputs import Inputs
from answers.model.kinds import STATE_KINDS
from answers.model.objects import decode_objects, merge_objects
from answers.model.views import decode_view
from findings.field_path import FieldPath
from findings.finding import Code, Finding, warning
from findings.text import count_text, join_names
from kube.api.core import Pod
from kube.api.workloads import pod_path, resolve_path
from kube.manifests.source import SourceObject
from kube.names import DEFAULT_SCHEDULER_NAME, QUOTA_GATE
from rules.context.context import Context

_NAMED: Final = 3
"""Pods that a sentence names."""
_POD_GROUP_KINDS: Final = {key: view for key, view in STATE_KINDS.items() if view is PodGroup}


def group_findings(
    inputs: Inputs, results: Iterable[TranslatedObject], context: Context
) -> Mapping[str, Sequence[Finding]]:
    """Return `Kind/namespace/name` of an object to its wrong values, or those of the group of its pods.

    That a PodGroup or some of its pods are missing is told only where the state of a cluster is given, none of
    the namespace has wrong values, and the scheduler of the pods may read the group.

    Args:
        results: The translated manifests.
        context: The state of the cluster, with the manifests in it.
    """
    findings: dict[str, list[Finding]] = {}
    _, faults = decode_objects(inputs.manifests, _POD_GROUP_KINDS, inputs.namespace)
    for fault in faults:
        findings.setdefault(fault.object, []).append(fault.finding)
    namespaces = {
        reference(source, inputs.namespace): namespace_of(source, inputs.namespace)
        for source in inputs.manifests
    }
    unread = {namespaces[name] for name in findings}
    readings = {name: read_declaration(pod) for name, _, pod in _pods(inputs)}
    if not any(readings.values()):
        return findings
    groups = {
        name: reading.group
        for name, reading in readings.items()
        if isinstance(reading, Declaration)
    }
    objects = merge_objects(inputs.state, inputs.manifests, inputs.namespace)
    views, _ = decode_objects(objects, STATE_KINDS, inputs.namespace)
    state = build_state(views)
    admitted = _admitted(groups, results, context, inputs.namespace, state)
    schedulers = {name: member.scheduler for name, member in admitted.items()}
    readers = _readers(groups, schedulers, context)
    for name, finding in _declared_groups(inputs, schedulers, state):
        is_known = inputs.knows_cluster and namespaces[name] not in unread and name in readers
        if finding.code is not Code.GROUP_NOT_FOUND or is_known:
            findings.setdefault(name, []).append(finding)
    for name, path, _ in _pods(inputs):
        refusal = admitted[name].refusal if name in admitted else None
        codes = {finding.code for finding in findings.get(name, ())}
        if refusal is not None and inputs.knows_cluster and refusal.code not in codes:
            findings.setdefault(name, []).append(refusal.nested_under(path))
    if inputs.knows_cluster and not findings and groups:
        for name, finding in _small_groups(inputs, frozenset(groups) - readers):
            findings.setdefault(name, []).append(finding)
    return findings


def _admitted(
    groups: Mapping[str, GroupName],
    results: Iterable[TranslatedObject],
    context: Context,
    namespace: str,
    state: ClusterState,
) -> Mapping[str, AdmittedMember]:
    """Return `Kind/namespace/name` of each object with pods of a group to their admission."""
    known_groups = Groups(by_name=state.kubernetes_groups, is_served=True)
    return {
        result.reference: _admission(result, context, namespace, known_groups)
        for result in results
        if result.reference in groups
    }


def _readers(
    groups: Mapping[str, GroupName], schedulers: Mapping[str, str], context: Context
) -> frozenset[str]:
    """Return the objects with pods of a scheduler that may read their group.

    A pod without devices follows the others of its gang to the bridge.

    Args:
        groups: `Kind/namespace/name` of an object to the group of its pods.
        schedulers: The same to the schedulerName of its pods.
    """
    bridge = context.bridge_scheduler
    of_bridge = {groups[name] for name, scheduler in schedulers.items() if scheduler == bridge}
    return frozenset(
        name
        for name, scheduler in schedulers.items()
        if may_read_groups(scheduler, groups[name].system, bridge)
        or (scheduler in {"", DEFAULT_SCHEDULER_NAME} and groups[name] in of_bridge)
    )


def _admission(
    result: TranslatedObject, context: Context, namespace: str, groups: Groups
) -> AdmittedMember:
    """Return the answer of the webhook to the pods of an object."""
    derived = {claim.template: claim.drivers for claim in result.claims}
    for target in pod_targets(result, namespace):
        if isinstance(target.view, Pod):
            return admit_member(target.view, target.namespace, context, groups, derived)
    return AdmittedMember("")


def _small_groups(
    inputs: Inputs, objects_without_group: frozenset[str]
) -> Iterator[tuple[str, Finding]]:
    """Yield `Kind/namespace/name` of the object of each incomplete group, and the fault.

    None is told where the number of pods of an object is not known.

    Args:
        objects_without_group: The objects with pods whose scheduler does not read their group.
    """
    request = build_request(inputs)
    if request.workloads or request.rejected_workloads or request.workload_notes:
        return
    state = request.state
    waiting = tuple(pod for pod in state.pods.values() if is_pending(pod))
    names = {reference(source, inputs.namespace): source for source in inputs.manifests}
    own_pods = {
        place
        for place in ((pod.metadata.namespace, pod.metadata.name) for pod in request.question.pods)
        if request.workload_of.get(place, f"Pod/{'/'.join(place)}") not in objects_without_group
    }
    for group in state.declared_groups(waiting).groups:
        lack = _lack(group)
        is_own = any(
            (pod.metadata.namespace, pod.metadata.name) in own_pods for pod in group.waiting
        )
        if lack is None or not is_own:
            continue
        detail, fix = lack
        name = f"{PodGroup.__name__}/{group.name.namespace}/{group.name.name}"
        first = next(iter(names), "")
        place = name if name in names else first
        yield place, warning(Code.GROUP_TOO_SMALL, FieldPath(), f"{detail}, so none is placed", fix)


def _lack(group: DeclaredGroup) -> tuple[str, str] | None:
    """Return the number of pods that a group lacks, in words, and the fix; None for one that has enough.

    Pods with scheduling gates are none before these are removed; the gate of DeviceQuotas is.
    """
    reason = obstacle(group)
    if reason is not None:
        detail, _, fix = reason.message.partition("; ")
        return (detail, fix) if reason.code == Reason.GROUP_INCOMPLETE else None
    gated = [
        pod_name(pod)
        for pod in group.waiting
        if any(gate.name != QUOTA_GATE for gate in pod.spec.scheduling_gates or ())
    ]
    members = len(group.waiting) + len(group.placed)
    if members - len(gated) >= group.min_count:
        return None
    has = f"{len(gated)} of {members} {'has' if len(gated) == 1 else 'have'} scheduling gates"
    detail = f"{group.name} needs {count_text(group.min_count, 'pod')}, and {has}"
    return detail, f"remove the gates of {join_names(gated, _NAMED)}"


def _declared_groups(
    inputs: Inputs, schedulers: Mapping[str, str], state: ClusterState
) -> Iterator[tuple[str, Finding]]:
    """Yield `Kind/namespace/name` of each object with pods that declare a wrong group, and the fault."""
    paths: dict[str, FieldPath] = {}
    pods: list[Pod] = []
    for name, path, pod in _pods(inputs):
        if read_declaration(pod) is not None:
            paths[name] = path
            scheduler = schedulers.get(name, pod.spec.scheduler_name)
            spec = msgspec.structs.replace(pod.spec, scheduler_name=scheduler)
            pods.append(msgspec.structs.replace(pod, spec=spec))
    groups = state.declared_groups(pods)
    for (_, name), fault in (*groups.faults.items(), *groups.remarks.items()):
        yield name, fault.nested_under(paths[name])
    by_name = state.kubernetes_groups
    for pod in pods:
        name = pod.metadata.name
        group = by_name.get((pod.metadata.namespace, pod_group_name(pod)))
        for finding in check_group_claims(pod, group) if group is not None else ():
            yield name, finding.nested_under(paths[name])


def _pods(inputs: Inputs) -> Iterator[tuple[str, FieldPath, Pod]]:
    """Yield each pod and pod template as a pod that has the name of its object, with its path."""
    for source in inputs.manifests:
        path = pod_path(source.api_version, source.kind)
        if path is None:
            continue
        _, raw = resolve_path(source.document, path)
        pod = decode_view(raw, Pod) if isinstance(raw, dict) else None
        if not isinstance(pod, Pod) or not is_pending(pod):
            continue
        name = reference(source, inputs.namespace)
        yield name, FieldPath.of(*path), _with_name(pod, name, source, inputs.namespace)


def _with_name(pod: Pod, name: str, source: SourceObject, namespace: str) -> Pod:
    metadata = msgspec.structs.replace(
        pod.metadata, name=name, namespace=namespace_of(source, namespace)
    )
    return msgspec.structs.replace(pod, metadata=metadata)
