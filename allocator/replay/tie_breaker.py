"""Numbers that look random and depend on a seed alone.

Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA 2014), SplitMix64.
"""

from typing import Final, TypeVar

_T = TypeVar("_T")

_MASK: Final = 2**64 - 1
_GAMMA: Final = 0x9E3779B97F4A7C15


class TieBreaker:
    """A sequence of numbers.

    >>> first, second = TieBreaker(1), TieBreaker(1)
    >>> [first.below(10) for _ in range(5)] == [second.below(10) for _ in range(5)]
    True
    """

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, limit: int) -> int:
        """Return the next number from 0 to below a limit."""
        self._state = (self._state + _GAMMA) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((mixed ^ (mixed >> 31)) * limit) >> 64

    def shuffle(self, items: list[_T]) -> None:
        """Put a list into a random order."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]
