"""The closest fits of a simulation in the keys of pods, translated or mapped by DeviceClasses. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Final, NamedTuple

from msgspec.structs import replace

from admission.objects import recorded_translation
from allocator.explain.change import Change, ClosestFit, chosen_by
from allocator.explain.failure import Failure
from allocator.explain.selector import one_line
from allocator.model.outcome import Reason
from allocator.pods.claims import Name, claim_name, pod_claims
from allocator.pods.extended_resource_claim import SUFFIX, limit_paths, mapped_resources
from allocator.simulation.model import SimulationResult
from allocator.simulation.pending_pod import PodProjection, Reword
from answers.cluster.budgets import Budgets
from answers.model.cluster_state import ClusterState
from findings.field_path import FieldPath, Key
from findings.finding import Code, Finding, warning
from findings.fitting import DroppedRequest, FittingAmount, FittingAmounts, drop_one
from findings.text import join_names
from kube.api.core import Pod
from kube.api.extended_resources import extended_resources
from kube.api.resource import Device, ResourceSlice
from kube.quantity import Quantity, format_count
from rules.engine.engine import Target
from translation.cluster.snapshot import TranslationSnapshot
from translation.compiling.claims import Claim
from translation.model.intents import DeviceKind
from translation.profiles.device_facts import facts_by_driver, summary
from translation.profiles.profile import Profile
from translation.record.claim_sources import (
    CLAIMS,
    keys_of,
    locate_at_keys,
    match_claims,
    widened_at_source,
)
from translation.record.key_fixes import with_key_fixes
from translation.record.recorded_translation import RecordedTranslation, derive_claims
from translation.vocabularies.nvidia import mig_profile

_PROFILES_NAMED: Final = 10
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


def rewording(
    pod: Pod, projection: PodProjection, state: ClusterState, snapshot: TranslationSnapshot
) -> Reword:
    """Return the function that names the keys of a pending pod in the closest fits of its projection.

    Args:
        snapshot: Its profiles are those in force.
    """
    reword = _rewording(pod, projection.entries, state, snapshot, name=projection.pod.metadata.name)
    return lambda fit: _with_words(fit, reword) or fit


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
    translation = _translation(pod, snapshot)
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


def findings_in_keys(
    findings: Sequence[Finding], pod: Pod, snapshot: TranslationSnapshot
) -> tuple[Finding, ...]:
    """Return findings about a pod, those about translated claims at the keys that requested them."""
    translation = _translation(pod, snapshot) if findings else None
    if translation is None:
        return tuple(findings)
    claims = match_claims(pod.spec.resource_claims or (), derive_claims(translation))
    in_keys = with_key_fixes(findings, FieldPath(), claims, translation)
    return tuple(locate_at_keys(finding, FieldPath(), claims) for finding in in_keys)


def _translation(pod: Pod, snapshot: TranslationSnapshot) -> RecordedTranslation | None:
    target = Target(view=pod, raw={}, metadata=pod.metadata, namespace=pod.metadata.namespace)
    return recorded_translation(target, snapshot)


def _failure_in_keys(
    failure: Failure, pod: Pod, state: ClusterState, snapshot: TranslationSnapshot
) -> Failure:
    entries = _entries_by_claim(pod, state)
    reword = _rewording(pod, entries, state, snapshot, name=pod.metadata.name)
    return replace(
        failure,
        closest_fit=_with_words(failure.closest_fit, reword),
        closest_fit_when_idle=_with_words(failure.closest_fit_when_idle, reword),
    )


def _rewording(
    pod: Pod,
    entries: Mapping[Name, int],
    state: ClusterState,
    snapshot: TranslationSnapshot,
    *,
    name: str,
) -> Reword:
    """Return the function that names the keys of a pod in a closest fit without an alternative.

    Args:
        entries: Claim to the index of the pod's entry for it.
        name: The name that the pod had in the search.
    """
    translation = _translation(pod, snapshot)
    if translation is None:
        limits = limit_paths(pod, mapped_resources(pod, extended_resources(state.classes.values())))
        claim = f"{pod.metadata.namespace}/{name}-{SUFFIX}"
        return partial(_in_limits, claim=claim, limits=limits)
    return partial(_in_keys, pod=pod, entries=entries, translation=translation, slices=state.slices)


def _in_limits(fit: ClosestFit, claim: str, limits: Mapping[str, FieldPath]) -> ClosestFit:
    """Return a closest fit with words that name limits, if it lowers numbers of resources that classes map.

    Args:
        claim: The namespace and name of the claim for these resources.
    """
    amounts_by_limit: dict[FieldPath, Quantity] = {}
    for change in fit.changes:
        limit = limits.get(change.request) if change.claim == claim else None
        if limit is None or change.amount is None:
            return fit
        amounts_by_limit[limit] = change.amount
    if not amounts_by_limit:
        return fit
    amounts = ", ".join(
        f"{one_line(_key_of(path) if len(limits) == 1 else str(path))}: {format_count(amount)}"
        for path, amount in amounts_by_limit.items()
    )
    place = fit.in_all_pods or f" to fit node {one_line(fit.node)}"
    return replace(fit, fix_in_keys=f"write {amounts}{place}")


def _with_words(fit: ClosestFit | None, reword: Reword) -> ClosestFit | None:
    """Return a closest fit in other words, with its alternative unless only one of both is in keys."""
    if fit is not None and fit.smaller_group:
        own_fit = _with_words(replace(fit, smaller_group=""), reword)
        return own_fit and replace(own_fit, smaller_group=fit.smaller_group)
    if fit is None or fit.alternative is None:
        return None if fit is None else reword(fit)
    own, other = reword(replace(fit, alternative=None)), reword(fit.alternative)
    if bool(own.fix_in_keys) != bool(other.fix_in_keys):
        return own
    # The same values of keys may be another change of the claims, which fits another node.
    same_values = reword(replace(fit.alternative, node=fit.node)).fix_in_keys
    is_the_same = bool(own.fix_in_keys) and own.fix_in_keys == same_values
    return own if is_the_same else replace(own, alternative=other)


def _key_of(path: FieldPath) -> str:
    last = path.steps[-1]
    return last.name if isinstance(last, Key) else str(path)


def _entries_by_claim(pod: Pod, state: ClusterState) -> dict[Name, int]:
    """Return the index of the pod's entry for each claim."""
    entries: dict[Name, int] = {}
    for index, entry in enumerate(pod.spec.resource_claims or ()):
        alone = replace(pod, spec=replace(pod.spec, resource_claims=(entry,)))
        for claim in pod_claims(alone, state.claims, state.templates).open:
            entries[claim_name(claim)] = index
    return entries


