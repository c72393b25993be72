"""Compares the feature gates with the API server's, now and then: a cluster is upgraded while we run."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from allocator.model.feature_gates import Features
from allocator.model.gate_metrics import parse_gates
from kube.errors import KubeError
from kube.logs import get_logger
from kube.runtime.availability import REFUSALS
from sidecar.ownership.gates import compare_gates

PERIOD_S: Final = 600.0
DIFFERING_S: Final = 30.0
"""The pause while gates differ: those who change them wait, and an upgrade may go on beside one old
API server."""
RETRY_S: Final = 2.0
REFUSED_S: Final = 1.0
_REFUSED: Final = frozenset({401, 403})

log = get_logger()


class GateCheck:
    """The comparison of the gates that we allocate by with those of the cluster."""

    def __init__(self, features: Features, read_metrics: Callable[[], Awaitable[str]]) -> None:
        """Begin without an answer.

        Args:
            features: The features that we allocate by.
            read_metrics: Returns the metrics of the API server.
        """
        self._features = features
        self._read_metrics = read_metrics
        self._refusals = 0
        self._problem = "waiting for the feature gates of the API server"

    def problem(self) -> str:
        """Return the gates that differ, in words; empty if none does or nobody may know."""
        return self._problem

    async def run(self) -> None:
        """Compare until cancelled."""
        while True:
            look_again_s = await self.compare()
            await asyncio.sleep(look_again_s)

    async def compare(self) -> float:
        """Compare once, if there is an answer; return the seconds until the next look."""
        try:
            metrics = await self._read_metrics()
        except KubeError as error:
            self._refusals = self._refusals + 1 if error.status in _REFUSED else 0
            if self._refusals < REFUSALS and error.status != 404:
                return REFUSED_S if self._refusals else RETRY_S
            # Older installations have no right to read them; what we are told then counts.
            log.info("gates.not_readable", error=str(error))
            problem = ""
        else:
            self._refusals = 0
            problem = compare_gates(self._features, parse_gates(metrics))
        if problem and problem != self._problem:
            log.error("gates.differ", problem=problem)
        self._problem = problem
        return DIFFERING_S if problem else PERIOD_S
