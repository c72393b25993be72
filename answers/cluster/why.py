"""The state of a pod or claim, and its placement if it is pending. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from allocator.cluster.cluster import Cluster
from allocator.explain.failure import NodeResult
from allocator.pods.claims import (
    Missing,
    Name,
    PodClaims,
    allocation_of,
    claim_name,
    pinned_to,
    pod_claims,
)
from allocator.simulation import pending_pod as waiting
from allocator.simulation import simulate as simulation
from allocator.simulation.model import (
    PlacedClaim,
    SimulationInput,
    SimulationOptions,
    SimulationResult,
)
from allocator.simulation.pending_cause import Cause, cause_of_code
from answers.cluster.budgets import Budgets, SimulatedQuotas, quotas_of_group
from answers.cluster.fits_in_keys import key_sources
from answers.cluster.hints import advise_pod, missing_claim_advice
from answers.cluster.quota_usage import gate_reason, promised_amounts
from answers.cluster.uses import USERS_SHOWN, count_given_devices, describe_requests, users_of_node
from answers.model.cluster_state import ClusterState, is_pending, is_running
from answers.model.pod_owners import HASH_LABEL, deployment_of
from answers.model.requested_keys import requested_keys
from clusterstate.fits_in_keys import rewording
from findings.text import count_text, join_names, printable
from kube.api.core import Pod
from kube.api.extended_resources import extended_resources
from kube.api.ownership import not_serving
from kube.api.resource import ResourceClaim
from kube.names import DEFAULT_SCHEDULER_NAME
from quotas.resource_quotas.obstacles import explain_uncreated
from translation.cluster.snapshot import TranslationOptions, TranslationSnapshot
from translation.preflight.preconditions.schedulers import find_foreign_scheduler

NO_ADVICE: Final[Mapping[str, str]] = {}


class Condition(StrEnum):
    """The state of a pod or claim."""

    BOUND = "bound"
    FINISHED = "finished"
    ALLOCATED = "allocated"
    PENDING = "pending"
    REJECTED = "rejected"
    """It is not created; only of manifests."""


class ObjectStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one pod or claim.

    Attributes:
        kind: `Pod` or `ResourceClaim`.
        node: The node of the pod, or of the allocation if that is for one node.
        claims: The claim itself, or the pod's claims, with their allocations.
        consumers: Pods that a claim is reserved for or that name it.
        missing: Objects that a pod refers to and that do not exist.
        simulation: The placement that the search finds now; None unless the object is pending.
        event: The message of the observer's event for a pod that no node takes.
        cause: The reason of that event.
        scheduler: The reason the scheduler has not bound a pending pod, in its own words.
        conflicts: Conflicts of its devices with others in use, in sentences.
        requested: The keys that a translated pod was written with: `main: nvidia.com/gpu 1`; of another
            the keys that it has, and what serves them: `nvidia.com/gpu 1 of a device plugin`.
        held_back: Devices that the bridge gives nobody for now, in sentences; of a pending one.
        kept_for_groups: Devices that the bridge keeps for groups of pods, in sentences; of a pending one.
        quotas: DeviceQuotas of which too little is left for a pending pod, in sentences.
        promised: DeviceQuotas that a pending pod was let through by, so that it uses them up, in sentences.
        advice: Changes of a pending pod or of the cluster that help it, beside the closest fit, in sentences.
        gate: The reason why the scheduling gate of DeviceQuotas holds a pending pod back, or the pod of a
            pending claim; None without it.
        is_final: It waits for a DeviceQuota whatever others release.
        fenced: Drivers that its scheduler may not allocate, since the bridge owns them; of a pending one.
        unreadable: Resources that the user may not list, such as `nodes`; the answer is as if there
            were none.
        rejection: The reason that an object of manifests is not created; None for all others.
        denial: The reason that `check` denies an object of manifests that could be translated; empty without one.
        is_new: True for a pod of manifests that is as if it were just created.
        beside: The obstacle that the other pods of its workload are; empty without one.
        is_refused: A ResourceQuota keeps a claim of the pod from being created; the advice has the reason.
        untranslated: The reason that a pending pod keeps its device keys, with the way out; None without.
    """

    kind: str
    namespace: str
    name: str
    condition: Condition
    node: str | None = None
    claims: tuple[PlacedClaim, ...] = ()
    consumers: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
    simulation: SimulationResult | None = None
    event: str | None = None
    cause: Cause | None = None
    scheduler: str | None = None
    conflicts: tuple[str, ...] = ()
    requested: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    kept_for_groups: tuple[str, ...] = ()
    quotas: tuple[str, ...] = ()
    promised: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    gate: str | None = None
    is_final: bool = False
    fenced: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    rejection: str | None = None
    denial: str = ""
    is_new: bool = False
    beside: str = ""
    is_refused: bool = False
    untranslated: str | None = None


