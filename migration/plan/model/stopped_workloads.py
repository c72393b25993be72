"""The workloads of other projects that a person starts again after a migration, as values of a plan."""

import msgspec


class StoppedWorkload(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"
):
    """A workload of another project without a pod that requests devices; `object` is `Kind/namespace/name`.

    Attributes:
        reason: The state of the workload, and the devices of its next pods.
        fix: The way to start it, and the wave after which it can be.
        outcome: The outcome of its next pods, as of `assess`.
        claim_losses: The losses of its next pods by their claims, as those of a planned workload; left out without any.
    """

    object: str
    reason: str
    fix: str
    outcome: str
    claim_losses: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the reason and the fix in one line."""
        return f"{self.reason}: {self.fix}"
