"""The pods that the scheduler asked about, as it described them, and those that watches tell of."""

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

from kube.api.core import Pod
from sidecar.commit.steps import ConsumedClaim
from sidecar.commit.writes import consumers
from sidecar.plan.group_claims import entries_by_claim
from sidecar.plan.node_limits import limits_nodes
from sidecar.state.state import ClusterState

MAX_PODS: Final = 4096
"""Pods that PreFilter saw, remembered with all their fields."""

MAX_ENDED: Final = 16_384
"""Pods that were bound or deleted, remembered by UID: a question about them may still be on its way."""


class KnownPods:
    """Pods by UID, and their claims as stored."""

    def __init__(self, state: ClusterState) -> None:
        """Begin with those that watches tell of."""
        self._state = state
        self._asked_about: OrderedDict[str, Pod] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, uid: str) -> bool:
        """Return True if the scheduler asked about a pod that was not bound or deleted since."""
        return uid in self._asked_about

    def add(self, pod: Pod) -> None:
        """Remember a pod that the scheduler asks about, unless a watch has told of its end before."""
        if pod.metadata.uid in self._ended:
            return
        self._asked_about[pod.metadata.uid] = pod
        self._asked_about.move_to_end(pod.metadata.uid)
        if len(self._asked_about) > MAX_PODS:
            self._asked_about.popitem(last=False)

    def find(self, uid: str) -> Pod | None:
        """Return a pod; None if it is not known."""
        watched_pod = self._state.consumers.pods.get(uid) or self._state.groups.find(uid)
        return self._asked_about.get(uid) or watched_pod

    def forget(self, uid: str) -> None:
        """Forget a pod that was bound or deleted."""
        self._asked_about.pop(uid, None)
        self._ended[uid] = None
        self._ended.move_to_end(uid)
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def is_bound(self, uid: str) -> bool:
        """Return True if a watch tells that a pod is bound."""
        pod = self._state.consumers.pods.get(uid) or self._state.groups.find(uid)
        return pod is not None and bool(pod.spec.node_name)

    def claims_of(self, pod: Pod) -> list[ConsumedClaim]:
        """Return the claims of a pod that exist, with its entries in them."""
        entries = entries_by_claim(pod, self._state.groups.pod_group(pod))
        return [
            ConsumedClaim(name, claim.metadata.uid, entry)
            for name, entry in entries.items()
            if (claim := self._state.claims.store.get(name)) is not None
        ]

    def releasable_claims(
        self, pod: Pod, others: Collection[str] = frozenset()
    ) -> list[ConsumedClaim]:
        """Return the claims of a pod that keep it from some node, and that no other pod has.

        Args:
            others: UIDs of pods of its group without a node, which may have them.
        """
        uids = {pod.metadata.uid, *others}
        return [
            consumed
            for consumed in self.claims_of(pod)
            if (claim := self._state.claims.store.get(consumed.name)) is not None
            and all(
                consumer.uid in uids or consumer.uid == consumed.entry.uid
                for consumer in consumers(claim)
            )
            and limits_nodes(claim, self._state.nodes.values(), cutoff=self._state.binding_cutoff)
            and self._state.owns(claim)
        ]
