"""Product names, MIG profiles and numbers of chips that no published device has."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

from findings.field_path import Key
from findings.finding import Code, Finding, warning
from findings.numbered_names import size_of
from findings.text import printable, quote_text
from kube.quantity import Quantity
from translation.model.intents import DeviceFilter, Intent
from translation.model.share_amounts import lower_ascii
from translation.preflight.model.inputs import PreflightInput
from translation.profiles.device_facts import UNKNOWN
from translation.profiles.profile import Profile
from translation.record.derive import provider

MAX_SHOWN: Final = 3
"""Product names in a message."""
MAX_COUNTS: Final = 8
"""Numbers of chips in a message."""
MAX_PROFILES: Final = 10
"""MIG profiles in a message: the number that a GPU has."""


def check_published_models(inputs: PreflightInput) -> Iterable[Finding]:
    """Return a warning for each choice of product names, of a MIG profile or of a number that no published device has."""
    # Containers with equal choices have equal findings.
    return dict.fromkeys(_find_unpublished(inputs))


def _find_unpublished(inputs: PreflightInput) -> Iterator[Finding]:
    for vocabulary, reading in inputs.readings.items():
        for intent in reading.intents:
            profile = provider(intent, vocabulary, inputs.providers)
            facts = inputs.snapshot.facts.get(profile.driver, {}) if profile is not None else {}
            device_facts = facts.get(intent.kind, UNKNOWN)
            if device_facts.models and not any(
                map(partial(_is_selected, intent.filter), device_facts.models)
            ):
                yield _model_finding(intent, device_facts.models)
            mig_profile = intent.filter.mig_profile
            if (
                mig_profile
                and device_facts.mig_profiles
                and mig_profile not in device_facts.mig_profiles
            ):
                yield _mig_finding(intent, mig_profile, device_facts.mig_profiles)
            counts = device_facts.node_counts
            if (
                profile is not None
                and counts
                and intent.count not in counts
                and _requests_all_of_a_node(intent, profile)
            ):
                yield _count_finding(intent, counts)


def _is_selected(device_filter: DeviceFilter, model: str) -> bool:
    """Return True if a filter selects devices by this product name; see `device_selectors`."""
    if device_filter.models is not None and not any(part in model for part in device_filter.models):
        return False
    if device_filter.model_name is not None and lower_ascii(device_filter.model_name) != model:
        return False
    return not any(part in model for part in device_filter.not_models or ())


def _model_finding(intent: Intent, models: Sequence[str]) -> Finding:
    model_names = _names(tuple(map(quote_text, models)), MAX_SHOWN)
    if intent.filter.models is None and intent.filter.model_name is None:
        return warning(
            Code.SELECTOR_MATCHES_NOTHING,
            intent.path("not_models"),
            f"every published model is excluded, and the pod waits; published are {model_names}",
            "exclude fewer models",
        )
    return warning(
        Code.SELECTOR_MATCHES_NOTHING,
        intent.path("models"),
        f"no published device has such a product name, and the pod waits; published are {model_names}",
        "name a published model"
        + (", or a part of its name" if intent.filter.model_name is None else ""),
    )


def _requests_all_of_a_node(intent: Intent, profile: Profile) -> bool:
    """Return True if the devices of a node are given only together, to a request for exactly their number."""
    match = profile.devices[intent.kind].find_resource(intent.filter.resource or "")
    return match is not None and isinstance(match[1].count_attribute, str)


def _count_finding(intent: Intent, counts: Sequence[int]) -> Finding:
    enough = [count for count in counts if count > intent.count]
    nearest = enough[0] if enough else counts[-1]
    resource = printable(intent.filter.resource or "")
    finding = warning(
        Code.SELECTOR_MATCHES_NOTHING,
        intent.path("count"),
        f"a node gives its devices of {resource} only all together, no node has {intent.count}, and the pod "
        f"waits; published numbers are {_names([str(count) for count in counts], MAX_COUNTS)}",
        f"write {resource}: {nearest}",
    )
    # Another number of chips is a choice, where there are several.
    return finding.corrected_by(Quantity(nearest)) if len(counts) == 1 else finding


def _mig_finding(intent: Intent, mig_profile: str, counts: Mapping[str, int]) -> Finding:
    profiles = sorted(counts, key=_size)
    names = _names([f"{quote_text(name)} ({counts[name]})" for name in profiles], MAX_PROFILES)
    nearest = _nearest(mig_profile, [name for name in profiles if counts[name] >= intent.count])
    # Fewer devices of the right size are nearer than as many small ones.
    chosen = nearest or _nearest(mig_profile, profiles) or profiles[-1]
    number = min(intent.count, counts[chosen])
    name = _spelled_as_key(intent, mig_profile, chosen)
    fix = f"write {name}: {number}" if name else f"write {quote_text(chosen)}"
    if number < intent.count:
        fix += ", the most that one node has"
    finding = warning(
        Code.SELECTOR_MATCHES_NOTHING,
        intent.path("mig_profile"),
        f"no published device has MIG profile {quote_text(mig_profile)}, and the pod waits; published, "
        f"with their largest number on one node, are {names}",
        fix,
    )
    # A larger device is a choice, where there are several of other sizes.
    return finding.renamed_to(name) if len(counts) == 1 and nearest else finding


def _nearest(mig_profile: str, profiles: Sequence[str]) -> str:
    """Return the smallest profile that is not smaller, or the one of as much memory; empty if there is none."""
    larger = (name for name in profiles if _size(name) >= _size(mig_profile))
    as_much_memory = (name for name in profiles if size_of(name)[:1] == size_of(mig_profile)[:1])
    return next(chain(larger, reversed(list(as_much_memory))), "")


def _spelled_as_key(intent: Intent, mig_profile: str, nearest: str) -> str:
    """Return the name of a resource as the pod would write it for a profile; empty if it names none."""
    path = intent.path("mig_profile")
    key, spelling = path.steps[-1], mig_profile.replace("+", ".")
    if isinstance(key, Key) and key.name.endswith(spelling):
        return printable(key.name.removesuffix(spelling) + nearest.replace("+", "."))
    return ""


def _size(profile: str) -> tuple[tuple[int, ...], str]:
    """Return the memory and the slices of a MIG profile, then its name; see `size_of`."""
    return size_of(profile), profile


def _names(texts: Sequence[str], limit: int) -> str:
    more = len(texts) - limit
    return f"{', '.join(texts[:limit])}{f' and {more} more' if more > 0 else ''}"
