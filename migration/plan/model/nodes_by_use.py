"""The nodes of a cluster by the use of their devices, as facts of a plan read them."""

from collections.abc import Collection, Mapping
from typing import NamedTuple


class NodesByUse(NamedTuple):
    """The nodes with pods that have devices, and the workloads of these by their scheduler.

    Attributes:
        native: The nodes of pods that keep their resource names.
        claims: The nodes of pods that have claims, or get them by a translation.
        native_workloads: The workloads of native pods, as `Kind/namespace/name`, with their device keys.
        hami: The nodes of HAMi.
        kept_schedulers: The workloads that get claims and stay with a scheduler of others, as
            `Kind/namespace/name`, to this.
        changed_by_kai: The workloads, as `Kind/namespace/name`, that get claims, and with pods that KAI's webhook has changed.
    """

    native: frozenset[str] = frozenset()
    claims: frozenset[str] = frozenset()
    native_workloads: Mapping[str, Collection[str]] = {}
    hami: frozenset[str] = frozenset()
    kept_schedulers: Mapping[str, str] = {}
    changed_by_kai: frozenset[str] = frozenset()

    def has_native_only(self, names: Collection[str]) -> bool:
        """Return True if some of these nodes have native pods, and none has others."""
        return not self.native.isdisjoint(names) and self.claims.isdisjoint(names)
