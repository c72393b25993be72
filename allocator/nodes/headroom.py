"""The CPU, memory and number of pods that a node has left, and the part of them that a pod takes."""

from typing import Final

import msgspec


class Headroom(msgspec.Struct, frozen=True, kw_only=True):
    """The room that the pods on a node leave.

    Attributes:
        cpu_milli: CPU in thousandths of a core; None without limit.
        memory: Memory in bytes; None without limit.
        pods: Number of further pods; None without limit.
    """

    cpu_milli: int | None = None
    memory: int | None = None
    pods: int | None = None

    def after(self, cpu_milli: int, memory: int) -> "Headroom":
        """Return the room that a further pod leaves; never below 0."""
        return Headroom(
            cpu_milli=None if self.cpu_milli is None else max(0, self.cpu_milli - cpu_milli),
            memory=None if self.memory is None else max(0, self.memory - memory),
            pods=None if self.pods is None else max(0, self.pods - 1),
        )

    def takes(self, cpu_milli: int, memory: int) -> bool:
        """Return True if there is room for a pod, as NodeResourcesFit decides it.

        >>> Headroom(cpu_milli=0, memory=1 << 30, pods=1).takes(0, 1 << 30)
        True
        """
        # A resource of which the pod requests nothing does not count.
        return (
            (self.pods is None or self.pods > 0)
            and (self.cpu_milli is None or cpu_milli <= self.cpu_milli)
            and (self.memory is None or memory <= self.memory)
        )


UNLIMITED: Final = Headroom()
