"""The definition of AllocatorOwnership."""

from kube.api.ownership import MAX_DRIVERS, OWNERSHIP, VERSION
from kube.api.urls import ALLOCATOR_OWNERSHIPS
from tools.ownership_crd import definition

SPEC = definition()["spec"]
(STORED,) = SPEC["versions"]
SCHEMA = STORED["schema"]["openAPIV3Schema"]


def test_its_names_are_those_that_we_call() -> None:
    assert (SPEC["group"], SPEC["names"]["plural"], SPEC["scope"], STORED["name"]) == (
        ALLOCATOR_OWNERSHIPS.group,
        ALLOCATOR_OWNERSHIPS.plural,
        "Cluster",
        VERSION,
    )


def test_there_is_one_object_with_a_bounded_list_of_different_drivers() -> None:
    drivers = SCHEMA["properties"]["spec"]["properties"]["drivers"]

    assert [f"self.metadata.name == '{OWNERSHIP}'"] == [
        rule["rule"] for rule in SCHEMA["x-kubernetes-validations"]
    ]
    assert (drivers["maxItems"], drivers["x-kubernetes-list-map-keys"]) == (MAX_DRIVERS, ["name"])
