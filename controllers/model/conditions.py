"""Conditions in the status of our kinds: dated by when their status began."""

from collections.abc import Iterable

import msgspec

from kube.api.policy import Condition


def dated_condition(
    condition: Condition, before: Iterable[Condition] | None, now: str
) -> Condition:
    """Return a condition with the time since when its status has been the same.

    Args:
        before: The stored conditions.
        now: RFC 3339, in whole seconds.
    """
    since = next(
        (
            stored_condition.last_transition_time
            for stored_condition in before or ()
            if stored_condition.type == condition.type
            and stored_condition.status == condition.status
        ),
        None,
    )
    return msgspec.structs.replace(condition, last_transition_time=since or now)
