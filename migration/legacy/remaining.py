"""The nodes and workloads that stay with their device plugin, as `translation.keep` says of names of replicas.

One plugin offers replicas and whole devices of a node, so the whole node stays, and no driver gets its devices. Pods
with such a name keep it, and Kubernetes places them on these nodes alone, as before.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from findings.text import count_text, join_names, reference_text
from kube.api.core import Node
from kube.manifests.source import SourceObject
from kube.quantity import ZERO
from migration.cluster.device_pods import pod_of
from migration.cluster.evidence import list_at, mapping_at
from migration.cluster.owners import has_template
from migration.cluster.stopped import next_pods
from migration.cluster.workloads import Workload
from translation.reading.legacy_pod import containers

_SHOWN: Final = 5


class Remaining(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes and workloads that stay with their device plugin.

    Attributes:
        nodes: Node to the names of replicas that its plugin offers and that stay.
        workloads: `Kind/namespace/name` of a workload that requests such a name to its number of pods, without those below.
        claimed: The same to the number of its pods that have devices of a DeviceClass that maps the name, and no replica.
    """

    nodes: Mapping[str, tuple[str, ...]] = {}
    workloads: Mapping[str, int] = {}
    claimed: Mapping[str, int] = {}


def find_remaining(
    workloads: Iterable[Workload],
    nodes: Iterable[Node],
    names: Collection[str],
    doubled: Collection[str],
) -> Remaining:
    """Return the nodes and workloads that stay with their device plugin.

    Args:
        names: The names of replicas that stay.
        doubled: The nodes whose devices a DRA driver hands out, too, so that they cannot stay as they are.
    """
    if not names:
        return Remaining()
    claimed: dict[str, int] = {}
    served: dict[str, int] = {}
    for workload in workloads:
        if any(requests_any(source, names) for source in pods_or_template(workload)):
            reference = workload.key.reference
            number = sum(_has_device_for(source, names) for source in workload.pods)
            claimed |= {reference: number} if number else {}
            left = workload.pod_count - number
            served |= {reference: left} if left or not number else {}
    return Remaining(
        nodes={
            node.metadata.name: keys
            for node in sorted(nodes, key=lambda node: node.metadata.name)
            if node.metadata.name not in doubled and (keys := _offered(node, names))
        },
        workloads=served,
        claimed=claimed,
    )


def remaining_texts(remaining: Remaining) -> Iterator[str]:
    """Yield the texts on the workloads and the nodes that stay with their device plugin."""
    if remaining.workloads:
        verb = "keeps its" if len(remaining.workloads) == 1 else "keep their"
        yield f"{_with_pods(remaining.workloads)} {verb} keys of replicas, which the device plugin serves"
    if remaining.claimed:
        verb = "has" if sum(remaining.claimed.values()) == 1 else "have"
        yield (
            f"{_with_pods(remaining.claimed)} {verb} devices of a DeviceClass that maps such keys, and no replica: once no class "
            "maps them, the next pods in their place wait for a free replica"
        )
    if remaining.nodes:
        offers = ", ".join(sorted({key for keys in remaining.nodes.values() for key in keys}))
        is_one = len(remaining.nodes) == 1
        yield (
            f"{join_names(tuple(remaining.nodes), _SHOWN)} {'offers' if is_one else 'offer'} {offers} and "
            f"{'stays as it is' if is_one else 'stay as they are'}: no wave has {'it' if is_one else 'them'}"
        )


def _with_pods(workloads: Mapping[str, int]) -> str:
    """Return the names of workloads with the number of their pods in brackets."""
    names = [reference_text(name) for name in workloads]
    return f"{join_names(names, _SHOWN)} ({count_text(sum(workloads.values()), 'pod')})"


def _has_device_for(pod: SourceObject, names: Collection[str]) -> bool:
    """Return True if Kubernetes has made a claim for one of some resource names of a pod."""
    mappings = list_at(pod.document, "status", "extendedResourceClaimStatus", "requestMappings")
    return any(str(mapping_at(entry).get("resourceName")) in names for entry in mappings)


def _offered(node: Node, names: Collection[str]) -> tuple[str, ...]:
    amounts = node.status.allocatable or {}
    return tuple(sorted(key for key in names if amounts.get(key, ZERO) > ZERO))


def pods_or_template(workload: Workload) -> Iterator[SourceObject]:
    """Yield the pods of a workload, or the object with their template."""
    if workload.owner is not None and has_template(workload.owner):
        yield workload.owner
        return
    yield from workload.pods
    if workload.custom is not None and not workload.pods:
        yield from (entry.pod for entry in next_pods(workload.custom, workload.key.namespace))


def requests_any(source: SourceObject, names: Collection[str]) -> bool:
    """Return True if a pod, or the pod template of an object, requests one of some resource names."""
    pod = pod_of(source)
    return pod is not None and any(
        container.limits.get(name, ZERO) > ZERO
        for _, container in containers(pod)
        for name in names
    )


def requested_names(source: SourceObject) -> list[str]:
    """Return the resource names that a pod, or the pod template of an object, requests some of."""
    pod = pod_of(source)
    amounts = (container.limits for _, container in containers(pod)) if pod is not None else ()
    return sorted({name for own in amounts for name, amount in own.items() if amount > ZERO})
