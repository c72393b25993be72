"""Fields of designs and talks that the API does not have: each is named with the place for its content."""

from typing import Any

import pytest

from testing.documents import Document, api_object
from testing.questions import answer
from testing.simulated_cluster import device_class, slice_of

COMPATIBLE = {"compatibleOnlyWith": {"expression": "true"}}
POLICY = "say it in a DeviceCompatibilityPolicy, in rules[].compatibleOnlyWith.cel.expression"
AMOUNT = "an amount of a shared device is in exactly.capacity.requests: {<name>: <quantity>}"
REQUIREMENTS = "requirements are CEL: exactly.selectors[].cel.expression"


def claim(**fields: Any) -> Document:
    request = {"name": "gpu", "exactly": {"deviceClassName": "any", **fields}}
    return api_object("ResourceClaim", "main", "team", spec={"devices": {"requests": [request]}})


def of_class(**spec: Any) -> Document:
    document = device_class()
    return {**document, "spec": {**document["spec"], **spec}}


def cures(document: Document) -> dict[str, str]:
    """Return the unknown and removed fields with their fix."""
    findings = answer(document)["findings"]
    codes = {"unknownField", "removedField"}
    return {entry["path"]: entry["fix"] for entry in findings if entry["code"] in codes}


@pytest.mark.parametrize(
    ("document", "field", "cure"),
    [
        (slice_of("a", {"name": "x", **COMPATIBLE}), "devices[0].compatibleOnlyWith", POLICY),
        (of_class(**COMPATIBLE), "compatibleOnlyWith", POLICY),
        (claim(**COMPATIBLE), "devices.requests[0].exactly.compatibleOnlyWith", POLICY),
        (
            slice_of("a", {"name": "x", "resources": {"bandwidth": {"quantity": "10G"}}}),
            "devices[0].resources",
            "capacities of a device are in capacity: {<name>: {value: <quantity>}}",
        ),
        (claim(resources={"memory": "1Gi"}), "devices.requests[0].exactly.resources", AMOUNT),
        (claim(requirements=[]), "devices.requests[0].exactly.requirements", REQUIREMENTS),
    ],
)
def test_the_place_of_the_content_is_named(document: Document, field: str, cure: str) -> None:
    fixes = cures(document)

    assert [f"spec.{field}"] == list(fixes)
    assert fixes[f"spec.{field}"].startswith(cure)


def test_a_value_of_the_wrong_type_hides_no_field() -> None:
    """The slice of a design, verbatim: only its attribute was named, and the rest once that was right."""
    devices = [
        {"name": "a", "attributes": {"physicalDevice": "dev-0"}, **COMPATIBLE},
        {"name": "b", "capacity": {"bandwidth": {"quantity": "10G"}}},
        {"name": "c", "basic": {}},
    ]

    fixes = cures(slice_of("node-a", *devices))

    assert {
        "spec.devices[0].compatibleOnlyWith",
        "spec.devices[1].capacity[bandwidth].quantity",
        "spec.devices[2].basic",
    } == fixes.keys()
    assert fixes["spec.devices[1].capacity[bandwidth].quantity"] == "the amount is in value"


def test_a_field_of_an_older_version_is_at_its_place_in_the_manifest() -> None:
    device = {"name": "a", "basic": {"capacity": {"bandwidth": {"quantity": "10G"}}}}
    document = {**slice_of("node-a", device), "apiVersion": "resource.k8s.io/v1beta1"}

    assert ["spec.devices[0].basic.capacity[bandwidth].quantity"] == list(cures(document))
