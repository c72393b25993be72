"""The cached answers of the worker: the names that expressions read, and their verdicts.

Decisions read them on threads while the event loop adds to them.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final

from kube.cel.engine import Names
from kube.cel.library import Environment
from kube.collections.sized_cache import SizedCache
from kube.collections.tenant_cache import TenantCache
from kube.errors import SelectorTooCostly
from process.selectors.protocol import Fault

MAX_BYTES: Final = 48 * 2**20
"""Kept answers of all expressions."""
MAX_PINNED_BYTES: Final = 96 * 2**20
"""The same while questions are unfinished that need more."""
VERDICT_BYTES: Final = 120
"""A kept verdict, beside the projection that it is about."""
EXPRESSION_BYTES: Final = 1024
"""The names that an expression reads, roughly."""
BLAME_S: Final = 3600.0
"""Seconds after which an expression is tried again that was stopped."""
_DIGESTS: Final = 128
"""The number of cached digests of expressions that were asked about last, each of them once for
every pool."""
MAX_STOPPED: Final = 4096
MAX_STOPPED_BYTES: Final = 2**20

Key = bytes
"""Digest of an expression and its environment."""


@lru_cache(maxsize=_DIGESTS)
def digest(expression: str, environment: Environment) -> Key:
    """Return the key of an expression."""
    return sha256(f"{environment}:{expression}".encode(errors="surrogatepass")).digest()


class ExpressionAnswers:
    """The answers about one expression.

    Attributes:
        names: The names that it reads, or the reason why it does not compile.
        attributes: The attributes of `names`, in a fixed order.
        capacities: The capacities of `names`, in a fixed order.
        verdicts: Projection to verdict.
    """

    __slots__ = ("attributes", "capacities", "names", "verdicts")

    def __init__(self, names: Names | Fault) -> None:
        self.names = names
        self.attributes: tuple[tuple[str, str], ...] | None = None
        self.capacities: tuple[tuple[str, str], ...] | None = None
        if isinstance(names, Names):
            self.attributes = _in_order(names.attributes)
            self.capacities = _in_order(names.capacities)
        self.verdicts: dict[bytes, bool | Fault] = {}


class AnswerStore:
    """The answers that are kept, and the expressions that were stopped."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin empty.

        Args:
            clock: Monotonic seconds.
        """
        self._clock = clock
        self._answers = TenantCache[Key, ExpressionAnswers](
            max_bytes=MAX_BYTES, max_pinned_bytes=MAX_PINNED_BYTES
        )
        self._stopped: SizedCache[Key, tuple[str, float]] = SizedCache(
            max_entries=MAX_STOPPED, max_bytes=MAX_STOPPED_BYTES
        )
        self._forgiven_s: list[float] = []

    def find(self, key: Key, tenant: str, question: str | None) -> ExpressionAnswers | None:
        """Return the answers about an expression; None if there are none.

        Args:
            tenant: The tenant that asks.
            question: An unfinished question that needs it.
        """
        return self._answers.get(key, tenant=tenant, question=question)

    def stop_reason(self, key: Key) -> SelectorTooCostly | None:
        """Return the reason an expression is not evaluated; None if it is."""
        reason = self._stopped.get(key)
        if reason is None or self._clock() >= reason[1]:
            return None
        return SelectorTooCostly(reason[0])

    def add(
        self,
        key: Key,
        names: Names | Fault,
        verdicts: Sequence[tuple[bytes, bool | Fault]],
        *,
        tenant: str,
        question: str | None,
    ) -> None:
        """Keep answers."""
        entry = self._answers.find(key, tenant=tenant, question=question)
        if entry is None:
            size = EXPRESSION_BYTES + _size(names)
            answers = ExpressionAnswers(names)
            entry = self._answers.put(key, answers, tenant=tenant, size=size, question=question)
        entry.value.verdicts.update(verdicts)
        self._answers.grow(
            entry, sum(VERDICT_BYTES + len(projection) for projection, _ in verdicts)
        )

    def stop(self, key: Key, why: str) -> None:
        """Note that an expression takes more than it may."""
        message = f"its evaluation was stopped ({why}); it is tried again in an hour"
        until_s = self._clock() + BLAME_S
        self._stopped.put(key, (message, until_s), size=len(message))
        self._forgiven_s.append(until_s)

    def take_forgiven(self) -> bool:
        """Return True if an expression may be tried again since the last call."""
        now_s = self._clock()
        left_s = [until_s for until_s in self._forgiven_s if until_s > now_s][-MAX_STOPPED:]
        has_forgiven = len(left_s) < len(self._forgiven_s)
        self._forgiven_s = left_s
        return has_forgiven

    def release(self, question: str) -> None:
        """Keep the answers that a question needed no longer than the rest."""
        self._answers.unpin(question)


def _in_order(names: Iterable[tuple[str, str]] | None) -> tuple[tuple[str, str], ...] | None:
    return None if names is None else tuple(sorted(names))


def _size(names: Names | Fault) -> int:
    if isinstance(names, Fault):
        return len(names.message)
    pairs = (*(names.attributes or ()), *(names.capacities or ()))
    return sum(200 + len(domain) + len(identifier) for domain, identifier in pairs)
