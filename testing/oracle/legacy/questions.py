"""The systems with code that is executed, and the questions that it answers: nodes with cards, and pods."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from testing.legacy import (
    LegacyCard,
    LegacyPod,
    Scenario,
    ScenarioFile,
    Source,
    pod_document,
    read_scenarios,
)
from translation.model.npu_chips import CHIPS

SCENARIOS: Final = Path(__file__).parents[3] / "tests" / "legacy" / "executed"
RECORDS: Final = Path(__file__).parents[1] / "data" / "legacy"
SHARES_OF_A_CARD: Final = 10
"""The number of containers that share a card by default of a device plugin's chart."""


class System(msgspec.Struct, frozen=True, kw_only=True):
    """A project with code that is executed, at one commit."""

    repository: str
    commit: str
    vocabularies: tuple[str, ...]


SYSTEMS: Final[Mapping[str, System]] = {
    "hami": System(
        repository="https://github.com/Project-HAMi/HAMi",
        commit="4707fb02c91c545bc7343ce26dba4c32919f9a3e",
        vocabularies=("ascend", "hami", "hygon"),
    ),
    "volcano": System(
        repository="https://github.com/volcano-sh/volcano",
        commit="ed72c7c815a9fd547a787134676f73d42e9d049c",
        vocabularies=("volcano",),
    ),
    "aliyun": System(
        repository="https://github.com/AliyunContainerService/gpushare-scheduler-extender",
        commit="c0b61411cddabd1b19500878ab355afeeae5589e",
        vocabularies=("aliyun",),
    ),
    "tencent": System(
        repository="https://github.com/tkestack/gpu-admission",
        commit="47d56ae99ef7f24f2c9c4d33d17567e2e52f3ba2",
        vocabularies=("tencent",),
    ),
    "koordinator": System(
        repository="https://github.com/koordinator-sh/koordinator",
        commit="a7a1b76bbf81abd26f9c377de1f31a60dd965f6e",
        vocabularies=("koordinator",),
    ),
    "kai": System(
        repository="https://github.com/NVIDIA/KAI-Scheduler",
        commit="72de64fc8eca10fa8cca26a20156178f3edbe092",
        vocabularies=("kai",),
    ),
}

VOCABULARIES: Final = tuple(
    vocabulary for system in SYSTEMS.values() for vocabulary in system.vocabularies
)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario as a recorder reads it.

    Attributes:
        digest: The digest of the content, so that a record of another question is noticed.
    """

    content: Mapping[str, Any]
    digest: str


class ExecutedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scenarios of one vocabulary; its record has the granted devices."""

    driver: str
    scenarios: tuple[Scenario, ...]


class Grant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device of a container: MiB of memory, and a percentage of cores, 0 for no limit."""

    device: str
    memory: int
    cores: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The devices of each container of a pod, or the step of the legacy system that refuses it.

    Attributes:
        nics: The number of NICs.
    """

    refused: str | None = None
    containers: tuple[tuple[Grant, ...], ...] = ()
    nics: int = 0


class RecordedScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The outcomes of the pods of a scenario, in order, and the digest of its question."""

    question: str
    pods: tuple[Outcome, ...]


class Provenance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The executed code, and the command that executes it."""

    repository: str
    commit: str
    command: str


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Outcomes of executed code, by the name of their scenario."""

    provenance: Provenance
    scenarios: Mapping[str, RecordedScenario]


def record_path(vocabulary: str) -> Path:
    """Return the file with the outcomes of a vocabulary's scenarios."""
    return RECORDS / f"{vocabulary}.json"


def read_executed(vocabulary: str) -> ExecutedFile:
    """Read the scenarios of a vocabulary."""
    if vocabulary == "hami":
        return _executable_of_hami()
    if vocabulary == "koordinator":
        file = read_scenarios("koordinator.yaml")
        return ExecutedFile(driver=file.driver, scenarios=file.scenarios)
    text = (SCENARIOS / f"{vocabulary}.yaml").read_text()
    return msgspec.convert(yaml.load(text, Loader=yaml.CSafeLoader), ExecutedFile)


