"""The engine that evaluates expressions: this one, or one that the process provides.

Expressions come from strangers. A short and cheap one is compiled and evaluated in the process that asks.
A process that must answer others meanwhile provides an engine for the rest; without one, as in the
command line, everything is evaluated in place.

The engine is in force for a thread or task, like a decimal context: the callers are pure functions of
the expression and the device, whoever computes them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

import msgspec

from kube.api.resource import Device
from kube.cel.library import Environment
from kube.errors import DrawbridgeError

SIMPLE_LENGTH: Final = 256
"""Characters of an expression that is compiled in place, in milliseconds."""
SIMPLE_COST: Final = 10_000
"""Units of CEL cost of an expression that is evaluated in place: 0.2 ms."""


class Names(msgspec.Struct, frozen=True):
    """The names that an expression reads, and its estimated cost.

    Attributes:
        attributes: As (domain, identifier); None if it may read any.
        capacities: Likewise.
        cost: An upper bound of the cost of one evaluation.
    """

    attributes: frozenset[tuple[str, str]] | None
    capacities: frozenset[tuple[str, str]] | None
    cost: int


class SelectorEngine(Protocol):
    """Compiles and evaluates expressions somewhere else."""

    def compile(self, expression: str, environment: Environment) -> Names:
        """Compile a selector.

        Raises:
            InvalidSelector: See `kube.cel.compile.compile_selector`.
            UnsupportedSelector: Likewise, or the engine gave up.
        """
        ...

    def matches(
        self, expression: str, environment: Environment, driver: str, device: Device
    ) -> bool:
        """Return whether a device satisfies a selector.

        Raises:
            SelectorFailed: The evaluation ended in an error.
            UnsupportedSelector: See `kube.cel.compile.compile_selector`, or the engine gave up.
        """
        ...


class EvaluationAbandoned(DrawbridgeError):
    """Nobody waits for the result any more."""


_engine: ContextVar[SelectorEngine | None] = ContextVar("engine", default=None)
_is_wanted: ContextVar[Callable[[], bool]] = ContextVar("is_wanted", default=lambda: True)


def engine_in_force() -> SelectorEngine | None:
    """Return the engine of this thread or task; None to evaluate in place."""
    return _engine.get()


def use_engine(engine: SelectorEngine | None) -> None:
    """Put an engine in force for the rest of this thread or task."""
    _engine.set(engine)


@contextmanager
def evaluating_with(engine: SelectorEngine | None) -> Iterator[None]:
    """Put an engine in force for a block."""
    token = _engine.set(engine)
    try:
        yield
    finally:
        _engine.reset(token)


@contextmanager
def while_wanted(is_wanted: Callable[[], bool]) -> Iterator[None]:
    """Abandon the evaluations of a block once their result is not wanted any more."""
    token = _is_wanted.set(is_wanted)
    try:
        yield
    finally:
        _is_wanted.reset(token)


def require_wanted() -> None:
    """Raise EvaluationAbandoned if nobody waits for the result; called between two devices."""
    if not _is_wanted.get()():
        raise EvaluationAbandoned
