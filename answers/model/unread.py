"""The kinds of a cluster that the user or the snapshot's author may not list, and their note."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kube.api.foreign_quotas import FOREIGN_QUOTAS

_WARNED_OF: Final = frozenset(quota.plural for quota in FOREIGN_QUOTAS)
"""Resources without which only warnings are missing."""


class UnreadKind(NamedTuple):
    """A kind that the API server refused to list.

    Attributes:
        resource: Its plural, such as `pods`.
        refusal: The words of the API server, or what a snapshot says of it.
        namespace: The only one that it was refused in; empty for the whole cluster.
    """

    resource: str
    refusal: str
    namespace: str = ""

    @property
    def is_essential(self) -> bool:
        """Return True if a translation may be another one without the kind."""
        return self.resource not in _WARNED_OF

    @property
    def place(self) -> str:
        """The plural, with the namespace if there is one."""
        return f"{self.resource} of namespace {self.namespace}" if self.namespace else self.resource


def unread_notes(kinds: Sequence[UnreadKind]) -> list[str]:
    """Return one note about all kinds that were refused; no note without any.

    The refusals differ in the kind only, so the first one stands for all.
    """
    if not kinds:
        return []
    names = ", ".join(kind.place for kind in kinds)
    return [f"{names} cannot be read, so the answer is as if there were none: {kinds[0].refusal}"]
