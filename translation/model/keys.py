"""The table of a vocabulary's names: the place, unit and outcome of each.

A vocabulary recognises names by its table, docs/vocabularies.md is generated from it, and a test
translates a pod for every row and compares the observed outcome with the stated one.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

ANY: Final = "*"
"""The wildcard in a name."""


class Place(StrEnum):
    """The place of a name in a pod; the value is its name in the documentation."""

    LIMIT = "resource"
    """A key in the limits and requests of a container."""
    FOREIGN = "resource of another vendor"
    """A key that is read only beside names of this vocabulary."""
    ANNOTATION = "annotation"
    """An annotation of the pod."""
    LABEL = "label"
    """A label of the pod, or of its namespace."""
    VARIABLE = "variable"
    """A variable in a container's environment."""
    NODE_LABEL = "node selector"
    """A node label that the pod selects."""


class KeyOutcome(StrEnum):
    """The effect of a name on the translated pod; the value is its name in the documentation."""

    COUNT = "claim count"
    """It sets the number of devices in the claim."""
    CLASS = "device class"
    """It selects the DeviceClass."""
    CAPACITY = "capacity"
    """It sets an amount of each device."""
    SELECTOR = "selector"
    """It filters devices."""
    CONSTRAINT = "constraint"
    """It sets a constraint between the devices."""
    CONFIG = "config"
    """It sets opaque parameters for the driver."""
    VARIABLE = "variable"
    """It sets an environment variable of the container."""
    READING = "read first"
    """It changes how other names are read, which have outcomes of their own."""
    COMPANION = "removed with another"
    """It means nothing alone, and is removed together with the name that it belongs to."""
    DROPPED = "dropped, with a warning"
    """The claim does not express it."""
    WARNED = "kept, with a warning"
    """It stays on the pod, and may have another effect there."""
    KEPT = "unchanged"
    """It stays on the pod, with the same effect."""
    REFUSED = "rejected"
    """The pod is denied."""
    SKIPPED = "pod not translated"
    """Nothing of the pod is translated."""


DEVICES: Final = "devices"
"""The unit of keys whose amount is a number of devices."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One row: a name, or one case of it.

    Attributes:
        name: May contain one `*`.
        case: The value or condition that the row is about, in Markdown; empty for all others.
        unit: The unit of an amount.
        becomes: The outcome in words, in Markdown.
        depends_on_device: Claims request another amount of each type of device, so no line of a quota means it.
    """

    place: Place
    name: str
    case: str = ""
    unit: str = ""
    outcome: KeyOutcome
    becomes: str
    depends_on_device: bool = False

    @property
    def title(self) -> str:
        """Return the name and case, unique within the vocabulary."""
        return f"{self.name} ({self.case})" if self.case else self.name


Table = tuple[Key, ...]


def limit(
    name: str,
    unit: str,
    outcome: KeyOutcome,
    becomes: str,
    *,
    case: str = "",
    depends_on_device: bool = False,
) -> Key:
    """Return a row about the amount of a resource."""
    return Key(
        place=Place.LIMIT,
        name=name,
        case=case,
        unit=unit,
        outcome=outcome,
        becomes=becomes,
        depends_on_device=depends_on_device,
    )


def foreign(name: str, outcome: KeyOutcome, becomes: str) -> Key:
    """Return a row about another vendor's resource."""
    return Key(place=Place.FOREIGN, name=name, outcome=outcome, becomes=becomes)


def annotation(name: str, outcome: KeyOutcome, becomes: str, *, case: str = "") -> Key:
    """Return a row about an annotation."""
    return Key(place=Place.ANNOTATION, name=name, case=case, outcome=outcome, becomes=becomes)


def label(name: str, outcome: KeyOutcome, becomes: str, *, case: str = "") -> Key:
    """Return a row about a label."""
    return Key(place=Place.LABEL, name=name, case=case, outcome=outcome, becomes=becomes)


def variable(name: str, outcome: KeyOutcome, becomes: str) -> Key:
    """Return a row about a variable."""
    return Key(place=Place.VARIABLE, name=name, outcome=outcome, becomes=becomes)


def node_label(name: str, outcome: KeyOutcome, becomes: str, *, case: str = "") -> Key:
    """Return a row about a node label in the pod's node selector."""
    return Key(place=Place.NODE_LABEL, name=name, case=case, outcome=outcome, becomes=becomes)


def names(table: Table, place: Place) -> tuple[str, ...]:
    """Return the names at a place that contain no wildcard.

    >>> table = (limit("a.example/b", "", KeyOutcome.COUNT, ""), limit("a.example/c-*", "", KeyOutcome.COUNT, ""))
    >>> names(table, Place.LIMIT), prefixes(table, Place.LIMIT)
    (('a.example/b',), ('a.example/c-',))
    """
    return tuple(dict.fromkeys(name for name in _at(table, place) if ANY not in name))


def prefixes(table: Table, place: Place) -> tuple[str, ...]:
    """Return the prefixes of the names at a place that contain a wildcard."""
    starts = (name.partition(ANY)[0] for name in _at(table, place) if ANY in name)
    return tuple(dict.fromkeys(starts))


def annotations(table: Table) -> tuple[str, ...]:
    """Return the annotations that a translation depends on: those with an outcome but `KEPT`."""
    read_names = {
        key.name
        for key in table
        if key.place is Place.ANNOTATION and key.outcome is not KeyOutcome.KEPT
    }
    return tuple(name for name in names(table, Place.ANNOTATION) if name in read_names)


def _at(table: Table, place: Place) -> Iterator[str]:
    return (key.name for key in table if key.place is place)
