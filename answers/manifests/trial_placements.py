"""Advice for pods without a node by trials: their workload is placed again with other claims. Pure.

Pods that share one claim by its name share one node; a template gives each a claim. Where one part of a
workload has devices that another lacks, the part is tried without. Nothing is assumed: the advice has the
number of pods that were placed in the trial.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from allocator.pods.claims import Name, allocation_of
from allocator.simulation.model import SimulationInput, SimulationResult
from answers.model.requested_keys import keys_of_containers
from findings.text import count_text, join_names, printable
from kube.api.core import Pod, PodResourceClaim
from kube.api.meta import encode
from kube.api.resource import ResourceClaimTemplate, ResourceClaimTemplateSpec

_PARTS_TRIED: Final = 4
"""Parts of workloads that are tried without devices; each is a placement of all pods."""
_KEYS_SHOWN: Final = 3


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


def with_spared_devices(
    question: SimulationInput,
    result: SimulationResult,
    place: Callable[[SimulationInput], SimulationResult],
    workload_of: Mapping[Name, str],
) -> SimulationResult:
    """Return a result with advice to leave out the devices of another part of a workload.

    All pods fit without them.

    Args:
        place: A function that places another question on the same cluster.
        workload_of: The workload of each pod of one.
    """
    sentence = next(_spared_devices(question, result, place, workload_of), None)
    if sentence is None:
        return result
    lacking = {workload_of.get((pod.namespace, pod.name)) for pod in result.pods if not pod.node}
    titles = {
        f"Pod {namespace}/{name}"
        for (namespace, name), workload in workload_of.items()
        if workload in lacking
    }
    failures = tuple(
        replace(failure, advice=(*failure.advice, sentence)) if failure.title in titles else failure
        for failure in result.failures
    )
    return replace(result, failures=failures)


def _spared_devices(
    question: SimulationInput,
    result: SimulationResult,
    place: Callable[[SimulationInput], SimulationResult],
    workload_of: Mapping[Name, str],
) -> Iterator[str]:
    """Yield a sentence for each part with dispensable devices, the smallest first."""
    unplaced = {(pod.namespace, pod.name) for pod in result.pods if pod.node is None}
    workloads = {workload_of.get(name) for name in unplaced} - {None}
    if result.groups or not workloads:
        return
    parts: dict[tuple[str | None, bytes], list[Pod]] = {}
    for pod in question.pods:
        workload = workload_of.get(_name_of(pod))
        parts.setdefault((workload, encode(pod.spec)), []).append(pod)
    others = [
        pods
        for (workload, _), pods in parts.items()
        if workload in workloads
        and pods[0].spec.resource_claims
        and unplaced.isdisjoint(map(_name_of, pods))
    ]
    for pods in sorted(others, key=len)[:_PARTS_TRIED]:
        names = frozenset(map(_name_of, pods))
        trial = tuple(
            replace(pod, spec=replace(pod.spec, resource_claims=None))
            if _name_of(pod) in names
            else pod
            for pod in question.pods
        )
        if all(pod.node is not None for pod in place(replace(question, pods=trial)).pods):
            total = count_text(len(result.pods), "pod")
            yield f"without {_devices_of(pods)}, all {total} fit"


def _devices_of(pods: list[Pod]) -> str:
    """Return the requests of equal pods: `habana.ai/gaudi in ray-head (1)`, or a claim of theirs."""
    first = pods[0]
    keys = [
        f"{printable(key)} in {printable(container)} ({amount})"
        for container, amounts in keys_of_containers(first).items()
        for key, amount in amounts.items()
    ]
    of_pods = "" if len(pods) == 1 else f" of {count_text(len(pods), 'pod')}"
    if keys:
        return f"{join_names(keys, _KEYS_SHOWN)}{of_pods}"
    claims = [printable(entry.name) for entry in first.spec.resource_claims or ()]
    more = "" if len(pods) == 1 else f" and {len(pods) - 1} more"
    noun = "claim" if len(claims) == 1 else "claims"
    return f"{noun} {join_names(claims, _KEYS_SHOWN)} in pod {printable(first.metadata.name)}{more}"


def _name_of(pod: Pod) -> Name:
    return pod.metadata.namespace, pod.metadata.name
