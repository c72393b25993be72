"""Kinds that the audit cannot list, told in the log once until the answer changes."""

from kube.errors import KubeError
from kube.logs import get_logger

log = get_logger()


class UnsearchedKinds:
    """The kinds that the last audit could not list, with the reason."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def failed(self, kind: str, fault: KubeError) -> None:
        """Log that a kind is not searched, unless that is so since the last audit."""
        reason = fault.reason or str(fault.status)
        if self._reasons.get(kind) != reason:
            self._reasons[kind] = reason
            log.info("claims.not_searched", kind=kind, error=str(fault))

    def searched(self, kind: str) -> None:
        """Log that a kind is searched again, if it was not."""
        if self._reasons.pop(kind, None) is not None:
            log.info("claims.searched_again", kind=kind)
