"""The explanation of a pending pod, in one line: each node's shortage, and a remedy.

    Closest fit: request memory 16Gi (n1). 2 nodes: 4/8 devices in use, 4/8 have memory 16Gi (< 40Gi).
    1 node: node is unschedulable.

Where a node has the devices, it is named first, with what keeps the pod from it: `allocator.simulation.pending_cause`.
The verdict is the simulation's, and the reasons are those of `allocator.explain.node`. Pods that are
equal in all that matters have the same explanation, so it is computed once: a claim that was made
for a pod is called by its entry in the pod, since its own name differs from pod to pod.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec
from msgspec.structs import replace

from allocator.cluster.cluster import Cluster
from allocator.explain.change import ClosestFit
from allocator.explain.failure import NOT_EXPLAINED, Failure, NodeGroup
from allocator.explain.node import STEPS, explain_node
from allocator.explain.other_devices import all_requests, is_for_others
from allocator.explain.selector import one_line
from allocator.explain.summary import join_within, summarize
from allocator.explain.wording import count_nodes, enumerate_names, node_shortage
from allocator.model.devices import NodeDevices
from allocator.model.outcome import Reason, Shortage
from allocator.model.requests import PendingClaims
from allocator.model.usage import Usage
from allocator.nodes.node_resources import NodeResources
from allocator.pods.claims import Missing, Name, claim_name, pod_claims
from allocator.pods.extended_resource_claim import mapped_resources
from allocator.search.attempt import AllocatorOptions
from allocator.simulation.model import PlacedClaim, SimulationInput, SimulationOptions
from allocator.simulation.pending_cause import Cause, cause_of_rejection
from allocator.simulation.rejecting_nodes import rejecting_nodes_with_devices, rejects_pod
from allocator.simulation.simulate import simulate_in_order
from allocator.strategies.first_fit import FIRST_FIT
from findings.text import shorten_encoded
from kube.api.core import Pod, PodResourceClaim, PodSpec
from kube.api.meta import ObjectMeta, encode
from kube.api.resource import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClaimTemplate,
)
from kube.names import REQUEST_ANNOTATION

Reword = Callable[[ClosestFit], ClosestFit]
"""Returns a closest fit with words in the keys of its pod, if it has any."""

MAX_NOTE: Final = 1024
"""Bytes: what the note of an event holds."""

_MAX_LINE: Final = 360
"""Bytes of the reasons of one group of nodes, so that there is room for several."""
_MAX_HELP: Final = 240
"""Bytes of each sentence on what would help."""
_STEPS: Final = STEPS // 8
"""Search steps for the explanation of one class of nodes."""


class PodProjection(msgspec.Struct, frozen=True, kw_only=True):
    """All of a pod that its explanation depends on, beside the cluster.

    Attributes:
        pod: The pod without a name; its entries refer to `claims`, and its only annotation is the record of
            its translation, if it was translated.
        claims: Its claims, called by its entries where they were made for it.
        entries: Each of the claims to the index of the entry of the pod that names it.
        missing: Objects that do not exist; while there are any, nothing else matters.
        key: Equal for pods with the same explanation.
    """

    pod: Pod
    claims: tuple[ResourceClaim, ...]
    entries: Mapping[Name, int]
    missing: tuple[Missing, ...]
    key: bytes


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The reasons that a pod is pending.

    Attributes:
        note: One line of at most MAX_NOTE bytes, without names of other namespaces.
        reasons: The codes of the reasons, sorted: a `Reason`, or one of `allocator.pods.claims`.
        kind: Equal while the same requests have the same reasons, whatever the numbers.
        cause: The one reason that matters most.
    """

    note: str
    reasons: tuple[str, ...]
    kind: str
    cause: Cause = Cause.DEVICES_MISSING


