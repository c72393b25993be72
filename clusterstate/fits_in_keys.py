"""The closest fits of a pending pod in its own keys, translated or mapped by DeviceClasses; pure.

The author of `nvidia.com/gpumem: 200000` wrote no claim, and 80Gi written into that key is denied.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from allocator.explain.change import Change, ClosestFit, chosen_by
from allocator.explain.selector import one_line
from allocator.pods.claims import Name, claim_name
from allocator.pods.extended_resource_claim import SUFFIX, limit_paths, mapped_resources
from allocator.simulation.pending_pod import Reword
from findings.field_path import FieldPath, Key
from findings.finding import Code, Finding, warning
from findings.fitting import FittingAmount, FittingAmounts
from findings.text import join_names
from kube.api.core import Pod
from kube.api.resource import Device, ResourceSlice
from kube.cel.scope import current_scope
from kube.names import REQUEST_ANNOTATION
from kube.quantity import Quantity, format_count
from translation.cluster.snapshot import TranslationSnapshot
from translation.compiling.claims import Claim
from translation.model.intents import DeviceKind
from translation.profiles.device_facts import facts_by_driver, summary
from translation.profiles.profile import Profile
from translation.reading.legacy_pod import container_paths
from translation.record.claim_sources import (
    CLAIMS,
    locate_at_keys,
    match_claims,
    widened_at_source,
)
from translation.record.key_fixes import with_key_fixes
from translation.record.record import RecordError, decode_record
from translation.record.recorded_translation import RecordedTranslation, derive_claims
from translation.vocabularies.nvidia import mig_profile

_PROFILES_NAMED: Final = 10
_STEPS_PER_BYTE: Final = 4
"""Steps for a byte of a record: a pod is translated some five times for a fix, more often for many containers."""


class KeySources(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of closest fits in keys, beside a pod.

    Attributes:
        profiles: Driver name to the profile in force.
        versions: Content hash to a version of a profile that is kept.
        slices: The devices of the cluster.
        extended_resources: Name of an extended resource to name of the class that maps it.
    """

    profiles: Mapping[str, Profile]
    versions: Mapping[str, Profile] = {}
    slices: Iterable[ResourceSlice] = ()
    extended_resources: Mapping[str, str] = {}


def pod_translation(
    pod: Pod, profiles: Mapping[str, Profile], versions: Mapping[str, Profile]
) -> RecordedTranslation | None:
    """Return the translation that a pod's record describes; None without a valid one.

    Args:
        pod: Untrusted: anybody may have written the record.
        profiles: Driver name to the profile in force.
        versions: Content hash to a version of a profile that is kept.
    """
    if REQUEST_ANNOTATION not in pod.annotations:
        return None
    try:
        record = decode_record(pod.annotations[REQUEST_ANNOTATION])
    except RecordError:
        return None  # The mutating webhook rejects it.
    return RecordedTranslation(
        record=record, paths=container_paths(pod), profiles=profiles, versions=versions
    )


def findings_in_keys(
    findings: Sequence[Finding], pod: Pod, snapshot: TranslationSnapshot
) -> tuple[Finding, ...]:
    """Return findings about a pod, those about translated claims at the keys that requested them."""
    translation = (
        pod_translation(pod, snapshot.profiles, snapshot.profile_versions) if findings else None
    )
    if translation is None:
        return tuple(findings)
    claims = match_claims(pod.spec.resource_claims or (), derive_claims(translation))
    in_keys = with_key_fixes(findings, FieldPath(), claims, translation)
    return tuple(locate_at_keys(finding, FieldPath(), claims) for finding in in_keys)


def rewording(
    pod: Pod, entries: Mapping[Name, int], sources: KeySources, *, name: str = ""
) -> Reword:
    """Return the function that names the keys of a pod in its closest fits.

    A fit that no value of a key makes is returned as it is, so is one if the answer's meter leaves too
    little for the proof.

    Args:
        entries: Claim, as the search calls it, to the index of the pod's entry for it.
        name: The name of the pod in the search; empty for a projection.
    """
    translation = pod_translation(pod, sources.profiles, sources.versions)
    if translation is None:
        limits = limit_paths(pod, mapped_resources(pod, sources.extended_resources))
        claim = f"{pod.metadata.namespace}/{name}-{SUFFIX}"
        return partial(_with_words, reword=partial(_in_limits, claim=claim, limits=limits))
    in_keys = partial(
        _in_keys, pod=pod, entries=entries, translation=translation, slices=sources.slices
    )
    return partial(_with_words, reword=in_keys)


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


def _with_words(fit: ClosestFit, reword: Reword) -> ClosestFit:
    """Return a closest fit in other words, with its alternative unless only one of both is in keys."""
    if fit.smaller_group:
        own_fit = _with_words(replace(fit, smaller_group=""), reword)
        return replace(own_fit, smaller_group=fit.smaller_group)
    if fit.alternative is None:
        return reword(fit)
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
    meter, steps = current_scope().meter, _STEPS_PER_BYTE * len(pod.annotations[REQUEST_ANNOTATION])
    if not fit.changes or meter.left < steps:
        return fit
    meter.charge(steps)
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
