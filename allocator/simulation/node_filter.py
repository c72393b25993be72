"""The nodes that can take a pod, devices aside, and the reasons of the others.

kube-scheduler asks the same in this order: node, taints, affinity, resources, allocated claims.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from allocator.explain.failed_scheduling import (
    NOT_ON_THIS_NODE,
    count_reasons,
    failed_scheduling,
)
from allocator.explain.failure import NodeReason, NodeResult
from allocator.model.outcome import Reason
from allocator.nodes.resources_fit import InsufficientResource
from allocator.pods.claims import allocation_of, claim_name, pinned_to
from allocator.pods.extended_resource_claim import (
    device_plugin_resources,
    resources_beyond_plugins,
    unavailable_resources,
)
from allocator.pods.node_eligibility import (
    counted_rejection,
    is_for,
    named_nodes,
    node_rejection,
)
from allocator.simulation.attempt import PlacementAttempt, eligibility_key
from allocator.simulation.resources import ResourceLedger, resource_reason
from kube.api.core import Node

_CACHED_PODS: Final = 64
"""Different pods whose eligible nodes are cached."""

NodesByClaims = Mapping[frozenset[str], Sequence[str]]
"""Extended resources that a claim has to provide, to the nodes where that is so."""


class ExcludedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is rejected before its devices are evaluated.

    Attributes:
        result: The reasons for people.
        counted: The reasons as kube-scheduler counts them.
    """

    result: NodeResult
    counted: tuple[str, ...]


class FilteredNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a cluster, as they are for a pod or claim before devices are evaluated.

    Attributes:
        feasible: The nodes whose devices are to be evaluated.
        lacking: Eligible nodes that lack resources, as of when the pod is tried.
        excluded: All others.
    """

    feasible: NodesByClaims
    lacking: Sequence[str]
    excluded: Mapping[str, ExcludedNode]


class NodeFilter:
    """Finds the nodes for pods and claims. Replicas have the same eligible nodes, so these are cached."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        ledger: ResourceLedger,
        extended_resources: Mapping[str, str],
        *,
        named_nodes_only: bool = False,
        only: Collection[str] | None = None,
    ) -> None:
        """Read nodes.

        Args:
            nodes: The nodes by name.
            ledger: Their resources.
            extended_resources: Name of an extended resource to name of the class that maps it.
            named_nodes_only: The flag of `SimulationOptions`.
            only: The nodes of `SimulationOptions`.
        """
        self._nodes = nodes
        self._ledger = ledger
        self._extended_resources = extended_resources
        self._named_nodes_only = named_nodes_only
        self._looked_at = nodes if only is None else {name: nodes[name] for name in only}
        self._cached: dict[bytes, tuple[NodesByClaims, Mapping[str, ExcludedNode]]] = {}

    def filter(self, attempt: PlacementAttempt) -> FilteredNodes:
        """Return the nodes for a pod or claim as they are now."""
        eligible, excluded = self._eligible_nodes(attempt)
        if attempt.request is None:
            return FilteredNodes(feasible=eligible, lacking=(), excluded=excluded)
        feasible: dict[frozenset[str], Sequence[str]] = {}
        lacking: list[str] = []
        for resources, names in eligible.items():
            fitting, others = self._ledger.split(attempt.request, names)
            lacking += others
            if fitting:
                feasible[resources] = fitting
        return FilteredNodes(feasible=feasible, lacking=lacking, excluded=excluded)

    def results(self, attempt: PlacementAttempt, nodes: FilteredNodes) -> dict[str, NodeResult]:
        """Return the results of the nodes with devices that are not evaluated."""
        results = {name: excluded.result for name, excluded in nodes.excluded.items()}
        if attempt.request is not None:
            for name in nodes.lacking:
                lacks = self._ledger.lacks(attempt.request, name)
                reasons = tuple(map(resource_reason, lacks))
                results[name] = NodeResult(name=name, fits=False, reasons=reasons)
        return results

    def event(self, attempt: PlacementAttempt, nodes: FilteredNodes) -> str | None:
        """Return the message of kube-scheduler's event about a pod that no node takes.

        None where the scheduler does not evaluate the nodes, or where only devices count.
        """
        if attempt.request is None or attempt.claims.missing:
            return None
        counted = [excluded.counted for excluded in nodes.excluded.values()]
        for name in nodes.lacking:
            lacks = self._ledger.lacks(attempt.request, name)
            counted.append(tuple(lack.message for lack in lacks))
        total = len(self._nodes)
        return failed_scheduling(count_reasons(counted, total - len(counted)), total)

    def excluded(self, attempt: PlacementAttempt, name: str) -> ExcludedNode | None:
        """Return the reason against a node, regardless of its pods and devices; None without one."""
        if attempt.claims.missing:
            reasons = tuple(
                NodeReason(code=missing.code, message=missing.message)
                for missing in attempt.claims.missing
            )
            return ExcludedNode(
                result=NodeResult(name=name, fits=False, reasons=reasons), counted=()
            )
        node = self._nodes[name]
        if attempt.domain is not None and not attempt.domain.has(node):
            # kube-scheduler tries a group with the nodes of one domain alone, so it counts no others.
            message = f"not in the group's {attempt.domain}"
            reason = NodeReason(code=Reason.NODE_NOT_ELIGIBLE, message=message)
            return ExcludedNode(
                result=NodeResult(name=name, fits=False, reasons=(reason,)), counted=()
            )
        details: list[str] = []
        counted: list[str] = []
        if attempt.pod is not None:
            rejection = node_rejection(attempt.pod, node)
            details += [rejection.detail] if rejection is not None else []
            rejected = counted_rejection(attempt.pod, node)
            counted += [rejected] if rejected is not None else []
            if attempt.request is None:
                details += [
                    f"no {resource} on the node, and no DeviceClass maps it"
                    for resource in unavailable_resources(
                        attempt.pod, node, self._extended_resources
                    )
                ]
                details += [
                    f"too few {resource} on the node, of a device plugin"
                    for resource in resources_beyond_plugins(attempt.pod, node)
                ]
        lacks: tuple[InsufficientResource, ...] = ()
        for claim in attempt.claims.held:
            allocation = allocation_of(claim)
            selector = allocation.node_selector if allocation is not None else None
            if selector is not None and not is_for(selector, node):
                local = pinned_to(allocation) if allocation is not None else None
                where = f"on node {local}" if local else "for other nodes"
                details.append(f"claim {'/'.join(claim_name(claim))} is allocated {where}")
        if not details:
            return None
        if not counted and attempt.request is not None:
            # Of these kube-scheduler looks at resources before claims.
            lacks = self._ledger.lacks(attempt.request, name)
            counted = [lack.message for lack in lacks] or [NOT_ON_THIS_NODE]
        reasons = (
            *(NodeReason(code=Reason.NODE_NOT_ELIGIBLE, message=detail) for detail in details),
            *map(resource_reason, lacks),
        )
        return ExcludedNode(
            result=NodeResult(name=name, fits=False, reasons=reasons), counted=tuple(counted)
        )

    def lacks_together(
        self, attempts: Sequence[PlacementAttempt], node: str
    ) -> Iterator[NodeReason]:
        """Yield the resources that a node lacks for all pods at once."""
        ledger = self._ledger.copy()
        for attempt in attempts:
            if attempt.request is not None:
                yield from map(resource_reason, ledger.lacks(attempt.request, node))
                ledger.place(attempt.request, node)

    def resources_for_claims(self, attempt: PlacementAttempt, node: str) -> frozenset[str]:
        """Return the extended resources that no device plugin of the node offers."""
        if not attempt.resources:
            return frozenset()
        return attempt.resources - device_plugin_resources(self._nodes[node])

    def _eligible_nodes(
        self, attempt: PlacementAttempt
    ) -> tuple[NodesByClaims, Mapping[str, ExcludedNode]]:
        key = eligibility_key(attempt)
        cached = self._cached.get(key) if key is not None else None
        if cached is not None:
            return cached
        nodes: dict[frozenset[str], list[str]] = {}
        excluded: dict[str, ExcludedNode] = {}
        for name in self._names(attempt):
            rejected = self.excluded(attempt, name)
            if rejected is not None:
                excluded[name] = rejected
            else:
                nodes.setdefault(self.resources_for_claims(attempt, name), []).append(name)
        if key is not None:
            if len(self._cached) >= _CACHED_PODS:
                self._cached.clear()
            self._cached[key] = (nodes, excluded)
        return nodes, excluded

    def _names(self, attempt: PlacementAttempt) -> Iterable[str]:
        """Return the nodes to look at."""
        pod = attempt.pod if self._named_nodes_only else None
        names = named_nodes(pod) if pod is not None else None
        return self._looked_at if names is None else sorted(names & self._looked_at.keys())
