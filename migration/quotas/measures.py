"""The measure of a device key in claims: a number of devices of a class, or a capacity.

A translation of small pods tells, so that drivers, classes and capacities are those of the profiles in force.
The key measures a capacity if twice the amount requests twice of it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from answers.manifests.translate import translate_objects
from kube.api.extended_resources import implicit_class
from kube.errors import QuantityError
from kube.manifests.source import SourceObject
from kube.quantity import Quantity
from migration.quotas.model import ClaimMeasure, Document
from translation.cluster.snapshot import (
    Mode,
    TranslationOptions,
    TranslationSnapshot,
    vocabularies_in_force,
)
from translation.compiling.claims import Claim
from translation.model.dimensions import counts_amounts, counts_devices, is_named
from translation.model.keys import ANY, KeyOutcome, Place
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
    """The measures of keys under the profiles in force. Each key is translated once.

    Attributes:
        vocabularies: The vocabularies in force, extended by the resource names in the profiles.
    """

    def __init__(self, profiles: Mapping[str, Profile], options: TranslationOptions) -> None:
        """Translate nothing yet."""
        self._snapshot = TranslationSnapshot(profiles=profiles)
        self._options = options
        self.vocabularies = vocabularies_in_force(options, profiles)
        self._known: dict[str, tuple[ClaimMeasure, ...]] = {}
        self._legacy_keys: dict[str, dict[ClaimMeasure, Document | None]] = {}

    def of_key(self, key: str) -> tuple[ClaimMeasure, ...]:
        """Return the measures of a key, one for each class that it may become devices of.

        Returns:
            None of them where no driver serves the key, or where its amounts depend on the device.
        """
        if key not in self._known:
            by_class = {measure.device_class: measure for measure in self._measure(key)}
            self._known[key] = tuple(by_class[name] for name in sorted(by_class))
        return self._known[key]

    def legacy_key(self, key: str, measure: ClaimMeasure) -> Document | None:
        """Return the entry of a DeviceQuota's limit of this measure for pods with a key.

        Returns:
            None for an annotation, which a quota does not see, and where no pod with the key becomes a claim of
            the measure.
        """
        if key not in self._legacy_keys:
            self._legacy_keys[key] = {}
        entries = self._legacy_keys[key]
        if measure not in entries:
            entries[measure] = None if self.is_annotation(key) else self._legacy_key(key, measure)
        return entries[measure]

    def _legacy_key(self, key: str, measure: ClaimMeasure) -> Document | None:
        if measure.capacity:
            entry: dict[str, Any] = {"name": key, "perUnit": str(measure.amount(Quantity(1)))}
            number = self._multiplier(key, measure)
            return entry | ({"multipliedBy": number} if number else {})
        others = {
            other: self._serves(key, {other: sample}, measure)
            for other, sample in self._other_keys(key)
        }
        if self._serves(key, {}, measure):
            without = sorted(other for other, is_own in others.items() if is_own is False)
            return {"name": key, **({"without": without} if without else {})}
        only_with = sorted(other for other, is_own in others.items() if is_own)
        return {"name": key, "onlyWith": only_with} if only_with else None

    def _serves(self, key: str, others: Mapping[str, str], measure: ClaimMeasure) -> bool | None:
        """Return True if a key means devices of a measure in a pod with others; None if it gets no claim."""
        owner = self._options.default_gpu_owner
        single, double = (self._translate({**others, key: number}, owner) for number in ("1", "2"))
        if not single or not double:
            return None
        return _number(double, measure) > _number(single, measure)

    def _other_keys(self, key: str) -> Iterator[tuple[str, str]]:
        """Yield the other keys that show a pod's vendor to limits, with an amount of each; first those of pods.

        Where the cluster renamed a key, its legacy system reads the new name only.
        """
        samples: dict[str, str] = {}
        renamed_samples: dict[str, str] = {}
        for vocabulary in self.vocabularies.values():
            for row in vocabulary.table:
                if row.place is Place.LIMIT and ANY not in row.name:
                    # A part of a device whose size is not published is rejected, and a whole one is not.
                    sample = "100" if row.unit == "percent" else _SAMPLES.get(row.unit, "1")
                    samples.setdefault(row.name, sample)
            for name, own_name in vocabulary.renamed_keys.items():
                if own_name in samples:
                    renamed_samples[name] = samples[own_name]
        for name, sample in (*sorted(renamed_samples.items()), *sorted(samples.items())):
            if name != key:
                yield name, sample

    def _multiplier(self, key: str, measure: ClaimMeasure) -> str:
        """Return the key with the number of devices that get the amount each; empty without one."""
        for sample, others in self._amount_samples(key):
            for name, _ in self._other_keys(key):
                if not self.counts_devices(name):
                    continue
                single, double = (
                    _total(
                        self._translate({**others, key: str(sample), name: number}, _OWNERS[0]),
                        measure,
                    )
                    for number in ("1", "2")
                )
                if single and double == 2 * single:
                    return name
        return ""

    def is_device_key(self, key: str) -> bool:
        """Return True if pods request devices by a key."""
        vocabularies = self.vocabularies.values()
        return (
            key in _ANNOTATIONS
            or counts_devices(key, vocabularies)
            or counts_amounts(key, vocabularies)
        )

    def is_annotation(self, key: str) -> bool:
        """Return True if pods request amounts by an annotation; those may be fractions."""
        return key in _ANNOTATIONS

    def counts_devices(self, key: str) -> bool:
        """Return True if an amount of a key is a number of devices."""
        return counts_devices(key, self.vocabularies.values())

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
        for vocabulary in self.vocabularies.values():
            rows = [row for row in vocabulary.table if row.place is Place.LIMIT]
            own_name = vocabulary.renamed_keys.get(key, key)
            units = {row.unit for row in rows if is_named(own_name, row)} & _SAMPLES.keys()
            for unit in sorted(units):
                sample = Quantity(_SAMPLES[unit])
                yield sample, {}
                for row in rows:
                    if ANY not in row.name and row.name != own_name and row.outcome in _REQUESTING:
                        yield sample, {row.name: _SAMPLES.get(row.unit, "1")}

    def _translate(self, amounts: Mapping[str, str], owner: str) -> tuple[Claim, ...]:
        """Return the claims of a pod with some keys, each in its place."""
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


def _proportional(
    small: tuple[Claim, ...], large: tuple[Claim, ...], sample: Quantity
) -> Iterator[ClaimMeasure]:
    """Yield the capacities that twice the amount requests twice as much of."""
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


def _number(claims: Iterable[Claim], measure: ClaimMeasure) -> int:
    """Return the number of devices of a measure's class that claims request."""
    return sum(
        int(request.get("count", 1))
        for claim in claims
        if measure.driver in claim.drivers
        for request in claim.requests()
        if request["deviceClassName"] == measure.device_class
    )


def _total(claims: Iterable[Claim], measure: ClaimMeasure) -> int:
    """Return the amount of a measure's capacity that claims request, in nano-units."""
    return sum(
        amount.nanos * int(request.get("count", 1))
        for claim in claims
        for request in claim.requests()
        if (amount := _amounts(request).get(measure.capacity)) is not None
    )


def _amounts(request: Mapping[str, Any]) -> Mapping[str, Quantity]:
    amounts = {}
    for name, text in ((request.get("capacity") or {}).get("requests") or {}).items():
        try:
            amounts[name] = Quantity(text)
        except QuantityError:
            continue
    return amounts
