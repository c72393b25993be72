"""All attackers, and a flood: one of them on several connections, in a process of its own."""

import multiprocessing
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from typing import Final, NamedTuple, Self

from e2e.attackers import anonymous, compromised, editor, pods_only
from e2e.attackers.target import Target

FIRST_ANSWER_S: Final = 20.0
"""A flood is under way once somebody answers it, or so long after its start."""
LAST_ANSWER_S: Final = 20.0
"""The wait for calls under way at its end, so that they do not count as later ones."""
GRACE_S: Final = 10.0
"""The time for the process to start, and to report."""
_spawning: Final = multiprocessing.get_context("spawn")


class Attacker(NamedTuple):
    """One attack.

    Attributes:
        who: The attacker as in the threat model: anonymous, pods-only, editor, compromised.
        attack: Sends one request after the other on a connection of its own; yields statuses.
        connections: The number of connections at the same time.
    """

    who: str
    attack: Callable[[Target, random.Random], Iterator[int]]
    connections: int

    @property
    def name(self) -> str:
        """The attacker, and the attack."""
        return f"{self.who}: {self.attack.__name__.replace('_', ' ')}"


ATTACKERS: Final = (
    Attacker("pods-only", pods_only.pods_of_4_kb, 3),
    Attacker("pods-only", pods_only.pods_of_nothing, 8),
    Attacker("editor", editor.long_claims, 3),
    Attacker("editor", editor.routed_claims, 3),
    Attacker("editor", editor.long_lists, 3),
    Attacker("anonymous", anonymous.strangers, 6),
    Attacker("anonymous", anonymous.readers_of_the_path, 6),
    Attacker("compromised", compromised.observer, 2),
    Attacker("compromised", compromised.webhook, 2),
    Attacker("compromised", compromised.controllers, 2),
    Attacker("compromised", compromised.certificate_controller, 2),
    Attacker("compromised", compromised.bridge, 2),
    Attacker("compromised", compromised.node, 1),
)


class Flood:
    """`with Flood(attacker, target, per_second=20) as flood: ...`.

    Attributes:
        statuses: HTTP status to the number of answers, 0 for none; complete after the block.
    """

    def __init__(
        self, attacker: Attacker, target: Target, *, per_second: float, seed: int = 0
    ) -> None:
        """Send nothing yet.

        Args:
            per_second: Requests of all connections together, at most.
            seed: The seed of the random parts of requests.
        """
        self.statuses: Mapping[int, int] = {}
        self._signals = _Signals(_spawning.Event(), _spawning.Event(), _spawning.SimpleQueue())
        self._process = _spawning.Process(
            target=_attack, args=(attacker, target, per_second, seed, self._signals), daemon=True
        )

    def __enter__(self) -> Self:
        self._process.start()
        self._signals.answered.wait(GRACE_S + FIRST_ANSWER_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._signals.over.set()
        self._process.join(GRACE_S + LAST_ANSWER_S)
        if self._process.is_alive():
            self._process.kill()
        elif not self._signals.results.empty():
            self.statuses = self._signals.results.get()


class _Signals(NamedTuple):
    """Between a flood and its process.

    Attributes:
        answered: Somebody has answered.
        over: The flood is to end.
        results: Gets the number of answers by status.
    """

    answered: Event
    over: Event
    results: "SimpleQueue[Mapping[int, int]]"


def _attack(
    attacker: Attacker, target: Target, per_second: float, seed: int, signals: _Signals
) -> None:
    statuses: Counter[int] = Counter()
    counting = threading.Lock()
    pause_s = attacker.connections / per_second

    def attack(number: int) -> None:
        due_s = time.monotonic()
        chance = random.Random(f"{seed}/{attacker.name}/{number}")
        for status in attacker.attack(target, chance):
            with counting:
                statuses[status] += 1
            signals.answered.set()
            now_s = time.monotonic()
            due_s = max(due_s + pause_s, now_s - 1)
            if signals.over.wait(max(0.0, due_s - now_s)):
                return

    threads = [
        threading.Thread(target=attack, args=(number,), daemon=True)
        for number in range(attacker.connections)
    ]
    for thread in threads:
        thread.start()
    signals.over.wait()
    last_s = time.monotonic() + LAST_ANSWER_S
    for thread in threads:
        thread.join(max(0.0, last_s - time.monotonic()))
    with counting:
        signals.results.put(dict(statuses))
