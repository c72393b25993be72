"""A log of the nodes that changed, for several readers; each goes on from its last position."""

from collections.abc import Iterable, Sequence
from typing import Final

MAX_NAMES: Final = 20_000
"""Names in a log. A reader that is further behind looks at all nodes, which costs as much."""


class NodeChanges:
    """The names of the nodes that changed, in order; a node may be there several times.

    Attributes:
        position: The number of changes so far.

    >>> changes = NodeChanges()
    >>> position = changes.position
    >>> changes.add(["a", "b"])
    >>> changes.since(position), changes.since(changes.position)
    (['a', 'b'], [])
    >>> changes.add_all()
    >>> changes.since(position) is None
    True
    """

    def __init__(self) -> None:
        """Begin without a change."""
        self._names: list[str] = []
        self._first = 0

    @property
    def position(self) -> int:
        """Return the number of changes so far, to be passed to `since`."""
        return self._first + len(self._names)

    def add(self, names: Iterable[str]) -> None:
        """Note nodes that changed."""
        self._names.extend(names)
        if len(self._names) > MAX_NAMES:
            self.add_all()

    def add_all(self) -> None:
        """Note that any node may have changed."""
        self._first = self.position + 1
        self._names.clear()

    def since(self, position: int) -> Sequence[str] | None:
        """Return the nodes that changed since then; None if any may have."""
        if position < self._first:
            return None
        return self._names[position - self._first :]
