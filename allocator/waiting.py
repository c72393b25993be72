"""What a pod that waits for devices is told: what each node lacks, and what would help, in one line.

    2 nodes: 4 of 8 devices: taken; 4: memory 16Gi below 40Gi; 1 node: the node is unschedulable.
    Devices are free on node n3, but the node is unschedulable.
    Nearest: memory 16Gi instead of 40Gi would fit node n1

The verdict is the simulation's, and the reasons are those of `allocator.explain`. Pods that are
equal in all that counts are told the same words, so these are found once: a claim that was made for
a pod is called by its entry in the pod, since its own name is different for each.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec
from msgspec.structs import replace

from allocator.cluster import Cluster
from allocator.core.model import Asked, NodeDevices, Plan, PoolState, Request, Usage
from allocator.core.outcome import AttemptFailed, Reason, Shortage
from allocator.core.problem import Rules
from allocator.dials import class_chain
from allocator.explain import STEPS, explained, general, listing
from allocator.extended_resource_claim import mapped_resources
from allocator.failure import NOT_LOOKED_AT, Alike, Failure
from allocator.pod_claims import Missing, Name, allocation_of, claim_name, pod_claims
from allocator.simulate import PlacedClaim, Question, Ways, one_by_one
from allocator.strategies.first_fit import FIRST_FIT
from allocator.summary import bounded, summary
from kube.api.core import Pod, PodResourceClaim, PodSpec
from kube.api.meta import ObjectMeta, encode
from kube.api.resource import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClaimTemplate,
)

MAX_NOTE: Final = 1024
"""Bytes: what the note of an event holds."""

_MAX_LINE: Final = 360
"""Bytes of what one group of nodes says, so that several have room."""
_MAX_HELP: Final = 240
"""Bytes of each thing that would help."""
_STEPS: Final = STEPS // 8
"""What questions about one class of nodes may cost."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """All of a pod that its answer depends on, beside the cluster.

    Attributes:
        pod: Without a name; its entries refer to `claims`.
        claims: What it needs, called by its entries where they were made for it.
        missing: Objects that it waits for; nothing else counts while there are any.
        key: Equal for pods that are told the same.
    """

    pod: Pod
    claims: tuple[ResourceClaim, ...]
    missing: tuple[Missing, ...]
    key: bytes


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod is told.

    Attributes:
        note: One line of at most MAX_NOTE bytes; names nothing of another namespace.
        reasons: What is in the way, sorted: a `Reason`, or a code of `allocator.pod_claims`.
        kind: Equal while the same requests meet the same reasons, whatever the numbers.
    """

    note: str
    reasons: tuple[str, ...]
    kind: str


def look(
    pod: Pod,
    claims: Mapping[Name, ResourceClaim],
    templates: Mapping[Name, ResourceClaimTemplate],
    extended_resources: Mapping[str, str],
) -> Look | None:
    """Return what a pod's answer depends on; None for a pod that needs no devices.

    Args:
        claims: By namespace and name, allocated or not.
        templates: Likewise.
        extended_resources: Name of an extended resource to name of the class that maps it.
    """
    namespace = pod.metadata.namespace
    found: dict[str, ResourceClaim] = {}
    missing: list[Missing] = []
    entries = pod.spec.resource_claims or ()
    taken = {entry.resource_claim_name for entry in entries}
    for entry in entries:
        alone = replace(pod, spec=replace(pod.spec, resource_claims=(entry,)))
        own = pod_claims(alone, claims, templates)
        missing += own.missing
        for claim in (*own.open, *own.held):
            is_own = entry.resource_claim_name is None and entry.name not in taken
            name = entry.name if is_own else claim.metadata.name
            metadata = ObjectMeta(name=name, namespace=namespace)
            found[name] = replace(claim, metadata=metadata)
    if not entries and not mapped_resources(pod, extended_resources):
        return None
    anonymous = Pod(
        metadata=ObjectMeta(namespace=namespace),
        spec=PodSpec(
            containers=pod.spec.containers,
            init_containers=pod.spec.init_containers,
            resources=pod.spec.resources,
            resource_claims=tuple(
                PodResourceClaim(name=name, resource_claim_name=name) for name in found
            ),
            node_selector=pod.spec.node_selector,
            affinity=pod.spec.affinity,
            tolerations=pod.spec.tolerations,
        ),
    )
    those = tuple(found.values())
    key = sha256(encode((anonymous, those, missing))).digest()
    return Look(pod=anonymous, claims=those, missing=tuple(missing), key=key)


