"""The port of an engine that evaluates expressions elsewhere.

Expressions come from strangers. A short and cheap one is compiled and evaluated in the process that asks.
A process that must answer others meanwhile has an engine for the rest (`kube.cel.scope`); without one,
as in the command line, everything is evaluated in place.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from kube.cel.device import NamedDevice
from kube.cel.library import Environment
from kube.errors import CelError

SIMPLE_LENGTH: Final = 256
"""Characters of an expression that is compiled in place, in milliseconds."""
SIMPLE_CHARGE: Final = 10_000
"""Units of CEL cost of an expression that is evaluated in place: 0.2 ms."""


class Names(msgspec.Struct, frozen=True):
    """The names that an expression reads, and its cost.

    Attributes:
        attributes: Pairs of domain and identifier; None if it may read any.
        capacities: Pairs of domain and identifier; None if it may read any.
        cost: An upper bound of the cost of one evaluation, as upstream counts it.
        charge: The work of one evaluation in this engine, in the same unit of 20 ns.
    """

    attributes: frozenset[tuple[str, str]] | None
    capacities: frozenset[tuple[str, str]] | None
    cost: int
    charge: int


class SelectorEngine(Protocol):
    """Compiles and evaluates expressions somewhere else."""

    def compile(self, expression: str, environment: Environment) -> Names:
        """Compile a selector.

        Raises:
            InvalidSelector: See `kube.cel.compile.compile_selector`.
            UnsupportedSelector: Likewise, or the engine gave up.
            AnswersPending: It is not known yet.
        """
        ...

    def verdicts(
        self, expression: str, environment: Environment, devices: Sequence[NamedDevice]
    ) -> list[bool | CelError]:
        """Evaluate a selector on each device: True if the device satisfies it, or an error.

        An error is SelectorFailed where the evaluation ended in one, UnsupportedSelector where the engine
        gave up.

        Raises:
            AnswersPending: Some verdicts are not known yet.
        """
        ...
