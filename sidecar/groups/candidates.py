"""The pods of a group as members of the joint search: their claims, their nodes, and those without a chance.

Source: k8s.io/kubernetes v1.37.1, pkg/scheduler/schedule_one_podgroup.go: every pod of a group is filtered by its
own node selector, affinity and tolerations.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from allocator.cluster.canonical_requests import encode_requests
from allocator.groups.model import MAX_MEMBERS
from allocator.pods.claims import PodClaims, claim_name
from findings.text import count_text
from kube.api.core import Pod
from kube.api.meta import encode
from kube.cel.scope import current_scope
from sidecar.commit.binding import binding_rejection, binding_state
from sidecar.commit.writes import MAX_CONSUMERS
from sidecar.model.protocol import GroupRequest
from sidecar.model.rejections import Code, Rejection, unresolvable
from sidecar.plan.group_claims import ClaimPlaces, group_of
from sidecar.plan.placement import are_available, resolve
from sidecar.plan.pod_claims import find_placeable_claims
from sidecar.plan.snapshot import Snapshot

MAX_KIND_NODES: Final = 200_000
"""Different pods of a group times nodes: half a second, and some 20 MB. Pods that differ in names alone are one kind."""

FREE_CLAIMS: Final = 16
"""Claims of a pod that are read at no charge."""
STEPS_PER_CLAIM: Final = 4
"""Steps for each further one, some 13 us from the pod to the search."""

_TOO_DIFFERENT: Final = unresolvable(
    Code.GROUP_TOO_LARGE,
    "the group has too many different pods to decide about together in a cluster of this size; give pods equal "
    "requests and equal rules for nodes, or divide the group",
)


class Candidate(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A pod that may get a place.

    Attributes:
        nodes: The nodes that it may use, without regard to what is free there; not empty.
    """

    pod: Pod
    claims: PodClaims
    nodes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name among the members."""
        return member_name(self.pod)


class Candidates(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The pods of a group.

    Attributes:
        members: Those that may get a place, in order.
        rejections: UID of each other pod to the reason why it gets none, whatever is free.
        needs_devices: Some of them has claims.
    """

    members: tuple[Candidate, ...]
    rejections: Mapping[str, Rejection]
    needs_devices: bool


