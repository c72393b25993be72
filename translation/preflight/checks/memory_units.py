"""Amounts of memory that are probably in another unit than the one that the key, or a setting, says."""

from collections.abc import Iterable, Iterator
from typing import Final

from findings.field_path import Key
from findings.finding import Code, Finding, warning
from kube.quantity import ZERO, Format, Quantity
from translation.model.intents import Intent, LegacyPod
from translation.model.share_amounts import LEAST_MEMORY
from translation.preflight.model.inputs import PreflightInput
from translation.profiles.device_facts import UNKNOWN
from translation.record.derive import provider
from translation.vocabularies.aliyun import MEMORY, UNIT_SETTING
from translation.vocabularies.aliyun import VOCABULARY as ALIYUN

_DIGITS: Final = 3
"""Digits of the largest number of mebibytes that is too little."""
_MEBIBYTE: Final = Quantity("1Mi")
_GIBIBYTE: Final = Quantity("1Gi")


def check_memory_unit(inputs: PreflightInput) -> Iterable[Finding]:
    """Return a warning for each number that is probably meant in another unit."""
    # Containers that share devices have equal findings.
    return dict.fromkeys((*_find_small_amounts(inputs), *_find_large_amounts(inputs)))


def _find_small_amounts(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a warning for each plain number of too little memory, if devices are published."""
    for vocabulary, reading in inputs.readings.items():
        for intent in reading.intents:
            if intent.memory is None or not ZERO < intent.memory < LEAST_MEMORY:
                continue
            number = _written_number(intent, inputs.legacy)
            in_gibibytes = _in_gibibytes(number, intent.memory) if number else None
            if number is None or in_gibibytes is None:
                continue
            profile = provider(intent, vocabulary, inputs.providers)
            facts = inputs.snapshot.facts.get(profile.driver, {}) if profile is not None else {}
            sizes = facts.get(intent.kind, UNKNOWN).sizes or ()
            if not sizes:
                continue
            is_possible = _GIBIBYTE * number <= max(memory.size for memory in sizes)
            yield warning(
                Code.WRONG_UNIT,
                intent.path("memory"),
                f"{number} is {intent.memory}, which is less than a process needs to open a device",
                f"write {in_gibibytes} for {number}Gi" if is_possible else "write a larger amount",
            )


def _written_number(intent: Intent, pod: LegacyPod) -> int | None:
    """Return the number that a key, or an annotation, has for memory; None if it has a unit."""
    match intent.path("memory").steps:
        case ("metadata", "annotations", Key(name=name)):
            text = pod.annotations.get(name, "")
            is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS
            return int(text) if is_number else None
        case _:
            pass
    for container in pod.containers:
        for key, amount in container.limits.items():
            if container.limit_path(key) == intent.path("memory"):
                return int(amount) if amount.is_whole and amount.format is Format.DECIMAL else None
    return None


def _in_gibibytes(number: int, memory: Quantity) -> int | None:
    """Return the number to write for as many GiB; None if the unit does not divide them."""
    if memory.nanos % number:
        return None
    unit = memory.nanos // number
    is_smaller = _MEBIBYTE.nanos <= unit < _GIBIBYTE.nanos
    return number * _GIBIBYTE.nanos // unit if is_smaller and not _GIBIBYTE.nanos % unit else None


def _find_large_amounts(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a warning for each amount in Alibaba Cloud's unit that no published GPU has."""
    reading = inputs.readings.get(ALIYUN.name)
    for intent in reading.intents if reading is not None else ():
        profile = provider(intent, ALIYUN.name, inputs.providers)
        if profile is None or intent.memory is None:
            continue
        facts = inputs.snapshot.facts.get(profile.driver, {}).get(intent.kind, UNKNOWN)
        largest = max((memory.size for memory in facts.sizes or ()), default=None)
        if largest is not None and _largest_part(intent, inputs.legacy) > largest:
            yield warning(
                Code.WRONG_UNIT,
                intent.path("memory"),
                f"the amount stands for {intent.memory}, and the largest published GPU has {largest}",
                f"if the key counts another unit here, set {UNIT_SETTING}",
            )


def _largest_part(intent: Intent, pod: LegacyPod) -> Quantity:
    """Return the largest amount that a container has of the memory of an intent; of one container all of it."""
    memory = intent.memory or ZERO
    amounts = [container.limits.get(MEMORY, ZERO).nanos for container in pod.containers]
    total = sum(amounts)
    return (
        Quantity.from_nanos(memory.nanos * max(amounts) // total, memory.format)
        if total
        else memory
    )
