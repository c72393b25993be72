"""Product names that no published device has."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from findings.finding import Code, Finding, warning
from findings.text import quote_text
from translation.model.intents import DeviceFilter
from translation.preflight.model.inputs import PreflightInput
from translation.profiles.device_facts import UNKNOWN
from translation.record.derive import provider

MAX_MODELS: Final = 3
"""Product names in a message."""


def check_published_models(inputs: PreflightInput) -> Iterable[Finding]:
    """Return a warning for each choice of product names that no published device has."""
    # Containers with equal choices have equal findings.
    return dict.fromkeys(_find_unpublished_models(inputs))


def _find_unpublished_models(inputs: PreflightInput) -> Iterator[Finding]:
    for vocabulary, reading in inputs.readings.items():
        for intent in reading.intents:
            profile = provider(intent, vocabulary, inputs.providers)
            facts = inputs.snapshot.facts.get(profile.driver, {}) if profile is not None else {}
            published_models = facts.get(intent.kind, UNKNOWN).models
            if published_models and not any(
                map(partial(_is_selected, intent.filter), published_models)
            ):
                shown_models = ", ".join(map(quote_text, published_models[:MAX_MODELS]))
                more = len(published_models) - MAX_MODELS
                names = f"{shown_models}{f' and {more} more' if more > 0 else ''}"
                if intent.filter.models is None:
                    yield warning(
                        Code.SELECTOR_MATCHES_NOTHING,
                        intent.path("not_models"),
                        f"every published model is excluded, and the pod waits; published are {names}",
                        "exclude fewer models",
                    )
                    continue
                yield warning(
                    Code.SELECTOR_MATCHES_NOTHING,
                    intent.path("models"),
                    f"no published device has such a product name, and the pod waits; published are {names}",
                    "name a published model, or a part of its name",
                )


def _is_selected(device_filter: DeviceFilter, model: str) -> bool:
    """Return True if a filter selects devices by this product name; see `device_selectors`."""
    if device_filter.models is not None and not any(part in model for part in device_filter.models):
        return False
    return not any(part in model for part in device_filter.not_models or ())
