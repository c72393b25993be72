"""The messages between a process and its worker: length, then MessagePack.

An expression and one device go in, a verdict comes out; never an inventory, a credential or a name of
anything else.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from kube.api.resource import Device
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
from kube.quantity import Quantity

HEADER_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 2**20
"""A device has 32 attributes, an expression 10 KiB."""


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A question.

    Attributes:
        device: None asks for the names that the expression reads.
    """

    expression: str
    environment: Environment
    driver: str = ""
    device: Device | None = None


class Fault(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A CelError, by the name of its class."""

    kind: str
    message: str

    def error(self) -> CelError:
        """Return the error."""
        return _ERRORS[self.kind](self.message)


class Verdict(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The result of an expression on a device."""

    matches: bool


class Compiled(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The expression compiles."""

    names: Names


Answer = Fault | Verdict | Compiled

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


def fault(error: CelError) -> Fault:
    """Return an error as an answer."""
    return Fault(type(error).__name__, str(error)[:1000])


def frame(message: Call | Answer) -> bytes:
    """Encode a message with its length."""
    body = msgspec.msgpack.encode(message, enc_hook=str)
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def decode_call(body: bytes) -> Call:
    """Decode a question."""
    return _CALLS.decode(body)


def decode_answer(body: bytes) -> Answer:
    """Decode an answer.

    Raises:
        msgspec.DecodeError: It is not one.
    """
    answer: Answer = _ANSWERS.decode(body)
    return answer


def _decode_quantity(kind: type, value: object) -> object:
    if kind is Quantity:
        return Quantity(str(value))
    raise NotImplementedError(kind)


_CALLS: Final = msgspec.msgpack.Decoder(Call, dec_hook=_decode_quantity)
