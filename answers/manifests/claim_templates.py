"""Advice for pods that share one claim by its name, and so one node: a template gives each a claim. Pure.

Nothing is assumed: the pods are placed with a template in the claim's place, and the advice has their number.
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from allocator.pods.claims import Name, allocation_of
from allocator.simulation.model import SimulationInput, SimulationResult
from findings.text import count_text, printable
from kube.api.core import Pod, PodResourceClaim
from kube.api.resource import ResourceClaimTemplate, ResourceClaimTemplateSpec


def template_advice(
    question: SimulationInput,
    result: SimulationResult,
    place: Callable[[SimulationInput], SimulationResult],
) -> Mapping[str, str]:
    """Return advice for pods without a node by their titles, `Pod namespace/name`; none without effect.

    Args:
        result: The placement of the question.
        place: A function that places another question on the same cluster.
    """
    unplaced_pods = {(pod.namespace, pod.name) for pod in result.pods if pod.node is None}
    users_by_claim = _users_by_claim(question)
    tied_claims = [
        name
        for name, users in users_by_claim.items()
        if len(users) > 1 and not unplaced_pods.isdisjoint(users)
    ]
    if not tied_claims or result.groups:
        return {}
    after = place(_with_templates(question, frozenset(tied_claims)))
    placed = {(pod.namespace, pod.name) for pod in after.pods if pod.node is not None}
    if len(placed) <= len(result.pods) - len(unplaced_pods):
        return {}
    advice: dict[str, str] = {}
    for name in tied_claims:
        users = users_by_claim[name]
        fitting = sum(user in placed for user in users)
        pods = count_text(len(users), "pod")
        get = f"all {pods} get" if fitting == len(users) else f"{fitting} of {pods} get"
        text = printable(name[1])
        sentence = (
            f"claim {text} is one claim, on one node, for {pods}; give each pod its own: write kind "
            f"ResourceClaimTemplate for it, with what one pod needs below spec.spec, and "
            f"resourceClaimTemplateName: {text} in the pods; {get} a place then"
        )
        advice |= {
            f"Pod {namespace}/{pod}": sentence
            for namespace, pod in users
            if (namespace, pod) in unplaced_pods
        }
    return advice


def _users_by_claim(question: SimulationInput) -> dict[Name, tuple[Name, ...]]:
    """Return the pods of each unallocated claim that they name."""
    users: dict[Name, dict[Name, None]] = {}
    for pod in question.pods:
        namespace = pod.metadata.namespace
        for entry in pod.spec.resource_claims or ():
            name = (namespace, entry.resource_claim_name or "")
            claim = question.known.get(name)
            if claim is not None and allocation_of(claim) is None:
                users.setdefault(name, {})[namespace, pod.metadata.name] = None
    return {name: tuple(pods) for name, pods in users.items()}


def _with_templates(question: SimulationInput, names: frozenset[Name]) -> SimulationInput:
    """Return a question with templates in place of some claims."""
    templates = {
        name: ResourceClaimTemplate(spec=ResourceClaimTemplateSpec(spec=question.known[name].spec))
        for name in names
    }
    claims = tuple(
        claim
        for claim in question.claims
        if (claim.metadata.namespace, claim.metadata.name) not in names
    )
    return replace(
        question,
        pods=tuple(_with_template(pod, names) for pod in question.pods),
        claims=claims,
        known={name: claim for name, claim in question.known.items() if name not in names},
        templates={**question.templates, **templates},
    )


def _with_template(pod: Pod, names: frozenset[Name]) -> Pod:
    entries = tuple(
        PodResourceClaim(name=entry.name, resource_claim_template_name=entry.resource_claim_name)
        if (pod.metadata.namespace, entry.resource_claim_name) in names
        else entry
        for entry in pod.spec.resource_claims or ()
    )
    return replace(pod, spec=replace(pod.spec, resource_claims=entries))
