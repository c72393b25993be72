"""Refuse pods with keys that the API server would reject, or that no vocabulary can own."""

from findings.finding import Code
from translation.preflight.model.inputs import PodInput, Stop
from translation.reading.arbiter import check_conflicts
from translation.reading.legacy_pod import check_requests
from translation.reading.renamed_keys import check_renamed_keys, with_vocabulary_names


def stop_at_faulty_keys(inputs: PodInput) -> Stop | None:
    """Stop at a pod with errors in its keys: requests beside limits, renamed keys, several owners."""
    legacy, renamed_keys = inputs.legacy, inputs.options.renamed_keys
    requests = tuple(check_requests(legacy))
    faults = (
        *check_renamed_keys(legacy, renamed_keys),
        *check_conflicts(with_vocabulary_names(legacy, renamed_keys)),
    )
    if not requests and not faults:
        return None
    # A limit that is missing would lead to errors of its own.
    have_limits = all(fault.code is Code.LIMIT_DIFFERS for fault in requests)
    return Stop((*requests, *faults), is_readable=have_limits and not faults)
