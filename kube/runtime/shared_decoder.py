"""Decodes an object once for several projections.

An informer gives the text of an object to all of its projections, one after another.
"""

from typing import Generic, TypeVar

from kube.api.meta import decode

T = TypeVar("T")


class SharedDecoder(Generic[T]):
    """A decoder of one kind that keeps its last object."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._text = b""
        self._view: T | None = None

    def __call__(self, text: bytes) -> T:
        """Return the view of an object.

        Args:
            text: The object's JSON; the same text is recognized by identity, since comparing costs as much as decoding.

        Raises:
            msgspec.DecodeError: As `decode`.
            RecursionError: As `decode`.
        """
        if self._view is None or text is not self._text:
            self._view, self._text = decode(text, self._kind), text
        return self._view
