"""The kinds of input to search for high costs."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

Gene = Any


class Species(NamedTuple):
    """A kind of input that is searched.

    Attributes:
        draw: Returns a new one.
        change: Returns a changed one.
        excess: Returns what one takes, as a part of what it may take.
        show: Returns one as text.
    """

    draw: Callable[[Random], Gene]
    change: Callable[[Gene, Random], Gene]
    excess: Callable[[Gene], float]
    show: Callable[[Gene], str]
