"""The waiting pods that could be placed now, each on the devices left by those before it.

A release that woke all of them would cost a call for each, and all but a few would be turned away
again. So those are tried again that could be placed: the most important first, each on what those
before it leave. Nothing is promised to them. Who is woken is answered as any other pod is.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from allocator.cluster.canonical_requests import encode_requests
from allocator.pods.claims import Name, claim_name
from allocator.strategies.strategy import Strategy
from kube.api.core import Pod
from kube.api.resource import ResourceClaim
from kube.cel.scope import Meter, current_scope
from sidecar.model.protocol import GroupRequest, Verdict
from sidecar.model.rejections import Code, Rejection
from sidecar.plan.decisions import Fits, NoDevicesNeeded, find_nodes
from sidecar.plan.group_claims import ClaimPlaces
from sidecar.plan.occupancy import with_allocated
from sidecar.plan.placement import Placement, choose_strategy, place, with_allocation
from sidecar.plan.pod_claims import find_placeable_claims
from sidecar.plan.snapshot import Snapshot

MAX_WOKEN: Final = 64
"""Pods in one answer; each costs a search on one node."""
MAX_QUESTIONS: Final = 64
MAX_STEPS: Final = 20_000
MAX_SEARCHES: Final = 512
"""The cost of one plan, about half a second. Pods that are not reached are tried again: then each is
answered by itself, and what was searched is known to the next plan."""

Question = tuple[bytes, Strategy]


class WaitingPod(NamedTuple):
    """A pod that was turned away, or a group of pods.

    Attributes:
        pod: The pod; one of the group's.
        number: Grows with each pod that is turned away.
        tried: Nodes that have devices for it, and that it cannot use for another reason.
        woken_s: The time at which the pod was woken, in seconds; None if it was tried since.
        awaited: Claims whose release it waits for instead of evicting a pod.
        is_unfinished: There was no answer about it yet.
        code: The reason for which it was turned away; None if a node has devices for it.
        group: The group with all pods that wait; None for a pod by itself.
    """

    pod: Pod
    number: int
    tried: frozenset[str] = frozenset()
    woken_s: float | None = None
    awaited: frozenset[Name] = frozenset()
    is_unfinished: bool = False
    code: Code | None = None
    group: GroupRequest | None = None

    @property
    def uid(self) -> str:
        """The UID of the pod, or of the group."""
        return self.pod.metadata.uid if self.group is None else self.group.group.uid

    @property
    def names(self) -> tuple[str, ...]:
        """`namespace/name` of each pod that is tried with it."""
        pods = (self.pod,) if self.group is None else self.group.pods
        return tuple(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods)

    @property
    def importance(self) -> tuple[int, int]:
        """The order of waiting: by priority, then by the time of waiting; smaller is more important."""
        return (-(self.pod.spec.priority or 0), self.number)

    def has_waited(self, ending_claims: frozenset[Name]) -> bool:
        """Return True if the releases that it waits for are over, whomever they helped."""
        return bool(self.awaited) and self.awaited.isdisjoint(ending_claims)


class Woken(NamedTuple):
    """The pods and groups to try again, the most important first.

    Attributes:
        more: There are more.
        is_partial: There may be more, which the next plan finds out.
    """

    entries: tuple[WaitingPod, ...]
    more: bool
    is_partial: bool = False

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods; of a group one."""
        return tuple(entry.pod for entry in self.entries)