def rejected_status(kind: str, namespace: str, name: str, reason: str) -> ObjectStatus:
    """Return the state of an object of manifests that is not created."""
    return ObjectStatus(
        kind=kind, namespace=namespace, name=name, condition=Condition.REJECTED, rejection=reason
    )


def scheduler_of(target: Pod | ResourceClaim, state: ClusterState) -> str:
    """Return the scheduler that a pending pod, or the first pending pod of a claim, names."""
    pods = [target] if isinstance(target, Pod) else _users(target, state)
    pending = [pod for pod in pods if is_pending(pod)]
    return pending[0].spec.scheduler_name if pending else ""


def pod_status(
    pod: Pod,
    state: ClusterState,
    cluster: Cluster,
    snapshot: TranslationSnapshot,
    *,
    is_new: bool = False,
) -> ObjectStatus:
    """Return the state of a pod; a pending one is placed on `cluster`, and so changes it.

    Args:
        snapshot: Its profiles are those in force.
        is_new: The pod is of manifests, as if it were just created.
    """
    claims = pod_claims(pod, state.claims, state.templates)
    status = ObjectStatus(
        kind="Pod",
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        condition=Condition.BOUND if pod.spec.node_name else Condition.FINISHED,
        node=pod.spec.node_name or None,
        claims=_claims(claims),
        missing=claims.missing,
        requested=requested_keys(pod) or describe_requests(pod, state),
        is_new=is_new,
    )
    if not is_pending(pod):
        return status
    answer, quotas = _placement(pod, state, cluster, snapshot, is_new=is_new)
    gate = gate_reason(pod, state)
    explanation = None if answer.all_placed else explain_pending(pod, state, cluster, snapshot)
    if gate is not None:
        quotas = gate.quotas
    created_objects = state.created_objects
    uncreated = [claim for claim in claims.open if claim_name(claim) not in created_objects.claims]
    excesses = tuple(explain_uncreated(uncreated, state.resource_quotas, created_objects))
    advice = [*(missing_claim_advice(pod, state) if claims.missing else ()), *excesses]
    if not is_new and not excesses and answer.all_placed and pod.spec.resource_claims:
        advice += _uncreated_advice(pod, uncreated)
    if answer.failures:
        *others, failure = answer.failures
        failure, sentences = advise_pod(pod, failure, state, cluster, state.node_resources())
        answer = msgspec.structs.replace(answer, failures=(*others, failure))
        advice += sentences
    if gate is not None and quotas:
        advice += rollout_advice(pod, state)
    elif (
        gate is None
        and not quotas
        and not is_new
        and not (answer.groups and answer.groups[0].reason)
    ):
        advice += scheduler_advice(pod, state)
    return msgspec.structs.replace(
        status,
        condition=Condition.PENDING,
        simulation=answer,
        event=None if explanation is None else explanation.note,
        cause=_cause(answer, explanation, quotas),
        advice=tuple(advice),
        scheduler=scheduler_message(pod),
        quotas=quotas,
        promised=promised_amounts(pod, state),
        gate=gate.text if gate is not None else None,
        is_final=gate is not None and gate.is_final,
        is_refused=bool(excesses),
    )


