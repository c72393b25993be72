"""The dimensions of a quota on a resource name: devices, or amounts of devices such as memory.

A ResourceQuota counts the devices that claims request of a DeviceClass, and nothing in Kubernetes counts amounts
that claims consume. So a line on devices has a counterpart for claims, and a line on an amount has one in a DeviceQuota
alone, unless the amount depends on the device.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from kube.api.extended_resources import implicit_class
from translation.model.intents import Vocabulary
from translation.model.keys import ANY, Key, KeyOutcome, Place

AMOUNTS: Final = frozenset({"MiB", "GiB", "bytes", "blocks of 256 MiB", "percent", "1/1000"})
"""The units of keys that are parts of devices, in tables of vocabularies."""
AMOUNT_FIX: Final = (
    "no ResourceQuota counts memory or compute of claims, and a DeviceQuota does: drawbridge quota convert prints "
    "one; remove the line once that says Enforced=True"
)
"""The fix of a line on such an amount."""
PERCENTAGE_FIX: Final = (
    "no quota counts a percentage of the devices of claims, and drawbridge quota convert prints none: limit their memory or "
    "their number by a DeviceQuota of your own, and remove the line once that says Enforced=True"
)
"""The fix of a line on an amount that depends on the device."""
_DEVICES: Final = frozenset({KeyOutcome.COUNT, KeyOutcome.CLASS})


def counts_devices(key: str, vocabularies: Iterable[Vocabulary]) -> bool:
    """Return True if the amount of a key is a number of devices."""
    return bool(implicit_class(key)) or any(
        row.outcome in _DEVICES and row.unit not in AMOUNTS for row in _rows(key, vocabularies)
    )


def counts_amounts(key: str, vocabularies: Iterable[Vocabulary]) -> bool:
    """Return True if the amount of a key is memory, compute or a part of a device.

    >>> from translation.reading.arbiter import VOCABULARIES
    >>> counts_amounts("nvidia.com/gpumem", VOCABULARIES.values()), counts_amounts("nvidia.com/gpu", VOCABULARIES.values())
    (True, False)
    """
    return any(row.unit in AMOUNTS for row in _rows(key, vocabularies))


def amount_fix(key: str, vocabularies: Iterable[Vocabulary]) -> str:
    """Return the fix of a line on an amount of a key.

    >>> from translation.reading.arbiter import VOCABULARIES
    >>> amount_fix("nvidia.com/gpumem-percentage", VOCABULARIES.values()) == PERCENTAGE_FIX
    True
    """
    is_percentage = any(row.depends_on_device for row in _rows(key, vocabularies))
    return PERCENTAGE_FIX if is_percentage else AMOUNT_FIX


def _rows(key: str, vocabularies: Iterable[Vocabulary]) -> Iterator[Key]:
    return (
        row
        for vocabulary in vocabularies
        for row in vocabulary.table
        if row.place is Place.LIMIT and is_named(vocabulary.renamed_keys.get(key, key), row)
    )


def is_named(key: str, row: Key) -> bool:
    """Return True if a row of a vocabulary's table is about a key, by its name there."""
    before, wildcard, after = row.name.partition(ANY)
    if not wildcard:
        return key == row.name
    return len(key) > len(before + after) and key.startswith(before) and key.endswith(after)
