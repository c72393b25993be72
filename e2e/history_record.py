"""Records the history of the kinds that `e2e.checker` reads, while a block runs."""

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from e2e.access import Access, Object
from e2e.checker.history import KINDS, LISTED, Event


class HistoryRecord:
    """Watches every kind of the checker from the start of a block; nothing is missing in between.

    Attributes:
        began_at: The clock at the start of the block, from which the events count.
    """

    def __init__(self, cluster: Access) -> None:
        self.began_at = 0.0
        self._cluster = cluster
        self._watches = ExitStack()
        self._listed: list[Event] = []
        self._watched: list[tuple[str, list[Object]]] = []

    def __enter__(self) -> Self:
        self.began_at = time.monotonic()
        with ExitStack() as undo:
            for kind in KINDS:
                objects, events = undo.enter_context(self._cluster.watching(kind))
                self._listed += [Event(0.0, kind, LISTED, entry) for entry in objects]
                self._watched.append((kind, events))
            self._watches = undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._watches.__exit__(kind, None, None)

    def events(self) -> list[Event]:
        """Return the events seen so far."""
        return [
            *self._listed,
            *(
                Event(event["at"] - self.began_at, kind, event["type"], event["object"])
                for kind, events in self._watched
                for event in list(events)
            ),
        ]

    def write(self, path: Path) -> None:
        """Write the events seen so far as JSON lines for `python -m e2e.checker`."""
        with path.open("w", encoding="utf-8") as lines:
            for event in self.events():
                lines.write(json.dumps(event._asdict()) + "\n")
