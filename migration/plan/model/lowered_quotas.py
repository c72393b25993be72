"""The quotas of a plan that a person lowers after a wave. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from migration.plan.model.plan import Plan, QuotaLines, Wave


class LoweredQuota(NamedTuple):
    """A quota that allows more with lines for claims, until its lines for keys are lowered.

    Attributes:
        file: The file below `quotas/`.
    """

    namespace: str
    file: str
    lines: QuotaLines

    @property
    def reference(self) -> str:
        """Return `ResourceQuota/namespace/name`."""
        return f"ResourceQuota/{self.namespace}/{self.lines.name}"


def lowered_quotas(plan: Plan, wave: Wave) -> Iterator[LoweredQuota]:
    """Yield the quotas to lower after a wave: those of its namespaces, but for the ones that later waves move more of.

    Part of such a namespace may stay as it is. One with pods of before the plan alone has its turn after the last wave.
    """
    later = {name for entry in plan.waves[wave.wave :] for name in entry.opted_in}
    namespaces = [name for name in wave.opted_in if name not in later]
    if wave.wave == plan.waves[-1].wave:
        labelled = {name for entry in plan.waves for name in entry.opted_in}
        namespaces += [name for name in plan.early_quotas if name not in labelled]
    for namespace in namespaces:
        for file in plan.quotas.get(namespace, ()):
            lines = plan.quota_lines.get(file)
            if lines is not None and lines.doubled:
                yield LoweredQuota(namespace, file, lines)