def _cause(
    answer: SimulationResult, explanation: waiting.Explanation | None, quotas: Sequence[str]
) -> Cause | None:
    """Return the cause that the event about a pod names; None if nothing keeps it from a node."""
    if quotas:
        return Cause.DEVICE_QUOTA_EXCEEDED
    if answer.groups and answer.groups[0].code:
        return cause_of_code(answer.groups[0].code)
    return None if explanation is None else explanation.cause


def foreign_scheduler(
    pod: Pod,
    state: ClusterState,
    options: TranslationOptions,
    policy_aware_schedulers: Collection[str],
) -> str | None:
    """Return a sentence on the scheduler of a new pod with claims; None if it supports claims."""
    if not pod.spec.resource_claims:
        return None
    finding = find_foreign_scheduler(
        pod.spec.scheduler_name, state.bridge_scheduler, options, policy_aware_schedulers
    )
    return None if finding is None else f"{printable(finding.detail)}: {finding.fix}"


def rollout_advice(pod: Pod, state: ClusterState) -> Iterator[str]:
    """Yield in a sentence that a rollout creates a pod before it deletes another one."""
    deployment = deployment_of(pod)
    older_pods = [
        other.metadata.name
        for other in state.pods.values()
        if deployment
        and other.metadata.namespace == pod.metadata.namespace
        and deployment_of(other) == deployment
        and other.labels.get(HASH_LABEL) != pod.labels.get(HASH_LABEL)
        and is_running(other)
    ]
    if older_pods:
        yield (
            f"a rollout of Deployment {printable(deployment)} needs room for one more pod while "
            f"{printable(min(older_pods))} runs: write maxSurge: 0 and maxUnavailable: 1 in spec.strategy.rollingUpdate"
        )


def scheduler_advice(pod: Pod, state: ClusterState) -> Iterator[str]:
    """Yield in a sentence that a scheduler other than Kubernetes' has not tried a pod."""
    name = pod.spec.scheduler_name
    if name in {"", DEFAULT_SCHEDULER_NAME} or scheduler_message(pod) is not None:
        return
    sentence = f"its scheduler {printable(name)} has not tried it yet, or does not run"
    if name == state.bridge_scheduler:
        condition = not_serving(state.ownerships)
        if condition is not None and condition.message:
            sentence = f"its scheduler {name} allocates nothing: {printable(condition.message)}"
        sentence += "; drawbridge status says whether the bridge works"
    yield sentence


def _uncreated_advice(pod: Pod, uncreated: Sequence[ResourceClaim]) -> Iterator[str]:
    """Yield in a sentence that claims of a pending pod are not created, for a reason in its events."""
    if uncreated:
        yield (
            f"not created yet: {count_text(len(uncreated), 'claim')} of the pod; its events name the cause, such as a "
            f"ResourceQuota that is used up (kubectl -n {pod.metadata.namespace} describe resourcequota)"
        )


def with_advice(
    answer: SimulationResult,
    pods: Iterable[Pod],
    state: ClusterState,
    cluster: Cluster,
    known_advice: Mapping[str, str] = NO_ADVICE,
) -> SimulationResult:
    """Return a simulation with advice for its failures, beside the changes to claims.

    Args:
        pods: The pods that were to be placed.
        cluster: The cluster after the simulation.
        known_advice: The only advice for pods, by the titles of their failures.
    """
    pods_by_title = {f"Pod {pod.metadata.namespace}/{pod.metadata.name}": pod for pod in pods}
    resources = answer.resources or state.node_resources()
    failures = []
    for failure in answer.failures:
        pod = pods_by_title.get(failure.title)
        advice: Sequence[str] = ()
        helpful = failure
        if failure.title in known_advice:
            advice = (known_advice[failure.title],)
        elif pod is not None and failure.groups:
            helpful, advice = advise_pod(pod, failure, state, cluster, resources)
        _, idle = helpful.helpful_fits
        own_users = [] if idle is None else count_given_devices(answer, idle.node)
        if idle is not None and own_users:
            users = join_names(own_users, USERS_SHOWN)
            if users_of_node(idle.node, state):
                advice = (*advice, f"of the devices of node {idle.node} {users}")
            else:
                # Pods that are placed together never release devices to each other.
                helpful = msgspec.structs.replace(
                    helpful.of_same_kinds(), closest_fit_when_idle=None
                )
                own = f"the devices in use on node {idle.node} are those of the manifests' own pods"
                advice = (*advice, f"{own}, so waiting does not help: {users}")
        failures.append(msgspec.structs.replace(helpful, advice=(*failure.advice, *advice)))
    return msgspec.structs.replace(answer, failures=tuple(failures))


