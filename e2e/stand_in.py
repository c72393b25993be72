"""Processes of somebody else, played beside a cluster that does not run them."""

import http.client
import threading
from abc import ABC, abstractmethod
from typing import Final, Self

TRANSIENT: Final = (AssertionError, OSError, http.client.HTTPException)
"""Errors of a call, on a machine where programs are held still now and then."""
PERIOD_S: Final = 0.3


class StandIn(ABC):
    """A thread that takes a turn in every period while a block runs.

    A turn whose call fails is printed, which pytest shows where a story fails, and the next one tries again.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(PERIOD_S):
            try:
                self._turn()
            except TRANSIENT as error:
                print(f"{self._name}:", error, flush=True)

    @abstractmethod
    def _turn(self) -> None:
        """Act once on the present state of the cluster."""
