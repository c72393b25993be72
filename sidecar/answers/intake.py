"""The parts of every request beside its question: reservations, and the headroom of nodes.

A request is taken in its turn, so that whatever changes the devices in use waits for the decision under way.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sidecar.answers.decision_maker import DecisionMaker
from sidecar.answers.promises import Promises, ReservedPod
from sidecar.model.protocol import GroupRequest, PreFilterRequest, Request, Reservation
from sidecar.model.reservations import Difference
from sidecar.state.pod_room import PodRoom


class UnknownScheduler(Exception):
    """The request is of a scheduler, or to an instance, that must say hello first."""


class Intake:
    """Takes requests of the scheduler that is known, in turn.

    Attributes:
        turn: Held by whoever changes the devices in use, or decides on them.
    """

    def __init__(
        self,
        promises: Promises,
        room: PodRoom,
        decisions: DecisionMaker,
        *,
        instance: str,
        on_reservation: Callable[[Reservation], None],
    ) -> None:
        """Begin without a request.

        Args:
            decisions: Choose the devices of reserved pods.
            instance: Random text of the service.
            on_reservation: Called with each reservation that begins.
        """
        self.turn: Final = asyncio.Lock()
        self._promises = promises
        self._room = room
        self._decisions = decisions
        self._instance = instance
        self._on_reservation = on_reservation

    async def accept_in_turn(self, request: Request) -> None:
        """Take the reservations of a request, and choose their devices.

        Raises:
            UnknownScheduler: The scheduler has to say hello first.
        """
        self._check(request)
        if not self._promises.has_news(request) and not self._promises.is_promising:
            return
        deadline_s = self._decisions.deadline_s(request)
        async with self.turn:
            await self.accept_and_place(request, deadline_s)

    async def accept_and_place(self, request: Request, deadline_s: float) -> None:
        """Take the reservations of a request, and choose their devices; called in turn."""
        with self.accept(request) as reserved_pods:
            await self._decisions.place(reserved_pods, deadline_s)

    @contextmanager
    def accept(self, request: Request) -> Iterator[Sequence[ReservedPod]]:
        """Take the parts of a request; yield the pods that devices have to be chosen for in the block.

        Raises:
            UnknownScheduler: The scheduler has to say hello first.
        """
        self._check(request)
        if isinstance(request, PreFilterRequest | GroupRequest):
            self._room.take(request.headroom)
        with self.begin(self._promises.accept(request)) as reserved_pods:
            yield reserved_pods

    @contextmanager
    def begin(self, difference: Difference) -> Iterator[Sequence[ReservedPod]]:
        """Begin and end reservations; yield the pods that devices have to be chosen for in the block."""
        for reservation in difference.begun:
            self._on_reservation(reservation)
        with self._promises.begin(difference) as reserved_pods:
            yield reserved_pods

    def _check(self, request: Request) -> None:
        scheduler = self._promises.reservations.scheduler
        if (request.instance, request.scheduler) != (self._instance, scheduler):
            raise UnknownScheduler
