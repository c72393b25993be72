"""The decisions of a recording, made again."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from answers.recording.delta import ObjectKey
from answers.recording.lines import Change, Decisions, Entry, Moment
from answers.recording.views import Fields, read_change
from kube.api.meta import decode
from kube.errors import ObjectFileError
from sidecar.model.logged_decisions import DecisionsView, LoggedEntry
from sidecar.replay.decisions import DecidedAgain, DecisionReplay
from sidecar.replay.objects import RecordedObjects

LATE_S: Final = 2.0
"""Seconds that objects may come later to the recorder than to the sidecar."""


def decide_again(entries: Iterable[Entry], source: str) -> DecidedAgain:
    """Return the recorded decisions of the bridge beside those that the same inputs give.

    Args:
        entries: The entries of a recording, behind the header.
        source: The name of the file, for messages.

    Raises:
        ObjectFileError: A line is not what a recorder writes.
    """
    objects = RecordedObjects()
    replay = DecisionReplay(objects)
    state: dict[ObjectKey, Fields] = {}
    views: dict[ObjectKey, Any] = {}
    waiting: deque[tuple[float, LoggedEntry]] = deque()

    def take(until: float) -> None:
        while waiting and waiting[0][0] + LATE_S <= until:
            read_s, logged = waiting.popleft()
            replay.take(logged.entry, read_s - logged.age_s)

    is_begun = False
    for entry in entries:
        take(entry.at)
        if isinstance(entry, Decisions):
            view = _read_view(entry, source)
            waiting.extend((entry.at, logged) for logged in view.entries)
        elif isinstance(entry, Moment):
            is_begun = True
        elif isinstance(entry, Change):
            key = entry.delta.object
            before = views.pop(key, None)
            after = read_change(state, entry, source)
            if after is not None:
                views[key] = after
            # The first state is no change.
            second = entry.at if is_begun else -math.inf
            objects.put(second, (key.namespace, key.name), before, after)
    take(math.inf)
    return replay.result()


def _read_view(entry: Decisions, source: str) -> DecisionsView:
    try:
        return decode(msgspec.json.encode(entry.view), DecisionsView)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ObjectFileError(
            f"{source}:{entry.line}: not the decisions of a sidecar: {error}"
        ) from None
