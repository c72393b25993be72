"""The pods of a plan and the moments of a migration, as values. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from kube.api.core import Pod
from migration.plan.model.plan import RESTARTED_KINDS


class PodKey(NamedTuple):
    """A pod of a workload, by its number."""

    workload: str
    number: int


class PlannedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is to be placed.

    Attributes:
        has_claims: It has claims once its namespace is opted in, or it is; else Kubernetes serves it wherever
            there are devices.
        is_pinned: A DaemonSet's, whose place is its node. Its namespace may be opted in while its node has a
            device plugin: it is not restarted there. It cannot stay with device keys on a switched node.
    """

    key: PodKey
    namespace: str
    pod: Pod
    has_claims: bool
    is_pinned: bool

    @property
    def outlives_opt_in(self) -> bool:
        """Return True if nothing creates it again with its namespace's label, as a Job's pod, until its node is drained."""
        return self.is_pinned or self.key.workload.partition("/")[0] not in RESTARTED_KINDS


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of a migration; other nodes with devices have a device plugin.

    Attributes:
        switched: Nodes with a DRA driver.
        draining: Nodes that take no pods.
        waits: The drains have waited for pods that run to their end; those of nodes that are lost move.
        closed: Nodes whose pods stay, and that take no others: nobody knows which of their devices are free,
            since pods that would be rejected use some.
        opted_in: Namespaces whose pods get claims.
        selected: Workloads, as `Kind/namespace/name`, of other namespaces whose pods get claims.
        labels: Node to the labels that a switch gives it.
    """

    switched: frozenset[str]
    draining: frozenset[str] = frozenset()
    waits: bool = False
    closed: frozenset[str] = frozenset()
    opted_in: frozenset[str]
    selected: frozenset[str] = frozenset()
    labels: Mapping[str, Mapping[str, str]]

    def moves(self, pod: PlannedPod) -> bool:
        """Return True if a pod has claims by now."""
        return pod.has_claims and (
            pod.namespace in self.opted_in or pod.key.workload in self.selected
        )