def _in_keys(
    fit: ClosestFit,
    pod: Pod,
    entries: Mapping[Name, int],
    translation: RecordedTranslation,
    slices: Iterable[ResourceSlice],
) -> ClosestFit:
    """Return a closest fit with words that name keys, if it lowers numbers of translated claims."""
    amounts = tuple(
        FittingAmount(claim=CLAIMS.child(entries[name]), field=change.field, amount=change.amount)
        for change in fit.changes
        if (name := claim_name(fit.claims[change.position])) in entries
        and change.field is not None
        and change.amount is not None
    )
    claims = match_claims(pod.spec.resource_claims or (), derive_claims(translation))
    if not amounts or len(amounts) < len(fit.changes):
        on_node = [slice_ for slice_ in slices if slice_.spec.node_name == fit.node]
        node_inventory = _NodeInventory(
            _counts(on_node, translation), _mig_profiles(on_node, translation.profiles)
        )
        words = [
            _at_source(change, fit, claims, entries, node_inventory, translation=translation)
            for change in fit.changes
        ]
        if not words or not all(words):
            return fit
        place = fit.in_all_pods or f" to fit node {one_line(fit.node)}"
        return replace(fit, fix_in_keys=f"{', '.join(dict.fromkeys(words))}{place}")
    finding = replace(
        warning(Code.DOES_NOT_FIT_NOW, FieldPath(), "no node can satisfy this now", fit.fix),
        fitting=FittingAmounts(amounts=amounts, node="" if fit.pods else fit.node),
    )
    (translated,) = with_key_fixes([finding], FieldPath(), claims, translation)
    if translated.fix == fit.fix:
        return fit
    return replace(fit, fix_in_keys=f"{translated.fix}{fit.in_all_pods}")


