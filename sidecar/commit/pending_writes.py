"""Tracks the writes of a process that may still be made, to tell the next leader if none remain.

A write that was answered is over. One without an answer, or that was refused by an API server which
may not know the holder yet, may be made by a copy that is on its way. It is over once a later write to
the same object was made or met another version: each is conditional on the version it was decided on.
So it is over, too, once its object is gone or is seen to have another version.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from allocator.pods.claims import Name
from kube.api.meta import version_number
from kube.api.resource import ResourceClaim
from sidecar.commit.writes import Outcome, Patch


class DecidedOn(NamedTuple):
    """The UID and the version of the object that a write was decided on."""

    uid: str
    version: int


def decided_on(patch: Patch) -> DecidedOn | None:
    """Return the version that a patch is conditional on; None if it is unconditional."""
    uid, version = (patch.get("metadata", {}).get(key) for key in ("uid", "resourceVersion"))
    return DecidedOn(uid, version_number(version)) if uid and version else None


def version_of(claim: ResourceClaim) -> DecidedOn:
    """Return the version that a write decided on this claim is conditional on."""
    return DecidedOn(claim.metadata.uid, version_number(claim.metadata.resource_version))


MAX_IN_DOUBT: Final = 256
"""Writes in doubt above which those that are over are to be forgotten."""

Key = tuple[Name, str]
"""Name and UID of an object; no UID of one that is never made again."""


class PendingWrites:
    """The writes of one process, from when it began to lead."""

    def __init__(self) -> None:
        """Begin without a write."""
        self._under_way: Counter[Key] = Counter()
        self._in_doubt: dict[Key, DecidedOn | None] = {}

    def begin(self, key: Key) -> None:
        """Note a write to an object that is about to be sent."""
        self._under_way[key] += 1

    def end(self, key: Key, outcome: Outcome | None, decided_on: DecidedOn | None = None) -> None:
        """Note the end of a write.

        Args:
            outcome: The failure's meaning; None if the write was made.
            decided_on: The version that the write is conditional on; None if the object is not
                observed.
        """
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]
        if outcome is Outcome.UNKNOWN or outcome is Outcome.REFUSED:
            self._in_doubt[key] = decided_on
        else:
            self._in_doubt.pop(key, None)

    def forget_settled(self, find_version: Callable[[Name], DecidedOn | None]) -> None:
        """Forget the writes to objects that have changed since, or are gone.

        Args:
            find_version: Returns UID and version of an object, never older than at the last call; None for one
                that is gone.
        """
        for key, decided_on in tuple(self._in_doubt.items()):
            if decided_on is None:
                continue
            name, _ = key
            current = find_version(name)
            if (
                current is None
                or current.uid != decided_on.uid
                or current.version > decided_on.version
            ):
                del self._in_doubt[key]

    @property
    def has_many_doubts(self) -> bool:
        """Return True if doubtful writes are so many that settled ones should be forgotten."""
        return len(self._in_doubt) > MAX_IN_DOUBT

    @property
    def has_calls(self) -> bool:
        """Return True if a write waits for its answer."""
        return bool(self._under_way)

    @property
    def are_over(self) -> bool:
        """Return True if no write can be made any more."""
        return not self._under_way and not self._in_doubt
