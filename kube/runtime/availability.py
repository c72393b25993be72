"""The availability of a resource: the API server has it, and shows it to us, as far as its answers tell."""

from typing import Final

from kube.errors import Forbidden, KubeError, NotFound

REFUSALS: Final = 3
"""Answers 403 in a row that are believed; an API server that starts gives some until it knows the roles."""


class Availability:
    """The availability of one resource, by the answers to its calls.

    Attributes:
        is_available: False where the API server said last that there is no such resource, as without
            its definition, or that it is not ours to read. While it gives no answer that still counts.
        is_served: False where it said last that there is no such resource.
    """

    def __init__(self) -> None:
        self.is_available = True
        self.is_served = True
        self._refusals = 0

    def answered(self) -> None:
        """Note that a list was answered."""
        self.is_available = True
        self.is_served = True
        self._refusals = 0

    def failed(self, status: int) -> None:
        """Note a failure by its HTTP status, 0 without an answer."""
        self._refusals = self._refusals + 1 if status == 403 else 0
        if status in {403, 404}:
            self.is_served = status == 403
        if status == 404 or self._refusals == REFUSALS:
            self.is_available = False


def refusal(error: KubeError) -> int:
    """Return the status of a failure that repeats until somebody changes the cluster; 0 for others."""
    return error.status if isinstance(error, NotFound | Forbidden) else 0
