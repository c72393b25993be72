"""The losses of pods by their claims. Pure."""

from collections.abc import Iterator

from findings.finding import Code
from migration.assessment.outcomes import AssessedWorkload, Outcome
from migration.cluster.device_pods import left_scheduler_loss


def claim_losses(workload: AssessedWorkload) -> Iterator[str]:
    """Yield the losses of a workload's pods by their claims, and by the scheduler that they leave for these."""
    yield from map(left_scheduler_loss, workload.left_schedulers)
    if workload.outcome is Outcome.LOSSY:
        yield from dict.fromkeys(
            f"{finding.message} [{finding.code}]"
            for finding in workload.findings
            # That they leave their scheduler is said of it already.
            if not (workload.left_schedulers and finding.code is Code.FOREIGN_SCHEDULER)
        )
