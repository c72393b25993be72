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


def test_devices_are_held_back_for_each_pod_of_a_claim() -> None:
    """As `HeldBackDevices` keeps them: an API server refuses a list with two entries of one key."""
    held_back = SCHEMA["properties"]["status"]["properties"]["heldBack"]

    assert held_back["x-kubernetes-list-map-keys"] == ["claimUID", "podUID"]
    assert {"claimUID", "podUID"} <= set(held_back["items"]["required"])
