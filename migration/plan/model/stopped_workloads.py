"""The workloads of other projects that a person starts again after a migration, as values of a plan."""

from typing import Final, NamedTuple

import msgspec

_EARLIER: Final = "; after wave {} already where devices that its pods may have are free for claims, and no later wave needs them for pods that it evicts"


class StartRoom(NamedTuple):
    """The free devices for the next pods of a stopped workload, of all its pods at a time, beside those that run.

    Attributes:
        pods: The number of its next pods.
        today: The number of these that find devices before the first wave.
        after: The number that find some after the last one.
    """

    pods: int
    today: int
    after: int

    @property
    def is_lost(self) -> bool:
        """Return True if the waves leave devices for fewer of the pods than today."""
        return self.after < self.today


class StoppedWorkload(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"
):
    """A workload of another project without a pod that requests devices; `object` is `Kind/namespace/name`.

    Attributes:
        reason: The state of the workload, and the devices of its next pods.
        fix: The way to start it, and the wave after which it can be.
        outcome: The outcome of its next pods, as of `assess`.
        earliest_wave: The first wave after which its next pods get claims, and may find devices, where that is not the last
            one; left out for others.
        claim_losses: The losses of its next pods by their claims, as those of a planned workload; left out without any.
    """

    object: str
    reason: str
    fix: str
    outcome: str
    earliest_wave: int = 0
    claim_losses: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the reason and the fix in one line, with the first wave that it may start after."""
        earlier = _EARLIER.format(self.earliest_wave) if self.earliest_wave else ""
        return f"{self.reason}: {self.fix}{earlier}"
