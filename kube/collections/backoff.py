"""Exponential backoff: the pauses after consecutive failures."""

import msgspec


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Delays between attempts.

    Attributes:
        initial_s: The delay after the first failure; it doubles with each further one.
        max_s: The longest delay.
    """

    initial_s: float
    max_s: float

    def delay_s(self, failures: int, jitter: float = 1.0) -> float:
        """Return the delay after a number of consecutive failures.

        Args:
            failures: The number of failures, at least 1.
            jitter: The fraction of the delay to wait, from 0 to 1; random where many clients wait
                for the same event.

        >>> backoff = Backoff(initial_s=0.8, max_s=30.0)
        >>> [backoff.delay_s(failures) for failures in (1, 2, 3, 6, 7, 5000)]
        [0.8, 1.6, 3.2, 25.6, 30.0, 30.0]
        """
        factor = 2.0 ** min(failures - 1, 32)
        return jitter * min(self.max_s, self.initial_s * factor)
