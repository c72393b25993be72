"""Ours grants the same as executed legacy code, or a finding explains the difference.

The records were written by testing/oracle/legacy/record.py; reading them needs neither Go nor a network.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import pytest

from testing.legacy import LegacyPod, Result, Scenario, legacy_grant, read_scenarios, run_scenario
from testing.oracle.legacy.questions import (
    SYSTEMS,
    VOCABULARIES,
    questions,
    read_record,
    recorded_scenarios,
)

pytestmark = pytest.mark.oracle

FILES: Final = {vocabulary: recorded_scenarios(vocabulary) for vocabulary in VOCABULARIES}
SCENARIOS: Final = [
    pytest.param(scenario, file.driver, id=f"{vocabulary}: {scenario.name}")
    for vocabulary, file in FILES.items()
    for scenario in file.scenarios
]


def differences(pods: Sequence[LegacyPod], results: Sequence[Result]) -> Iterator[str]:
    """Yield each pod that differs without the findings that its row names, or no longer differs."""
    codes: set[str] = set()
    for index, (asked_pod, result) in enumerate(zip(pods, results, strict=True)):
        codes |= result.codes
        want = legacy_grant(asked_pod)
        is_explained = bool(asked_pod.findings or asked_pod.better)
        if not is_explained and want != result.grant:
            yield f"pod {index}: {want} was granted, ours is {result.grant}, {sorted(codes)}"
        if is_explained and want == result.grant:
            yield f"pod {index} no longer differs"
        if missing := set(asked_pod.findings) - codes:
            yield f"pod {index} is not told {sorted(missing)}"


@pytest.mark.parametrize(("scenario", "driver"), SCENARIOS)
def test_ours_grants_what_executed_code_granted_or_says_why_not(
    scenario: Scenario, driver: str
) -> None:
    assert not list(differences(scenario.pods, list(run_scenario(scenario, driver))))


@pytest.mark.parametrize(("vocabulary", "least"), [("hami", 50), ("koordinator", 60)])
def test_what_was_read_in_the_code_is_what_it_does(vocabulary: str, least: int) -> None:
    derived = {
        scenario.name: scenario for scenario in read_scenarios(f"{vocabulary}.yaml").scenarios
    }
    executed = FILES[vocabulary].scenarios

    assert len(executed) >= least
    assert {
        scenario.name: [legacy_grant(asked_pod) for asked_pod in derived[scenario.name].pods]
        for scenario in executed
    } == {
        scenario.name: [legacy_grant(asked_pod) for asked_pod in scenario.pods]
        for scenario in executed
    }


def test_a_planted_fault_is_noticed_in_every_record() -> None:
    for file in FILES.values():
        scenario = next(scenario for scenario in file.scenarios if scenario.pods[0].legacy)
        asked_pod = scenario.pods[0]
        wrong = msgspec.structs.replace(asked_pod, legacy=[(1, 1)])

        assert list(differences([wrong], list(run_scenario(scenario, file.driver))[:1]))


def test_a_record_is_of_the_commit_and_of_the_present_questions() -> None:
    for system in SYSTEMS.values():
        for vocabulary in system.vocabularies:
            record = read_record(vocabulary)

            assert (system.repository, system.commit) == (
                record.provenance.repository,
                record.provenance.commit,
            )
            assert list(questions(vocabulary)) == list(record.scenarios)


def test_an_answer_to_another_question_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    record = read_record("hygon")
    name, scenario = next(iter(record.scenarios.items()))
    other = msgspec.structs.replace(scenario, question="0" * 16)
    changed = msgspec.structs.replace(record, scenarios={**record.scenarios, name: other})
    monkeypatch.setattr("testing.oracle.legacy.questions.read_record", lambda _: changed)

    with pytest.raises(LookupError, match="has no answer to this question"):
        recorded_scenarios("hygon")
