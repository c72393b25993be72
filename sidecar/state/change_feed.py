"""Changes that wait to be applied to a view, the latest of each object."""

from typing import Any

from allocator.pods.claims import Name
from clusterstate.kinds import Changes, Kind


class ChangeFeed:
    """The changes since they were taken last. Of one event loop."""

    def __init__(self) -> None:
        """Begin without changes."""
        self._changes: dict[Kind, dict[Name, Any]] = {}

    def put(self, kind: Kind, name: Name, new: object) -> None:
        """Take a change; None for an object that is gone."""
        self._changes.setdefault(kind, {})[name] = new

    def __len__(self) -> int:
        """Return the number of objects that have changed."""
        return sum(map(len, self._changes.values()))

    def has(self, kind: Kind) -> bool:
        """Return True if objects of a kind have changed."""
        return bool(self._changes.get(kind))

    def replace(self, changes: Changes) -> None:
        """Have these be all changes."""
        self._changes = {kind: dict(objects) for kind, objects in changes.items()}

    def take(self) -> Changes:
        """Return the pending changes and forget them."""
        changes, self._changes = self._changes, {}
        return changes
