"""What an amount of a device key measures of claims: a number of devices of a class, or a capacity.

A translation of small pods tells, so that drivers, classes and capacities are those of the profiles in force.
The key measures a capacity if twice the amount requests twice of it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from answers.manifests.translate import translate_objects
from kube.api.extended_resources import implicit_class
from kube.errors import QuantityError
from kube.manifests.source import SourceObject
from kube.quantity import Quantity
from migration.quotas.model import ClaimMeasure
from translation.cluster.snapshot import (
    Mode,
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.model.keys import ANY, Key, KeyOutcome, Place
from translation.preflight.quotas.dimensions import counts_amounts, counts_devices
from translation.profiles.profile import Profile
from translation.vocabularies import tensorfusion

_OWNERS: Final = ("nvidia", "hami", "koordinator")
"""The vocabularies that `nvidia.com/gpu` may belong to, by the other keys of a pod."""
_SAMPLES: Final[Mapping[str, str]] = {
    "MiB": "1024",
    "GiB": "4",
    "bytes": "4Gi",
    "blocks of 256 MiB": "16",
    "percent": "20",
    "1/1000": "200",
}
"""Unit to an amount of which every device may have twice as much."""
_ANNOTATIONS: Final = (tensorfusion.MEMORY[0], tensorfusion.TFLOPS[0])
"""Annotations that are amounts, by which a quota counts pods."""


class Measures:
    """The measures of keys under the profiles in force. Each key is translated once."""

    def __init__(self, profiles: Mapping[str, Profile], options: TranslationOptions) -> None:
        """Translate nothing yet."""
        self._snapshot = TranslationSnapshot(profiles=profiles)
        self._options = options
        self._vocabularies = vocabularies_in_force(options, profiles)
        self._known: dict[str, tuple[ClaimMeasure, ...]] = {}

    def of_key(self, key: str) -> tuple[ClaimMeasure, ...]:
        """Return the measures of a key, one for each class that it may become devices of.

        Returns:
            None of them where no driver serves the key, or where its amounts depend on the device.
        """
        if key not in self._known:
            by_class = {measure.device_class: measure for measure in self._measure(key)}
            self._known[key] = tuple(by_class[name] for name in sorted(by_class))
        return self._known[key]

    def is_device_key(self, key: str) -> bool:
        """Return whether pods request devices by a key."""
        vocabularies = self._vocabularies.values()
        return (
            key in _ANNOTATIONS
            or counts_devices(key, vocabularies)
            or counts_amounts(key, vocabularies)
        )

    def is_annotation(self, key: str) -> bool:
        """Return whether pods request amounts by an annotation, which may be fractions."""
        return key in _ANNOTATIONS

    def counts_devices(self, key: str) -> bool:
        """Return whether an amount of a key is a number of devices."""
        return counts_devices(key, self._vocabularies.values())

    def _measure(self, key: str) -> Iterator[ClaimMeasure]:
        name = implicit_class(key)
        if name:
            return  # The selectors of a class of the cluster, not a profile, say whose devices it has.
        if self.counts_devices(key):
            yield from self._devices(key)
        else:
            yield from self._capacity(key)

    def _devices(self, key: str) -> Iterator[ClaimMeasure]:
        for owner in _OWNERS:
            for claim in self._translate({key: "1"}, owner):
                if len(claim.drivers) != 1:
                    continue
                (driver,) = claim.drivers
                for request in claim.requests():
                    yield ClaimMeasure(
                        driver=driver,
                        device_class=request["deviceClassName"],
                        selectors=tuple(
                            selector["cel"]["expression"]
                            for selector in request.get("selectors") or ()
                        ),
                    )

    def _capacity(self, key: str) -> Iterator[ClaimMeasure]:
        for sample, others in self._amount_samples(key):
            double = str(sample * 2)
            small = self._translate({**others, key: str(sample)}, _OWNERS[0])
            large = self._translate({**others, key: double}, _OWNERS[0])
            measures = tuple(_proportional(small, large, sample))
            if measures:
                yield from measures
                return

    def _amount_samples(self, key: str) -> Iterator[tuple[Quantity, Mapping[str, str]]]:
        """Yield an amount for the key, with the other keys of a pod that has it."""
        if key in _ANNOTATIONS:
            yield Quantity("4Gi" if key in tensorfusion.MEMORY else "10"), {}
            yield Quantity("10"), {tensorfusion.MEMORY[0]: "4Gi"}
            return
        for vocabulary in self._vocabularies.values():
            rows = [row for row in vocabulary.table if row.place is Place.LIMIT]
            units = {row.unit for row in rows if _is_named(key, row)} & _SAMPLES.keys()
            for unit in sorted(units):
                sample = Quantity(_SAMPLES[unit])
                yield sample, {}
                for row in rows:
                    if ANY not in row.name and row.name != key and row.outcome in _REQUESTING:
                        yield sample, {row.name: _SAMPLES.get(row.unit, "1")}

    def _translate(self, amounts: Mapping[str, str], owner: str) -> tuple[Claim, ...]:
        """Return the claims of a pod with some keys, whichever place they have."""
        annotations = {key: amount for key, amount in amounts.items() if key in _ANNOTATIONS}
        limits = {key: amount for key, amount in amounts.items() if key not in _ANNOTATIONS}
        probe: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "probe", "annotations": annotations},
            "spec": {
                "containers": [{"name": "probe", "image": "probe", "resources": {"limits": limits}}]
            },
        }
        if annotations:
            probe["metadata"]["labels"] = {tensorfusion.ENABLED: "true"}
        # A quota is converted before its namespace takes part, so the mode does not matter.
        options = msgspec.structs.replace(self._options, default_gpu_owner=owner, mode=Mode.OPT_OUT)
        (result,) = translate_objects(
            [SourceObject(document=probe, source="a probe", line=0)],
            snapshot=self._snapshot,
            options=options,
            namespace="probe",
        )
        return result.claims


_REQUESTING: Final = frozenset({KeyOutcome.COUNT, KeyOutcome.CAPACITY})


def _is_named(key: str, row: Key) -> bool:
    before, wildcard, after = row.name.partition(ANY)
    if not wildcard:
        return key == row.name
    return len(key) > len(before + after) and key.startswith(before) and key.endswith(after)


def _proportional(
    small: tuple[Claim, ...], large: tuple[Claim, ...], sample: Quantity
) -> Iterator[ClaimMeasure]:
    """Yield the capacities of which twice the amount requests twice as much."""
    for claim, other in zip(small, large, strict=False):
        if len(claim.drivers) != 1:
            continue
        (driver,) = claim.drivers
        for request, larger in zip(claim.requests(), other.requests(), strict=False):
            amounts, doubles = _amounts(request), _amounts(larger)
            for name, amount in amounts.items():
                double = doubles.get(name)
                if not amount or double is None or double.nanos != 2 * amount.nanos:
                    continue
                if amount.nanos % sample.nanos == 0:
                    yield ClaimMeasure(
                        driver=driver,
                        device_class=request["deviceClassName"],
                        capacity=name,
                        unit=amount.nanos // sample.nanos,
                    )


def _amounts(request: Mapping[str, Any]) -> Mapping[str, Quantity]:
    amounts = {}
    for name, text in ((request.get("capacity") or {}).get("requests") or {}).items():
        try:
            amounts[name] = Quantity(text)
        except QuantityError:
            continue
    return amounts