def member_name(pod: Pod) -> str:
    """Return the name of a pod in sentences and among the members."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def find_fault(request: GroupRequest) -> Rejection | None:
    """Return the reason not to decide about a group at all; None without one."""
    group, pods = request.group, request.pods
    names = {group_of(pod) for pod in pods}
    if names - {(group.namespace, group.name)}:
        return unresolvable(
            Code.GROUP_UNSUPPORTED,
            "pods of several PodGroups are scheduled together, which this scheduler does not support; use "
            "one PodGroup for them",
        )
    if len(pods) > MAX_MEMBERS:
        return unresolvable(
            Code.GROUP_TOO_LARGE,
            f"the group has more than {MAX_MEMBERS} pods without a node; divide it into several groups",
        )
    total = len(pods) + len(request.placed)
    if total < group.min_count:
        verb = "exists" if total == 1 else "exist"
        return unresolvable(
            Code.GROUP_INCOMPLETE,
            f"the group needs {count_text(group.min_count, 'pod')}, and {total} {verb}",
        )
    return None


def find_candidates(
    request: GroupRequest, snapshot: Snapshot, *, closed_nodes: Collection[str] = ()
) -> Candidates | Rejection:
    """Return the pods of a group with their claims and nodes; or that they are too different.

    Args:
        closed_nodes: Nodes that none of them gets.

    Raises:
        AnswerInterrupted: Reading the pods takes too long.
    """
    reader = _NodeReader(request, snapshot, frozenset(closed_nodes))
    members: list[Candidate] = []
    rejections: dict[str, Rejection] = {}
    needs_devices = False
    places = ClaimPlaces(snapshot.claims, snapshot.promised_entries, snapshot.pod_groups)
    for pod in request.pods:
        charge_claims(pod)
        claims = find_placeable_claims(pod, snapshot)
        if isinstance(claims, PodClaims):
            needs_devices |= bool(claims.open or claims.held)
            claims = _usable(pod, claims, snapshot, places)
        else:
            needs_devices = True
        if isinstance(claims, Rejection):
            rejections[pod.metadata.uid] = claims
            continue
        nodes = reader.nodes(pod, claims)
        if reader.is_exhausted:
            return _TOO_DIFFERENT
        if nodes:
            members.append(Candidate(pod=pod, claims=claims, nodes=nodes))
        else:
            rejections[pod.metadata.uid] = _no_node(claims)
    if _count_kinds(members, request, snapshot) * len(snapshot.cluster.nodes) > MAX_KIND_NODES:
        return _TOO_DIFFERENT
    return Candidates(members=tuple(members), rejections=rejections, needs_devices=needs_devices)


def charge_claims(pod: Pod) -> None:
    """Charge the answer for the claims of a pod: few pods have more than are free.

    Raises:
        AnswerInterrupted: The answer takes too long.
    """
    further_claims = len(pod.spec.resource_claims or ()) - FREE_CLAIMS
    if further_claims > 0:
        current_scope().meter.count(STEPS_PER_CLAIM * further_claims)


def _count_kinds(members: Sequence[Candidate], request: GroupRequest, snapshot: Snapshot) -> int:
    """Return the number of different pods, names aside."""
    options = snapshot.cluster.options
    kinds = {
        (
            id(member.nodes),
            encode_requests(member.claims.open, options),
            request.requests.get(member.pod.metadata.uid),
        )
        for member in members
    }
    return len(kinds)


class _NodeReader:
    """The nodes that pods may use; those of equal pods are found once, and are one object.

    Attributes:
        is_exhausted: The pods have too many different rules for nodes.
    """

    def __init__(
        self, request: GroupRequest, snapshot: Snapshot, closed_nodes: frozenset[str]
    ) -> None:
        self._request = request
        self._snapshot = snapshot
        self._closed_nodes = closed_nodes
        self._known: dict[Hashable, tuple[str, ...]] = {}
        self.is_exhausted = False
        self._most = MAX_KIND_NODES // max(1, len(snapshot.cluster.nodes))
        different = {frozenset(names) for names in request.excluded.values()}
        # Where the pods would be too different for it, nobody gets a node that was turned down for one.
        self._excluded_for_all = (
            frozenset[str]().union(*different) if len(different) > self._most else None
        )

    def nodes(self, pod: Pod, claims: PodClaims) -> tuple[str, ...]:
        """Return the names of the nodes that a pod may use, sorted."""
        spec, uid = pod.spec, pod.metadata.uid
        excluded = self._excluded_for_all
        if excluded is None:
            excluded = frozenset(self._request.excluded.get(uid, ()))
        pinned = self._request.pinned.get(uid, "")
        key = (
            encode((spec.node_name, spec.node_selector, spec.affinity, spec.tolerations)),
            tuple(map(claim_name, claims.held)),
            excluded,
            pinned,
        )
        names = self._known.get(key)
        if names is None:
            self.is_exhausted |= len(self._known) >= max(1, self._most)
            if self.is_exhausted:
                return ()
            names = self._known[key] = tuple(
                sorted(self._find(pod, claims, excluded | self._closed_nodes, pinned))
            )
        return names

    def _find(
        self, pod: Pod, claims: PodClaims, excluded: frozenset[str], pinned: str
    ) -> Iterable[str]:
        nodes = self._snapshot.cluster.nodes
        is_eligible = self._snapshot.eligible_nodes.of(pod)
        candidates: Sequence[str] = [pinned] if pinned else list(nodes)
        for name in candidates:
            node = nodes.get(name)
            if (
                node is not None
                and name not in excluded
                and is_eligible(node)
                and are_available(claims.held, node)
            ):
                yield name


def _usable(
    pod: Pod, claims: PodClaims, snapshot: Snapshot, places: ClaimPlaces
) -> PodClaims | Rejection:
    """Return the claims of a pod, or the reason they can get or keep no devices."""
    binding = binding_state(claims.held, cutoff=snapshot.binding_cutoff)
    failure = binding_rejection(binding) if binding.is_hopeless else None
    if failure is not None:
        return unresolvable(failure.code, failure.message)
    pending = resolve(claims.open, snapshot)
    if isinstance(pending, Rejection):
        return pending
    if not places.take(pod):
        return unresolvable(
            Code.TOO_MANY_CONSUMERS,
            f"a ResourceClaim of the group can be reserved for {MAX_CONSUMERS} pods at most; a PodGroup whose "
            "spec.resourceClaims share it counts as one",
        )
    return claims


def _no_node(claims: PodClaims) -> Rejection:
    if claims.held:
        return unresolvable(
            Code.CLAIM_NOT_AVAILABLE,
            "no node that the pod may use has its allocated ResourceClaims",
        )
    return unresolvable(
        Code.NO_ELIGIBLE_NODE,
        "the pod may use no node that is left for it (node selector, affinity, taints, other filters)",
    )