def project_pod(
    pod: Pod,
    claims: Mapping[Name, ResourceClaim],
    templates: Mapping[Name, ResourceClaimTemplate],
    extended_resources: Mapping[str, str],
    *,
    names_claims: bool = False,
) -> PodProjection | None:
    """Project a pod to the fields that its explanation depends on; None for a pod that needs no devices.

    Args:
        claims: The claims by namespace and name, allocated or not.
        templates: The claim templates by namespace and name.
        extended_resources: Name of an extended resource to name of the class that maps it.
        names_claims: Claims that were made for the pod keep their names, so that its explanation is of
            no other pod.
    """
    namespace = pod.metadata.namespace
    renamed_claims: dict[str, ResourceClaim] = {}
    indices: dict[Name, int] = {}
    missing: list[Missing] = []
    entries = pod.spec.resource_claims or ()
    direct = {entry.resource_claim_name for entry in entries}
    for index, entry in enumerate(entries):
        alone = replace(pod, spec=replace(pod.spec, resource_claims=(entry,)))
        own = pod_claims(alone, claims, templates)
        missing += own.missing
        for claim in (*own.open, *own.held):
            is_own = (
                not names_claims and entry.resource_claim_name is None and entry.name not in direct
            )
            name = entry.name if is_own else claim.metadata.name
            metadata = ObjectMeta(name=name, namespace=namespace)
            renamed_claims[name] = replace(_without_consumers(claim), metadata=metadata)
            indices[namespace, name] = index
    if not entries and not mapped_resources(pod, extended_resources):
        return None
    record = pod.annotations.get(REQUEST_ANNOTATION)
    annotations = None if record is None else {REQUEST_ANNOTATION: record}
    anonymous = Pod(
        metadata=ObjectMeta(namespace=namespace, annotations=annotations),
        spec=PodSpec(
            containers=pod.spec.containers,
            init_containers=pod.spec.init_containers,
            resources=pod.spec.resources,
            resource_claims=tuple(
                PodResourceClaim(name=name, resource_claim_name=name) for name in renamed_claims
            ),
            node_selector=pod.spec.node_selector,
            affinity=pod.spec.affinity,
            tolerations=pod.spec.tolerations,
            scheduler_name=pod.spec.scheduler_name,
        ),
    )
    own_claims = tuple(renamed_claims.values())
    key = sha256(encode((anonymous, own_claims, missing))).digest()
    return PodProjection(
        pod=anonymous, claims=own_claims, entries=indices, missing=tuple(missing), key=key
    )


def _without_consumers(claim: ResourceClaim) -> ResourceClaim:
    """Return a claim without the pods that it is reserved for, since these differ from pod to pod."""
    if claim.status is None or not claim.status.reserved_for:
        return claim
    return replace(claim, status=replace(claim.status, reserved_for=None))


def explain_pending_pod(
    cluster: Cluster,
    projection: PodProjection,
    classes: Mapping[str, DeviceClass],
    extended_resources: Mapping[str, str],
    resources: Mapping[str, NodeResources] | None = None,
    *,
    reword: Reword | None = None,
    waiting_helps: bool = True,
    with_fits: bool = True,
) -> Explanation | None:
    """Explain a pending pod; None when a node has devices for it, and takes it.

    The cluster is the same afterwards.

    Args:
        resources: Node to its CPU, memory and other counted resources; None where only devices count.
        reword: Names the keys of the pod in its closest fits; None leaves them in the units of claims.
        waiting_helps: False to leave out the closest fit of the idle cluster.
        with_fits: False to leave out all closest fits.
    """
    if projection.missing:
        messages = list(dict.fromkeys(missing.message for missing in projection.missing))
        codes = sorted({missing.code for missing in projection.missing})
        note = join_within(messages, MAX_NOTE - 1, "missing object")
        return _explanation(f"{note}.", [("", code) for code in codes], Cause.CLAIM_MISSING)
    summaries = _NodeSummaries()
    objects = SimulationInput(
        pods=(projection.pod,),
        known={claim_name(claim): claim for claim in projection.claims},
        classes=classes,
        extended_resources=extended_resources,
        resources=resources,
    )
    options = SimulationOptions(strategy=FIRST_FIT, explain=summaries.explain, closest_fits=1)
    result = simulate_in_order(cluster, objects, options)
    for placed_claim in result.claims:
        if placed_claim.allocation is not None:
            cluster.release(_as_allocated(placed_claim))
    if result.all_placed:
        return None
    failure = result.failures[-1]
    if not waiting_helps:
        failure = replace(failure, closest_fit_when_idle=None)
    groups = sorted(failure.groups or (), key=_rank)
    codes_of_nodes = {reason.code for group in groups for reason in group.reasons} - {
        Reason.NO_DEVICES
    }
    reasons = [*summaries.reasons, *(("", code) for code in sorted(codes_of_nodes))]
    nodes, rejecting = _first_with_devices(cluster, projection, extended_resources, groups)
    cause = cause_of_rejection(rejecting)
    # What keeps the pod from devices that are free comes first.
    head = "" if rejecting is None else _free_devices(nodes, rejecting)
    fits = tuple(_closest_fits(failure, projection.pod, reword)) if with_fits else ()
    note = _note(groups, fits, head)
    # That other nodes have no such devices is a reason only if no node has any.
    return _explanation(note, reasons or [("", Reason.NO_DEVICES)], cause)