def answer(
    cluster: Cluster,
    looked: Look,
    classes: Mapping[str, DeviceClass],
    extended_resources: Mapping[str, str],
) -> Answer | None:
    """Return what a pod is told; None when a node has devices for it, so that it waits for more.

    The cluster is the same afterwards.
    """
    if looked.missing:
        messages = list(dict.fromkeys(each.message for each in looked.missing))
        codes = sorted({each.code for each in looked.missing})
        return _answer(
            bounded(messages, MAX_NOTE, "missing object"), [("", each) for each in codes]
        )
    lines = _Lines()
    question = Question(
        pods=(looked.pod,),
        known={claim_name(each): each for each in looked.claims},
        classes=classes,
        extended_resources=extended_resources,
    )
    ways = Ways(strategy=FIRST_FIT, explain=lines.explain, misses=1)
    told = one_by_one(cluster, question, ways)
    for placed in told.claims:
        if placed.allocation is not None:
            cluster.release(_held(placed))
    if told.all_placed:
        return None
    failure = told.failures[-1]
    groups = sorted(failure.groups or (), key=_place)
    met = {each.code for group in groups for each in group.reasons} - {Reason.NO_DEVICES}
    why = [*lines.found, *(("", code) for code in sorted(met))]
    help_ = [*_spare(cluster, looked.claims, groups), *_nearest(failure)]
    # Devices of others are no reason, where there are some that could serve.
    return _answer(_note(groups, help_), why or [("", Reason.NO_DEVICES)])


class _Lines:
    """Explains nodes in a line each.

    Attributes:
        found: Requests and the reasons that they met, of all nodes.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], None] = {}

    def explain(
        self, node: NodeDevices, asked: Asked, usage: Usage, rules: Rules
    ) -> tuple[Shortage, ...]:
        """Return one shortage that says all of a node's."""
        if _is_for_others(node, asked):
            return (general(Reason.NO_DEVICES, f"no device is of {_classes(asked)}"),)
        every = explained(node, asked, usage, rules, steps=_STEPS)
        if not every:
            return ()
        self.found |= {(each.request, each.refusal.reason): None for each in every}
        detail = summary(every, len(node.devices), most=_MAX_LINE)
        return (general(every[0].refusal.reason, detail),)


def _is_for_others(node: NodeDevices, asked: Asked) -> bool:
    """Return whether a node has no device of any class that is asked for."""
    if any(pool.state is not PoolState.COMPLETE for pool in node.pools):
        return False
    chains = {class_chain(request).key: class_chain(request) for request in _requests(asked)}
    return not any(
        chain.verdict(each) is not False for chain in chains.values() for each in node.devices
    )


def _classes(asked: Asked) -> str:
    """Return the classes that are asked for: `class gpu`."""
    names = list(dict.fromkeys(each.device_class.metadata.name for each in _requests(asked)))
    return f"class {names[0]}" if len(names) == 1 else f"classes {listing(names)}"


def _requests(asked: Asked) -> Iterator[Request]:
    return (one for claim in asked.requests for alternatives in claim for one in alternatives)


def _answer(note: str, why: Sequence[tuple[str, str]]) -> Answer:
    digest = sha256(encode(sorted(set(why)))).hexdigest()
    return Answer(note=note, reasons=tuple(sorted({code for _, code in why})), kind=digest[:16])


def _note(groups: Sequence[Alike], helping: Sequence[str]) -> str:
    help_ = ". ".join(_cut(each, _MAX_HELP) for each in helping)
    room = MAX_NOTE - len(help_.encode()) - 2
    told = [f"{_nodes(len(each.nodes))}: {_because(each)}" for each in groups]
    text = bounded(told, room, "group") or "the cluster has no nodes"
    return f"{text}. {help_}" if help_ else text


def _because(group: Alike) -> str:
    return "; ".join(each.message for each in group.reasons)


def _place(group: Alike) -> int:
    """Return where a group is told: what keeps devices from a pod before what keeps nodes from it."""
    if NOT_LOOKED_AT in group.reasons:
        return 3
    if _is_about_pod(group):
        return 2
    return int(any(each.code == Reason.NO_DEVICES for each in group.reasons))


def _is_about_pod(group: Alike) -> bool:
    """Return whether nodes are out before any device is looked at."""
    return all(each.code == Reason.NODE for each in group.reasons)


def _spare(
    cluster: Cluster, claims: Sequence[ResourceClaim], groups: Sequence[Alike]
) -> Iterator[str]:
    """Yield which nodes have the devices, and do not take the pod."""
    wanted = [each for each in claims if allocation_of(each) is None]
    if not wanted:
        return
    for group in filter(_is_about_pod, groups):
        try:
            verdicts = cluster.verdicts(cluster.ask(wanted), nodes=group.nodes)
        except AttemptFailed:
            continue
        able = sorted(node for node, outcome, _ in verdicts if isinstance(outcome, Plan))
        if able:
            more = f" and {len(able) - 1:,} more" if len(able) > 1 else ""
            yield f"Devices are free on node {able[0]}{more}, but {_because(group)}"
            return


def _nearest(failure: Failure) -> Iterator[str]:
    """Yield what would have to change, now and if nothing were in use."""
    now, empty = failure.nearest, failure.nearest_when_empty
    if now is not None:
        yield f"Nearest: {now.detail}"
    if empty is not None and (now is None or empty.cost < now.cost):
        yield f"If nothing were in use, {empty.detail}"


def _held(placed: PlacedClaim) -> ResourceClaim:
    metadata = ObjectMeta(name=placed.name, namespace=placed.namespace)
    return ResourceClaim(
        metadata=metadata, status=ResourceClaimStatus(allocation=placed.allocation)
    )


def _cut(text: str, most: int) -> str:
    raw = text.encode()
    return text if len(raw) <= most else raw[: most - 3].decode(errors="ignore") + "..."


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count:,} nodes"
