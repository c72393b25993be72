"""The legacy names of a vocabulary, as a table: where each stands, what it counts, what becomes of it.

A vocabulary recognises names by its table, docs/vocabularies.md is generated from it, and a test
translates a pod for every row and sees that the fate stated is the fate observed.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

ANY: Final = "*"
"""In a name: whatever stands there."""


class Place(StrEnum):
    """Where a name stands; the value is how the documentation calls it."""

    LIMIT = "resource"
    """In the limits and requests of a container."""
    FOREIGN = "resource of another vendor"
    """Read only beside names of this vocabulary."""
    ANNOTATION = "annotation"
    """Of the pod."""
    LABEL = "label"
    """Of the pod, or of its namespace."""
    VARIABLE = "variable"
    """Of a container's environment."""
    NODE_LABEL = "node selector"
    """Of the pod."""


class Fate(StrEnum):
    """What becomes of a name; the value is how the documentation calls it."""

    COUNT = "claim count"
    """How many devices the claim has."""
    CLASS = "device class"
    """Which kind of device the claim has."""
    CAPACITY = "capacity"
    """How much of each device the claim has."""
    SELECTOR = "selector"
    """Which devices will do."""
    CONSTRAINT = "constraint"
    """What must hold between the devices."""
    CONFIG = "config"
    """What the driver is told."""
    VARIABLE = "variable"
    """What the container finds in its environment."""
    READING = "read first"
    """How other names are read, which have fates of their own."""
    COMPANION = "leaves with another"
    """It means nothing by itself, and goes with the name that it belongs to."""
    DROPPED = "dropped, with a warning"
    """The claim does not hold it."""
    WARNED = "kept, with a warning"
    """It stays on the pod, and may not do what it did."""
    KEPT = "left alone"
    """It stays on the pod, and does what it did."""
    REFUSED = "refused"
    """The pod is denied."""
    SKIPPED = "pod left alone"
    """Nothing of the pod is translated."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One row: a name, or one case of it.

    Attributes:
        name: May hold one `*`.
        case: The value or circumstance that the row is about, in Markdown; empty for all others.
        unit: What an amount counts.
        becomes: The fate in words, in Markdown.
    """

    place: Place
    name: str
    case: str = ""
    unit: str = ""
    fate: Fate
    becomes: str

    @property
    def title(self) -> str:
        """Return what tells the row from all others of its vocabulary."""
        return f"{self.name} ({self.case})" if self.case else self.name


Table = tuple[Key, ...]


def limit(name: str, unit: str, fate: Fate, becomes: str, *, case: str = "") -> Key:
    """Return a row about the amount of a resource."""
    return Key(place=Place.LIMIT, name=name, case=case, unit=unit, fate=fate, becomes=becomes)


def foreign(name: str, fate: Fate, becomes: str) -> Key:
    """Return a row about a resource that is another vendor's."""
    return Key(place=Place.FOREIGN, name=name, fate=fate, becomes=becomes)


def annotation(name: str, fate: Fate, becomes: str, *, case: str = "") -> Key:
    """Return a row about an annotation."""
    return Key(place=Place.ANNOTATION, name=name, case=case, fate=fate, becomes=becomes)


def label(name: str, fate: Fate, becomes: str, *, case: str = "") -> Key:
    """Return a row about a label."""
    return Key(place=Place.LABEL, name=name, case=case, fate=fate, becomes=becomes)


def variable(name: str, fate: Fate, becomes: str) -> Key:
    """Return a row about a variable."""
    return Key(place=Place.VARIABLE, name=name, fate=fate, becomes=becomes)


def node_label(name: str, fate: Fate, becomes: str, *, case: str = "") -> Key:
    """Return a row about a label of nodes that the pod selects by."""
    return Key(place=Place.NODE_LABEL, name=name, case=case, fate=fate, becomes=becomes)


def names(table: Table, place: Place) -> tuple[str, ...]:
    """Return the whole names that stand at a place.

    >>> table = (limit("a.example/b", "", Fate.COUNT, ""), limit("a.example/c-*", "", Fate.COUNT, ""))
    >>> names(table, Place.LIMIT), prefixes(table, Place.LIMIT)
    (('a.example/b',), ('a.example/c-',))
    """
    return tuple(dict.fromkeys(name for name in _at(table, place) if ANY not in name))


def prefixes(table: Table, place: Place) -> tuple[str, ...]:
    """Return the beginnings of the names that are known by them."""
    starts = (name.partition(ANY)[0] for name in _at(table, place) if ANY in name)
    return tuple(dict.fromkeys(starts))


def annotations(table: Table) -> tuple[str, ...]:
    """Return the annotations that a translation depends on; one that is always left alone is not."""
    read = {
        key.name for key in table if key.place is Place.ANNOTATION and key.fate is not Fate.KEPT
    }
    return tuple(name for name in names(table, Place.ANNOTATION) if name in read)


def _at(table: Table, place: Place) -> Iterator[str]:
    return (key.name for key in table if key.place is place)
