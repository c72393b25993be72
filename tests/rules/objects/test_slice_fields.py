"""The rules reject the slices that a real API server rejects, and no others."""

from typing import Final

import pytest

from allocator.model.feature_gates import Features, features_of
from rules.context.context import Context
from rules.context.rule import BUILT_IN_VALIDATION, Scope
from rules.engine.registry import RULES
from testing.rule_cases import findings_of
from testing.slice_cases import GATES, SLICES, SliceCase, recorded_verdicts

VERDICTS: Final = recorded_verdicts()
BUILT_IN: Final = {
    rule.code
    for rule in RULES
    if rule.scope is Scope.SLICE and rule.no_cel_reason == BUILT_IN_VALIDATION
}
"""Codes of what the API server rejects; others are for what it accepts and the allocator does not."""
ACCEPTED_AND_REJECTED_BY_US: Final = {
    "an attribute with several slashes": "malformedQualifiedName",
    "operator Gt with a text": "failingNodeSelector",
}


def rejected_fields(case: SliceCase) -> set[str]:
    features = features_of(dict.fromkeys(GATES, True)) if case.is_gated else Features()
    findings = findings_of(case.document, Context(features=features))
    return {
        str(finding.path) for finding in findings if finding.is_error and finding.code in BUILT_IN
    }


def _place(field: str) -> str:
    """The API server names fields of request policies that do not exist, so the policy is enough."""
    policy, text, _ = field.partition(".requestPolicy")
    return policy + text


@pytest.mark.parametrize("case", SLICES, ids=lambda case: case.name)
def test_the_verdict_is_that_of_the_api_server(case: SliceCase) -> None:
    assert VERDICTS[case.name].accepted == (not rejected_fields(case))


@pytest.mark.parametrize(
    "case",
    [case for case in SLICES if not VERDICTS[case.name].accepted],
    ids=lambda case: case.name,
)
def test_every_field_that_the_api_server_rejects_is_found(case: SliceCase) -> None:
    fields = rejected_fields(case)

    missing = [
        rejected
        for rejected in VERDICTS[case.name].fields
        if not any(
            field.startswith(_place(rejected)) or rejected.startswith(field) for field in fields
        )
    ]
    assert [] == missing


@pytest.mark.parametrize(
    "case", [case for case in SLICES if VERDICTS[case.name].accepted], ids=lambda case: case.name
)
def test_what_the_api_server_accepts_is_rejected_only_where_the_allocator_fails(
    case: SliceCase,
) -> None:
    features = features_of(dict.fromkeys(GATES, True)) if case.is_gated else Features()
    codes = {
        finding.code
        for finding in findings_of(case.document, Context(features=features))
        if finding.is_error
    }

    assert ACCEPTED_AND_REJECTED_BY_US.get(case.name, "") == "".join(codes)


def test_the_table_is_large_and_of_both_verdicts() -> None:
    assert len(SLICES) >= 60
    assert len({case.name for case in SLICES}) == len(SLICES)
    assert {verdict.accepted for verdict in VERDICTS.values()} == {True, False}


def test_a_name_has_a_suggestion() -> None:
    case = next(case for case in SLICES if case.name == "a device with dots")

    (finding,) = findings_of(case.document)

    assert finding.code == "invalidName"
    assert finding.fix == 'use "gpu-0-mig-1g-5gb-0"'
