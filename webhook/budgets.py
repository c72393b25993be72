"""Time of reviews per user and per namespace, so that none of them uses up the event loop.

Buckets of seconds that refill; what a review took is charged afterwards. They count only while all
reviews together take more than twice what one user may: a caller who is not the API server writes any user
and namespace into a review, and must not use up theirs where there is time for everybody. Kubernetes' own
controllers create pods for everybody, and an operator for the namespaces of others, so only the namespace
counts for these.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from kube.api.admission import AdmissionRequest

MAX_KEYS: Final = 4096
"""Users and namespaces that are remembered; the least recently seen start with a full bucket."""
_SHARED: Final = ("system:serviceaccount:kube-system:", "system:kube-", "system:node:")
"""Beginnings of the names of users that act for others."""
_ACCOUNT: Final = "system:serviceaccount:"
"""The beginning of the name of a ServiceAccount; its namespace and name follow."""

Key = tuple[str, str]
_Bucket = tuple[float, float]
"""Seconds that are left, and when they were, by the clock."""


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
            fraction: The fraction of a core that each may use in the long run.
            burst_s: Seconds that each may use at once.
            clock: Monotonic seconds.
        """
        self._fraction = fraction
        self._burst_s = burst_s
        self._clock = clock
        self._full: _Bucket = burst_s, 0.0
        self._all = self._full
        self._buckets: OrderedDict[Key, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of users and namespaces that are remembered."""
        return len(self._buckets)

    def allows(self, request: AdmissionRequest) -> bool:
        """Return True if user and namespace of a review have anything left, or all together have."""
        now_s = self._clock()
        return self._left_s(self._all, 2 * self._fraction, now_s) > 0 or all(
            self._left_s(self._buckets.get(key, self._full), self._fraction, now_s) > 0
            for key in _keys(request)
        )

    def charge(self, request: AdmissionRequest, took_s: float) -> None:
        """Charge the duration of a review, in seconds."""
        now_s, buckets = self._clock(), self._buckets
        self._all = self._charged(self._all, 2 * self._fraction, took_s, now_s)
        for key in _keys(request):
            bucket = buckets.get(key, self._full)
            buckets[key] = self._charged(bucket, self._fraction, took_s, now_s)
            buckets.move_to_end(key)
        while len(buckets) > MAX_KEYS:
            buckets.popitem(last=False)

    def _charged(self, bucket: _Bucket, fraction: float, took_s: float, now_s: float) -> _Bucket:
        left_s = self._left_s(bucket, fraction, now_s) - took_s
        return max(left_s, -self._burst_s), now_s

    def _left_s(self, bucket: _Bucket, fraction: float, now_s: float) -> float:
        left_s, then_s = bucket
        return min(self._burst_s, left_s + fraction * (now_s - then_s))


def _keys(request: AdmissionRequest) -> tuple[Key, ...]:
    namespace, user = request.namespace[:256], request.user_info.username
    if user.startswith(_SHARED) or _acts_elsewhere(user, request.namespace):
        return (("namespace", namespace),)
    return ("user", user[:256]), ("namespace", namespace)


def _acts_elsewhere(user: str, namespace: str) -> bool:
    """Return True for a ServiceAccount in the namespace of others; an object may be in none."""
    return (
        namespace != ""
        and user.startswith(_ACCOUNT)
        and not user.startswith(f"{_ACCOUNT}{namespace}:")
    )
