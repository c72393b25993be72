"""The pods with unfinished decisions, as an annotation of the Lease: the next leader decides them last."""

from collections.abc import Mapping
from typing import Final

from kube.names import GROUP

UNDECIDED: Final = f"{GROUP}/undecided"
"""Annotation of the Lease: UIDs of pods, each with how often its decision did not end."""
MAX_UNDECIDED: Final = 16
"""Pods in it; those of longest ago are left out."""


def write_undecided(times: Mapping[str, int]) -> str | None:
    """Return the value of the annotation; None for none.

    >>> write_undecided({"a": 1, "b": 2}), write_undecided({})
    ('a=1,b=2', None)
    """
    entries = [f"{uid}={number}" for uid, number in times.items() if uid]
    return ",".join(entries[-MAX_UNDECIDED:]) or None


def read_undecided(text: str) -> Mapping[str, int]:
    """Return UID to the number of a pod's unfinished decisions; malformed entries are ignored.

    >>> read_undecided("a=1,b=2,c=x,,=3,d")
    {'a': 1, 'b': 2}
    """
    pairs = [entry.partition("=") for entry in text.split(",")[-MAX_UNDECIDED:]]
    return {uid: int(number) for uid, _, number in pairs if uid and number in _DIGITS}


_DIGITS: Final = frozenset("123456789")