class PlacedPods:
    """Pods that are taken to be placed, one after the other.

    Attributes:
        allocated: The claims with the devices that they are taken to get.
        places: The places of claims for the entries of pods.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Begin without a placed pod."""
        self.allocated: list[ResourceClaim] = []
        self.places: Final = ClaimPlaces(
            snapshot.claims, snapshot.promised_entries, snapshot.pod_groups
        )
        self._snapshot = snapshot
        self._occupancy = snapshot.occupancy
        costs = snapshot.cluster.costs
        self._limits = (costs.searched + MAX_SEARCHES, costs.steps + MAX_STEPS)
        self._answers: dict[Question, Fits | NoDevicesNeeded | Rejection] = {}
        # Questions, and nodes where they have no answer any more.
        self._exhausted: set[tuple[Question, str]] = set()

    def takes(self, entry: WaitingPod) -> bool:
        """Take a pod to be placed, if it can be; return True if it can.

        Raises:
            AnswerInterrupted: The pod costs too much.
        """
        # Hundreds may wait for a place of one claim; that none is left is known without a question about each.
        return self.places.has(entry.pod) and self._takes(entry) and self.places.take(entry.pod)

    def _takes(self, entry: WaitingPod) -> bool:
        pod = entry.pod
        question = question_of(pod, self._snapshot)
        if question is None:
            return (
                False  # An event of its own claims wakes it, or fewer devices that are held back.
            )
        answer = self._answers.get(question)
        if answer is None:
            if self._is_over or len(self._answers) >= MAX_QUESTIONS:
                return True
            answer = self._answers[question] = self._ask(pod)
        if isinstance(answer, Rejection):
            return answer.verdict is Verdict.ERROR or answer.is_unfinished
        if isinstance(answer, NoDevicesNeeded):
            return True
        return self._takes_node(entry, question, answer) or not answer.complete

    def add(self, claims: Iterable[ResourceClaim]) -> None:
        """Count claims as allocated."""
        features, quotas = self._snapshot.cluster.options.features, self._snapshot.quotas
        for claim in claims:
            self.allocated.append(claim)
            self._occupancy = with_allocated(self._occupancy, claim, features, quotas)

    def _ask(self, pod: Pod) -> Fits | NoDevicesNeeded | Rejection:
        """Return the nodes for a pod, with the budget that those before it leave to its tenant.

        Raises:
            AnswerInterrupted: The pod costs too much.
        """
        return find_nodes(
            pod,
            self._snapshot,
            # Who is nominated has had its turn before those of its priority.
            keeps_nominations=False,
            occupancy=self._occupancy,
            max_parts=1,
        )

    @property
    def is_spent(self) -> bool:
        """Return True if the plan has cost enough."""
        costs = self._snapshot.cluster.costs
        searches, steps = self._limits
        return costs.searched > searches or costs.steps > steps

    @property
    def _is_over(self) -> bool:
        """Return True if the plan has cost enough, or the pods of this namespace, with their lists."""
        return self.is_spent or current_scope().meter.left == 0

    def _takes_node(self, entry: WaitingPod, question: Question, answer: Fits) -> bool:
        """Place a pod on the best node that those before it left free."""
        for node in answer.nodes:
            if node.name in entry.tried or (question, node.name) in self._exhausted:
                continue
            if self._is_over:
                return True
            placement = place(entry.pod, node.name, self._snapshot, occupancy=self._occupancy)
            if isinstance(placement, Placement):
                self.add(itertools.starmap(with_allocation, placement.allocations))
                return True
            if self._is_over:
                return True  # It may have been cut off.
            self._exhausted.add((question, node.name))
            if placement.code is Code.EXCEEDS_DEVICE_QUOTA:
                # Most nodes have the same charge: those that are still affordable are asked for at once.
                fewer = self._answers[question] = self._ask(entry.pod)
                return isinstance(fewer, Fits) and self._takes_node(entry, question, fewer)
        return False


def bounded(steps: int, parent: Meter) -> Meter:
    """Return a meter of so many steps, also for searches with a limit of their own."""
    meter = Meter(steps, is_over=lambda: meter.left == 0, parent=parent)
    return meter


def question_of(pod: Pod, snapshot: Snapshot) -> Question | None:
    """Return a key that pods share if the same nodes have devices for them; None if none can have."""
    claims = find_placeable_claims(pod, snapshot)
    if isinstance(claims, Rejection):
        return None
    strategy = choose_strategy(pod, claims.open, snapshot)
    parts = msgspec.json.encode(
        (
            encode_requests(claims.open, snapshot.cluster.options),
            [claim_name(claim) for claim in claims.held],
            pod.spec.node_selector,
            pod.spec.affinity,
            pod.spec.tolerations,
            _account_names(pod.metadata.namespace, snapshot),
        ),
        enc_hook=str,
    )
    return parts, strategy


def _account_names(namespace: str, snapshot: Snapshot) -> Sequence[tuple[str, str, str]]:
    """Return the names of the limits of a namespace; its tenant shares them."""
    if snapshot.quotas is None:
        return ()
    return [
        (account.limit.quota, account.limit.name, account.namespace)
        for account in snapshot.quotas.accounts(namespace, snapshot.drivers)
    ]


def ending_claims(snapshot: Snapshot) -> frozenset[Name]:
    """Return the claims of pods that are gone, or terminate."""
    claims_of_terminating = (snapshot.claims_of.get(uid, ()) for uid in snapshot.terminating)
    return snapshot.releasing.union(*claims_of_terminating)
