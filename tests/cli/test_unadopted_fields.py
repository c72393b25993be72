"""Fields and layouts of designs that Kubernetes did not adopt: findings name the place for their content."""

from typing import Any

import pytest

from testing import documents
from testing.documents import Document
from testing.questions import answer
from testing.simulated_cluster import STATE, claim, simulate
from testing.slice_cases import MIXED_LAYOUT

CASES: list[tuple[str, Document, str, str]] = [
    ("compatibleOnlyWith of a device", documents.resource_slice(documents.device(compatibleOnlyWith={"expression": "true"})),
     "spec.devices[0].compatibleOnlyWith", "DeviceCompatibilityPolicy"),
    ("resources of a device", documents.resource_slice(documents.device(resources={"bandwidth": {"quantity": "10G"}})),
     "spec.devices[0].resources", "capacity: {<name>: {value: <quantity>}}"),
    ("quantity of a capacity", documents.resource_slice(documents.device(capacity={"bandwidth": {"value": 1, "quantity": 1}})),
     "spec.devices[0].capacity[bandwidth].quantity", "in value"),
    ("resources of a request", documents.claim(documents.exactly(resources={"bandwidth": {"quantity": "10G"}})),
     "spec.devices.requests[0].exactly.resources", "capacity.requests"),
    ("requirements of a claim", {**documents.claim(documents.exactly()), "spec": {"requirements": []}},
     "spec.requirements", "selectors[].cel.expression"),
    ("a plain attribute", documents.resource_slice(documents.device(attributes={"physicalDevice": "dev-0"})),
     "spec.devices[0].attributes[physicalDevice]", '{string: "dev-0"}'),
    ("a plain capacity", documents.resource_slice(documents.device(capacity={"memory": "40Gi"})),
     "spec.devices[0].capacity[memory]", '{value: "40Gi"}'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("_name", "document", "path", "fix"), CASES, ids=[case[0] for case in CASES]
)
def test_a_field_that_is_not_there_has_a_cure(
    _name: str, document: Any, path: str, fix: str
) -> None:
    fixes = [entry["fix"] for entry in answer(document)["findings"] if entry["path"] == path]

    assert any(fix in text for text in fixes), fixes


def test_mixed_slices_are_named_as_the_cause() -> None:
    mixed = MIXED_LAYOUT

    result = simulate(claim("a"), snapshot=(*STATE[:3], mixed))

    assert "has devices beside sharedCounters, so its devices are ignored" in result.stderr
