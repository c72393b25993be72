"""Limits on the objects that the keys of one pod may derive.

A record of 30 KB could otherwise derive tens of megabytes: every size of memory is an alternative,
and every alternative repeats the filters of the pod. The webhook refuses what is beyond, with the
field, and the controller writes nothing for it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from findings.finding import Code, Finding, error
from kube.api.resource import DeviceRequest
from translation.model.intents import Intent

MAX_CLAIMS: Final = 64
"""Claims of one pod, each from a template of its own: more than any node has devices for."""
MAX_SPEC_BYTES: Final = 256 * 1024
"""Specs of all templates of one pod, as JSON."""
MAX_ALTERNATIVES: Final = 256
"""Alternatives of all requests of one pod."""
MAX_SELECTORS: Final = 1024
"""Selectors of all requests and alternatives of one pod."""

_FEWER_CONTAINERS: Final = "use fewer containers with devices"
_FEWER_NAMES: Final = "name fewer devices and models, or use fewer containers with devices"


class DerivedSize:
    """The size of the objects derived from a pod so far, counted while it is compiled."""

    def __init__(self) -> None:
        self._claims = self._bytes = self._alternatives = self._selectors = self._spec_bytes = 0

    def check_claims(self, intents: Sequence[Intent], claims: int) -> Iterator[Finding]:
        """Count claims before any of them is compiled; yield an error if they are too many."""
        self._claims += claims
        if self._claims > MAX_CLAIMS:
            yield _excess(intents[-1], "claims", self._claims, MAX_CLAIMS, _FEWER_CONTAINERS)

    def check_request(self, intent: Intent, request: DeviceRequest) -> Iterator[Finding]:
        """Count a compiled request; yield an error for each limit that is exceeded."""
        alternatives = request.first_available or ()
        selectors = [
            selector
            for alternative in alternatives or (request.exactly,)
            if alternative is not None
            for selector in alternative.selectors or ()
            if selector.cel is not None
        ]
        self._alternatives += len(alternatives)
        self._selectors += len(selectors)
        self._bytes += sum(len(s.cel.expression) for s in selectors if s.cel is not None)
        if self._alternatives > MAX_ALTERNATIVES:
            yield _excess(
                intent, "alternatives", self._alternatives, MAX_ALTERNATIVES, _FEWER_CONTAINERS
            )
        if self._selectors > MAX_SELECTORS:
            yield _excess(intent, "selectors", self._selectors, MAX_SELECTORS, _FEWER_CONTAINERS)
        if self._bytes > MAX_SPEC_BYTES:
            yield _excess(intent, "bytes of selectors", self._bytes, MAX_SPEC_BYTES, _FEWER_NAMES)

    def check_spec(self, intent: Intent, size: int) -> Iterator[Finding]:
        """Count a spec of so many bytes; yield an error if they are too large together."""
        self._spec_bytes += size
        if self._spec_bytes > MAX_SPEC_BYTES:
            what = "bytes of claim specs"
            yield _excess(intent, what, self._spec_bytes, MAX_SPEC_BYTES, _FEWER_NAMES)


def _excess(intent: Intent, what: str, size: int, maximum: int, fix: str) -> Finding:
    return error(
        Code.TOO_LARGE,
        intent.path("count"),
        f"the devices of the pod would need {size} {what} or more, at most {maximum} are supported",
        fix,
    )
