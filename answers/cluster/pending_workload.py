"""Pending pods, those with equal requests together, and the reasons they wait. Pure."""

from collections.abc import Iterable

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.declarations.model import Declaration, DeclaredGroup
from allocator.declarations.read import read_declaration
from allocator.pods.claims import allocation_of, pod_claims
from allocator.simulation.group_attempt import obstacle
from answers.cluster.quota_usage import gate_reason
from answers.cluster.why import ObjectStatus, explain_pending, scheduler_advice
from answers.model.cluster_state import ClusterState, is_pending
from answers.model.requested_keys import requested_keys
from kube.api.core import Pod
from kube.api.meta import encode
from translation.cluster.snapshot import TranslationSnapshot


class PendingPods(msgspec.Struct, frozen=True, kw_only=True):
    """Pending pods that wait for the same reasons.

    Attributes:
        pods: Their names, sorted; at least one.
        status: The state of the first of them.
    """

    pods: tuple[str, ...]
    status: ObjectStatus


class PodsTogether(msgspec.Struct, frozen=True, kw_only=True):
    """The placement of all pods of a workload of manifests, one beside the other.

    Attributes:
        pods: The number of the pods.
        placed: The number of those that get a place.
        reason: The reason that the first of the others gets none; empty without any.
    """

    pods: int
    placed: int
    reason: str = ""


class WorkloadStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The pending pods of a workload.

    Attributes:
        pods: The number of its pods.
        pending: The explained ones, the largest group first.
        not_explained: The number of pending pods in groups beyond those that are explained.
        not_created: The reasons that pods could not be created, in the API server's words.
        quotas: The ResourceQuotas that may be one, in sentences; empty without such pods.
        advice: The way out for such pods; empty without quotas.
        together: The placement of all its pods; None of pods that exist.
        denial: The reason that `check` denies it, or a claim or template that its pods name; empty without one.
    """

    kind: str
    namespace: str
    name: str
    pods: int
    pending: tuple[PendingPods, ...] = ()
    not_explained: int = 0
    not_created: tuple[str, ...] = ()
    quotas: tuple[str, ...] = ()
    advice: str = ""
    together: PodsTogether | None = None
    denial: str = ""


def group_pending_pods(pods: Iterable[Pod], state: ClusterState) -> tuple[tuple[Pod, ...], ...]:
    """Group the pending pods that the search has the same answer for.

    Each pod is tried alone on the cluster as it is, so its own spec and the contents of its claims
    decide; names of pods and of generated claims do not.

    Returns:
        Groups in the order of the pods, the largest first.
    """
    groups: dict[bytes, list[Pod]] = {}
    for pod in pods:
        if is_pending(pod):
            groups.setdefault(_question_key(pod, state), []).append(pod)
    return tuple(tuple(group) for group in sorted(groups.values(), key=len, reverse=True))


def _question_key(pod: Pod, state: ClusterState) -> bytes:
    claims = pod_claims(pod, state.claims, state.templates)
    spec = msgspec.structs.replace(pod.spec, resource_claims=None)
    allocated = [(claim.spec, allocation_of(claim)) for claim in claims.held]
    missing = [entry.code for entry in claims.missing]
    group = read_declaration(pod)
    name = str(group.group) if isinstance(group, Declaration) else ""
    return encode(
        (spec, [claim.spec for claim in claims.open], allocated, missing, requested_keys(pod), name)
    )


def waiting_reason(
    pod: Pod,
    state: ClusterState,
    cluster: Cluster,
    groups: Iterable[DeclaredGroup],
    snapshot: TranslationSnapshot,
) -> str:
    """Return the reason a pod waits; empty if the words of its scheduler say all that is known.

    Args:
        groups: The groups of all pending pods.
        snapshot: Its profiles are those in force.
    """
    explanation = explain_pending(pod, state, cluster, snapshot)
    note = None if explanation is None else explanation.note
    gate = gate_reason(pod, state)
    if gate is not None:
        parts = (gate.text, *gate.quotas, *([note] if note is not None else []))
        return f"behind its scheduling gate: {'; '.join(parts)}"
    if note is not None:
        return note
    obstacles = (obstacle(group) for group in groups if pod in group.waiting)
    reason = next(filter(None, obstacles), None)
    return "; ".join(scheduler_advice(pod, state)) if reason is None else reason.message
