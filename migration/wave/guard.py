"""The check that a person may go on with a recorded migration and their plan. Pure."""

from clusterstate.wave_record import WaveRecord, describe_progress, describe_state
from migration.wave.course import Refusal


def find_refusal(
    record: WaveRecord, *, digest: str, who: str, takes_over: bool, replaces: bool
) -> Refusal | None:
    """Return the refusal to go on as this person with this plan; None if they may.

    Args:
        record: The position of the cluster.
        digest: The digest of the person's plan.
        who: The person.
        takes_over: They go on in place of another one.
        replaces: They go on with a plan in place of another one.
    """
    if record.who != who and not takes_over:
        return Refusal(
            message=f"another operator has the migration: {describe_state(record)}; you are {who}. "
            "See that nothing of theirs runs any more, then add --take-over"
        )
    if record.digest == digest:
        return None
    if not replaces:
        return Refusal(
            message=f"the cluster is at {describe_progress(record)} of another plan, {record.digest}; the files of "
            f"this one have {digest}. Name the folder of that plan with --plan, or, between two waves, add --replace"
        )
    if not record.is_between_waves:
        return Refusal(
            message=f"wave {record.wave} of another plan is not finished ({describe_state(record)}), so --replace "
            f"is refused: finish it or take it back with the plan {record.digest}"
        )
    return None
