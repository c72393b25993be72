"""The messages between a process and its worker: length, then MessagePack.

An expression and projections of devices go in, verdicts come out; never an inventory, a credential or a
name of anything else.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kube.cel.engine import Names
from kube.cel.library import Environment
from kube.errors import (
    CelError,
    InvalidSelector,
    NotBoolean,
    SelectorFailed,
    SelectorTooCostly,
    UnsupportedSelector,
)

HEADER_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 2**20
MAX_PROJECTION_BYTES: Final = 256 * 1024
"""Projections of one question; an expression has 10 KiB."""


class Question(msgspec.Struct, frozen=True, array_like=True):
    """An expression, and the devices to evaluate it on.

    Attributes:
        projections: The devices as `kube.cel.projection` encodes them; none to compile the
            expression only.
        share_s: CPU seconds after which the answer ends with the evaluation that is under way.
    """

    expression: str
    environment: Environment
    projections: Sequence[bytes] = ()
    share_s: float = 0.0


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """A CelError, by the name of its class."""

    kind: str
    message: str

    def error(self) -> CelError:
        """Return the error."""
        return _ERRORS[self.kind](self.message)


class Compiled(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The expression compiles: the first answer to every question, if it does."""

    names: Names


class Rejected(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The expression does not compile: the only answer then."""

    fault: Fault


class Verdicts(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The next verdicts, in the order of the projections.

    Attributes:
        is_last: No further answer comes. The question may have more projections, which have to be asked
            about again.
        is_worn: The worker has ended with this answer, since it holds much memory that it cannot free.
    """

    verdicts: Sequence[bool | Fault]
    is_last: bool
    is_worn: bool = False


Answer = Compiled | Rejected | Verdicts

_ERRORS: Final[Mapping[str, type[CelError]]] = {
    error.__name__: error
    for error in (
        InvalidSelector,
        NotBoolean,
        SelectorFailed,
        SelectorTooCostly,
        UnsupportedSelector,
    )
}
_ANSWERS: Final = msgspec.msgpack.Decoder(Answer)
_QUESTIONS: Final = msgspec.msgpack.Decoder(Question)
_encode: Final = msgspec.msgpack.Encoder().encode


def describe_fault(error: CelError) -> Fault:
    """Return an error as a part of an answer."""
    return Fault(type(error).__name__, str(error)[:1000])


def frame(message: Question | Answer) -> bytes:
    """Encode a message with its length."""
    body = _encode(message)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def decode_question(body: bytes) -> Question:
    """Decode a question."""
    return _QUESTIONS.decode(body)


def decode_answer(body: bytes) -> Answer:
    """Decode an answer.

    Raises:
        msgspec.DecodeError: It is not one.
    """
    answer: Answer = _ANSWERS.decode(body)
    return answer