class _NodeInventory(NamedTuple):
    """The devices of the node of a closest fit.

    Attributes:
        counts: Key that requests all devices of a node to the one number that all of them publish.
        mig_profiles: Driver to MIG profile to the number of its devices.
    """

    counts: Mapping[str, int]
    mig_profiles: Mapping[str, Mapping[str, int]]


def _mig_profiles(
    slices: Iterable[ResourceSlice], profiles: Mapping[str, Profile]
) -> dict[str, Mapping[str, int]]:
    summaries = [summary(slice_, profiles) for slice_ in slices]
    known_summaries = [slice_summary for slice_summary in summaries if slice_summary is not None]
    return {
        driver: facts_by_kind[DeviceKind.MIG].mig_profiles
        for driver, facts_by_kind in facts_by_driver(known_summaries).items()
        if DeviceKind.MIG in facts_by_kind
    }


def _counts(slices: Iterable[ResourceSlice], translation: RecordedTranslation) -> dict[str, int]:
    devices_by_driver: dict[str, list[Device]] = {}
    for slice_ in slices:
        devices_by_driver.setdefault(slice_.spec.driver, []).extend(slice_.spec.devices or ())
    keys = {key for container in translation.record.containers for key in container.limits}
    counts: dict[str, int] = {}
    for profile in translation.profiles.values():
        for key, device_profile in product(sorted(keys), profile.devices.values()):
            match = device_profile.find_resource(key)
            if match is None or not isinstance(match[1].count_attribute, str):
                continue
            domain, identifier = profile.qualified_name(match[1].count_attribute)
            numbers = {
                _integer(device, domain, identifier, profile.driver)
                for device in devices_by_driver.get(profile.driver, ())
            }
            number = numbers.pop() if len(numbers) == 1 else None
            if number is not None:
                counts[key] = number
    return counts


def _integer(device: Device, domain: str, identifier: str, driver: str) -> int | None:
    attributes = device.attributes or {}
    attribute = attributes.get(f"{domain}/{identifier}")
    if attribute is None and domain == driver:
        attribute = attributes.get(identifier)
    return None if attribute is None else attribute.int_


def _at_source(
    change: Change,
    fit: ClosestFit,
    claims: Sequence[Claim | None],
    entries: Mapping[Name, int],
    node_inventory: _NodeInventory,
    *,
    translation: RecordedTranslation,
) -> str:
    """Return another choice of devices as a change of the key, or the annotation, that chose them; else empty."""
    entry = entries.get(claim_name(fit.claims[change.position]))
    claim = claims[entry] if entry is not None and entry < len(claims) else None
    field = chosen_by(change, fit.claims[change.position])
    if claim is None or field is None:
        return ""
    source = claim.source(field)
    key = _key_of(source) if source is not None and source.steps else ""
    # The amount of such a key selects the devices by their number.
    if key in node_inventory.counts:
        return f"write {one_line(key)}: {node_inventory.counts[key]}"
    words = widened_at_source(claim, field, translation, change.value)
    is_known = not words or change.value is not None
    profiles = "" if is_known else _described_profiles(claim, key, node_inventory)
    return f"{words} ({profiles})" if profiles else words


def _described_profiles(claim: Claim, key: str, node_inventory: _NodeInventory) -> str:
    """Return the MIG profiles that the node publishes for a key of another one: `3g.20gb: 2`; else empty."""
    if mig_profile(key) is None or len(claim.drivers) != 1:
        return ""
    counts = node_inventory.mig_profiles.get(min(claim.drivers), {})
    names = [f"{one_line(name)}: {number}" for name, number in sorted(counts.items())]
    return f"published are {join_names(names, _PROFILES_NAMED)}" if names else ""
