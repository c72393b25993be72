"""An index of pods and their claims, for candidates of preemption and claims being released."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from allocator.pods.claims import Name, allocation_of
from kube.api.core import Pod
from kube.api.resource import ResourceClaim, ResourceClaimConsumerReference
from sidecar.commit.writes import consumers
from sidecar.plan.group_claims import is_entry_of, is_group_entry, is_reserved_for_pod
from sidecar.plan.pod_claims import claim_names


class ConsumerIndex:
    """Claims by the pods that they are reserved for.

    Attributes:
        pods: The pods with claims, by UID.
        nominated: The pods with claims that wait for a node that was cleared for them, by UID.
        terminating: The pods with claims that are bound and being deleted, by UID.
        claims_of: UID of a pod to the names of the claims that its own entry is in.
        releasing: Claims that are allocated for pods that are all gone.
    """

    def __init__(self, claims: Mapping[Name, ResourceClaim]) -> None:
        """Begin without pods.

        Args:
            claims: A live view of all claims.
        """
        self.pods: Final[dict[str, Pod]] = {}
        self.nominated: Final[dict[str, Pod]] = {}
        self.terminating: Final[dict[str, Pod]] = {}
        self.claims_of: Final[dict[str, frozenset[Name]]] = {}
        self.releasing: Final[set[Name]] = set()
        self._claims = claims
        self._priorities: Counter[int] = Counter()

    @property
    def lowest_priority(self) -> int | None:
        """The lowest priority of a pod with claims that is bound; None if none is."""
        return min(self._priorities, default=None)

    def replace_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Take a pod as it was seen; None if it was or is not there."""
        if old is not None:
            uid = old.metadata.uid
            self._count(old, -1)
            self.nominated.pop(uid, None)
            self.terminating.pop(uid, None)
            if new is None or new.metadata.uid != uid:
                self.pods.pop(uid, None)
                self._note_claims_of(uid)
        if new is not None:
            uid = new.metadata.uid
            is_known = uid in self.pods
            self._count(new, 1)
            self.pods[uid] = new
            if _is_nominated(new):
                self.nominated[uid] = new
            if _is_terminating(new):
                self.terminating[uid] = new
            if not is_known:
                self._note_claims_of(uid)

    def replace_claim(
        self, name: Name, old: ResourceClaim | None, new: ResourceClaim | None
    ) -> None:
        """Take a claim as it was seen; None if it was or is not there."""
        before = _users(old)
        after = _users(new)
        for uid in before - after:
            remaining_names = self.claims_of[uid] - {name}
            if remaining_names:
                self.claims_of[uid] = remaining_names
            else:
                del self.claims_of[uid]
        for uid in after - before:
            self.claims_of[uid] = self.claims_of.get(uid, frozenset()) | {name}
        self._note_release(name, new)

    def used_claims(self, pod: Pod) -> list[ResourceClaim]:
        """Return the claims that a pod may use, by its own entry or that of its PodGroup."""
        names = self.claims_of.get(pod.metadata.uid, frozenset()).union(claim_names(pod))
        claims = (self._claims.get(name) for name in sorted(names))
        return [claim for claim in claims if claim is not None and is_reserved_for_pod(claim, pod)]

    def users(self, name: Name, entry: ResourceClaimConsumerReference) -> list[Pod]:
        """Return the pods that use a claim by an entry."""
        if not is_group_entry(entry):
            pod = self.pods.get(entry.uid)
            return [] if pod is None else [pod]
        return [
            pod
            for pod in self.pods.values()
            if name[0] == pod.metadata.namespace
            and is_entry_of(entry, pod)
            and name in claim_names(pod)
        ]

    def _note_claims_of(self, uid: str) -> None:
        """Update the set of claims being released for the claims of a pod."""
        for name in self.claims_of.get(uid, ()):
            self._note_release(name, self._claims.get(name))

    def _note_release(self, name: Name, claim: ResourceClaim | None) -> None:
        """Take note of the beginning or end of a claim's release."""
        users = _users(claim)
        if (
            claim is not None
            and users
            and self.pods.keys().isdisjoint(users)  # The other way round it reads all pods.
            and allocation_of(claim) is not None
            and _only_pods(claim)
        ):
            self.releasing.add(name)
        else:
            self.releasing.discard(name)

    def _count(self, pod: Pod, change: int) -> None:
        if pod.spec.node_name:
            priority = pod.spec.priority or 0
            self._priorities[priority] += change
            if not self._priorities[priority]:
                del self._priorities[priority]


def _is_nominated(pod: Pod) -> bool:
    """Return True if a pod waits for a node that was cleared for it.

    Whoever may write the status of pods may nominate one that the scheduler will never try: then nothing is kept.
    """
    return bool(
        pod.status
        and pod.status.nominated_node_name
        and not pod.spec.node_name
        and not pod.spec.scheduling_gates
        and pod.metadata.deletion_timestamp is None
    )


def _is_terminating(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None and bool(pod.spec.node_name)


def _users(claim: ResourceClaim | None) -> frozenset[str]:
    if claim is None:
        return frozenset()
    return frozenset(consumer.uid for consumer in consumers(claim))


def _only_pods(claim: ResourceClaim) -> bool:
    return all(consumer.resource == "pods" for consumer in consumers(claim))
