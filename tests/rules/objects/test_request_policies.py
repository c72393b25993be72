"""The findings about request policies, beside the answers of the allocator to requests."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from allocator.model.consumption import Consumption, consumption
from allocator.model.feature_gates import Features
from allocator.model.outcome import AttemptFailed
from kube.api.meta import convert
from kube.api.resource import Device
from kube.quantity import Quantity
from rules.context.context import Context
from testing.documents import Document, device, resource_slice
from testing.rule_cases import findings_of

EXACT = Features(fractional_capacity_range=True)


class Case(NamedTuple):
    """Attributes: served: A request that the policy allows. failing: A request that it does not."""

    name: str
    policy: Document
    served: str | None
    failing: str | None
    expected: str
    features: Features = Features()


CASES = (
    Case(
        "a negative minimum",
        {"default": "1Gi", "validRange": {"min": "-1"}},
        served=None,
        failing="-2",
        expected="warning: -1 is negative, so it does not raise negative requests, which fail every"
        " allocation",
    ),
    Case(
        "a negative minimum with a step of a fraction",
        {"default": "500m", "validRange": {"min": "-1", "step": "500m"}},
        served=None,
        failing="1",
        expected="error: -1 is negative, which fails every allocation for requests with an amount,"
        " since there is a step",
        features=EXACT,
    ),
    Case(
        "a negative default",
        {"default": "-1"},
        served="1",
        failing=None,
        expected="error: -1 is negative, which fails every allocation for requests without an amount",
    ),
    Case(
        "a default above the capacity",
        {"default": "16Gi"},
        served="8Gi",
        failing=None,
        expected="warning: 16Gi exceeds the capacity 8Gi, so no request without an amount fits",
    ),
)


def _shared_device(policy: Document) -> Document:
    return device(
        allowMultipleAllocations=True,
        capacity={"memory": {"value": "8Gi", "requestPolicy": policy}},
    )


def _is_served(case: Case, amount: str | None) -> bool:
    requested: Mapping[str, Quantity] = {} if amount is None else {"memory": Quantity(amount)}
    shared_device = convert(_shared_device(case.policy), Device)
    try:
        return isinstance(consumption(requested, shared_device, case.features), Consumption)
    except AttemptFailed:
        return False


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_finding_says_which_requests_fail(case: Case) -> None:
    document = resource_slice(_shared_device(case.policy))

    (finding,) = findings_of(document, Context(features=case.features))

    assert f"{finding.severity}: {finding.message}" == case.expected
    assert finding.code == "unsatisfiableRequestPolicy"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_allocator_serves_the_other_requests(case: Case) -> None:
    assert _is_served(case, case.served)
    assert not _is_served(case, case.failing)
