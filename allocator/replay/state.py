"""The cluster of a replay: devices, CPU and memory, changed by the pods that come and go."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from allocator.cluster.canonical_requests import encode_requests
from allocator.cluster.cluster import Cluster
from allocator.model.devices import PoolId
from allocator.model.plan import Plan
from allocator.model.requests import PendingClaims
from allocator.model.slice_index import SliceChange
from allocator.nodes.headroom import Headroom
from allocator.nodes.node_resources import NodeResources, node_resources
from allocator.nodes.pod_requests import PodRequest, pod_request
from allocator.nodes.resources_fit import has_resources, insufficient_resources
from allocator.nodes.scoring import DEFAULT_PROFILE, ScoringProfile, score_resources
from allocator.pods.claims import Name, allocation_of, claim_name
from allocator.pods.node_eligibility import is_eligible, is_for
from allocator.replay.workload import Candidate, Inventory, ReplayPod
from allocator.search.attempt import AllocatorOptions
from allocator.search.results import allocations, share_ids
from kube.api.core import Node, Pod
from kube.api.meta import encode
from kube.api.node_selector import NodeSelector
from kube.api.resource import DeviceClass, ResourceClaim, ResourceClaimStatus

_EMPTY: Final = NodeResources()


class ReplayState:
    """The cluster as it is between two pods.

    Attributes:
        cluster: The devices.
        names: Names of the nodes, sorted.
        resources: Node to its resources; a node that changes has another value.
        headroom: Node to the CPU, memory and number of pods that it has left.
        changes: Names of the nodes that changed, in order; a node may be there several times.
        from_claims: Extended resources that DeviceClasses map.
    """

    def __init__(self, inventory: Inventory, options: AllocatorOptions) -> None:
        self.cluster = Cluster(
            slices=inventory.slices,
            nodes=inventory.nodes,
            claims=inventory.claims,
            classes=inventory.classes,
            options=options,
        )
        self.names = tuple(sorted(node.metadata.name for node in inventory.nodes))
        pods_of: dict[str, list[PodRequest]] = {name: [] for name in self.names}
        # What pods request on nodes that are not there; in a recording nodes come and go.
        self._absent: dict[str, NodeResources] = {}
        for pod in inventory.pods:
            name, request = pod.spec.node_name, pod_request(pod)
            if name in pods_of:
                pods_of[name].append(request)
            else:
                self._absent[name] = self._absent.get(name, _EMPTY).with_pod(request)
        self.resources: dict[str, NodeResources] = {
            node.metadata.name: node_resources(node, pods_of[node.metadata.name])
            for node in inventory.nodes
        }
        self.headroom: dict[str, Headroom] = {
            name: resources.headroom for name, resources in self.resources.items()
        }
        self.changes: list[str] = []
        self._nodes_of = self._nodes_by_pool()
        self.from_claims = frozenset(inventory.extended_resources)
        # The claims that pods on nodes share, as they are allocated, and the number of these pods.
        self._shared_claims: dict[Name, ResourceClaim] = {}
        self._users: Counter[Name] = Counter()
        self._eligible: dict[bytes, frozenset[str] | None] = {}
        self._lacks: dict[Hashable, dict[str, tuple[NodeResources, tuple[str, ...]]]] = {}
        self._scores: dict[tuple[object, int], dict[str, tuple[NodeResources, int]]] = {}

    def candidate(self, pod: ReplayPod) -> Candidate:
        """Return a pod that is ready to be placed.

        Raises:
            AttemptFailed: Its claims are invalid on every node.
        """
        request = pod_request(pod.pod)
        open_claims = (
            claim for claim in pod.shared if claim_name(claim) not in self._shared_claims
        )
        claims = (*open_claims, *pod.claims)
        pending = self.cluster.resolve(claims) if claims else None
        spec = pod.pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity else None
        selectors = tuple(_node_selectors((*pod.allocated, *self.shared_claims(pod))))
        where = encode((spec.node_name, spec.node_selector, affinity, spec.tolerations, selectors))
        devices = encode_requests(claims, self.cluster.options) if claims else b""
        return Candidate(
            pod=pod,
            request=request,
            pending=pending,
            shape=(where, devices, encode(request)),
            devices=(where, devices),
            eligible=self._eligible_nodes(where, pod.pod, selectors),
        )

    def renewed(self, candidate: Candidate) -> Candidate:
        """Return a pod as it is ready now, since claims that it shares are allocated and freed with other pods.

        Raises:
            AttemptFailed: Its claims are invalid on every node.
        """
        return self.candidate(candidate.pod) if candidate.pod.shared else candidate

    def shared_claims(self, pod: ReplayPod) -> tuple[ResourceClaim, ...]:
        """Return the claims that a pod shares and that are allocated now."""
        names = map(claim_name, pod.shared)
        return tuple(self._shared_claims[name] for name in names if name in self._shared_claims)

    def running(
        self, pod: ReplayPod, claims: Sequence[ResourceClaim]
    ) -> tuple[Candidate, tuple[ResourceClaim, ...]]:
        """Count a pod that runs already among the users of its shared claims; return it for its removal, with its own ones.

        Args:
            claims: Its claims, allocated.
        """
        names = set(map(claim_name, pod.shared))
        self._users.update(names)
        self._shared_claims |= {
            claim_name(claim): claim for claim in claims if claim_name(claim) in names
        }
        own = tuple(claim for claim in claims if claim_name(claim) not in names)
        return self.bare_candidate(pod), own

    def bare_candidate(self, pod: ReplayPod) -> Candidate:
        """Return a pod that runs, without its own claims, for its removal."""
        return Candidate(
            pod=ReplayPod(pod=pod.pod, shared=pod.shared),
            request=pod_request(pod.pod),
            pending=None,
            shape=None,
            devices=None,
            eligible=None,
        )

    def fits(self, candidate: Candidate, node: str) -> bool:
        """Return True if a node is eligible for a pod and has the resources, devices aside."""
        eligible = candidate.eligible
        if eligible is not None and node not in eligible:
            return False
        resources = self.resources.get(node)
        if resources is None:
            return False  # It is gone, and is known from the time before.
        return has_resources(candidate.request, resources, self.from_claims)

    def scores(
        self,
        candidate: Candidate,
        nodes: Sequence[str],
        profile: ScoringProfile = DEFAULT_PROFILE,
    ) -> Sequence[int]:
        """Return the score of each node that kube-scheduler's plugins for resources give it.

        Args:
            candidate: The pod.
            nodes: Names of nodes.
            profile: The profile; while the state lives, always the same objects.
        """
        cached = self._scores.setdefault((candidate.shape, id(profile)), {})
        request, scores = candidate.request, []
        for name in nodes:
            resources = self.resources[name]
            entry = cached.get(name)
            if entry is None or entry[0] is not resources:
                score = score_resources(request, resources, profile)
                entry = cached[name] = resources, score
            scores.append(entry[1])
        return scores

    def place(
        self, candidate: Candidate, node: str, plan: Plan | None
    ) -> tuple[ResourceClaim, ...]:
        """Bind a pod to a node and allocate its claims; return its own ones as allocated."""
        claims: tuple[ResourceClaim, ...] = ()
        if plan is not None and candidate.pending is not None:
            metadata = candidate.pod.pod.metadata
            seed = f"{metadata.namespace}/{metadata.name}"
            claims = self.allocated(plan, candidate.pending, seed)
        return self.put(candidate, node, claims)

    def allocated(self, plan: Plan, pending: PendingClaims, seed: str) -> tuple[ResourceClaim, ...]:
        """Return claims with the devices of a plan; the cluster stays as it is."""
        return _allocated_claims(plan, pending, seed, self.cluster.options)

    def put(
        self, candidate: Candidate, node: str, claims: Sequence[ResourceClaim]
    ) -> tuple[ResourceClaim, ...]:
        """Bind a pod to a node with claims that are allocated; return its own ones of these."""
        self._replace(node, self._of(node).with_pod(candidate.request))
        self._users.update(map(claim_name, candidate.pod.shared))
        return self.hold(candidate, claims)

    def hold(
        self, candidate: Candidate, claims: Sequence[ResourceClaim]
    ) -> tuple[ResourceClaim, ...]:
        """Allocate claims of a pod, each shared one once; return its own ones of these."""
        shared = set(map(claim_name, candidate.pod.shared))
        own: list[ResourceClaim] = []
        for claim in claims:
            name = claim_name(claim)
            if name not in shared:
                own.append(claim)
            elif name in self._shared_claims:
                continue
            else:
                self._shared_claims[name] = claim
            self.cluster.allocate(claim)
            self._note_shared_pools(claim)
        return tuple(own)

    def remove(self, candidate: Candidate, node: str, claims: Sequence[ResourceClaim]) -> None:
        """Take a pod off its node, with its own claims as `place` returned them, and the shared ones that it was the last of."""
        self._replace(node, self._of(node).without_pod(candidate.request))
        for claim in (*claims, *self._unused(candidate)):
            self.cluster.release(claim)
            self._note_shared_pools(claim)

    def change(
        self,
        nodes: Mapping[str, Node | None],
        slices: Sequence[SliceChange] = (),
        classes: Mapping[str, DeviceClass] | None = None,
    ) -> None:
        """Take over nodes, slices and classes that changed; candidates of before count no more.

        Args:
            nodes: Name to node; None for one that is gone. Pods stay where they are until they are removed.
            slices: The slices before and after.
            classes: All DeviceClasses; None if none changed.
        """
        for name, node in nodes.items():
            self._change_node(name, node)
        if slices:
            self.cluster.replace_slices(slices)
        if classes is not None:
            self.cluster.replace_classes(classes)
        self.names = tuple(sorted(self.resources))
        self.changes.extend(self.names if slices or classes is not None else nodes)
        self._nodes_of = self._nodes_by_pool()
        self._eligible.clear()

    def _change_node(self, name: str, node: Node | None) -> None:
        before = self.resources.pop(name, None) or self._absent.pop(name, None)
        self.headroom.pop(name, None)
        self.cluster.replace_node(name, node)
        if node is None:
            if before is not None:
                self._absent[name] = before
            return
        resources = node_resources(node)
        if before is not None:
            resources = replace(
                resources,
                requested=before.requested,
                scored_cpu_milli=before.scored_cpu_milli,
                scored_memory=before.scored_memory,
                pods=before.pods,
            )
        self.resources[name] = resources
        self.headroom[name] = resources.headroom

    def _of(self, node: str) -> NodeResources:
        """Return the resources of a node; one that is not there has pods at most."""
        return self.resources.get(node) or self._absent.get(node, _EMPTY)

    def _replace(self, node: str, resources: NodeResources) -> None:
        if node in self.resources:
            self.resources[node] = resources
            self.headroom[node] = resources.headroom
        else:
            self._absent[node] = resources
        self.changes.append(node)

    def lacks(self, candidate: Candidate, nodes: Sequence[str]) -> Counter[str]:
        """Return the number of nodes that lack each resource for a pod."""
        cached = self._lacks.setdefault(candidate.shape, {})
        counts: Counter[str] = Counter()
        for name in nodes:
            resources = self.resources[name]
            entry = cached.get(name)
            if entry is None or entry[0] is not resources:
                lacks = insufficient_resources(candidate.request, resources, self.from_claims)
                entry = cached[name] = resources, tuple([lack.name for lack in lacks])
            counts.update(entry[1])
        return counts

    def _nodes_by_pool(self) -> Mapping[PoolId, Sequence[str]]:
        """Return the nodes of each pool that several nodes see."""
        nodes_of: dict[PoolId, list[str]] = {}
        for name in self.names:
            for pool in self.cluster.node_devices(name).pools:
                nodes_of.setdefault(pool.id, []).append(name)
        return {pool: nodes for pool, nodes in nodes_of.items() if len(nodes) > 1}

    def _note_shared_pools(self, claim: ResourceClaim) -> None:
        """Note the change of all nodes that see a pool with devices that a claim uses."""
        allocation = claim.status.allocation if claim.status is not None else None
        if not self._nodes_of or allocation is None:
            return
        for result in allocation.devices.results or ():
            self.changes.extend(self._nodes_of.get(PoolId(result.driver, result.pool), ()))

    def _unused(self, candidate: Candidate) -> Sequence[ResourceClaim]:
        """Return the shared claims that no pod uses any more once this one leaves, and forget them."""
        unused = []
        for name in map(claim_name, candidate.pod.shared):
            self._users[name] -= 1
            if not self._users[name] and name in self._shared_claims:
                unused.append(self._shared_claims.pop(name))
        return unused

    def _eligible_nodes(
        self, key: bytes, pod: Pod, selectors: Sequence[NodeSelector]
    ) -> frozenset[str] | None:
        if key not in self._eligible:
            nodes = self.cluster.nodes
            names = frozenset(
                name
                for name, node in nodes.items()
                if is_eligible(pod, node) and all(is_for(selector, node) for selector in selectors)
            )
            self._eligible[key] = None if len(names) == len(nodes) else names
        return self._eligible[key]


def _node_selectors(claims: Sequence[ResourceClaim]) -> Iterator[NodeSelector]:
    """Yield the node selectors of allocated claims; those for all nodes have none."""
    for claim in claims:
        allocation = allocation_of(claim)
        if allocation is not None and allocation.node_selector is not None:
            yield allocation.node_selector


def _allocated_claims(
    plan: Plan, pending: PendingClaims, name: str, options: AllocatorOptions
) -> tuple[ResourceClaim, ...]:
    results = allocations(plan, pending, options.features, share_ids(name))
    return tuple(
        replace(claim, status=ResourceClaimStatus(allocation=allocation))
        for claim, allocation in zip(pending.claims, results, strict=True)
    )
