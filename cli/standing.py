"""How a pod or claim of a cluster stands, and where it would go if it waits. Pure."""

from enum import StrEnum

import msgspec

from allocator import simulate as simulation
from allocator import waiting
from allocator.cluster import Cluster
from allocator.pod_claims import Missing, Name, PodClaims, allocation_of, claim_name, pod_claims
from allocator.simulate import Answer, PlacedClaim, Question, Ways, pinned_to
from cli.state import State, is_waiting
from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from webhook.extended_resources import extended_resources


class Condition(StrEnum):
    """How a pod or claim stands."""

    BOUND = "bound"
    FINISHED = "finished"
    ALLOCATED = "allocated"
    WAITING = "waiting"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How one pod or claim stands.

    Attributes:
        kind: `Pod` or `ResourceClaim`.
        node: Where it is, or what its allocation is pinned to.
        claims: Those that it is, or has, with their allocations.
        consumers: Pods that a claim is reserved for or that name it.
        missing: Objects that a pod waits for.
        simulation: Where it would go now; None when it is somewhere already.
        told: What the observer tells a pod that no node has devices for, in one line.
    """

    kind: str
    namespace: str
    name: str
    condition: Condition
    node: str | None = None
    claims: tuple[PlacedClaim, ...] = ()
    consumers: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
    simulation: Answer | None = None
    told: str | None = None


def of_pod(pod: Pod, state: State, cluster: Cluster) -> Standing:
    """Return how a pod stands; one that waits is placed on `cluster`, which holds it then."""
    found = pod_claims(pod, state.claims, state.templates)
    standing = Standing(
        kind="Pod",
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        condition=Condition.BOUND if pod.spec.node_name else Condition.FINISHED,
        node=pod.spec.node_name or None,
        claims=_claims(found),
        missing=found.missing,
    )
    if not is_waiting(pod):
        return standing
    question = _question(state, pods=(pod,))
    answer = simulation.one_by_one(cluster, question, Ways(misses=1))
    told = None if answer.all_placed else _told(pod, state, cluster)
    return msgspec.structs.replace(
        standing, condition=Condition.WAITING, simulation=answer, told=told
    )


def of_claim(claim: ResourceClaim, state: State, cluster: Cluster) -> Standing:
    """Return how a claim stands; one that waits is placed on `cluster`, which holds it then.

    A claim that waits for a pod goes where that pod can go.
    """
    allocation = allocation_of(claim)
    users = [
        pod
        for _, pod in sorted(state.pods.items())
        if pod.metadata.namespace == claim.metadata.namespace
        and claim_name(claim) in _names(pod, state)
    ]
    reserved = (claim.status.reserved_for if claim.status else None) or ()
    consumers = [f"{each.resource}/{each.name}" for each in reserved]
    consumers += [f"pods/{pod.metadata.name}" for pod in users]
    standing = Standing(
        kind="ResourceClaim",
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        condition=Condition.WAITING if allocation is None else Condition.ALLOCATED,
        node=pinned_to(allocation) if allocation is not None else None,
        claims=_claims(PodClaims(held=(claim,) if allocation is not None else ())),
        consumers=tuple(dict.fromkeys(consumers)),
    )
    if allocation is not None:
        return standing
    those = [pod for pod in users if is_waiting(pod)][:1]
    question = _question(state, pods=tuple(those), claims=() if those else (claim,))
    answer = simulation.one_by_one(cluster, question, Ways(misses=1))
    return msgspec.structs.replace(standing, simulation=answer)


def _told(pod: Pod, state: State, cluster: Cluster) -> str | None:
    resources = extended_resources(state.classes.values())
    look = waiting.look(pod, state.claims, state.templates, resources)
    if look is None:
        return None
    answer = waiting.answer(cluster, look, state.classes, resources)
    return answer.note if answer is not None else None


def _question(
    state: State, pods: tuple[Pod, ...] = (), claims: tuple[ResourceClaim, ...] = ()
) -> Question:
    return Question(
        pods=pods,
        claims=claims,
        known=state.claims,
        templates=state.templates,
        classes=state.classes,
        extended_resources=extended_resources(state.classes.values()),
    )


def _names(pod: Pod, state: State) -> set[Name]:
    found = pod_claims(pod, state.claims, state.templates)
    return {claim_name(each) for each in (*found.open, *found.held)}


def _claims(found: PodClaims) -> tuple[PlacedClaim, ...]:
    claims = []
    for claim in (*found.held, *found.open):
        allocation = allocation_of(claim)
        namespace, name = claim_name(claim)
        node = pinned_to(allocation) if allocation is not None else None
        claims.append(PlacedClaim(namespace=namespace, name=name, node=node, allocation=allocation))
    return tuple(claims)
