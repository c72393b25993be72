"""The closest fits of a simulation in the keys of pods, translated or mapped by DeviceClasses. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from allocator.explain.failure import Failure
from allocator.explain.selector import one_line
from allocator.model.outcome import Reason
from allocator.pods.claims import Name, claim_name, pod_claims
from allocator.simulation.model import SimulationResult
from answers.cluster.budgets import Budgets
from answers.model.cluster_state import ClusterState
from clusterstate.fits_in_keys import (
    KeySources,
    findings_in_keys,
    pod_translation,
    rewording,
)
from findings.field_path import FieldPath
from findings.fitting import DroppedRequest, drop_one
from findings.text import join_names
from kube.api.core import Pod
from kube.api.extended_resources import extended_resources
from translation.cluster.snapshot import TranslationSnapshot
from translation.record.claim_sources import (
    CLAIMS,
    keys_of,
    match_claims,
)
from translation.record.recorded_translation import derive_claims

_NEVER: Final = frozenset({Reason.NO_DEVICES, Reason.SELECTOR})
"""Reasons against a node that do not depend on the use of its devices."""


def with_fits_in_keys(
    result: SimulationResult,
    pods: Iterable[Pod],
    state: ClusterState,
    snapshot: TranslationSnapshot,
) -> SimulationResult:
    """Return the result with the closest fits of translated pods in the pods' own keys.

    Args:
        pods: The pods that were to be placed, as they are after their translation.
        state: The cluster with the claims and templates of the pods.
        snapshot: Its profiles are those in force.
    """
    pods_by_title = {f"Pod {pod.metadata.namespace}/{pod.metadata.name}": pod for pod in pods}
    # The closest fit of a group has the claims of its first pod.
    members_by_title = {
        group.title: pods_by_title.get(title) or state.pods.get((group.namespace, group.pods[0]))
        for group in result.groups
        if group.pods
        for title in (f"Pod {group.namespace}/{group.pods[0]}",)
    }
    failures = []
    for failure in result.failures:
        pod = pods_by_title.get(failure.title) or members_by_title.get(failure.title)
        has_fits = failure.closest_fit is not None or failure.closest_fit_when_idle is not None
        if pod is not None and has_fits:
            failures.append(_failure_in_keys(failure, pod, state, snapshot))
        else:
            failures.append(failure)
    return replace(result, failures=tuple(failures))


def budget_fixes(pod: Pod, state: ClusterState, snapshot: TranslationSnapshot) -> tuple[str, ...]:
    """Return the amounts that DeviceQuotas allow a pending pod, in the pod's own keys if it has any."""
    name = (pod.metadata.namespace, pod.metadata.name)
    findings = [
        finding
        for finding in Budgets(state, pods={name}).find_excesses(pod)
        if finding.fitting is not None
    ]
    in_keys = findings_in_keys(findings, pod, snapshot)
    return tuple(dict.fromkeys(finding.fix for finding in in_keys))


def separation_advice(
    result: SimulationResult, pod: Pod, state: ClusterState, snapshot: TranslationSnapshot
) -> Iterator[str]:
    """Yield in a sentence the requests of a pod without a common node, each with a node that lacks only it.

    Args:
        result: The placement of the pod alone.
    """
    nodes: dict[tuple[str, str], str] = {}
    for group in (group for failure in result.failures for group in failure.groups or ()):
        lacking = {(reason.claim, reason.request) for reason in group.reasons}
        if len(lacking) == 1 and {reason.code for reason in group.reasons} <= _NEVER:
            nodes.setdefault(lacking.pop(), group.nodes[0])
    if len(nodes) < 2 or any(failure.closest_fit for failure in result.failures):
        return
    requests = _requests_in_keys(pod, state, snapshot)
    names = {
        requests.get((claim, request))
        or f"request {one_line(request)} of claim {one_line(claim)}": node
        for (claim, request), node in nodes.items()
    }
    places = join_names(
        [f"node {one_line(node)} lacks only {name}" for name, node in names.items()]
    )
    if len(names) > 1:
        yield f"{drop_one(list(names))}; {places}"


def _requests_in_keys(
    pod: Pod, state: ClusterState, snapshot: TranslationSnapshot
) -> dict[tuple[str, str], str]:
    """Return claim and request to the keys that requested it, of a translated pod."""
    translation = pod_translation(pod, snapshot.profiles, snapshot.profile_versions)
    if translation is None:
        return {}
    claims = match_claims(pod.spec.resource_claims or (), derive_claims(translation))
    names = {}
    for (namespace, name), entry in _entries_by_claim(pod, state).items():
        claim = claims[entry]
        for index, request in enumerate(claim.spec["spec"]["devices"]["requests"] if claim else ()):
            dropped = DroppedRequest(claim=CLAIMS.child(entry), index=index)
            keys = keys_of(dropped, FieldPath(), claims)
            names[f"{namespace}/{name}", request["name"]] = " and ".join(keys)
    return names


def _failure_in_keys(
    failure: Failure, pod: Pod, state: ClusterState, snapshot: TranslationSnapshot
) -> Failure:
    now, idle = failure.closest_fit, failure.closest_fit_when_idle
    entries, name = _entries_by_claim(pod, state), pod.metadata.name
    reword = rewording(pod, entries, key_sources(state, snapshot), name=name)
    return replace(
        failure,
        closest_fit=None if now is None else reword(now),
        closest_fit_when_idle=None if idle is None else reword(idle),
    )


def key_sources(state: ClusterState, snapshot: TranslationSnapshot) -> KeySources:
    """Return the inputs of closest fits in keys, beside a pod.

    Args:
        snapshot: Its profiles are those in force.
    """
    return KeySources(
        profiles=snapshot.profiles,
        versions=snapshot.profile_versions,
        slices=state.slices,
        extended_resources=extended_resources(state.classes.values()),
    )


def _entries_by_claim(pod: Pod, state: ClusterState) -> dict[Name, int]:
    """Return the index of the pod's entry for each claim."""
    entries: dict[Name, int] = {}
    for index, entry in enumerate(pod.spec.resource_claims or ()):
        alone = replace(pod, spec=replace(pod.spec, resource_claims=(entry,)))
        for claim in pod_claims(alone, state.claims, state.templates).open:
            entries[claim_name(claim)] = index
    return entries
