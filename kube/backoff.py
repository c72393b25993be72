"""How long to wait after failures in a row: exponentially longer, up to a limit."""

import msgspec


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses between attempts.

    Attributes:
        first_s: After the first failure; twice as long after each further one.
        longest_s: The longest pause of all.
    """

    first_s: float
    longest_s: float

    def pause_s(self, failures: int, jitter: float = 1.0) -> float:
        """Return how long to wait after so many failures in a row.

        Args:
            failures: At least 1.
            jitter: From 0 to 1; the share of the pause that is taken. Random where many wait for
                the same thing.

        >>> waiting = Backoff(first_s=0.8, longest_s=30.0)
        >>> [waiting.pause_s(failures) for failures in (1, 2, 3, 6, 7, 5000)]
        [0.8, 1.6, 3.2, 25.6, 30.0, 30.0]
        """
        factor = 2.0 ** min(failures - 1, 32)
        return jitter * min(self.longest_s, self.first_s * factor)
