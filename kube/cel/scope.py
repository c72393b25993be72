"""The circumstances of an evaluation: its tenant, its budget, its engine, and its need.

The author of a selector decides its cost. So every evaluation is charged to the meter of the answer
that needs it, and ends once no caller waits for the answer or its budget is spent. The outcome is then
unknown, not negative, and must not be cached.

A scope is in force for a thread or task, like a decimal context: the callers are pure functions of the
expression and the device, whoever computes them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from kube.cel.engine import SelectorEngine
from kube.errors import DrawbridgeError

STEPS_PER_LOOK: Final = 256
"""Steps between two looks at the clock, and at who waits: less than a millisecond."""
_UNLIMITED: Final = 1 << 62


class AnswerInterrupted(DrawbridgeError):
    """There is no answer: not now, or not for this question any more. It proves nothing."""


class EvaluationAbandoned(AnswerInterrupted):
    """Nobody waits for the answer any more."""


class BudgetSpent(AnswerInterrupted):
    """The answer takes more steps than it may, or more CPU time. The next attempt gets further."""


class AnswersPending(AnswerInterrupted):
    """Expressions have to be evaluated elsewhere first; the engine has noted them.

    Attributes:
        has_room: It is worth while to name further devices at once.
    """

    def __init__(self, *, has_room: bool) -> None:
        super().__init__("expressions have to be evaluated first")
        self.has_room = has_room


class Meter:
    """The steps of an answer, and their limit.

    A step is about 3 us of CPU time: a device that a search tries, or 150 units of CEL cost. What is
    begun is finished, so a budget is exceeded by one evaluation at most, and every attempt gets further.

    >>> meter = Meter(100)
    >>> meter.charge(99), meter.charge(50), meter.left
    (None, None, 0)
    >>> meter.charge(1)
    Traceback (most recent call last):
    kube.cel.scope.BudgetSpent: the budget of the answer is spent

    Attributes:
        steps: Taken so far.
    """

    def __init__(
        self,
        limit: int | None = None,
        *,
        is_over: Callable[[], bool] = lambda: False,
        parent: "Meter | None" = None,
    ) -> None:
        """Begin at 0.

        Args:
            limit: Steps; None for as many as it takes.
            is_over: Returns whether the answer took too much time, regardless of its steps. Without
                it, as in the command line, an answer is the same on every machine.
            parent: Counts the same steps, with a limit of its own.
        """
        self.steps = 0
        self._limit = _UNLIMITED if limit is None else limit
        self._is_over = is_over
        self._parent = parent
        self._next_look = STEPS_PER_LOOK

    @property
    def left(self) -> int:
        """The steps that are left; 0 if there are none."""
        own = max(0, self._limit - self.steps)
        return own if self._parent is None else min(own, self._parent.left)

    def charge(self, steps: int) -> None:
        """Count steps that are taken next.

        Raises:
            BudgetSpent: None is left.
            EvaluationAbandoned: Nobody waits for the answer any more.
        """
        if self.steps >= self._limit:
            raise BudgetSpent("the budget of the answer is spent")
        if self._parent is not None:
            self._parent.charge(steps)
        self._count(steps)

    def count(self, steps: int) -> None:
        """Count steps of something that has a limit of its own, and is not to be cut off half-way.

        Raises:
            BudgetSpent: The answer took too much time.
            EvaluationAbandoned: Nobody waits for the answer any more.
        """
        if self._parent is not None:
            self._parent.count(steps)
        self._count(steps)

    def _count(self, steps: int) -> None:
        self.steps += steps
        if self.steps >= self._next_look:
            self._next_look = self.steps + STEPS_PER_LOOK
            if self._is_over():
                raise BudgetSpent("the answer took too much CPU time")
            if self._parent is None:
                require_wanted()


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The circumstances of the evaluations of a thread or task.

    Attributes:
        engine: Evaluates what is not short and cheap; None evaluates everything in place.
        tenant: The namespace for which evaluations are made, and which is charged for what they make
            this process keep; empty for what administrators write.
        meter: Is charged for evaluations.
        is_wanted: Returns whether the answer is still needed.
        question: Identifies the unfinished question of which all verdicts are kept; None if there is none.
    """

    engine: SelectorEngine | None = None
    tenant: str = ""
    meter: Meter = msgspec.field(default_factory=Meter)
    is_wanted: Callable[[], bool] = lambda: True
    question: str | None = None


_scope: Final[ContextVar[Scope]] = ContextVar("scope", default=Scope())  # noqa: B039 - it is frozen


def current_scope() -> Scope:
    """Return the scope of this thread or task."""
    return _scope.get()


@contextmanager
def evaluating(**changes: Any) -> Iterator[None]:
    """Change fields of the scope for a block.

    Args:
        changes: Fields of `Scope`.
    """
    token = _scope.set(msgspec.structs.replace(_scope.get(), **changes))
    try:
        yield
    finally:
        _scope.reset(token)


@contextmanager
def metered(limit: int | None = None) -> Iterator[Meter]:
    """Count the steps of a block, also in the meter in force.

    Args:
        limit: Steps of the block; None for those that the meter in force has left.
    """
    meter = Meter(limit, parent=_scope.get().meter)
    with evaluating(meter=meter):
        yield meter


def require_wanted() -> None:
    """Raise EvaluationAbandoned if nobody waits for the answer; called between two devices."""
    if not _scope.get().is_wanted():
        raise EvaluationAbandoned("nobody waits for the answer")