def _placement(
    pod: Pod,
    state: ClusterState,
    cluster: Cluster,
    snapshot: TranslationSnapshot,
    *,
    is_new: bool = False,
) -> tuple[SimulationResult, tuple[str, ...]]:
    """Return the placement of a pending pod, with all of its group that waits, and the limits that it exceeds.

    A pod that exceeds limits is placed as if it did not, so that the nodes with its devices are known.

    Args:
        snapshot: Its profiles are those in force.
        is_new: The pod is of manifests, so that a gang that it takes to the bridge will be adopted.
    """
    waiting_pods = [other for other in state.pods.values() if is_pending(other)]
    groups = state.groups(waiting_pods, are_new=is_new)
    own = next((group for group in groups.groups if pod in group.waiting), None)
    name = pod.metadata.namespace, pod.metadata.name
    budgets = Budgets(state, pods={name}, are_stored=not is_new)
    exceeded = budgets.explain(pod)
    question = msgspec.structs.replace(
        _question(state, pods=(pod,) if own is None else own.waiting), groups=groups
    )
    if own is not None:
        quotas = quotas_of_group(own, state, snapshot, are_stored=not is_new)
        question = msgspec.structs.replace(question, quotas=quotas)
    elif not exceeded and budgets.is_of_bridge(pod):
        quotas = SimulatedQuotas(budgets, snapshot)
        question = msgspec.structs.replace(question, quotas=quotas)
    title = f"Pod {pod.metadata.namespace}/{pod.metadata.name}"
    options = SimulationOptions(closest_fits=1, explained_title=title)
    answer = simulation.simulate_in_order(cluster, question, options)
    if own is None and answer.held_back:
        (held_back,) = answer.held_back.values()
        exceeded = tuple(finding.detail for finding in held_back.findings) or (held_back.reason,)
        question = msgspec.structs.replace(question, quotas=None)
        answer = simulation.simulate_in_order(cluster, question, options)
    if own is None:
        return answer, exceeded
    if not any(group.reason for group in answer.groups):
        failures = tuple(failure for failure in answer.failures if failure.title == title)
        answer = msgspec.structs.replace(
            answer,
            failures=failures,
            nodes=tuple(
                NodeResult(name=node, fits=False, reasons=group.reasons)
                for failure in failures
                for group in failure.groups or ()
                for node in group.nodes
            ),
        )
    claims = pod_claims(pod, state.claims, state.templates).open
    names = {claim_name(claim) for claim in claims}
    names |= {(name[0], claim) for claim in answer.uses.get(name, ())}
    of_pod = msgspec.structs.replace(
        answer,
        pods=tuple(placed for placed in answer.pods if (placed.namespace, placed.name) == name),
        claims=tuple(claim for claim in answer.claims if (claim.namespace, claim.name) in names),
    )
    return of_pod, exceeded


def scheduler_message(pod: Pod) -> str | None:
    """Return the message of the condition PodScheduled; None before an attempt."""
    conditions = (pod.status.conditions if pod.status else None) or ()
    messages = [entry.message for entry in conditions if entry.type == "PodScheduled"]
    return next(filter(None, messages), None)


