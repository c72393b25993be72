"""Amounts of memory that are probably in another unit than the settings say."""

from collections.abc import Iterator

from findings.finding import Code, Finding, warning
from translation.preflight.model.inputs import PreflightInput
from translation.profiles.device_facts import UNKNOWN
from translation.record.derive import provider
from translation.vocabularies.aliyun import UNIT_SETTING
from translation.vocabularies.aliyun import VOCABULARY as ALIYUN


def check_memory_unit(inputs: PreflightInput) -> Iterator[Finding]:
    """Yield a warning for each amount in Alibaba Cloud's unit that no published GPU has."""
    reading = inputs.readings.get(ALIYUN.name)
    for intent in reading.intents if reading is not None else ():
        profile = provider(intent, ALIYUN.name, inputs.providers)
        if profile is None or intent.memory is None:
            continue
        facts = inputs.snapshot.facts.get(profile.driver, {}).get(intent.kind, UNKNOWN)
        largest = max((memory.size for memory in facts.sizes or ()), default=None)
        if largest is not None and intent.memory > largest:
            yield warning(
                Code.WRONG_UNIT,
                intent.path("memory"),
                f"the amount stands for {intent.memory}, and the largest published GPU has {largest}",
                f"if the key counts another unit here, set {UNIT_SETTING}",
            )
