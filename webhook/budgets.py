"""Time of reviews per user and per namespace, so that none of them uses up the event loop.

Buckets of seconds that refill; what a review took is charged afterwards. They count only while all
reviews together take more than twice what one user may: a caller who is not the API server writes any user
and namespace into a review, and must not use up theirs where there is time for everybody. Accounts of
Kubernetes' own controllers create pods for everybody, so only the namespace counts for these.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from kube.api.admission import AdmissionRequest

MAX_KEYS: Final = 4096
"""Users and namespaces that are remembered; the least recently seen start with a full bucket."""
_SHARED: Final = ("system:serviceaccount:kube-system:", "system:kube-", "system:node:")
"""Beginnings of the names of users that act for others."""

Key = tuple[str, str]
_ALL: Final[Key] = ("all", "")


class ReviewBudgets:
    """The remaining budgets of users and namespaces."""

    def __init__(
        self,
        fraction: float,
        burst_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with full buckets.

        Args:
            fraction: Of a core, that each may use in the long run.
            burst_s: Seconds that each may use at once.
            clock: Monotonic seconds.
        """
        self._fraction = fraction
        self._burst_s = burst_s
        self._clock = clock
        self._left: OrderedDict[Key, tuple[float, float]] = OrderedDict()

    def allows(self, request: AdmissionRequest) -> bool:
        """Return whether user and namespace of a review have anything left, or all together have."""
        return self._left_s(_ALL) > 0 or all(self._left_s(key) > 0 for key in _keys(request))

    def charge(self, request: AdmissionRequest, took_s: float) -> None:
        """Charge what a review took, in seconds."""
        now_s = self._clock()
        for key in (*_keys(request), _ALL):
            left_s = max(self._left_s(key) - took_s, -self._burst_s)
            self._left[key] = left_s, now_s
            self._left.move_to_end(key)
        while len(self._left) > MAX_KEYS:
            self._left.popitem(last=False)

    def _left_s(self, key: Key) -> float:
        left_s, then_s = self._left.get(key, (self._burst_s, 0.0))
        fraction = self._fraction * (2 if key == _ALL else 1)
        return min(self._burst_s, left_s + fraction * (self._clock() - then_s))


def _keys(request: AdmissionRequest) -> Iterator[Key]:
    user = request.user_info.username
    if not user.startswith(_SHARED):
        yield "user", user[:256]
    yield "namespace", request.namespace[:256]