def claim_status(claim: ResourceClaim, state: ClusterState, cluster: Cluster) -> ObjectStatus:
    """Return the state of a claim; a pending one is placed on `cluster`, and so changes it.

    A claim of a pending pod is placed with that pod.
    """
    allocation = allocation_of(claim)
    users = _users(claim, state)
    references = (claim.status.reserved_for if claim.status else None) or ()
    consumers = [f"{reference.resource}/{reference.name}" for reference in references]
    consumers += [f"pods/{pod.metadata.name}" for pod in users]
    status = ObjectStatus(
        kind="ResourceClaim",
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        condition=Condition.PENDING if allocation is None else Condition.ALLOCATED,
        node=pinned_to(allocation) if allocation is not None else None,
        claims=_claims(PodClaims(held=(claim,) if allocation is not None else ())),
        consumers=tuple(dict.fromkeys(consumers)),
    )
    if allocation is not None:
        return status
    first = next((pod for pod in users if is_pending(pod)), None)
    gate = None if first is None else gate_reason(first, state)
    if first is not None:
        answer, quotas = _placement(first, state, cluster, TranslationSnapshot(profiles={}))
        status = msgspec.structs.replace(
            status,
            quotas=quotas if gate is None else gate.quotas,
            gate=gate.text if gate is not None else None,
            is_final=gate is not None and gate.is_final,
        )
    else:
        question = _question(state, claims=(claim,))
        answer = simulation.simulate_in_order(cluster, question, SimulationOptions(closest_fits=1))
    return msgspec.structs.replace(status, simulation=answer)


def _users(claim: ResourceClaim, state: ClusterState) -> list[Pod]:
    """Return the pods that name a claim."""
    return [
        pod
        for _, pod in sorted(state.pods.items())
        if pod.metadata.namespace == claim.metadata.namespace
        and claim_name(claim) in _names(pod, state)
    ]


def explain_pending(
    pod: Pod,
    state: ClusterState,
    cluster: Cluster,
    snapshot: TranslationSnapshot,
    *,
    waiting_helps: bool = True,
    with_fits: bool = True,
    names_claims: bool = False,
) -> waiting.Explanation | None:
    """Explain a pending pod in a line, as the observer does; None if a node takes it, or it requests no devices.

    Args:
        snapshot: Its profiles are those in force.
        names_claims: Call claims that were made for the pod by their own names, not by those of its entries.
        waiting_helps: False where the devices in use are those of pods that start with it.
        with_fits: False to leave out the changes that help.
    """
    resources = extended_resources(state.classes.values())
    look = waiting.project_pod(
        pod, state.claims, state.templates, resources, names_claims=names_claims
    )
    if look is None:
        return None
    return waiting.explain_pending_pod(
        cluster,
        look,
        state.classes,
        resources,
        state.node_resources(),
        reword=rewording(pod, look.entries, key_sources(state, snapshot)),
        waiting_helps=waiting_helps,
        with_fits=with_fits,
    )


def _question(
    state: ClusterState, pods: tuple[Pod, ...] = (), claims: tuple[ResourceClaim, ...] = ()
) -> SimulationInput:
    return SimulationInput(
        pods=pods,
        claims=claims,
        known=state.claims,
        templates=state.templates,
        classes=state.classes,
        extended_resources=extended_resources(state.classes.values()),
        resources=state.node_resources(),
    )


def _names(pod: Pod, state: ClusterState) -> set[Name]:
    claims = pod_claims(pod, state.claims, state.templates)
    return {claim_name(claim) for claim in (*claims.open, *claims.held)}


def _claims(pod_claims: PodClaims) -> tuple[PlacedClaim, ...]:
    claims = []
    for claim in (*pod_claims.held, *pod_claims.open):
        allocation = allocation_of(claim)
        namespace, name = claim_name(claim)
        node = pinned_to(allocation) if allocation is not None else None
        claims.append(PlacedClaim(namespace=namespace, name=name, node=node, allocation=allocation))
    return tuple(claims)