def _executable_of_hami() -> ExecutedFile:
    """Return the scenarios of tests/legacy/hami.yaml that a recorder can execute as they are.

    Those with init containers have one amount for containers that run one after the other; for others
    the recorder lacks MIG, NUMA nodes, or the webhook's check of privileged containers.
    """
    file = read_scenarios("hami.yaml")
    return ExecutedFile(
        driver=file.driver,
        scenarios=tuple(
            scenario
            for scenario in file.scenarios
            if scenario.driver is None
            and not any(
                isinstance(card, LegacyCard) and (card.mig is not None or card.numa is not None)
                for cards in scenario.nodes.values()
                for card in cards
            )
            and not any(
                asked_pod.init or asked_pod.sidecars or asked_pod.privileged
                for asked_pod in scenario.pods
            )
        ),
    )


def read_record(vocabulary: str) -> Record:
    """Read the outcomes that the legacy code had."""
    return msgspec.json.decode(record_path(vocabulary).read_bytes(), type=Record)


def questions(vocabulary: str) -> Mapping[str, Question]:
    """Return the question of each scenario, by its name."""
    asked = {}
    for scenario in read_executed(vocabulary).scenarios:
        content = {
            "nodes": {
                node: [_card(vocabulary, node, index, card) for index, card in enumerate(cards)]
                for node, cards in scenario.nodes.items()
            },
            "pods": [
                pod_document(asked_pod, f"pod-{index}")
                for index, asked_pod in enumerate(scenario.pods)
            ],
        }
        text = json.dumps(content, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        asked[scenario.name] = Question(content=content, digest=digest)
    return asked


def _card(vocabulary: str, node: str, index: int, listed: int | LegacyCard) -> dict[str, Any]:
    card = LegacyCard(memory=listed) if isinstance(listed, int) else listed
    facts = {
        "uuid": f"GPU-{node}-{index}",
        "model": card.model,
        "memory": card.memory,
        "cores": 100,
        "shares": SHARES_OF_A_CARD,
    }
    if vocabulary == "hami":
        # As HAMi's device plugin registers a GPU.
        return facts | {"model": f"NVIDIA-{card.model}"}
    if vocabulary == "koordinator":
        # As koordlet reports devices; the labels are for a scenario that selects by them.
        return {
            "uuid": facts["uuid"],
            "memory": card.memory,
            "numa": card.numa or 0,
            "root": card.root or f"root-{index}",
            "nic": card.nic,
            "partitions": card.partitions,
            "labels": {"a": "b"},
        }
    if vocabulary == "hygon":
        return facts | {"model": "DCU"}
    if vocabulary == "ascend":
        # As Project-HAMi/ascend-device-plugin, internal/manager/manager.go, registers an NPU.
        chip = CHIPS[card.model]
        smallest = min(template.memory for template in chip.templates)
        return facts | {"cores": chip.ai_core, "shares": chip.memory_allocatable // smallest}
    return facts


def recorded_scenarios(vocabulary: str) -> ScenarioFile:
    """Return the scenarios of a vocabulary with the devices that the legacy code granted.

    Raises:
        LookupError: The record has no outcome of a scenario, or that of another question.
    """
    asked, record = read_executed(vocabulary), read_record(vocabulary)
    return ScenarioFile(
        source=Source(repository=record.provenance.repository, commit=record.provenance.commit),
        driver=asked.driver,
        scenarios=tuple(
            _with_outcomes(scenario, question, record)
            for scenario, question in zip(
                asked.scenarios, questions(vocabulary).values(), strict=True
            )
        ),
    )


def _with_outcomes(scenario: Scenario, question: Question, record: Record) -> Scenario:
    recorded = record.scenarios.get(scenario.name)
    if recorded is None or recorded.question != question.digest:
        raise LookupError(
            f"{scenario.name}: the record has no answer to this question; run {record.provenance.command}"
        )
    return msgspec.structs.replace(
        scenario,
        pods=tuple(
            _with_outcome(asked_pod, outcome)
            for asked_pod, outcome in zip(scenario.pods, recorded.pods, strict=True)
        ),
    )


def _with_outcome(asked_pod: LegacyPod, outcome: Outcome) -> LegacyPod:
    if outcome.refused is not None:
        return msgspec.structs.replace(asked_pod, legacy="refused", nics=0)
    amounts = [(grant.memory, grant.cores) for grants in outcome.containers for grant in grants]
    return msgspec.structs.replace(asked_pod, legacy=amounts, nics=outcome.nics)
