"""The drivers that an AllocatorOwnership names."""

from kube.api.meta import ObjectMeta
from kube.api.ownership import (
    AllocatorOwnership,
    AllocatorOwnershipSpec,
    OwnedDriver,
    owned_drivers,
)


def ownership(name: str, *drivers: str) -> AllocatorOwnership:
    spec = AllocatorOwnershipSpec(drivers=tuple(OwnedDriver(name=driver) for driver in drivers))
    return AllocatorOwnership(metadata=ObjectMeta(name=name), spec=spec)


def test_only_the_object_named_default_counts() -> None:
    known_ownerships = [
        ownership("default", "a.example.com"),
        ownership("another", "b.example.com"),
    ]

    assert owned_drivers(known_ownerships) == {"a.example.com"}


def test_without_the_object_or_its_drivers_nothing_is_owned() -> None:
    empty = AllocatorOwnership(metadata=ObjectMeta(name="default"))

    assert owned_drivers([]) == owned_drivers([empty]) == frozenset()
