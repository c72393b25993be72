"""Which writes of a process may still be made, so that it can tell the next leader that none may.

A write that was answered is over. One without an answer, or that was refused by an API server which
may not know the holder yet, may be made by a copy that is on its way. It is over once a later write to
the same object was made or met another version: each is conditional on the version it was decided on.
"""

from collections import Counter
from collections.abc import Hashable

from sidecar.plan.writes import Outcome


class PendingWrites:
    """The writes of one process, from when it began to lead."""

    def __init__(self) -> None:
        """Begin without a write."""
        self._under_way: Counter[Hashable] = Counter()
        self._in_doubt: set[Hashable] = set()

    def begin(self, key: Hashable) -> None:
        """Note a write to an object that is about to be sent."""
        self._under_way[key] += 1

    def end(self, key: Hashable, outcome: Outcome | None) -> None:
        """Note the end of a write.

        Args:
            outcome: What its failure proves; None if it was made.
        """
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]
        if outcome is Outcome.UNKNOWN or outcome is Outcome.REFUSED:
            self._in_doubt.add(key)
        else:
            self._in_doubt.discard(key)

    @property
    def has_calls(self) -> bool:
        """Return whether a write waits for its answer."""
        return bool(self._under_way)

    @property
    def are_over(self) -> bool:
        """Return whether no write can be made any more."""
        return not self._under_way and not self._in_doubt
