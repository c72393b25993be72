"""Kinds that the audit cannot list, told in the log once until the answer changes."""

from collections import Counter
from typing import Final

from kube.errors import KubeError
from kube.logs import get_logger

log = get_logger()


TRIES: Final = 5
"""Failures of a kind that was never listed, after which an audit goes on without it."""


class UnsearchedKinds:
    """The kinds that the last audit could not list, with the reason."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._searched: set[str] = set()
        self._failures: Counter[str] = Counter()

    def needs_another_try(self, kind: str) -> bool:
        """Return True at the first failures of a kind without an earlier result.

        An API server that has trouble is often why this process leads: findings of the leader before would count as
        cured.
        """
        self._failures[kind] += 1
        return kind not in self._searched and self._failures[kind] < TRIES

    def failed(self, kind: str, fault: KubeError) -> None:
        """Log that a kind is not searched, unless that is so since the last audit."""
        reason = fault.reason or str(fault.status)
        if self._reasons.get(kind) != reason:
            self._reasons[kind] = reason
            log.info("claims.not_searched", kind=kind, error=str(fault))

    def searched(self, kind: str) -> None:
        """Log that a kind is searched again, if it was not."""
        self._searched.add(kind)
        if self._reasons.pop(kind, None) is not None:
            log.info("claims.searched_again", kind=kind)
