"""A clock for code that polls: the speed of a machine does not change its number of attempts."""


class SleptTime:
    """The functions of module `time`, with a clock moved by sleeping alone."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        self._now_s += duration_s