class _NodeSummaries:
    """Explains nodes in a line each.

    Attributes:
        reasons: Requests with the reasons of all nodes, in order.
    """

    def __init__(self) -> None:
        self.reasons: dict[tuple[str, str], None] = {}

    def explain(
        self, node: NodeDevices, pending: PendingClaims, usage: Usage, rules: AllocatorOptions
    ) -> tuple[Shortage, ...]:
        """Return one shortage that summarizes all of a node."""
        if is_for_others(node, pending):
            return (node_shortage(Reason.NO_DEVICES, f"no device of {_class_names(pending)}"),)
        shortages = explain_node(node, pending, usage, rules, steps=_STEPS)
        if not shortages:
            return ()
        self.reasons |= {
            (shortage.request, shortage.rejection.reason): None for shortage in shortages
        }
        detail = summarize(shortages, len(node.devices), most=_MAX_LINE)
        return (node_shortage(shortages[0].rejection.reason, detail),)


def _class_names(pending: PendingClaims) -> str:
    """Return the requested classes: `class gpu`."""
    names = list(
        dict.fromkeys(request.device_class.metadata.name for request in all_requests(pending))
    )
    return f"class {names[0]}" if len(names) == 1 else f"classes {enumerate_names(names)}"


def _explanation(note: str, reasons: Sequence[tuple[str, str]], cause: Cause) -> Explanation:
    digest = sha256(encode(sorted(set(reasons)))).hexdigest()
    codes = tuple(sorted({code for _, code in reasons}))
    return Explanation(note=note, reasons=codes, kind=digest[:16], cause=cause)


def _note(groups: Sequence[NodeGroup], help_: Sequence[str], head: str) -> str:
    # What helps comes before the reasons, of which there may be many.
    sentences = [*([head] if head else []), *help_]
    beginning = "".join(f"{shorten_encoded(sentence, _MAX_HELP)}. " for sentence in sentences)
    room = MAX_NOTE - len(beginning.encode()) - 1
    lines = [f"{count_nodes(len(group.nodes))}: {_messages(group)}" for group in groups]
    text = join_within(lines, room, "group") or "the cluster has no nodes"
    return f"{beginning}{text}."


def _messages(group: NodeGroup) -> str:
    return "; ".join(reason.message for reason in group.reasons)


def _rank(group: NodeGroup) -> int:
    """Return the rank of a group: nodes that lack devices come before nodes that reject the pod."""
    if NOT_EXPLAINED in group.reasons:
        return 3
    if rejects_pod(group):
        return 2
    return int(any(reason.code == Reason.NO_DEVICES for reason in group.reasons))


def _first_with_devices(
    cluster: Cluster,
    projection: PodProjection,
    extended_resources: Mapping[str, str],
    groups: Sequence[NodeGroup],
) -> tuple[Sequence[str], NodeGroup | None]:
    """Return the first nodes that have free devices, but reject the pod, with their reasons; None without any."""
    rejecting_nodes = rejecting_nodes_with_devices(
        cluster, projection.pod, projection.claims, extended_resources, groups
    )
    return next(rejecting_nodes, ((), None))


def _free_devices(nodes: Sequence[str], group: NodeGroup) -> str:
    """Return a sentence about nodes that have free devices, but reject the pod."""
    more = f" and {len(nodes) - 1:,} more" if len(nodes) > 1 else ""
    return f"Devices are free on node {nodes[0]}{more}, but {_messages(group)}"


def _closest_fits(failure: Failure, pod: Pod, reword: Reword | None) -> Iterator[str]:
    """Yield the smallest change now, and a smaller one when the cluster is idle."""
    now, idle = (
        reword(fit) if fit is not None and reword is not None else fit
        for fit in failure.helpful_fits
    )
    if now is not None:
        yield f"Closest fit{_units(now, pod)}: {_change(now)}"
    if idle is not None:
        if idle.changes:
            yield f"Once devices are free{_units(idle, pod, ',')}: {_change(idle)}"
        else:
            yield f"Fits {one_line(idle.node)} unchanged once its devices are free"


def _change(fit: ClosestFit) -> str:
    return fit.fix_in_keys or fit.summary


def _units(fit: ClosestFit, pod: Pod, comma: str = "") -> str:
    """Return the units of the amounts of a closest fit, unless they are those that the author of the pod wrote."""
    is_in_keys = bool(fit.fix_in_keys) or REQUEST_ANNOTATION not in pod.annotations
    has_amounts = any(change.amount is not None for change in fit.changes)
    return f"{comma} in the claim's units" if has_amounts and not is_in_keys else ""


def _as_allocated(placed_claim: PlacedClaim) -> ResourceClaim:
    metadata = ObjectMeta(name=placed_claim.name, namespace=placed_claim.namespace)
    return ResourceClaim(
        metadata=metadata, status=ResourceClaimStatus(allocation=placed_claim.allocation)
    )
